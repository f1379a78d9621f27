//! `make bench`: what a container costs, ours beside the stock shim, on the same image and in turns,
//! so that a busy machine slows both alike. It prints ratios and judges nothing.

#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use tests::{Containerd, GLIBC, Node, Release, Run, product};

const ROUNDS: usize = 30;
const PODS: u32 = 20;
const STOCK: &str = "io.containerd.runc.v2";
const OURS: &str = "io.containerd.nvidia.v2";

fn main() {
    let node = Node::new(8);
    let containerd = Containerd::start(Release::Installed);
    containerd.import(&GLIBC);

    println!("{ROUNDS} rounds in turns, medians; the ratio is to the stock shim");
    runs(&containerd, &node);
    calls(&containerd);
    decision(&node);
    memory(&containerd);
    containerd.assert_clean();
}

/// `ctr run --rm`: of the stock shim, of ours without and with GPUs.
fn runs(containerd: &Containerd, node: &Node) {
    let container = |runtime| containerd.container(&GLIBC, "bench").runtime(runtime);
    let run = |container: Run<'_>| {
        timed(|| {
            container.run(&["true"]).ok();
        })
    };
    compare(&mut [
        ("run, stock", &mut || run(container(STOCK))),
        ("run, asks for nothing", &mut || run(container(OURS))),
        ("run, 8 GPUs", &mut || run(container(OURS).on(node).gpus("all"))),
    ]);
}

/// Calls that concern a running container.
fn calls(containerd: &Containerd) {
    for (id, runtime) in [("stock", STOCK), ("ours", OURS)] {
        containerd.container(&GLIBC, id).runtime(runtime).detach(&["sleep", "1000000"]);
    }
    let exec = |id| {
        timed(|| {
            containerd.exec(id, &["true"]).ok();
        })
    };
    compare(&mut [("exec, stock", &mut || exec("stock")), ("exec, ours", &mut || exec("ours"))]);
    // A signal that sleep does not mind.
    let kill = |id| {
        timed(|| {
            containerd.ctr(&["tasks", "kill", "--signal", "SIGCONT", id]).ok();
        })
    };
    compare(&mut [("kill, stock", &mut || kill("stock")), ("kill, ours", &mut || kill("ours"))]);
    let state = |id| {
        timed(|| {
            containerd.ctr(&["tasks", "metrics", id]).ok();
        })
    };
    compare(&mut [
        ("metrics, stock", &mut || state("stock")),
        ("metrics, ours", &mut || state("ours")),
    ]);
    for id in ["stock", "ours"] {
        containerd.remove(id);
    }
}

/// What deciding takes for 8 GPUs, as a process of its own, which the shim's worker is: host,
/// driver tree and spec are read and the edits made.
fn decision(node: &Node) {
    let spec = node.root().with_file_name("config.json");
    let text = r#"{"process": {"env": ["NVIDIA_VISIBLE_DEVICES=all"]}, "linux": {}}"#;
    fs::write(&spec, text).expect("config.json");
    let mut explain = Command::new(product().join("nvidia-shim"));
    explain.args(["explain", "--handler", "nvidia", "--output", "spec", "--spec"]).arg(&spec);
    explain.arg("--host-root").arg(node.root());
    let times = (0..ROUNDS).map(|_| {
        timed(|| {
            let output = explain.output().expect("nvidia-shim");
            assert!(output.status.success(), "{output:?}");
        })
    });
    println!("{:24}{:9.2} ms", "decide for 8 GPUs", milliseconds(median(times.collect())));
}

/// The memory of the relays alone, as each further pod adds to it.
fn memory(containerd: &Containerd) {
    let ids: Vec<String> = (0..PODS).map(|number| format!("pod{number}")).collect();
    let mut first = 0;
    for id in &ids {
        containerd.container(&GLIBC, id).runtime(OURS).detach(&["sleep", "1000000"]);
        if first == 0 {
            first = relays(containerd);
        }
    }
    let marginal = (relays(containerd) - first) / u64::from(PODS - 1);
    println!("{:24}{marginal:9} KiB (proportional set size, {PODS} pods)", "each further relay");
    for id in &ids {
        containerd.remove(id);
    }
}

/// The proportional set size of all relays of `containerd`, in KiB (proc(5), `smaps_rollup`).
fn relays(containerd: &Containerd) -> u64 {
    let socket = containerd.socket();
    let socket = socket.to_str().expect("a path");
    let processes = fs::read_dir("/proc").expect("/proc").flatten().map(|entry| entry.path());
    processes
        .filter(|process| {
            let line = fs::read(process.join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line);
            let program = line.split('\0').next().unwrap_or_default();
            program.ends_with("containerd-shim-nvidia-v2") && line.contains(socket)
        })
        .filter_map(|process| {
            let rollup = fs::read_to_string(process.join("smaps_rollup")).ok()?;
            let pss = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
            pss.trim().trim_end_matches(" kB").parse::<u64>().ok()
        })
        .sum()
}

type Measured<'a> = (&'a str, &'a mut dyn FnMut() -> Duration);

/// Times the candidates in turns; the first is what the others are compared with.
fn compare(candidates: &mut [Measured<'_>]) {
    let mut times = BTreeMap::<usize, Vec<Duration>>::new();
    for _ in 0..ROUNDS {
        for (place, (_, measure)) in candidates.iter_mut().enumerate() {
            times.entry(place).or_default().push(measure());
        }
    }
    let medians: Vec<Duration> = times.into_values().map(median).collect();
    for ((name, _), time) in candidates.iter().zip(&medians) {
        let ratio = time.as_secs_f64() / medians[0].as_secs_f64();
        println!("{name:24}{:9.2} ms  {ratio:5.2}", milliseconds(*time));
    }
}

fn timed(work: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    work();
    begin.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
