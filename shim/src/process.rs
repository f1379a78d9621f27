//! Processes by pid and start time, so that a pid that the kernel gave to another one since is
//! never mistaken for it.

use std::{fs, io};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// How long a killed process may take to go.
const DEATH: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// A process that was there once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pid: u32,
    /// Clock ticks since boot, field 22 of `/proc/PID/stat`.
    start_time: u64,
}

impl Process {
    /// The living process `pid`.
    ///
    /// # Errors
    /// `NotFound` if there is none; zombies do not count.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        match start_time(&stat) {
            Some(start_time) => Ok(Self { pid, start_time }),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(crate) fn is_alive(self) -> bool {
        Self::of(self.pid).is_ok_and(|found| found == self)
    }

    /// Kills it and waits until it is gone; no harm if it is gone already.
    ///
    /// # Errors
    /// Those of the system, or that it is still there after two seconds.
    pub(crate) fn kill(self) -> io::Result<()> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return Ok(());
        };
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        // Looked at with the descriptor in hand: from here on the pid cannot become another's.
        if !self.is_alive() {
            return Ok(());
        }
        match pidfd_send_signal(&pidfd, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ended = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&DEATH))?;
        if ended == 0 {
            let message = format!("process {} does not end after SIGKILL", self.pid);
            return Err(io::Error::other(message));
        }
        Ok(())
    }
}

/// Start time of a line of `/proc/PID/stat`, unless the process is dead. The name in parentheses
/// may hold anything, parentheses and spaces too.
fn start_time(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace();
    let state = fields.next()?;
    // State is field 3, start time field 22.
    let start_time = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X" | "x")).then_some(start_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_process_may_hold_anything() {
        let rest = "1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        assert_eq!(start_time(&format!("7 (a) b) (c) S {rest}")), Some(4711));
        assert_eq!(start_time(&format!("7 (dead) Z {rest}")), None);
        assert_eq!(start_time("7 (cut) S 1 2"), None);
        assert_eq!(start_time(""), None);
    }

    #[test]
    fn a_process_is_known_by_pid_and_start() {
        let own = Process::of(std::process::id()).unwrap();
        assert!(own.is_alive());
        let other = Process { start_time: own.start_time + 1, ..own };
        assert!(!other.is_alive());
        // Were it killed, this test would not end well.
        other.kill().unwrap();
    }

    #[test]
    fn killing_ends_the_process() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        process.kill().unwrap();
        assert!(!process.is_alive());
        process.kill().unwrap();
        assert!(!child.wait().unwrap().success());
    }
}
