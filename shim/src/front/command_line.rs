//! The command line of an OCI runtime, as far as it concerns us, in the dialects of runc, crun and
//! youki: which command it is, the bundle, and where errors go. The words themselves are never
//! changed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nvidia_oci::{Code, Error, Result};

/// Commands of runc and crun.
const COMMANDS: &[&str] = &[
    "checkpoint",
    "create",
    "delete",
    "events",
    "exec",
    "features",
    "kill",
    "list",
    "pause",
    "ps",
    "restore",
    "resume",
    "run",
    "spec",
    "start",
    "state",
    "update",
];
/// Flags before the command that take a value.
const VALUES: &[&str] =
    &["root", "r", "log", "log-format", "log-level", "l", "criu", "rootless", "cgroup-manager"];
/// Flags before the command that take none.
const SWITCHES: &[&str] = &["debug", "systemd-cgroup", "s", "help", "h", "version", "v", "V"];
/// Flags of `create` and `run` that take a value.
const CREATE_VALUES: &[&str] =
    &["bundle", "b", "console-socket", "pid-file", "pidfd-socket", "preserve-fds", "config", "f"];

/// What a command line means to us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CommandLine<'a> {
    command: Option<&'a OsStr>,
    id: Option<&'a OsStr>,
    bundle: Bundle<'a>,
    /// Which file crun reads in place of the bundle's `config.json`.
    spec: Option<&'a OsStr>,
    log: Option<&'a OsStr>,
    log_format: Option<&'a OsStr>,
    debug: bool,
    version: bool,
    help: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Bundle<'a> {
    #[default]
    WorkingDirectory,
    Named(&'a OsStr),
    /// The flag is the last word.
    Unnamed,
}

impl<'a> CommandLine<'a> {
    /// Reads the words after the program's name.
    pub(super) fn parse(words: &'a [OsString]) -> Self {
        let mut line = Self::default();
        let mut words = words.iter().map(OsString::as_os_str);
        while let Some(word) = words.next() {
            match Flag::of(word) {
                Some(flag) => line.flag(flag, &mut words),
                None if word == "--" => {}
                None => {
                    line.command = Some(word);
                    break;
                }
            }
        }
        if line.is("create") || line.is("run") {
            line.create(words);
        }
        line
    }

    /// Whether a container is to be created.
    pub(super) fn creates(&self) -> bool {
        (self.is("create") || self.is("run")) && !self.version && !self.help
    }

    pub(super) fn asks_for_version(&self) -> bool {
        self.version
    }

    pub(super) fn debug(&self) -> bool {
        self.debug
    }

    /// The file that the runtime writes errors to.
    pub(super) fn log(&self) -> Option<&'a Path> {
        self.log.filter(|file| !file.is_empty()).map(Path::new)
    }

    pub(super) fn log_is_json(&self) -> bool {
        self.log_format.is_some_and(|format| format == "json")
    }

    /// The bundle of the container that is to be created.
    ///
    /// # Errors
    /// The flag for it has no value.
    pub(super) fn bundle(&self) -> Result<&'a Path> {
        match self.bundle {
            Bundle::WorkingDirectory => Ok(Path::new(".")),
            Bundle::Named(dir) => Ok(Path::new(dir)),
            Bundle::Unnamed => {
                Err(Error::new(Code::SpecUnreadable, "the flag --bundle has no value"))
            }
        }
    }

    /// The spec, where it is not the bundle's own; relative to where we were called.
    pub(super) fn spec_elsewhere(&self) -> Option<&'a Path> {
        self.spec.filter(|file| *file != "config.json").map(Path::new)
    }

    /// The id of the container that is to be created, for messages.
    pub(super) fn id(&self) -> String {
        self.id.unwrap_or_default().to_string_lossy().into_owned()
    }

    fn is(&self, command: &str) -> bool {
        self.command.is_some_and(|is| is == command)
    }

    /// A flag before the command. The word after one that we do not know is its value, unless it
    /// is a command: to miss one would be to create a container without its GPUs.
    fn flag(&mut self, flag: Flag<'a>, words: &mut (impl Iterator<Item = &'a OsStr> + Clone)) {
        if flag.is_one_of(SWITCHES) {
            self.switch(&flag);
            return;
        }
        let next = words.clone().next();
        let is_value = |word: &&OsStr| {
            flag.is_one_of(VALUES)
                || Flag::of(word).is_none() && !COMMANDS.iter().any(|command| word == command)
        };
        let value = flag.value.or_else(|| {
            let value = next.filter(is_value)?;
            words.next();
            Some(value)
        });
        match flag.name {
            b"log" => self.log = value,
            b"log-format" => self.log_format = value,
            _ => {}
        }
    }

    fn switch(&mut self, flag: &Flag<'a>) {
        let on = !flag.value.is_some_and(|value| value == "false" || value == "0");
        match flag.name {
            b"debug" => self.debug = on,
            b"version" => self.version = on,
            b"help" | b"h" => self.help = on,
            _ => {}
        }
    }

    /// What follows `create` or `run`.
    fn create(&mut self, mut words: impl Iterator<Item = &'a OsStr>) {
        while let Some(word) = words.next() {
            let Some(flag) = Flag::of(word) else {
                if word == "--" {
                    self.id = self.id.or_else(|| words.next());
                    return;
                }
                self.id = self.id.or(Some(word));
                continue;
            };
            let flag = flag.with_attached_value(word);
            let value = if flag.is_one_of(CREATE_VALUES) {
                flag.value.or_else(|| words.next())
            } else {
                flag.value
            };
            match flag.name {
                b"bundle" | b"b" => self.bundle = value.map_or(Bundle::Unnamed, Bundle::Named),
                b"config" | b"f" => self.spec = value,
                b"help" | b"h" => self.help = true,
                _ => {}
            }
        }
    }
}

