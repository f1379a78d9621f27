//! The worker: a short child of the relay, this very program again, in which everything that is
//! hostile or slow is looked at. Whatever becomes of it is an answer to one Create and no more.
//!
//! Here is the relay's side: one job in, one answer out, a deadline. [`child`] is the other side.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use nvidia_oci::{Code, Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

mod child;
#[cfg(test)]
mod hang;
mod job;

pub(crate) use child::run;
pub(crate) use job::{Answer, Job, Mount};

const STACK: usize = 64 << 10;
/// More than a rootfs of 500 layers and a page of warnings need.
const ANSWER_LIMIT: u64 = 1 << 20;
/// How long a killed one may take to end.
const AFTER_KILL: Duration = Duration::from_millis(500);
/// Of its last words, what a person reads.
const WORDS_LIMIT: u64 = 1 << 10;

/// Starts workers.
pub(crate) struct Worker {
    command: Box<dyn Fn() -> Command + Send + Sync>,
}

impl Worker {
    /// `command` is the program to run, without environment and streams.
    pub(crate) fn new(command: impl Fn() -> Command + Send + Sync + 'static) -> Self {
        Self { command: Box::new(command) }
    }

    /// Has `job` done.
    ///
    /// # Errors
    /// [`Code::WorkerTimeout`] if it takes longer than `deadline` (it is killed then),
    /// [`Code::WorkerCrashed`] if it ends without an answer. A refusal is no error but an answer.
    pub(crate) fn run(&self, job: &Job, deadline: Duration) -> Result<Answer> {
        let crashed = |error: io::Error| {
            Error::caused(Code::WorkerCrashed, format!("preparing container {}", job.id), error)
        };
        match self.work(job, deadline).map_err(crashed)? {
            Some(End { status, answer, words }) => {
                answer.filter(|_| status.success()).ok_or_else(|| {
                    let mut what = format!("preparing container {}: {}", job.id, said(status));
                    if !words.is_empty() {
                        what = format!("{what}: {words}");
                    }
                    Error::new(Code::WorkerCrashed, what)
                })
            }
            None => {
                let what = format!("preparing container {} took longer than {deadline:?}", job.id);
                Err(Error::new(Code::WorkerTimeout, what))
            }
        }
    }

    /// `None` when it had to be killed.
    fn work(&self, job: &Job, deadline: Duration) -> io::Result<Option<End>> {
        // Files in memory rather than pipes: nobody ever waits for the other to read.
        let mut stdin = memory("job")?;
        stdin.write_all(&serde_json::to_vec(job)?)?;
        stdin.rewind()?;
        let (stdout, stderr) = (memory("answer")?, memory("words")?);
        let mut child = (self.command)()
            .env_clear()
            .stdin(stdin)
            .stdout(stdout.try_clone()?)
            .stderr(stderr.try_clone()?)
            .process_group(0)
            .spawn()?;
        let in_time = ended_in_time(&child, deadline);
        // Not reaped yet, so that the group's number is still its own; what it has started ends
        // with it.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        if !ended_in_time(&child, AFTER_KILL).unwrap_or(false) {
            // The kernel holds it, as in a file system whose server does not answer.
            reap_later(child)?;
            return Ok(None);
        }
        let status = child.wait()?;
        if !in_time? {
            return Ok(None);
        }
        let answer = contents(stdout, ANSWER_LIMIT)?;
        let words = String::from_utf8_lossy(&contents(stderr, WORDS_LIMIT)?).trim().to_owned();
        Ok(Some(End { status, answer: serde_json::from_slice(&answer).ok(), words }))
    }
}

/// How a worker ended.
struct End {
    status: ExitStatus,
    answer: Option<Answer>,
    words: String,
}

fn said(status: ExitStatus) -> String {
    match (status.signal(), status.success()) {
        (Some(signal), _) => format!("the worker was killed by signal {signal}"),
        (None, true) => "the worker's answer cannot be read".to_owned(),
        (None, false) => format!("the worker failed, {status}"),
    }
}

/// Waits for `child` to end, without reaping it.
fn ended_in_time(child: &Child, deadline: Duration) -> io::Result<bool> {
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let end = Instant::now() + deadline;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&left)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A child that was killed is waited for by a thread of its own, however long it takes.
fn reap_later(mut child: Child) -> io::Result<()> {
    let wait = move || match child.wait() {
        Ok(status) => log::warn!("a worker that was killed has ended at last, {status}"),
        Err(error) => log::warn!("waiting for a worker that was killed: {error}"),
    };
    thread::Builder::new().name("reaper".into()).stack_size(STACK).spawn(wait).map(drop)
}

fn memory(name: &str) -> io::Result<File> {
    Ok(File::from(memfd_create(name, MemfdFlags::CLOEXEC)?))
}

fn contents(mut file: File, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker that is a shell script.
    fn script(script: &'static str) -> Worker {
        Worker::new(move || {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script]);
            command
        })
    }

    fn run(script_text: &'static str) -> Result<Answer> {
        script(script_text).run(&Job::default(), Duration::from_secs(60))
    }

    fn code(result: Result<Answer>) -> (Code, String) {
        let error = result.unwrap_err();
        (error.code(), error.to_string())
    }

    #[test]
    fn an_answer_comes_back() {
        let answer = run(r#"echo '{"refused":{"message":"no"}}'"#).unwrap();
        assert_eq!(answer, Answer::Refused { message: "no".to_owned() });
    }

    #[test]
    fn the_job_is_its_standard_input_and_the_environment_is_empty() {
        let answer = run(r#"environment=$(tr '\0' '\n' < /proc/$$/environ); job=$(cat)
            case "$environment$job" in
                '{"id":'*'"bundle":""'*) echo '{"refused":{"message":"yes"}}';;
            esac"#);
        assert_eq!(answer.unwrap(), Answer::Refused { message: "yes".to_owned() });
    }

    #[test]
    fn a_hanging_worker_is_killed_with_all_that_it_started() {
        let hang = script("sleep 1000 & sleep 1000");
        let (code, text) = code(hang.run(&Job::default(), Duration::from_millis(50)));
        assert_eq!(code, Code::WorkerTimeout);
        assert!(text.contains("took longer than 50ms"), "{text}");
    }

    #[test]
    fn a_crash_is_told_with_signal_status_and_last_words() {
        let (crashed, text) = code(run("echo dying >&2; kill -SEGV $$"));
        assert_eq!(crashed, Code::WorkerCrashed);
        assert!(text.contains("killed by signal 11: dying"), "{text}");
        let (_, text) = code(run("exit 101"));
        assert!(text.contains("exit status: 101"), "{text}");
        let (_, text) = code(run("echo nonsense"));
        assert!(text.contains("answer cannot be read"), "{text}");
    }

    #[test]
    fn an_answer_counts_only_with_a_good_end() {
        let (crashed, _) = code(run(r#"echo '{"refused":{"message":"no"}}'; exit 1"#));
        assert_eq!(crashed, Code::WorkerCrashed);
    }

    #[test]
    fn an_oversized_answer_is_a_crash() {
        let (crashed, text) = code(run("head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2"));
        assert_eq!(crashed, Code::WorkerCrashed);
        assert!(text.len() < 3000, "{}", text.len());
    }

    #[test]
    fn a_program_that_cannot_be_started_is_a_crash() {
        let worker = Worker::new(|| Command::new("/nonexistent"));
        let (crashed, text) = code(worker.run(&Job::default(), Duration::from_secs(1)));
        assert_eq!(crashed, Code::WorkerCrashed);
        assert!(text.contains("No such file"), "{text}");
    }
}
