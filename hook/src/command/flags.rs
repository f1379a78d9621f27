//! Go's flags as NVIDIA's programs take them: one or two dashes, `--name=value` or two words, any
//! order, `--` before what only looks like flags.

use super::table::Flag;

/// Flags before the command, each with its short name.
const GLOBAL: [(&str, &str); 4] = [("debug", "d"), ("quiet", ""), ("version", "v"), ("help", "h")];

/// What stands before the command.
#[derive(Debug, Default)]
pub(super) struct Leading<'a> {
    pub(super) given: Vec<&'static str>,
    /// The first that is none of ours.
    pub(super) unknown: Option<&'a str>,
    /// Whether the word `hook` was among it, of `nvidia-ctk`.
    pub(super) is_hook: bool,
    /// The command and what is behind it.
    pub(super) rest: &'a [String],
}

/// Reads what stands before the command.
pub(super) fn leading(words: &[String]) -> Leading<'_> {
    let mut leading = Leading { rest: words, ..Leading::default() };
    while let Some((word, rest)) = leading.rest.split_first() {
        let Some(flag) = without_dashes(word) else { break };
        let (name, value) = flag.split_once('=').unwrap_or((flag, "true"));
        match GLOBAL.iter().find(|(long, short)| [*long, *short].contains(&name)) {
            Some((long, _)) if boolean(value) == Some(true) => leading.given.push(long),
            Some(_) => {}
            None => leading.unknown = leading.unknown.or(Some(word)),
        }
        leading.rest = rest;
    }
    leading
}

/// How the words of a command are read.
pub(super) struct Words {
    pub(super) flags: &'static [Flag],
    /// What stands between the values of a flag that takes several.
    pub(super) separator: Option<char>,
}

/// The flags that were given, in their order.
#[derive(Debug, Default)]
pub(super) struct Given(Vec<(&'static str, String)>);

impl Words {
    /// # Errors
    /// What is wrong with which flag.
    pub(super) fn parse(&self, words: &[String]) -> Result<Given, String> {
        let mut given = Given::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "--" {
                break;
            }
            let Some(text) = without_dashes(word) else {
                log::warn!("{word:?} is passed over, it is no flag");
                continue;
            };
            let (name, value) = match text.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (text, None),
            };
            let is_it = |flag: &&Flag| flag.name == name || (flag.name, name) == ("help", "h");
            let flag = self.flags.iter().find(is_it);
            let flag = flag.ok_or_else(|| format!("unknown flag {word}"))?;
            if flag.value.is_none() {
                let value = value.as_deref().unwrap_or("true");
                let on =
                    boolean(value).ok_or_else(|| format!("{word} is neither true nor false"))?;
                if on {
                    given.0.push((flag.name, String::new()));
                }
                continue;
            }
            let value = value.or_else(|| words.next().cloned());
            let value = value.ok_or_else(|| format!("{word} has no value"))?;
            match self.separator.filter(|_| flag.several) {
                Some(separator) => {
                    let parts = value.split(separator).map(|part| (flag.name, part.to_owned()));
                    given.0.extend(parts);
                }
                None => given.0.push((flag.name, value)),
            }
        }
        Ok(given)
    }
}

impl Given {
    pub(super) fn has(&self, name: &str) -> bool {
        self.all(name).next().is_some()
    }

    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(flag, _)| *flag == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn last(&self, name: &str) -> Option<&str> {
        self.all(name).last()
    }
}

/// Go's `strconv.ParseBool`.
pub(super) fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// The rest of a word that begins as a flag; a dash alone is none.
fn without_dashes(word: &str) -> Option<&str> {
    let rest = word.strip_prefix('-')?;
    let rest = rest.strip_prefix('-').unwrap_or(rest);
    (!rest.is_empty()).then_some(rest)
}