/// A word that begins with a dash, of which the number does not matter.
#[derive(Clone, Copy, Debug)]
struct Flag<'a> {
    name: &'a [u8],
    /// What follows `=`.
    value: Option<&'a OsStr>,
}

impl<'a> Flag<'a> {
    /// `None` for other words, `-` and `--`.
    fn of(word: &'a OsStr) -> Option<Self> {
        let dashes = word.as_bytes().iter().take_while(|byte| **byte == b'-').count();
        let text = word.as_bytes().get(dashes..).filter(|text| dashes > 0 && !text.is_empty())?;
        let mut parts = text.splitn(2, |byte| *byte == b'=');
        let name = parts.next().unwrap_or_default();
        Some(Self { name, value: parts.next().map(OsStr::from_bytes) })
    }

    /// crun takes the value of a flag of one letter right behind it as well: `-b/bundle`. To runc
    /// such a word is the name of a flag that it does not have.
    fn with_attached_value(self, word: &'a OsStr) -> Self {
        let bytes = word.as_bytes();
        if self.is_one_of(CREATE_VALUES) || self.value.is_some() || bytes.starts_with(b"--") {
            return self;
        }
        match bytes {
            [b'-', b'b' | b'f', value @ ..] => {
                let name = self.name.get(..1).unwrap_or_default();
                Self { name, value: Some(OsStr::from_bytes(value)) }
            }
            _ => self,
        }
    }

