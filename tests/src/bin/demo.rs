//! `make demo`: a container that gets its GPUs, and what it sees of them.
//!
//! On a containerd of its own (own directories, socket and mount namespace) that is gone at the
//! end. The GPUs are this machine's if the NVIDIA driver is loaded, else simulated ones.

#![allow(clippy::print_stdout)]

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use tests::{Containerd, Cuda, GLIBC, Node, Release};

/// What runs in the container: each part of its answer follows a line of its own.
const SCRIPT: &str = "\
for part in 'ls -l /dev/nvidia* /dev/nvidia-caps /dev/dri' 'cat /proc/self/mountinfo' \
            'ldconfig -p' 'nvidia-smi -L' 'probe --cuda'; do
    echo \"== ${part%% *}\"; $part 2>&1
done";

fn main() {
    step("building the shims");
    tests::product();
    step("preparing GPUs, a private containerd and an image (Debian packages are fetched once)");
    let driver = fs::read_to_string("/sys/module/nvidia/version").ok();
    let node = driver.is_none().then(|| Node::new(2));
    let containerd = Containerd::start(Release::Installed);
    containerd.import(&GLIBC);
    let (major, minor) = containerd.release().version();

    title("A container and its GPUs");
    match driver {
        Some(version) => println!("GPUs        this machine's, driver {}", version.trim()),
        None => println!("GPUs        2 simulated ones"),
    }
    println!("containerd  {major}.{minor}, a private one");
    println!("image       Debian's libc and busybox; nothing of NVIDIA's is in it");

    let run = |devices| {
        title(&format!(
            "ctr run --runtime io.containerd.nvidia.v2 --env NVIDIA_VISIBLE_DEVICES={devices}"
        ));
        let run = containerd.container(&GLIBC, "demo").gpus(devices);
        let run = if let Some(node) = &node { run.on(node) } else { run };
        run.run(&["sh", "-c", SCRIPT])
    };
    show(&run("all").ok());
    let one = run("0").ok();
    list("device nodes", nodes(&one));
    println!("{}", counted(&one));
    let refused = run("99").refused();
    println!("{}", refused.lines().last().unwrap_or_default());

    containerd.assert_clean();
}

/// Everything that the container saw.
fn show(seen: &str) {
    list("device nodes", nodes(seen));

    let files = mounts(seen);
    println!("{} driver files, bind mounted", files.len());
    for directory in directories(&files) {
        let inside = files.iter().filter(|file| file.parent() == Some(directory));
        let names = inside.filter_map(|file| file.file_name()?.to_str()).map(str::to_owned);
        list(&format!("  {}/", directory.display()), names);
    }

    let cache: Vec<&str> = part(seen, "ldconfig").filter(|line| is_nvidia(line)).collect();
    println!("{} names of them in the loader's cache, such as", cache.len());
    for line in cache.iter().filter(|line| line.contains("libcuda")) {
        println!("  {}", line.trim());
    }
    list("nvidia-smi -L", part(seen, "nvidia-smi").map(str::to_owned));
    println!("{}", counted(seen));
}

/// The lines of one part of what the script said.
fn part<'a>(seen: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let title = format!("== {name}");
    let lines = seen.lines().skip_while(move |line| *line != title).skip(1);
    lines.take_while(|line| !line.starts_with("== "))
}

/// Device nodes as `name major:minor`.
fn nodes(seen: &str) -> Vec<String> {
    // crw-rw-rw- 1 0 0 195, 255 Jan 1 00:00 /dev/nvidiactl
    part(seen, "ls")
        .filter(|line| line.starts_with('c'))
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let numbers = format!("{}{}", words.get(4)?, words.get(5)?).replace(',', ":");
            Some(format!("{} ({numbers})", words.last()?.trim_start_matches("/dev/")))
        })
        .collect()
}

/// Regular files and sockets that were mounted into the container.
fn mounts(seen: &str) -> Vec<PathBuf> {
    let points = part(seen, "cat").filter_map(|line| line.split(' ').nth(4));
    let mut files: Vec<PathBuf> =
        points.filter(|point| is_nvidia(point)).map(PathBuf::from).collect();
    files.retain(|file| !file.starts_with("/dev") && !file.starts_with("/proc"));
    files.sort();
    files
}

fn is_nvidia(text: &str) -> bool {
    ["nvidia", "libcuda", "libnv", "libnvoptix"].iter().any(|name| text.contains(name))
}

fn directories(files: &[PathBuf]) -> Vec<&Path> {
    let mut directories: Vec<&Path> = files.iter().filter_map(|file| file.parent()).collect();
    directories.dedup();
    directories
}

/// A heading, and the items below it, as many side by side as a line takes.
fn list(heading: &str, items: impl IntoIterator<Item = String>) {
    const WIDTH: usize = 96;
    println!("{heading}");
    let mut line = String::new();
    for item in items {
        if !line.is_empty() && line.len() + item.len() > WIDTH {
            println!("    {line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push_str("  ");
        }
        line.push_str(&item);
    }
    println!("    {line}");
}

/// What the program that loads libcuda says.
fn counted(seen: &str) -> String {
    let line: String = part(seen, "probe").collect();
    match serde_json::from_str::<tests::Sight>(&line).map(|sight| sight.cuda) {
        Ok(Some(Cuda::Loaded { init: 0, result: 0, count })) => {
            let plural = if count == 1 { "" } else { "s" };
            format!("a program that loads libcuda.so.1 counts {count} GPU{plural}")
        }
        Ok(cuda) => format!("a program that loads libcuda.so.1 fails: {cuda:?}"),
        Err(_) => format!("the program that loads libcuda.so.1 says: {line}"),
    }
}

fn title(text: &str) {
    if std::io::stdout().is_terminal() {
        println!("\n\x1b[1m{text}\x1b[0m");
    } else {
        println!("\n{text}");
    }
}

#[expect(clippy::print_stderr, reason = "what goes on, for a person who waits")]
fn step(text: &str) {
    eprintln!("demo: {text}");
}
