//! `make bench`: what a container costs, ours beside the stock shim, on the same image. It prints
//! ratios and judges nothing.

#![allow(clippy::print_stdout)]

use std::fs;
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use tests::{Begun, Containerd, Events, GLIBC, Node, Release, Run};

use crate::table::{compare, line, timed, title};

mod front;
mod table;

const ROUNDS: usize = 30;
const PODS: u32 = 20;
const MOUNTS: u32 = 3_000;
const STOCK: &str = "io.containerd.runc.v2";
const OURS: &str = "io.containerd.nvidia.v2";
const SLEEP: [&str; 2] = ["sleep", "1000000"];

fn main() {
    let node = Node::new(8);
    println!("{ROUNDS} rounds in turns; ratios are to the stock shim, of quarters and of medians");
    for release in [Release::Installed, Release::V2_1] {
        let containerd = Containerd::start(release);
        containerd.import(&GLIBC);
        let (major, minor) = release.version();
        title(&format!("containerd {major}.{minor}"));
        runs(&containerd, &node);
        calls(&containerd);
        let [mut stock, mut nothing, mut gpus] = <[Lives; 3]>::default();
        for _ in 0..ROUNDS {
            stock.round(&containerd, STOCK, None);
            nothing.round(&containerd, OURS, None);
            gpus.round(&containerd, OURS, Some(&node));
        }
        for (name, lives) in [("stock", &stock), ("asks for nothing", &nothing), ("8 GPUs", &gpus)]
        {
            line(&format!("shim start, {name}"), &lives.start, Some(&stock.start));
            line(&format!("shim delete, {name}"), &lives.delete, Some(&stock.delete));
        }
        line("work inside Create, 8 GPUs", &gpus.workers, None);
        println!(
            "  processes of ours beside start, delete and relay: {} for nothing, {} for 8 GPUs",
            nothing.workers.len() / ROUNDS,
            gpus.workers.len() / ROUNDS,
        );
        memory(&containerd);
        containerd.assert_clean();
    }
    front::measure(&node);
    title("the work inside Create elsewhere");
    with_many_mounts(&node);
    with_a_real_driver();
}

/// `ctr run --rm`: of the stock shim, of ours without and with GPUs.
fn runs(containerd: &Containerd, node: &Node) {
    let container = |runtime| containerd.container(&GLIBC, "bench").runtime(runtime);
    let run = |container: Run<'_>| {
        timed(|| {
            container.run(&["true"]).ok();
        })
    };
    compare(
        ROUNDS,
        &mut [
            ("ctr run, stock", &mut || run(container(STOCK))),
            ("ctr run, asks for nothing", &mut || run(container(OURS))),
            ("ctr run, 8 GPUs", &mut || run(container(OURS).on(node).gpus("all"))),
        ],
    );
}

/// Calls that concern a running container.
fn calls(containerd: &Containerd) {
    for (id, runtime) in [("stock", STOCK), ("ours", OURS)] {
        containerd.container(&GLIBC, id).runtime(runtime).detach(&SLEEP);
    }
    // A signal that sleep does not mind.
    let kill = ["tasks", "kill", "--signal", "SIGCONT"];
    for (name, words) in [("kill", &kill[..]), ("metrics", &["tasks", "metrics"])] {
        let call = |id| {
            timed(|| {
                containerd.ctr(&[words, &[id]].concat()).ok();
            })
        };
        let (stock, ours) = (format!("ctr {name}, stock"), format!("ctr {name}, ours"));
        compare(ROUNDS, &mut [(&stock, &mut || call("stock")), (&ours, &mut || call("ours"))]);
    }
    let exec = |id| {
        timed(|| {
            containerd.exec(id, &["true"]).ok();
        })
    };
    compare(
        ROUNDS,
        &mut [("ctr exec, stock", &mut || exec("stock")), ("ctr exec, ours", &mut || exec("ours"))],
    );
    for id in ["stock", "ours"] {
        containerd.remove(id);
    }
}

/// How long the programs of a shim lived, one entry a container.
#[derive(Default)]
struct Lives {
    start: Vec<Duration>,
    delete: Vec<Duration>,
    /// Children of the relay other than the inner shim: from fork to end.
    workers: Vec<Duration>,
}