    fn is_one_of(&self, names: &[&str]) -> bool {
        names.iter().any(|name| name.as_bytes() == self.name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    /// The bundle of a line that creates a container.
    fn bundle(line: &str) -> Option<String> {
        let words = words(line);
        let line = CommandLine::parse(&words);
        line.creates().then(|| line.bundle().unwrap().display().to_string())
    }

    #[test]
    fn containerds_line() {
        let words = words(
            "--root /run/r --log /b/log.json --log-format json --systemd-cgroup create \
             --bundle /b --pid-file /b/init.pid --console-socket /s c1",
        );
        let line = CommandLine::parse(&words);
        assert!(line.creates() && line.log_is_json() && !line.asks_for_version());
        assert_eq!(line.log(), Some(Path::new("/b/log.json")));
        assert_eq!((line.bundle().unwrap(), line.id()), (Path::new("/b"), "c1".to_owned()));
    }

    #[test]
    fn the_bundle_in_every_spelling() {
        for line in [
            "create --bundle /b c1",
            "create -bundle /b c1",
            "create -b /b c1",
            "create --bundle=/b c1",
            "create -b=/b c1",
            "create c1 --bundle /b",
            "run -d --bundle /b c1",
            "create -b /a -b /b c1",
            "create --pid-file --bundle -b /b c1",
            "-- create -b /b",
            "create -b/b c1",
            "create -f/x -b/b c1",
        ] {
            assert_eq!(bundle(line).as_deref(), Some("/b"), "{line}");
        }
        for line in ["create c1", "run c1", "create -- c1 -b /b", "create --pid-file -b c1"] {
            assert_eq!(bundle(line).as_deref(), Some("."), "{line}");
        }
        assert_eq!(bundle("create --bundle create create").as_deref(), Some("create"));
    }

    #[test]
    fn the_spec_may_be_another_file() {
        let spec = |line: &str| {
            let words = words(line);
            CommandLine::parse(&words).spec_elsewhere().map(Path::to_owned)
        };
        for line in ["create -f /s c1", "create -f/s c1", "run --config=/s c1", "create -f=/s c"] {
            assert_eq!(spec(line).as_deref(), Some(Path::new("/s")), "{line}");
        }
        for line in
            ["create c1", "create --config config.json c1", "state -f /s", "create -b /f c1"]
        {
            assert_eq!(spec(line), None, "{line}");
        }
    }

    #[test]
    fn a_bundle_without_value_is_an_error() {
        for line in ["create c1 --bundle", "run -b"] {
            let words = words(line);
            assert!(CommandLine::parse(&words).bundle().is_err(), "{line}");
        }
        let words = words("create --bundle= c1");
        assert_eq!(CommandLine::parse(&words).bundle().unwrap(), Path::new(""));
    }

    #[test]
    fn other_words_create_are_no_command() {
        for line in [
            "",
            "state create",
            "kill create KILL",
            "exec c1 create",
            "exec c1 run --bundle /b",
            "--root create state c1",
            "--log create delete c1",
            "--criu create --log-format run kill c1",
            "create --help",
            "--help create",
            "--version create",
        ] {
            assert_eq!(bundle(line), None, "{line}");
        }
    }

    #[test]
    fn flags_of_other_runtimes_do_not_hide_the_command() {
        for line in [
            "--cgroup-manager=systemd create -b /b c1",
            "--cgroup-manager systemd create -b /b c1",
            "--log-level debug --rootless=true create -b /b c1",
            "-root /r -platform kvm -debug create -bundle /b c1",
            "--strange create -b /b c1",
            "--strange value create -b /b c1",
            "--strange --stranger create -b /b c1",
            "--systemd-cgroup create -b /b c1",
        ] {
            assert_eq!(bundle(line).as_deref(), Some("/b"), "{line}");
        }
    }

    #[test]
    fn the_version_is_asked_for_before_any_command() {
        let asks = |line: &str| CommandLine::parse(&words(line)).asks_for_version();
        for line in ["--version", "-version", "---version", "--version=true", "--root /r --version"]
        {
            assert!(asks(line), "{line}");
        }
        for line in
            ["-v", "version", "exec c1 gcc --version", "--root --version", "--version=false"]
        {
            assert!(!asks(line), "{line}");
        }
    }

    #[test]
    fn words_need_not_be_text() {
        let words = vec!["create".into(), "-b".into(), OsStr::from_bytes(b"/\xff").to_owned()];
        let line = CommandLine::parse(&words);
        assert_eq!(line.bundle().unwrap().as_os_str().as_bytes(), b"/\xff");
    }

    /// What may stand before a command without being one.
    fn leading() -> impl Strategy<Value = Vec<String>> {
        let word = "[a-z/=.-]{0,8}";
        let known = prop::sample::select(VALUES).prop_flat_map(move |flag| {
            let value = prop_oneof![
                word.prop_map(String::from),
                prop::sample::select(COMMANDS).prop_map(String::from)
            ];
            (value, any::<bool>()).prop_map(move |(value, one)| match one {
                true => vec![format!("--{flag}={value}")],
                false => vec![format!("--{flag}"), value],
            })
        });
        let switch = prop::sample::select(&["debug", "systemd-cgroup"][..])
            .prop_map(|flag| vec![format!("--{flag}")]);
        prop::collection::vec(prop_oneof![known, switch], 0..5).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn the_first_word_that_is_no_flag_or_value_is_the_command(
            leading in leading(),
            command in prop::sample::select(COMMANDS),
            rest in prop::collection::vec("[a-z/=-]{0,8}", 0..4),
        ) {
            let words: Vec<OsString> = leading
                .iter().map(String::as_str).chain([command])
                .chain(rest.iter().map(String::as_str))
                .map(OsString::from).collect();
            let line = CommandLine::parse(&words);
            prop_assert_eq!(line.command, Some(OsStr::new(command)));
        }

        #[test]
        fn any_words_can_be_read(words in prop::collection::vec(any::<Vec<u8>>(), 0..8)) {
            let words: Vec<OsString> =
                words.iter().map(|word| OsStr::from_bytes(word).to_owned()).collect();
            let line = CommandLine::parse(&words);
            let _ = (line.bundle(), line.id(), line.log(), line.log_is_json());
        }
    }
}
