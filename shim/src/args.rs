//! The command line, in the dialect of Go's `flag` package: `-x y`, `-x=y`, `--x` are the same,
//! flags end at the first other word, which is the verb.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Flags without a value (`-debug`, `-debug=false`), those of containerd and our own.
const SWITCHES: &[&str] = &["debug", "v", "version", "info", "h", "help"];

/// Flags with a value. `socket` and `debug-socket` are accepted as the stock shim accepts them and
/// mean nothing here; `outer`, `inner` and `shim` are those of our own verb `relay`.
const VALUES: &[&str] = &[
    "namespace",
    "id",
    "address",
    "publish-binary",
    "bundle",
    "socket",
    "debug-socket",
    "outer",
    "inner",
    "shim",
];

/// What the program is called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// containerd wants the address of a shim for a container.
    Start,
    /// containerd wants whatever is left of a container removed.
    Delete,
    /// `-info`: what this runtime can do.
    Info,
    /// `-v`, `-version`
    Version,
    /// `-h`, `-help`
    Help,
    /// Ours: the daemon between containerd and the inner shim.
    Relay,
    /// Ours: the child that plans and applies one Create.
    Worker,
}

/// The command line as it was meant. A flag that was not given is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Args {
    pub(crate) verb: Verb,
    /// containerd's namespace, e.g. `k8s.io`.
    pub(crate) namespace: String,
    /// The id of the container that the program is called for.
    pub(crate) id: String,
    /// containerd's GRPC socket.
    pub(crate) address: String,
    /// The containerd program.
    pub(crate) publish_binary: PathBuf,
    /// The bundle; `delete` only.
    pub(crate) bundle: PathBuf,
    pub(crate) debug: bool,
    /// `relay` only: the path of the socket that containerd connects to.
    pub(crate) outer: PathBuf,
    /// `relay` only: the path of the inner shim's socket.
    pub(crate) inner: PathBuf,
    /// `relay` only: the stock shim's program.
    pub(crate) shim: PathBuf,
}

/// A command line that cannot be understood; said as Go says it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UsageError {
    #[error("flag provided but not defined: -{0}")]
    UnknownFlag(String),
    #[error("flag needs an argument: -{0}")]
    MissingValue(String),
    #[error("invalid boolean value {value:?} for -{flag}: parse error")]
    InvalidSwitch { flag: String, value: String },
    #[error("bad flag syntax: {0}")]
    BadSyntax(String),
    #[error("unknown command {0:?}: want start or delete")]
    UnknownVerb(String),
    #[error("no command: want start or delete")]
    NoVerb,
    #[error("-{flag} {value:?} is not a name")]
    NotAName { flag: &'static str, value: String },
}

impl Args {
    /// Reads the words after the program's name.
    ///
    /// # Errors
    /// An unknown flag, a missing or unreadable value, no verb or an unknown one.
    pub(crate) fn parse(words: &[String]) -> Result<Self, UsageError> {
        // Our own verbs stand first, where containerd never puts a word of its own.
        let (internal, words) = match words.split_first() {
            Some((first, rest)) if first == "relay" => (Some(Verb::Relay), rest),
            Some((first, rest)) if first == "worker" => (Some(Verb::Worker), rest),
            _ => (None, words),
        };
        let flags = Flags::parse(words)?;
        let verb = match internal {
            Some(verb) => verb,
            None => flags.verb()?,
        };
        Ok(Self {
            verb,
            namespace: flags.text("namespace"),
            id: flags.text("id"),
            address: flags.text("address"),
            publish_binary: flags.path("publish-binary"),
            bundle: flags.path("bundle"),
            debug: flags.is_on("debug"),
            outer: flags.path("outer"),
            inner: flags.path("inner"),
            shim: flags.path("shim"),
        })
    }

    /// Checks namespace and id, of which paths are made.
    ///
    /// # Errors
    /// One of them is empty or more than one component of a path.
    pub(crate) fn require_names(&self) -> Result<(), UsageError> {
        for (flag, value) in [("namespace", &self.namespace), ("id", &self.id)] {
            if value.is_empty() || value == "." || value == ".." || value.contains(['/', '\0']) {
                return Err(UsageError::NotAName { flag, value: value.clone() });
            }
        }
        Ok(())
    }
}

/// Flags as they were typed, and the first word that is none.
#[derive(Debug, Default)]
struct Flags {
    values: BTreeMap<String, String>,
    switches: BTreeMap<String, bool>,
    command: Option<String>,
}