impl Lives {
    /// A container that starts, and is killed and removed.
    fn round(&mut self, containerd: &Containerd, runtime: &str, node: Option<&Node>) {
        let mut run = containerd.container(&GLIBC, "bench").runtime(runtime);
        if let Some(node) = node {
            run = run.on(node).gpus("all");
        }
        let events = Events::watch();
        run.detach(&SLEEP);
        let relay = containerd.processes("containerd-shim-nvidia-v2").first().copied();
        let inner = containerd.processes("containerd-shim-runc-v2").first().copied();
        containerd.remove("bench");
        containerd.assert_clean();
        self.add(&events.below(containerd.pid()), containerd.pid(), relay, inner);
    }

    /// The workers of containers with 8 GPUs.
    fn workers(containerd: &Containerd, node: &Node) -> Vec<Duration> {
        let mut lives = Self::default();
        for _ in 0..ROUNDS {
            lives.round(containerd, OURS, Some(node));
        }
        lives.workers
    }

    fn add(&mut self, begun: &[Begun], daemon: i32, relay: Option<i32>, inner: Option<i32>) {
        let called: Vec<_> = begun.iter().filter(|process| process.parent == daemon).collect();
        self.start.extend(called.first().and_then(|process| process.life));
        self.delete.extend(called.last().and_then(|process| process.life));
        let workers = begun.iter().filter(|process| Some(process.parent) == relay);
        let workers = workers.filter(|process| Some(process.pid) != inner);
        self.workers.extend(workers.filter_map(|process| process.life));
    }
}

/// The memory of the relays alone, as each further pod adds to it.
fn memory(containerd: &Containerd) {
    let ids: Vec<String> = (0..PODS).map(|number| format!("pod{number}")).collect();
    let mut first = 0;
    for id in &ids {
        containerd.container(&GLIBC, id).runtime(OURS).detach(&SLEEP);
        if first == 0 {
            first = relays(containerd);
        }
    }
    let marginal = (relays(containerd) - first) / u64::from(PODS - 1);
    println!("  memory of each further relay, {PODS} pods: {marginal} KiB (proportional set size)");
    for id in &ids {
        containerd.remove(id);
    }
}

/// The proportional set size of all relays of `containerd`, in KiB (proc(5), `smaps_rollup`).
fn relays(containerd: &Containerd) -> u64 {
    let relays = containerd.processes("containerd-shim-nvidia-v2").into_iter();
    relays
        .filter_map(|pid| {
            let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
            let pss = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
            pss.trim().trim_end_matches(" kB").parse::<u64>().ok()
        })
        .sum()
}

fn with_many_mounts(node: &Node) {
    let containerd = Containerd::start(Release::Installed);
    containerd.import(&GLIBC);
    containerd.settled(|| {
        let none: Option<&str> = None;
        for number in 0..MOUNTS {
            let place = containerd.path(&format!("mounts/{number}"));
            fs::create_dir_all(&place).expect("mkdir");
            mount(Some("tmpfs"), &place, Some("tmpfs"), MsFlags::empty(), none).expect("mount");
        }
    });
    let times = Lives::workers(&containerd, node);
    line(&format!("8 GPUs, {MOUNTS} mounts on the node"), &times, None);
}

/// Debian's driver, if `make test-drivers` has brought it.
fn with_a_real_driver() {
    const VERSION: &str = "550";
    let tree = tests::scratch().with_file_name("drivers").join(VERSION).join("root");
    if !tree.is_dir() {
        println!("  Debian's driver {VERSION} is not here; make test-drivers brings it");
        return;
    }
    let node = Node::new(8);
    node.configure("", "driver-root = '/real-driver'");
    let root = node.root().join("real-driver");
    fs::create_dir(&root).expect("mkdir");
    let containerd = Containerd::start(Release::Installed);
    containerd.import(&GLIBC);
    let none: Option<&str> = None;
    containerd.settled(|| {
        mount(Some(&tree), &root, none, MsFlags::MS_BIND, none).expect("mount");
    });
    let times = Lives::workers(&containerd, &node);
    line(&format!("8 GPUs, Debian's driver {VERSION}"), &times, None);
}
