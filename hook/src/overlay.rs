//! The mount options of an overlay, as containerd writes them: reading them, and putting a layer
//! of ours in front of the lower layers.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Options that decide what is seen in the layers; a look needs the same.
const SEEN_BY: [&str; 3] = ["userxattr", "redirect_dir", "metacopy"];

/// The layers of an overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Overlay {
    /// From the topmost down.
    pub lowers: Vec<PathBuf>,
    pub upper: Option<PathBuf>,
    /// Whether overlayfs keeps its notes in `user.overlay.*` instead of `trusted.overlay.*`.
    pub userxattr: bool,
    /// Those of [`SEEN_BY`] that are there.
    pub seen_by: Vec<(String, Option<String>)>,
}

impl Overlay {
    /// Reads mount options; the error says what of them has no meaning here.
    pub(crate) fn parse(options: &[String]) -> Result<Self, String> {
        let mut overlay =
            Self { lowers: Vec::new(), upper: None, userxattr: false, seen_by: Vec::new() };
        for option in options {
            let (key, value) = match option.split_once('=') {
                Some((key, value)) => (key, Some(value)),
                None => (option.as_str(), None),
            };
            match (key, value) {
                ("lowerdir", Some(value)) => overlay.lowers = split(value)?,
                ("lowerdir+" | "datadir+", _) => return Err(format!("the option {key}")),
                ("upperdir", Some(value)) => overlay.upper = Some(absolute(unescape(value))?),
                _ if SEEN_BY.contains(&key) => {
                    overlay.seen_by.push((key.to_owned(), value.map(str::to_owned)));
                }
                _ => {}
            }
        }
        overlay.userxattr = overlay.seen_by.iter().any(|(key, _)| key == "userxattr");
        if overlay.lowers.is_empty() { Err("no lowerdir".to_owned()) } else { Ok(overlay) }
    }

    /// The layers from the topmost down, the upper one first.
    pub(crate) fn layers(&self) -> Vec<&Path> {
        self.upper.iter().chain(&self.lowers).map(PathBuf::as_path).collect()
    }
}

/// `options` with `layer` in front of the lower layers, everything else as it was.
pub(crate) fn with_layer(options: &[String], layer: &Path) -> Vec<String> {
    let front = format!("lowerdir={}:", escape(layer));
    let put = |option: &String| match option.strip_prefix("lowerdir=") {
        Some(_) if option.starts_with(&front) => option.clone(),
        Some(lowers) => format!("{front}{lowers}"),
        None => option.clone(),
    };
    options.iter().map(put).collect()
}

/// Writes a path so that overlayfs and mount(2) read it as one.
pub(crate) fn escape(path: &Path) -> String {
    let mut escaped = String::new();
    for character in path.to_string_lossy().chars() {
        if matches!(character, ':' | ',' | '\\') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

fn split(lowers: &str) -> Result<Vec<PathBuf>, String> {
    let mut paths = Vec::new();
    let mut path = String::new();
    let mut characters = lowers.chars();
    while let Some(character) = characters.next() {
        match character {
            ':' => paths.push(std::mem::take(&mut path)),
            '\\' => {
                path.push('\\');
                path.extend(characters.next());
            }
            _ => path.push(character),
        }
    }
    paths.push(path);
    paths.iter().map(|path| absolute(unescape(path))).collect()
}

fn absolute(path: PathBuf) -> Result<PathBuf, String> {
    if path.is_absolute() {
        Ok(path)
    } else {
        // An empty one is `::`, in front of layers that hold data only.
        Err(format!("the layer {:?}", path.display().to_string()))
    }
}

fn unescape(path: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(if byte == b'\\' { rest.next().unwrap_or(byte) } else { byte });
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn options(list: &[&str]) -> Vec<String> {
        list.iter().map(|&option| option.to_owned()).collect()
    }

    #[test]
    fn containerds_options() {
        let options = options(&[
            "index=off",
            "workdir=/s/3/work",
            "upperdir=/s/3/fs",
            "lowerdir=/s/2/fs:/s/1/fs",
        ]);
        let overlay = Overlay::parse(&options).unwrap();
        assert_eq!(overlay.layers(), ["/s/3/fs", "/s/2/fs", "/s/1/fs"].map(Path::new));
        assert!(!overlay.userxattr);
        let layered = with_layer(&options, Path::new("/s/3/nvidia-shim-layer"));
        assert_eq!(layered[..3], options[..3]);
        assert_eq!(layered[3], "lowerdir=/s/3/nvidia-shim-layer:/s/2/fs:/s/1/fs");
        assert_eq!(with_layer(&layered, Path::new("/s/3/nvidia-shim-layer")), layered);
    }

    #[test]
    fn escapes_are_read() {
        let overlay = Overlay::parse(&options(&[r"lowerdir=/a\:b:/c\\d\,e", "userxattr"])).unwrap();
        assert_eq!(overlay.lowers, ["/a:b", r"/c\d,e"].map(PathBuf::from));
        assert!(overlay.userxattr);
    }

    #[test]
    fn layers_of_other_kinds_are_named() {
        for (list, word) in [
            (vec!["lowerdir=/a::/data"], "layer"),
            (vec!["lowerdir=relative"], "relative"),
            (vec!["lowerdir+=/a"], "lowerdir+"),
            (vec!["upperdir=/a"], "no lowerdir"),
        ] {
            assert!(Overlay::parse(&options(&list)).unwrap_err().contains(word), "{list:?}");
        }
    }

    proptest! {
        #[test]
        fn options_of_any_kind_are_read_or_refused(
            options in prop::collection::vec(
                "(lowerdir|upperdir|workdir|lowerdir\\+|userxattr|index|xino)?=?[/a:,=\\\\é ]{0,20}",
                0..5,
            ),
        ) {
            let layer = Path::new("/ours:1,2");
            if let Ok(overlay) = Overlay::parse(&options) {
                let layered = Overlay::parse(&with_layer(&options, layer)).unwrap();
                prop_assert_eq!(layered.lowers[0].as_path(), layer);
                prop_assert_eq!(&layered.lowers[1..], &overlay.lowers[..]);
                prop_assert_eq!(layered.upper, overlay.upper);
            }
        }

        #[test]
        fn an_escaped_path_is_read_as_it_was(names in proptest::collection::vec("[^/\0]{1,12}", 1..4)) {
            let paths: Vec<PathBuf> = names.iter().map(|n| Path::new("/").join(n)).collect();
            let list: Vec<String> = paths.iter().map(|path| escape(path)).collect();
            let overlay = Overlay::parse(&[format!("lowerdir={}", list.join(":"))]).unwrap();
            prop_assert_eq!(overlay.lowers, paths);
        }
    }
}
