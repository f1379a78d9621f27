//! This program as a whole: which verb is carried out, and how it calls itself.

use std::ffi::{CString, OsStr, OsString};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context;
use nvidia_oci::Handler;

use crate::args::{Args, UsageError, Verb};
use crate::{delete, front, info, inherit, log, relay, start, worker};

const USAGE: &str = "  \
  -namespace NAME -address SOCKET -publish-binary FILE -id ID [-debug] start
  -namespace NAME -address SOCKET -publish-binary FILE -id ID [-debug] [-bundle DIR] delete
  -info
        the features of the runtime, for containerd; options on standard input
  -v    the versions of this shim and of the stock shim behind it
  -h    this text";

const SHIM: &str = "containerd-shim-nvidia-v2";
/// Alone or with `.cdi`, `.legacy` or `-experimental` behind it, as NVIDIA calls them.
const FRONT: &str = "nvidia-container-runtime";

/// The name that this program was called by; it tells the handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    name: String,
}

impl Program {
    /// The program of `argv[0]`.
    fn called(argv0: &OsStr) -> Self {
        let name = Path::new(argv0).file_name().and_then(OsStr::to_str);
        Self { name: name.unwrap_or(SHIM).to_owned() }
    }

    /// The shim, which alone knows verbs of our own.
    pub(crate) fn shim() -> Self {
        Self { name: SHIM.to_owned() }
    }

    /// Whether we are called in place of runc; NVIDIA's `-hook` is another thing.
    fn is_front(&self) -> bool {
        self.name.strip_prefix(FRONT).is_some_and(|rest| !rest.starts_with("-hook"))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn handler(&self) -> Handler {
        Handler::of_program(&self.name)
    }

    /// This very program, even if its file was replaced since, under the same name: the first
    /// word is `verb`.
    pub(crate) fn again(&self, verb: &str) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.arg0(&self.name).arg(verb);
        command
    }
}

/// Carries out what the command line asks for.
pub fn main() -> ExitCode {
    let mut line = std::env::args_os();
    let program = Program::called(&line.next().unwrap_or_default());
    let line: Vec<OsString> = line.collect();
    if program.is_front() {
        return front::run(&program, &line);
    }
    let mut words: Vec<String> = Vec::new();
    for word in line {
        match word.into_string() {
            Ok(word) => words.push(word),
            Err(word) => return fail(&not_text(&word), 2),
        }
    }
    let args = match Args::parse(&words) {
        Ok(args) => args,
        Err(error) => return usage(&program, Some(&error)),
    };
    let done = match args.verb {
        Verb::Help => return usage(&program, None),
        Verb::Start => logging(&program, &args).and_then(|_| start::run(&program, &args)),
        Verb::Delete => logging(&program, &args).and_then(|bundle| delete::run(&args, &bundle)),
        Verb::Info => return answered(info::info()),
        Verb::Version => return answered(info::version(&program)),
        Verb::Relay => return answered(as_relay(&program, &args)),
        Verb::Worker => return answered(as_worker(&program, &args)),
    };
    answered(done.map(|()| ExitCode::SUCCESS))
}

/// Installs the log of the bundle that we are called for, and names the bundle.
fn logging(program: &Program, args: &Args) -> anyhow::Result<PathBuf> {
    let bundle = if args.bundle.as_os_str().is_empty() {
        std::env::current_dir().context("working directory")?
    } else {
        args.bundle.clone()
    };
    let fields = [("shim", program.name()), ("namespace", &args.namespace), ("id", &args.id)];
    log::init(&bundle, args.debug, &fields);
    Ok(bundle)
}

fn as_relay(program: &Program, args: &Args) -> anyhow::Result<ExitCode> {
    logging(program, args)?;
    log::panics();
    outlive_signals()?;
    // Else it would be called `exe`, as the link is that it was started by.
    if let Ok(name) = CString::new(program.name()) {
        nix::sys::prctl::set_name(&name)?;
    }
    Ok(relay::run(program, args, inherit::take(args)?))
}

/// The relay ends when the inner shim does and never before: signals that ask a process to end are
/// for that one. Children get an empty mask from the standard library.
fn outlive_signals() -> nix::Result<()> {
    use nix::sys::signal::{SigSet, Signal};
    let signals =
        [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGUSR1]
            .into_iter()
            .chain([Signal::SIGUSR2, Signal::SIGALRM]);
    signals.collect::<SigSet>().thread_block()
}

fn as_worker(program: &Program, args: &Args) -> anyhow::Result<ExitCode> {
    logging(program, args)?;
    log::panics();
    Ok(worker::run(program))
}

fn answered(result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| fail(&format!("{error:#}"), 1))
}

fn not_text(word: &OsString) -> String {
    format!("argument {word:?} is not UTF-8")
}

/// Says on standard error, which containerd puts in front of a person, why there is no answer.
fn fail(why: &str, status: u8) -> ExitCode {
    // Nobody is left to tell if even this fails.
    let _ = writeln!(std::io::stderr(), "{why}");
    ExitCode::from(status)
}

fn usage(program: &Program, error: Option<&UsageError>) -> ExitCode {
    let mistake = error.map(|error| format!("{error}\n")).unwrap_or_default();
    let text = format!("{mistake}Usage of {}:\n{USAGE}", program.name());
    fail(&text, if error.is_some() { 2 } else { 0 })
}
