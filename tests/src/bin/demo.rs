//! `make demo`: a container that gets its GPUs, and what it sees of them.
//!
//! On a containerd of its own (own directories, socket and mount namespace) that is gone at the
//! end. The GPUs are this machine's if the NVIDIA driver is loaded, else simulated ones.

#![allow(clippy::print_stdout)]

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nvidia_shim::simulate::{Layout, Node};
use tests::{Containerd, Cuda, GLIBC, Output, Release, Run};

/// What runs in the container: each part of its answer follows a line of its own.
const SCRIPT: &str = "\
for part in 'ls -l /dev/nvidia* /dev/nvidia-caps /dev/dri' 'cat /proc/self/mountinfo' \
            'ldconfig -p' 'nvidia-smi -L' 'probe --cuda'; do
    echo \"== ${part%% *}\"; $part 2>&1
done";

fn main() -> Result<()> {
    let gpus = Gpus::of_this_machine()?;
    let containerd = Containerd::start(Release::Installed);
    containerd.import(&GLIBC);
    let (major, minor) = containerd.release().version();

    title("containerd-shim-nvidia");
    println!("GPUs         {}", gpus.words);
    println!("containerd   {major}.{minor}, a private one, shim io.containerd.nvidia.v2");
    println!("image        Debian's libc and busybox; nothing of NVIDIA's is in it");

    title("NVIDIA_VISIBLE_DEVICES=all");
    show(&gpus.container(&containerd, "all").run(&["sh", "-c", SCRIPT]).ok());

    title("NVIDIA_VISIBLE_DEVICES=0");
    let one = gpus.container(&containerd, "0").run(&["sh", "-c", SCRIPT]).ok();
    println!("{}", nodes(&one).join("  "));
    println!("{}", counted(&one));

    title("NVIDIA_VISIBLE_DEVICES=99");
    let refused = gpus.container(&containerd, "99").run(&["true"]);
    println!("{}", last_line(&refused));
    Ok(())
}

/// The GPUs that containers of the demo get.
struct Gpus {
    words: String,
    /// Of a simulated node: its directory and the settings that name it.
    simulated: Option<(tempfile::TempDir, PathBuf)>,
}

impl Gpus {
    fn of_this_machine() -> Result<Self> {
        if let Ok(version) = std::fs::read_to_string("/sys/module/nvidia/version") {
            let words = format!("this machine's, driver {}", version.trim());
            return Ok(Self { words, simulated: None });
        }
        let dir = tempfile::Builder::new().prefix("nvs-node-").tempdir()?;
        let node = Node::new(Layout::Debian, 2);
        node.write(&dir.path().join("node")).context("cannot simulate a node")?;
        let settings = dir.path().join("config.toml");
        let root = dir.path().join("node");
        std::fs::write(&settings, format!("[nvidia-shim]\nhost-root = {root:?}\n"))?;
        let words = format!("2 simulated ones, driver {}", node.driver_version);
        Ok(Self { words, simulated: Some((dir, settings)) })
    }

    /// A container that asks for `devices`.
    fn container<'a>(&self, containerd: &'a Containerd, devices: &str) -> Run<'a> {
        let run = containerd.container(&GLIBC, "demo").gpus(devices);
        match &self.simulated {
            Some((_, settings)) => {
                run.flag(format!("--runtime-config-path={}", settings.display()))
            }
            None => run,
        }
    }
}

/// Everything that the container saw.
fn show(seen: &str) {
    println!("device nodes\n    {}", nodes(seen).join("  "));

    let files = mounts(seen);
    println!("driver files, mounted read-only: {}", files.len());
    for directory in directories(&files) {
        println!("    {}/", directory.display());
        let inside = files.iter().filter(|file| file.parent() == Some(directory));
        for line in columns(inside.filter_map(|file| file.file_name()?.to_str())) {
            println!("        {line}");
        }
    }

    let cache = part(seen, "ldconfig").filter(|line| is_nvidia(line)).collect::<Vec<_>>();
    println!("the loader's cache (ldconfig -p) knows {} of them, such as", cache.len());
    for line in cache.iter().filter(|line| line.contains("libcuda") || line.contains("-ml.")) {
        println!("    {}", line.trim());
    }

    println!("nvidia-smi -L");
    part(seen, "nvidia-smi").for_each(|line| println!("    {line}"));
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

/// Names side by side, as many as a terminal line takes.
fn columns<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    const WIDTH: usize = 84;
    let mut lines: Vec<String> = Vec::new();
    for name in names {
        match lines.last_mut() {
            Some(line) if line.len() + 2 + name.len() <= WIDTH => {
                line.push_str("  ");
                line.push_str(name);
            }
            _ => lines.push(name.to_owned()),
        }
    }
    lines
}

/// What the program that loads libcuda says.
fn counted(seen: &str) -> String {
    let line: String = part(seen, "probe").collect();
    match serde_json::from_str::<tests::Sight>(&line).map(|sight| sight.cuda) {
        Ok(Some(Cuda::Loaded { init: 0, result: 0, count })) => {
            format!("a program that loads libcuda.so.1 counts {count} GPUs")
        }
        Ok(cuda) => format!("a program that loads libcuda.so.1 fails: {cuda:?}"),
        Err(_) => format!("the program that loads libcuda.so.1 says: {line}"),
    }
}

fn last_line(output: &Output) -> &str {
    output.stderr.lines().last().unwrap_or("(it started)")
}

fn title(text: &str) {
    println!("\n\x1b[1m{text}\x1b[0m");
}
