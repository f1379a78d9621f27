//! `make bench`: what a container costs, ours beside the stock shim, on the same image. It prints
//! ratios and judges nothing.

#![allow(clippy::print_stdout)]

use std::fs;
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use tests::{Begun, Containerd, Events, GLIBC, Node, Release, Run, drivers};

use crate::table::{compare, line, timed, title};

mod cdi;
mod front;
mod generate;
mod inputs;
mod table;

const ROUNDS: usize = 30;
const PODS: u32 = 20;
const MOUNTS: u32 = 3_000;
const STOCK: &str = "io.containerd.runc.v2";
const OURS: &str = "io.containerd.nvidia.v2";
/// Limits, as they are printed.
const WORK: &str = "median 10 ms";
const NOISE: &str = "1, but for noise";
const SLEEP: [&str; 2] = ["sleep", "1000000"];

fn main() {
    // All of them, or those that are named: `cargo bench … -- front inputs`.
    let parts: [(&str, fn()); 6] = [
        ("shim", shim),
        ("driver", real_driver),
        ("front", front::measure),
        ("cdi", cdi::measure),
        ("generate", generate::measure),
        ("inputs", inputs::measure),
    ];
    let named: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    println!("{ROUNDS} rounds in turns; ratios are to the stock shim, of quarters and of medians");
    for (name, measure) in parts {
        if named.is_empty() || named.iter().any(|it| it == name) {
            measure();
        }
    }
}

/// The shim beside the stock one, from start to delete.
fn shim() {
    let node = Node::new(8);
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
            line(&format!("shim start, {name}"), "", &lives.start, Some(&stock.start));
            line(&format!("shim delete, {name}"), "", &lives.delete, Some(&stock.delete));
        }
        line("work inside Create, 8 GPUs", WORK, &gpus.workers, None);
        println!(
            "  processes of ours beside start, delete and relay: {} for nothing, {} for 8 GPUs  \
             (limit 0, 1)",
            nothing.workers.len() / ROUNDS,
            gpus.workers.len() / ROUNDS,
        );
        memory(&containerd);
        containerd.assert_clean();
    }
}

/// The work inside Create with Debian's driver, in turns.
fn real_driver() {
    drivers();
    title("work in Create, 8 GPUs, driver 550");
    let mut hosts = Vec::new();
    for mounts in [0, MOUNTS] {
        for (capabilities, setting) in [("default", "auto"), ("all", "all")] {
            let name = format!("{capabilities} capabilities, {mounts} mounts");
            hosts.push((name, with_a_real_driver(mounts, setting), Lives::default()));
        }
    }
    for _ in 0..ROUNDS {
        for (_, (containerd, node), lives) in &mut hosts {
            lives.round(containerd, OURS, Some(node));
        }
    }
    for (name, _, lives) in &hosts {
        line(name, WORK, &lives.workers, None);
    }
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
            ("ctr run, stock", "", &mut || run(container(STOCK))),
            ("ctr run, asks for nothing", "1.00", &mut || run(container(OURS))),
            ("ctr run, 8 GPUs", "1.10", &mut || run(container(OURS).on(node).gpus("all"))),
        ],
    );
}

/// Calls that concern a running container.
fn calls(containerd: &Containerd) {
    for (id, runtime) in [("stock", STOCK), ("ours", OURS)] {
        containerd.container(&GLIBC, id).runtime(runtime).detach(&SLEEP);
    }
    // ctr asks for the task's state before each. Sleep does not mind the signal.
    let kill = ["tasks", "kill", "--signal", "SIGCONT"];
    let calls: [(&str, &[&str], &[&str]); 3] = [
        ("state and kill", &kill, &[]),
        ("state and metrics", &["tasks", "metrics"], &[]),
        ("exec", &["tasks", "exec", "--exec-id", "e"], &["true"]),
    ];
    for (name, words, program) in calls {
        let call = |id| {
            timed(|| {
                containerd.ctr(&[words, &[id], program].concat()).ok();
            })
        };
        let (stock, ours) = (format!("ctr {name}, stock"), format!("ctr {name}, ours"));
        compare(
            ROUNDS,
            &mut [(&stock, "", &mut || call("stock")), (&ours, NOISE, &mut || call("ours"))],
        );
    }
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
    println!(
        "  memory of each further relay, {PODS} pods: {marginal} KiB (proportional set size; \
         limit 400)"
    );
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

/// A node with a real driver and so many mounts more, where `driver-capabilities` is so.
fn with_a_real_driver(mounts: u32, capabilities: &str) -> (Containerd, Node) {
    let node = Node::new(8);
    let settings = format!("driver-root = '/real-driver'\ndriver-capabilities = '{capabilities}'");
    node.configure("", &settings);
    let root = node.root().join("real-driver");
    fs::create_dir(&root).expect("mkdir");
    let containerd = Containerd::start(Release::Installed);
    containerd.import(&GLIBC);
    let none: Option<&str> = None;
    containerd.settled(|| {
        let tree = drivers().join("550/root");
        mount(Some(&tree), &root, none, MsFlags::MS_BIND, none).expect("mount");
        for number in 0..mounts {
            let place = containerd.path(&format!("mounts/{number}"));
            fs::create_dir_all(&place).expect("mkdir");
            mount(Some("tmpfs"), &place, Some("tmpfs"), MsFlags::empty(), none).expect("mount");
        }
    });
    (containerd, node)
}
