//! Processes by pid and start time, so that a pid that the kernel gave to another one since is
//! never mistaken for it.

use std::os::fd::OwnedFd;
use std::time::Duration;
use std::{fs, io};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// How long a killed process may take to go.
const DEATH: Duration = Duration::from_secs(2);

/// A process that was there once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pid: u32,
    /// Clock ticks since boot, field 22 of `/proc/PID/stat`.
    start_time: u64,
}

impl Process {
    /// The process that has `pid` now.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        match start_time(&stat) {
            Some(start_time) => Ok(Self { pid, start_time }),
            None => Err(io::Error::other(format!("/proc/{pid}/stat has no start time"))),
        }
    }

    /// Whether it has ended, all threads of it, or does within `limit`.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn has_ended(self, limit: Duration) -> io::Result<bool> {
        self.open()?.map_or(Ok(true), |pidfd| wait(&pidfd, limit))
    }

    /// Whether it has ended or has begun to: a process closes its files before it is gone, and on a
    /// busy machine much earlier.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn is_ending(self) -> io::Result<bool> {
        if self.open()?.is_none() {
            return Ok(true);
        }
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid));
        Ok(stat.map_or(true, |stat| exits(&stat)))
    }

    /// Kills it and waits until it is gone; no harm if it is gone already.
    ///
    /// # Errors
    /// Those of the system, or that it is still there after two seconds.
    pub(crate) fn kill(self) -> io::Result<()> {
        let Some(pidfd) = self.open()? else { return Ok(()) };
        match pidfd_send_signal(&pidfd, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(errno) => return Err(errno.into()),
        }
        if wait(&pidfd, DEATH)? {
            return Ok(());
        }
        let message = format!("process {} does not end after SIGKILL", self.pid);
        Err(io::Error::other(message))
    }

    /// A descriptor of the process, none if it is gone.
    fn open(self) -> io::Result<Option<OwnedFd>> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return Ok(None);
        };
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(Errno::SRCH) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        // Looked at with the descriptor in hand: from here on the pid cannot become another's.
        Ok(Self::of(self.pid).is_ok_and(|found| found == self).then_some(pidfd))
    }
}

/// Whether the process ends within `limit`.
fn wait(pidfd: &OwnedFd, limit: Duration) -> io::Result<bool> {
    let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
    Ok(poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&limit))? > 0)
}

/// Whether a line of `/proc/PID/stat` is of a process that exits: its flags are field 9
/// (`PF_EXITING`), a zombie has the flag too.
fn exits(stat: &str) -> bool {
    const PF_EXITING: u32 = 0x4;
    let flags = stat.rsplit_once(')').and_then(|(_, after_name)| {
        after_name.split_ascii_whitespace().nth(6)?.parse::<u32>().ok()
    });
    flags.is_some_and(|flags| flags & PF_EXITING != 0)
}

/// Start time of a line of `/proc/PID/stat`. The name in parentheses may hold anything,
/// parentheses and spaces too.
fn start_time(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    // What follows the name is field 3.
    after_name.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_process_may_hold_anything() {
        let rest = "1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        assert_eq!(start_time(&format!("7 (a) b) (c) S {rest}")), Some(4711));
        assert_eq!(start_time("7 (cut) S 1 2"), None);
        assert_eq!(start_time(""), None);
    }

    #[test]
    fn a_process_is_known_by_pid_and_start() {
        let own = Process::of(std::process::id()).unwrap();
        assert!(!own.has_ended(Duration::ZERO).unwrap());
        let other = Process { start_time: own.start_time + 1, ..own };
        assert!(other.has_ended(Duration::ZERO).unwrap());
        // Were it killed, this test would not end well.
        other.kill().unwrap();
    }

    #[test]
    fn a_process_that_was_not_reaped_yet_is_ending() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        assert!(!process.is_ending().unwrap());
        child.kill().unwrap();
        assert!(process.has_ended(DEATH).unwrap() && process.is_ending().unwrap());
        child.wait().unwrap();
        assert!(process.is_ending().unwrap());
    }

    #[test]
    fn killing_ends_the_process() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        process.kill().unwrap();
        // A zombie has ended, too.
        assert!(process.has_ended(Duration::ZERO).unwrap());
        process.kill().unwrap();
        assert!(!child.wait().unwrap().success());
    }
}
