//! A worker that looks at a file system whose server does not answer: not even SIGKILL ends it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nvidia_oci::Code;

use super::{Job, Worker};

const INIT: u32 = 26;

/// Mounts a FUSE file system at `dir` of the calling thread, in a mount namespace of its own. Its
/// server takes requests and answers none but the first. The last handle of it, which comes once a
/// request was taken, ends it.
fn mount_mute(dir: &Path) -> Receiver<File> {
    let nothing = None::<&str>;
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing).unwrap();
    let mut fuse = File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", fuse.as_raw_fd());
    mount(Some("mute"), dir, Some("fuse"), MsFlags::empty(), Some(options.as_str())).unwrap();
    let (sender, receiver) = channel();
    thread::spawn(move || {
        // `struct fuse_in_header`: length, opcode, number of the request.
        let mut request = vec![0; 128 << 10];
        assert!(fuse.read(&mut request).unwrap() >= 40);
        assert_eq!(u32::from_ne_bytes(request[4..8].try_into().unwrap()), INIT);
        // `struct fuse_out_header`, then `struct fuse_init_out`: version 7.31, and how much is
        // written at once.
        let mut answer = [80_u32.to_ne_bytes(), 0_u32.to_ne_bytes()].concat();
        answer.extend(&request[8..16]);
        for field in [7_u32, 31, 0, 0, 0, 4096] {
            answer.extend(field.to_ne_bytes());
        }
        answer.resize(80, 0);
        fuse.write_all(&answer).unwrap();
        assert!(fuse.read(&mut request).unwrap() >= 40);
        sender.send(fuse).unwrap();
    });
    receiver
}

#[test]
fn a_worker_that_cannot_be_killed_does_not_hold_the_relay() {
    let dir = tempfile::tempdir().unwrap();
    let scene = || {
        let server = mount_mute(dir.path());
        let (program, path) = ("cat", dir.path().join("file"));
        let worker = Worker::new(move || {
            let mut command = Command::new(program);
            command.arg(&path);
            command
        });
        let error = worker.run(&Job::default(), Duration::from_millis(300)).unwrap_err();
        assert_eq!(error.code(), Code::WorkerTimeout);
        drop(server.recv().unwrap());
        umount2(dir.path(), MntFlags::MNT_DETACH).unwrap();
    };
    thread::scope(|scope| scope.spawn(scene).join().unwrap());
}
