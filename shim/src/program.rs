//! This program as a whole: which verb is carried out, and how it calls itself.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use nvidia_oci::Handler;

use crate::args::{Args, UsageError, Verb};
use crate::{relay, start, worker};

/// The name that this program was called by; it tells the handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    name: String,
}

impl Program {
    /// The program of `argv[0]`.
    fn called(argv0: &str) -> Self {
        let name = Path::new(argv0).file_name().and_then(|name| name.to_str());
        Self { name: name.unwrap_or("containerd-shim-nvidia-v2").to_owned() }
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
    let mut words: Vec<String> = Vec::new();
    for word in std::env::args_os() {
        match word.into_string() {
            Ok(word) => words.push(word),
            Err(word) => return fail(&not_text(&word), 2),
        }
    }
    let (argv0, words) = words.split_first().map_or(("", &[][..]), |(first, rest)| (first, rest));
    let program = Program::called(argv0);
    let args = match Args::parse(words) {
        Ok(args) => args,
        Err(error) => return usage(&program, Some(&error)),
    };
    match args.verb {
        Verb::Relay => match start::inherit(&args) {
            Ok((listener, sockets, inner)) => relay::run(&program, &args, listener, sockets, inner),
            Err(error) => fail(&error.to_string(), 1),
        },
        Verb::Worker => worker::run(&program),
        Verb::Help => usage(&program, None),
        Verb::Start | Verb::Delete | Verb::Info | Verb::Version => fail("not built yet", 1),
    }
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
    let mut text = String::new();
    if let Some(error) = error {
        text.push_str(&format!("{error}\n"));
    }
    text.push_str(&format!("Usage of {}:", program.name()));
    fail(&text, if error.is_some() { 2 } else { 0 })
}
