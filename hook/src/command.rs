//! The command line of `nvidia-cdi-hook`: NVIDIA's commands and flags, and one of our own that does
//! all of them at once. Typed here to what is meant, [`Work`]; and from that back to words.

mod flags;
mod help;
mod table;

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use log::LevelFilter;
use nvidia_oci::{CudaCompat, GeneratedFile, Link};

use self::flags::{Given, Words};
use self::table::{APPLY, COMMANDS, Verb};
use crate::work::Work;

/// What the program is called for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// To print this.
    Print(String),
    /// For nothing that we know, which is no failure: a spec may be newer than this program.
    Nothing { warning: String },
    Apply {
        /// The file with the container's state; standard input where there is none.
        state: Option<PathBuf>,
        work: Box<Work>,
    },
}

/// A command, and how much is said meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    pub level: LevelFilter,
    pub command: Command,
}

/// Words that are no command line of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; see {1} --help")]
pub struct UsageError(String, String);

impl Invocation {
    /// Reads a command line: the name that the program was called by, the words behind it, and the
    /// environment.
    ///
    /// # Errors
    /// A known command with a flag or value that it does not know.
    pub fn parse(
        program: &OsStr,
        words: &[String],
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, UsageError> {
        let program = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
        // `nvidia-ctk hook COMMAND` and `nvidia-ctk-hook COMMAND` of older specs.
        let is_ctk = program.starts_with("nvidia-ctk");
        let mut globals = flags::leading(words);
        if is_ctk && globals.rest.first().is_some_and(|word| word == "hook") {
            let behind = flags::leading(globals.rest.get(1..).unwrap_or_default());
            globals.given.extend(behind.given);
            globals = flags::Leading { given: globals.given, is_hook: true, ..behind };
        }
        let says = |name: &str| {
            let of_env = |prefix: &str| {
                let value = env(&format!("NVIDIA_{prefix}_{}", name.to_uppercase()))?;
                flags::boolean(&value)
            };
            globals.given.contains(&name)
                || of_env("CTK").or_else(|| of_env("CDI")).unwrap_or_default()
        };
        let level = match (says("quiet"), says("debug")) {
            (true, _) => LevelFilter::Error,
            (false, true) => LevelFilter::Debug,
            (false, false) => LevelFilter::Warn,
        };
        let command = if says("version") {
            Command::Print(help::version(&program))
        } else if says("help") {
            Command::Print(help::all(&program))
        } else {
            command(&program, &globals, is_ctk)?
        };
        Ok(Self { level, command })
    }
}

fn command(
    program: &str,
    globals: &flags::Leading<'_>,
    is_ctk: bool,
) -> Result<Command, UsageError> {
    let Some((name, words)) = globals.rest.split_first() else {
        return Ok(Command::Nothing { warning: "no command is given, nothing is done".to_owned() });
    };
    if is_ctk && !program.ends_with("-hook") && !globals.is_hook {
        let what = format!("{name:?}: of this program only {program} hook COMMAND is here");
        return Err(UsageError(what, format!("{program} hook")));
    }
    if name == "help" {
        return Ok(Command::Print(help::all(program)));
    }
    let Some(verb) = COMMANDS.iter().find(|verb| verb.name == name) else {
        let warning = format!("there is no command {name:?} here, nothing is done");
        return Ok(Command::Nothing { warning });
    };
    let usage = |what: &dyn fmt::Display| {
        UsageError(format!("{}: {what}", verb.name), format!("{program} {}", verb.name))
    };
    if let Some(flag) = &globals.unknown {
        return Err(usage(&format!("unknown flag {flag} before it")));
    }
    // NVIDIA's hook takes `a,b` as two values, its nvidia-ctk does not, and neither do we.
    let separator = (!is_ctk && verb.name != APPLY).then_some(',');
    let given = Words { flags: verb.flags, separator }.parse(words).map_err(|e| usage(&e))?;
    if given.has("help") {
        return Ok(Command::Print(help::of(program, verb)));
    }
    let work = work(verb, &given).map_err(|error| usage(&error))?;
    let state = given.last("container-spec").filter(|file| !["", "-"].contains(file));
    Ok(Command::Apply { state: state.map(PathBuf::from), work: Box::new(work) })
}

/// What the flags mean.
fn work(verb: &Verb, given: &Given) -> Result<Work, String> {
    let some = |name: &str| given.last(name).filter(|text| !text.is_empty()).map(str::to_owned);
    let mut work = Work::default();
    for link in given.all("link") {
        work.links.push(parse_link(link)?);
    }
    for file in given.all("file") {
        let (path, content) =
            file.split_once("::").ok_or_else(|| format!("--file {file} is not PATH::CONTENT"))?;
        let path = Path::new("/").join(path);
        work.files.push(GeneratedFile { path, content: content.to_owned() });
    }
    if verb.has("mode") && (verb.name != APPLY || given.has("mode") || given.has("path")) {
        let mode = given.last("mode").unwrap_or_default();
        let permissions = u32::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o7777);
        let permissions = permissions.ok_or_else(|| format!("--mode {mode:?} is not octal"))?;
        for path in given.all("path") {
            if path.trim().is_empty() {
                return Err("--path is empty".to_owned());
            }
            work.modes.push((path.into(), permissions));
        }
    }
    let (driver, cuda) = (some("host-driver-version"), some("host-cuda-version"));
    if driver.is_some() || cuda.is_some() {
        let directory =
            some("cuda-compat-container-root").unwrap_or(CudaCompat::DIRECTORY.to_owned());
        let directory = Path::new("/").join(directory);
        work.compat = Some(CudaCompat { driver, cuda, directory });
    }
    let folders: Vec<PathBuf> = given.all("folder").map(PathBuf::from).collect();
    if verb.name == "update-ldcache" || !folders.is_empty() {
        work.folders = Some(folders);
    }
    if given.last("ldconfig-path").is_some_and(str::is_empty) {
        return Err("--ldconfig-path is empty".to_owned());
    }
    let does = |name: &str| verb.name == name || given.has(name);
    work.profile = does("update-application-profile");
    work.mask_params = does("disable-device-node-modification");
    Ok(work)
}

impl Work {
    /// The words that mean this work, behind the name of the program.
    pub(crate) fn to_words(&self) -> Vec<String> {
        let mut words = vec![APPLY.to_owned()];
        let mut flag = |name: &str, value: String| words.extend([format!("--{name}"), value]);
        for Link { link, target } in &self.links {
            flag("link", format!("{}::{}", target.display(), link.display()));
        }
        for GeneratedFile { path, content } in &self.files {
            flag("file", format!("{}::{content}", path.display()));
        }
        if let Some(CudaCompat { driver, cuda, directory }) = &self.compat {
            let versions = [("host-driver-version", driver), ("host-cuda-version", cuda)];
            for (name, version) in versions {
                version.iter().for_each(|version| flag(name, version.clone()));
            }
            flag("cuda-compat-container-root", directory.display().to_string());
        }
        for folder in self.folders.iter().flatten() {
            flag("folder", folder.display().to_string());
        }
        if self.profile {
            words.push("--update-application-profile".to_owned());
        }
        if self.mask_params {
            words.push("--disable-device-node-modification".to_owned());
        }
        words
    }
}

fn parse_link(text: &str) -> Result<Link, String> {
    Link::parse(text).ok_or_else(|| format!("--link {text} is not TARGET::LINK"))
}

#[cfg(test)]
mod tests;
