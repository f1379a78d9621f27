//! What a person reads.

use super::table::{COMMANDS, Verb};

pub(super) fn version(program: &str) -> String {
    format!("{program} version {} (containerd-shim-nvidia)\n", env!("CARGO_PKG_VERSION"))
}

/// All commands.
pub(super) fn all(program: &str) -> String {
    let mut text = format!(
        "Usage: {program} [--debug | --quiet] COMMAND [FLAG...]\n\n\
         An OCI hook of stage createContainer: changes what CDI specs say inside the root\n\
         filesystem of a container that is being created. The container's state is read from\n\
         standard input. An unknown command is a warning, so that newer specs work.\n\nCommands:\n"
    );
    let shown = COMMANDS.iter().filter(|verb| verb.name != "noop");
    for verb in shown {
        text.push_str(&format!("  {:<34}{}\n", verb.name, verb.does));
    }
    text.push_str(&format!("\n{program} COMMAND --help shows its flags.\n"));
    text
}

/// One command.
pub(super) fn of(program: &str, verb: &Verb) -> String {
    let mut text = format!("Usage: {program} {} [FLAG...]\n\n{}\n\nFlags:\n", verb.name, verb.does);
    for flag in verb.flags {
        let name = match flag.value {
            Some(value) => format!("--{} {value}", flag.name),
            None => format!("--{}", flag.name),
        };
        let again = if flag.several { "; again for more" } else { "" };
        text.push_str(&format!("  {name:<37} {}{again}\n", flag.does));
    }
    text
}
