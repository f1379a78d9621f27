//! Hooks in specs of others: what NVIDIA's are there for, so that it can be done without them.
//!
//! They are known by the name of their program and by its command, wherever it is installed: the
//! same commands belong to `nvidia-cdi-hook` and to `nvidia-ctk`, and the operator's installer wraps
//! either.

use std::path::{Path, PathBuf};

use super::Hook;
use crate::{CudaCompat, Link};

/// What a hook does in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// `create-symlinks`
    Links(Vec<Link>),
    /// `update-ldcache`: directories whose libraries the loader shall find.
    Folders(Vec<PathBuf>),
    /// `enable-cuda-compat`; `None`: it was not told what to compare with, and does nothing.
    CudaCompat(Option<CudaCompat>),
    /// `disable-device-node-modification`
    MaskParams,
    /// `update-application-profile`
    ApplicationProfile,
    /// Nothing that is not so anyway: `chmod` of directories that runc makes, and `noop`.
    Nothing,
}

/// NVIDIA's program is called with something that is not known here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unknown(String);

/// A command, and those of its flags that take a value.
const COMMANDS: [(&str, &[&str]); 7] = [
    ("create-symlinks", &["link"]),
    ("update-ldcache", &["folder", "ldconfig-path"]),
    (
        "enable-cuda-compat",
        &["host-driver-version", "host-cuda-version", "cuda-compat-container-root"],
    ),
    ("disable-device-node-modification", &[]),
    ("update-application-profile", &[]),
    ("chmod", &["mode", "path"]),
    ("noop", &[]),
];

/// What a hook is there for; `None` if it is not NVIDIA's.
///
/// # Errors
/// [`Unknown`]: it is, and of a later version perhaps.
pub(crate) fn purpose(hook: &Hook) -> Option<Result<Purpose, Unknown>> {
    let program = Path::new(&hook.path).file_name()?.to_str()?;
    let words = hook.args.get(1..).unwrap_or_default();
    // NVIDIA's hook takes `a,b` as two values, its nvidia-ctk does not.
    let (words, separator) = match program.strip_suffix(".real").unwrap_or(program) {
        "nvidia-cdi-hook" => (words, Some(',')),
        "nvidia-ctk-hook" => (words, None),
        "nvidia-ctk" => (behind_switches(words).strip_prefix(&["hook".to_owned()])?, None),
        _ => return None,
    };
    Some(command(behind_switches(words), separator))
}

/// The words behind switches that only change what is logged.
fn behind_switches(words: &[String]) -> &[String] {
    let is_switch = |word: &String| {
        let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
        name.starts_with('-') && ["debug", "d", "quiet"].contains(&name.trim_start_matches('-'))
    };
    let count = words.iter().take_while(|word| is_switch(word)).count();
    words.get(count..).unwrap_or_default()
}

/// The command of a hook, as a person knows it: `nvidia-cdi-hook update-ldcache`.
pub(crate) fn shown(hook: &Hook) -> String {
    let program = Path::new(&hook.path).file_name().unwrap_or_default().to_string_lossy();
    let words = hook.args.iter().skip(1).take_while(|word| !word.starts_with('-'));
    std::iter::once(program.as_ref()).chain(words.map(String::as_str)).collect::<Vec<_>>().join(" ")
}

fn command(words: &[String], separator: Option<char>) -> Result<Purpose, Unknown> {
    let unknown = |what: String| Err(Unknown(what));
    let Some((name, words)) = words.split_first() else {
        return unknown("it has no command".to_owned());
    };
    let Some((name, flags)) = COMMANDS.iter().find(|(known, _)| known == name) else {
        return unknown(format!("its command {name:?} is not known"));
    };
    let given = flag_values(words, flags)?;
    let values = |flag: &'static str| {
        given.iter().filter(move |(name, _)| *name == flag).map(|(_, value)| value.as_str())
    };
    let all = |flag: &'static str| values(flag).flat_map(|it| it.split(|c| separator == Some(c)));
    let last = |flag: &'static str| {
        values(flag).next_back().filter(|it| !it.is_empty()).map(str::to_owned)
    };
    Ok(match *name {
        "create-symlinks" => Purpose::Links(all("link").map(link).collect::<Result<_, _>>()?),
        "update-ldcache" => {
            Purpose::Folders(all("folder").map(|folder| Path::new("/").join(folder)).collect())
        }
        "enable-cuda-compat" => {
            let (driver, cuda) = (last("host-driver-version"), last("host-cuda-version"));
            let directory =
                last("cuda-compat-container-root").unwrap_or(CudaCompat::DIRECTORY.to_owned());
            let directory = Path::new("/").join(directory);
            let any = driver.is_some() || cuda.is_some();
            Purpose::CudaCompat(any.then_some(CudaCompat { driver, cuda, directory }))
        }
        "disable-device-node-modification" => Purpose::MaskParams,
        "update-application-profile" => Purpose::ApplicationProfile,
        _ => Purpose::Nothing,
    })
}