impl Flags {
    fn parse(words: &[String]) -> Result<Self, UsageError> {
        let mut flags = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "--" {
                flags.command = words.next().cloned();
                break;
            }
            let Some(flag) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) else {
                flags.command = Some(word.clone());
                break;
            };
            let flag = flag.strip_prefix('-').unwrap_or(flag);
            if flag.is_empty() || flag.starts_with(['-', '=']) {
                return Err(UsageError::BadSyntax(word.clone()));
            }
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (flag, None),
            };
            if SWITCHES.contains(&name) {
                let on = value.map_or(Ok(true), |value| switch(name, value))?;
                flags.switches.insert(name.to_owned(), on);
            } else if VALUES.contains(&name) {
                let value = value
                    .or_else(|| words.next().map(String::as_str))
                    .ok_or_else(|| UsageError::MissingValue(name.to_owned()))?;
                flags.values.insert(name.to_owned(), value.to_owned());
            } else {
                return Err(UsageError::UnknownFlag(name.to_owned()));
            }
        }
        Ok(flags)
    }

    /// Help, version and info are asked for by flags and need no command.
    fn verb(&self) -> Result<Verb, UsageError> {
        if self.is_on("h") || self.is_on("help") {
            return Ok(Verb::Help);
        }
        if self.is_on("v") || self.is_on("version") {
            return Ok(Verb::Version);
        }
        if self.is_on("info") {
            return Ok(Verb::Info);
        }
        match self.command.as_deref() {
            Some("start") => Ok(Verb::Start),
            Some("delete") => Ok(Verb::Delete),
            Some(other) => Err(UsageError::UnknownVerb(other.to_owned())),
            None => Err(UsageError::NoVerb),
        }
    }

    fn text(&self, name: &str) -> String {
        self.values.get(name).cloned().unwrap_or_default()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.values.get(name).map(Path::new).unwrap_or(Path::new("")).to_owned()
    }

    fn is_on(&self, name: &str) -> bool {
        self.switches.get(name).copied().unwrap_or(false)
    }
}

/// A value of Go's `strconv.ParseBool`.
fn switch(flag: &str, value: &str) -> Result<bool, UsageError> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(UsageError::InvalidSwitch { flag: flag.to_owned(), value: value.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, UsageError> {
        Args::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_start_line_of_containerd_is_understood() {
        let args = parse(
            "-namespace k8s.io -address /run/containerd/containerd.sock \
             -publish-binary /usr/bin/containerd -id abc -debug start",
        )
        .unwrap();
        assert_eq!(args.verb, Verb::Start);
        assert_eq!(args.namespace, "k8s.io");
        assert_eq!(args.address, "/run/containerd/containerd.sock");
        assert_eq!(args.publish_binary, Path::new("/usr/bin/containerd"));
        assert_eq!(args.id, "abc");
        assert!(args.debug);
    }

    #[test]
    fn all_spellings_of_a_flag_are_the_same() {
        for line in ["-id x start", "--id x start", "-id=x start", "--id=x start", "-id x -- start"]
        {
            let args = parse(line).unwrap();
            assert_eq!((args.verb, args.id.as_str()), (Verb::Start, "x"), "{line}");
        }
        assert!(!parse("-debug=false start").unwrap().debug);
        assert!(parse("-debug=T start").unwrap().debug);
    }

    #[test]
    fn the_last_of_two_equal_flags_wins_and_flags_end_at_the_verb() {
        let args = parse("-id a -id b delete -id c").unwrap();
        assert_eq!((args.verb, args.id.as_str()), (Verb::Delete, "b"));
    }

    #[test]
    fn mistakes_are_said_as_go_says_them() {
        for (line, said) in [
            ("-nope start", "flag provided but not defined: -nope"),
            ("start -nope", ""),
            ("-id", "flag needs an argument: -id"),
            ("-debug=maybe start", "invalid boolean value \"maybe\" for -debug: parse error"),
            ("---id x start", "bad flag syntax: ---id"),
            ("-=x start", "bad flag syntax: -=x"),
            ("", "no command: want start or delete"),
            ("restart", "unknown command \"restart\": want start or delete"),
            ("-id x relay", "unknown command \"relay\": want start or delete"),
        ] {
            let result = parse(line).map_or_else(|error| error.to_string(), |_| String::new());
            assert_eq!(result, said, "{line}");
        }
    }

    #[test]
    fn names_are_single_components_of_a_path() {
        assert!(parse("-namespace k8s.io -id a.b start").unwrap().require_names().is_ok());
        for line in ["-id a start", "-namespace n start", "-namespace n -id ../b start"] {
            assert!(parse(line).unwrap().require_names().is_err(), "{line}");
        }
    }

    #[test]
    fn our_own_verbs_are_only_the_first_word() {
        assert_eq!(parse("relay -namespace n -outer /o").unwrap().verb, Verb::Relay);
        assert_eq!(parse("worker").unwrap().verb, Verb::Worker);
        assert!(parse("-debug worker").is_err());
    }
}
