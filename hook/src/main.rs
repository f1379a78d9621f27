//! `nvidia-cdi-hook`: an OCI hook under NVIDIA's name and with its commands; see the library for
//! everything it does. What it says goes to standard error, which a runtime shows when it fails.

use std::io::Write;
use std::process::ExitCode;

use nvidia_hook::{Command, Invocation, container_root};

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_default();
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let invocation = Invocation::parse(&program, &words, |name| std::env::var(name).ok());
    let done = invocation.map_err(|error| error.to_string()).and_then(|invocation| {
        if log::set_logger(&StandardError).is_ok() {
            log::set_max_level(invocation.level);
        }
        run(&invocation.command)
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<(), String> {
    match command {
        Command::Print(text) => {
            std::io::stdout().write_all(text.as_bytes()).map_err(|e| e.to_string())
        }
        Command::Nothing { warning } => {
            log::warn!("{warning}");
            Ok(())
        }
        Command::Apply { state, work } => {
            let root = container_root(state.as_deref());
            root.and_then(|root| work.carry_out(&root)).map_err(|error| error.to_string())
        }
    }
}

fn say(line: &str) {
    // Nobody is left to tell if even this fails.
    let _ = writeln!(std::io::stderr(), "nvidia-cdi-hook: {line}");
}

struct StandardError;

impl log::Log for StandardError {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        say(&format!("{}: {}", record.level().as_str().to_lowercase(), record.args()));
    }

    fn flush(&self) {}
}