/// Flags in Go's dialect: one or two dashes, `--name=value` or two words.
fn flag_values<'a>(
    words: &[String],
    known: &'a [&'a str],
) -> Result<Vec<(&'a str, String)>, Unknown> {
    let mut given = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let flag = word.strip_prefix("--").or_else(|| word.strip_prefix('-'));
        let (flag, value) = match flag.map(|flag| flag.split_once('=').ok_or(flag)) {
            Some(Ok((flag, value))) => (Some(flag), Some(value.to_owned())),
            Some(Err(flag)) => (Some(flag), None),
            None => (None, None),
        };
        let name = flag.and_then(|flag| known.iter().find(|name| **name == flag));
        let name = name.ok_or_else(|| Unknown(format!("its argument {word:?} is not known")))?;
        let value = value.or_else(|| words.next().cloned());
        given.push((*name, value.ok_or_else(|| Unknown(format!("{word} has no value")))?));
    }
    Ok(given)
}

fn link(text: &str) -> Result<Link, Unknown> {
    Link::parse(text).ok_or_else(|| Unknown(format!("{text:?} is not TARGET::LINK")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hook(path: &str, words: &[&str]) -> Hook {
        let args = words.iter().map(|word| (*word).to_owned()).collect();
        Hook { path: path.to_owned(), args, ..Hook::default() }
    }

    #[test]
    fn nvidias_hooks_are_known_wherever_they_are() {
        for (path, words) in [
            (
                "/usr/bin/nvidia-cdi-hook",
                &["nvidia-cdi-hook", "update-ldcache", "--folder", "/a"][..],
            ),
            ("/usr/bin/nvidia-ctk", &["nvidia-ctk", "hook", "update-ldcache", "--folder=/a"]),
            ("/opt/x/nvidia-ctk.real", &["x", "hook", "update-ldcache", "-folder", "a"]),
            ("/usr/local/nvidia/toolkit/nvidia-ctk-hook", &["", "update-ldcache", "-folder=/a"]),
        ] {
            let purpose = purpose(&hook(path, words)).unwrap().unwrap();
            assert_eq!(purpose, Purpose::Folders(vec!["/a".into()]), "{path}");
        }
        let other = [("/usr/bin/nvidia-ctk", &["nvidia-ctk", "cdi"][..]), ("/h", &["h", "chmod"])];
        for (path, words) in other {
            assert_eq!(purpose(&hook(path, words)), None);
        }
    }

    #[test]
    fn commands_say_what_they_are_for() {
        let of = |words: &[&str]| {
            let words = [&["h"], words].concat();
            purpose(&hook("/nvidia-cdi-hook", &words))
                .unwrap()
                .map_err(|unknown| unknown.to_string())
        };
        let link = |target: &str, link: &str| Link { link: link.into(), target: target.into() };
        assert_eq!(
            of(&["create-symlinks", "--link", "a::/b", "--link=../c::d/e"]),
            Ok(Purpose::Links(vec![link("a", "/b"), link("../c", "/d/e")]))
        );
        let compat = CudaCompat {
            driver: Some("550.1".to_owned()),
            cuda: None,
            directory: "/usr/local/cuda/compat".into(),
        };
        let asked = of(&["enable-cuda-compat", "--host-driver-version=550.1"]);
        assert_eq!(asked, Ok(Purpose::CudaCompat(Some(compat))));
        assert_eq!(of(&["enable-cuda-compat"]), Ok(Purpose::CudaCompat(None)));
        assert_eq!(of(&["disable-device-node-modification"]), Ok(Purpose::MaskParams));
        assert_eq!(of(&["update-application-profile"]), Ok(Purpose::ApplicationProfile));
        assert_eq!(of(&["chmod", "--mode", "755", "--path", "/dev/dri"]), Ok(Purpose::Nothing));
        for (words, told) in [
            (&["future-hook", "--x"][..], "future-hook"),
            (&[], "no command"),
            (&["create-symlinks", "--links", "a::b"], "--links"),
            (&["create-symlinks", "--link", "a"], "TARGET::LINK"),
            (&["create-symlinks", "--link", "a::b::c"], "TARGET::LINK"),
            (&["create-symlinks", "--link"], "no value"),
            (&["chmod", "word"], "word"),
        ] {
            let unknown = of(words).unwrap_err();
            assert!(unknown.contains(told), "{words:?}: {unknown}");
        }
        let links = |program: &str, words: &[&str]| match purpose(&hook(program, words)) {
            Some(Ok(Purpose::Links(links))) => links.len(),
            other => panic!("{program} {words:?}: {other:?}"),
        };
        let two = "a::/b,c::/d";
        assert_eq!(links("nvidia-cdi-hook", &["x", "-quiet", "create-symlinks", "--link", two]), 2);
        let ctk = ["x", "--debug=true", "hook", "-d", "create-symlinks", "--link", "a::/b,c"];
        assert_eq!(links("nvidia-ctk", &ctk), 1);
        let update =
            hook("/x/nvidia-ctk", &["nvidia-ctk", "hook", "update-ldcache", "--folder", "/a"]);
        assert_eq!(shown(&update), "nvidia-ctk hook update-ldcache");
    }

    proptest! {
        #[test]
        fn no_words_make_it_panic(words in prop::collection::vec("create-symlinks|update-ldcache|hook|-{0,3}(link|folder)?=?|\\PC{0,6}", 0..5)) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            for path in ["/nvidia-ctk", "/nvidia-cdi-hook"] {
                let _ = purpose(&hook(path, &words));
            }
        }
    }
}
