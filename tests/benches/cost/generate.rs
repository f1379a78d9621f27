//! What `nvidia-shim cdi generate` costs on Debian's driver 550, beside the start of the program.

use std::fs;
use std::process::Command;

use nix::mount::{MsFlags, mount};
use tests::{Containerd, Node, Release, drivers, product};

use crate::ROUNDS;
use crate::table::{compare, timed, title};

const GPUS: u32 = 8;
const DRIVER: &str = "/real-driver";
/// Of NVIDIA's own program on another machine: compare what is above the start of either program.
const PEER: &str = "nvidia-ctk 1.20, elsewhere: median 60 ms (least 43), its start 8.7 (5)";

pub(crate) fn measure() {
    title("cdi generate, 8 GPUs, driver 550");
    let node = Node::new(GPUS);
    let root = node.root().join(DRIVER.trim_start_matches('/'));
    fs::create_dir(&root).expect("mkdir");
    // For its mount namespace.
    let containerd = Containerd::start(Release::Installed);
    containerd.settled(|| {
        let none: Option<&str> = None;
        let tree = drivers().join("550/root");
        mount(Some(&tree), &root, none, MsFlags::MS_BIND, none).expect("mount");
    });
    let run = |words: &[&str]| {
        let mut command = Command::new(product().join("nvidia-shim"));
        command.args(words);
        timed(|| {
            containerd.output(&mut command).ok();
        })
    };
    let host = node.root().display().to_string();
    let generate = ["cdi", "generate", "--host-root", &host, "--driver-root", DRIVER];
    compare(
        ROUNDS,
        &mut [
            ("start of the program", "", &mut || run(&["--version"])),
            ("cdi generate", "median 15 ms", &mut || run(&generate)),
        ],
    );
    println!("  {PEER}");
}
