//! Tegra: what the lists of its packages name, lines of `dev`, `dir`, `lib` or `sym` and a path.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::part::Part;
use super::{ALL, Described, Draft, Recipe};
use crate::plan::Parts;
use crate::{Code, Config, Error, Host, Library, Link, NodeNumbers, Result, gpu};

/// Where packages put their lists, and those that count unless somebody says otherwise.
pub const FILES: [&str; 3] = [
    "/etc/nvidia-container-runtime/host-files-for-container.d/l4t.csv",
    "/etc/nvidia-container-runtime/host-files-for-container.d/drivers.csv",
    "/etc/nvidia-container-runtime/host-files-for-container.d/devices.csv",
];
const RELEASE: &str = "/etc/nv_tegra_release";
/// The only GPU of it.
const GPU: &str = "0";
const MAX_SIZE: u64 = 1 << 20;
const MOST_LINKS: usize = 40;

/// Which lists count, and what of them does not.
#[derive(Clone, Debug, Default)]
pub struct CsvFiles {
    /// As the host names them; one that is not there is passed over.
    pub files: Vec<PathBuf>,
    /// Patterns of paths with `*` and `?`; one that begins `**/` is of the last name.
    pub ignored: Vec<String>,
}

pub(super) fn describe(recipe: &Recipe, host: &Host, config: &Config) -> Result<Draft> {
    if let Some(other) = recipe.devices.iter().find(|it| ![ALL, GPU].contains(&it.as_str())) {
        let what = format!("device {other} is asked for, and Tegra has only {GPU} and {ALL}");
        return Err(Error::new(Code::UnknownDevice, what));
    }
    let root = config.driver_root.clone().unwrap_or_else(|| PathBuf::from("/"));
    let tree = host.below(&root);
    let dev_root = config.dev_root.clone().unwrap_or_else(|| root.clone());
    let mut lists = Lists {
        host,
        tree: &tree,
        root: &root,
        dev_root: &dev_root,
        library_dirs: &recipe.library_dirs,
        draft: Draft::default(),
        nodes: Vec::new(),
        mounted: HashSet::new(),
    };
    for file in &recipe.csv.files {
        let Ok(text) = host.read_text(file, MAX_SIZE) else { continue };
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            lists.read(line, file, &recipe.csv.ignored)?;
        }
    }
    lists.give_file(Path::new(RELEASE));
    let Lists { mut draft, nodes, .. } = lists;
    if nodes.is_empty() {
        let files: Vec<_> = recipe.csv.files.iter().map(|it| it.display().to_string()).collect();
        let what = format!("no device node that is there is in {}", files.join(", "));
        return Err(Error::new(Code::NodeMissing, what));
    }
    let part = Part::of(Parts::without_driver(host, config).given(&nodes)?);
    draft.devices.push(Described { names: vec![GPU.to_owned()], part });
    Ok(draft)
}

/// Reads lists.
struct Lists<'a> {
    host: &'a Host,
    tree: &'a Host,
    root: &'a Path,
    dev_root: &'a Path,
    library_dirs: &'a [PathBuf],
    draft: Draft,
    nodes: Vec<NodeNumbers>,
    mounted: HashSet<PathBuf>,
}

impl Lists<'_> {
    fn read(&mut self, line: &str, file: &Path, ignored: &[String]) -> Result<()> {
        let Some((kind, path)) = line.split_once(',') else {
            self.warn(file, &format!("{line:?} is not type, path"));
            return Ok(());
        };
        let (kind, text) = (kind.trim(), path.trim());
        let path = Path::new(text);
        if !path.is_absolute() || ignored.iter().any(|pattern| is_ignored(pattern, text)) {
            return Ok(());
        }
        match kind {
            "dev" => match gpu::node(self.host, self.dev_root, path) {
                Ok(Some(node)) if !self.nodes.contains(&node) => self.nodes.push(node),
                Ok(Some(_)) => {}
                Ok(None) => self.warn(file, &format!("{text} is not there")),
                Err(error) => self.warn(file, &error.to_string()),
            },
            "dir" => self.give_file(path),
            "lib" => self.give_library(path, file),
            "sym" => self.give_links(path, file),
            other => self.warn(file, &format!("{other:?} is no type of a line")),
        }
        Ok(())
    }

    fn warn(&mut self, file: &Path, what: &str) {
        self.draft.warnings.push(format!("{}: {what}", file.display()));
    }

    fn give_file(&mut self, path: &Path) {
        if self.tree.exists(path) {
            self.mount(path);
        }
    }

    /// Mounts a file at its own path.
    fn mount(&mut self, path: &Path) {
        if self.mounted.insert(path.to_owned()) {
            self.draft.common.mount(&crate::host::below(self.root, path), path);
        }
    }

    /// A library, where links lead to.
    fn give_library(&mut self, path: &Path, file: &Path) {
        let relative = path.strip_prefix("/").unwrap_or(path);
        let elsewhere = self.library_dirs.iter().map(|dir| dir.join(relative));
        let mut places = std::iter::once(path.to_owned()).chain(elsewhere);
        let Some(found) = places.find_map(|place| self.tree.resolve(&place).ok()) else {
            self.warn(file, &format!("{} is not there", path.display()));
            return;
        };
        self.mount(&found);
        let Some(dir) = found.parent() else { return };
        if is_library(&found) && !self.draft.common.folders.iter().any(|folder| folder == dir) {
            self.draft.common.folders.push(dir.to_owned());
        }
        let library = Library::at(self.tree, &found);
        for (link, target) in library.map(|library| library.links).unwrap_or_default() {
            self.link(dir.join(link), target);
        }
    }

    /// The file that a link leads to, and every link of the way.
    fn give_links(&mut self, path: &Path, file: &Path) {
        let Ok(end) = self.tree.resolve(path) else {
            self.warn(file, &format!("{} leads nowhere", path.display()));
            return;
        };
        self.mount(&end);
        let mut step = path.to_owned();
        for _ in 0..MOST_LINKS {
            let Ok(target) = self.tree.read_link(&step) else { break };
            self.link(step.clone(), target.clone());
            step = step.parent().unwrap_or(Path::new("/")).join(target);
        }
    }

    fn link(&mut self, link: PathBuf, target: PathBuf) {
        let link = Link { link, target };
        if !self.draft.common.links.contains(&link) {
            self.draft.common.links.push(link);
        }
    }
}

fn is_library(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("lib") && name.contains(".so")
}

fn is_ignored(pattern: &str, path: &str) -> bool {
    match pattern.strip_prefix("**/") {
        Some(name) => matches(name, path.rsplit('/').next().unwrap_or_default()),
        None => matches(pattern, path),
    }
}

/// Whether `text` is of `pattern`, where `*` is any text without slash and `?` any one character.
fn matches(pattern: &str, text: &str) -> bool {
    let mut pattern_chars = pattern.chars();
    match (pattern_chars.next(), text.chars().next()) {
        (None, None) => true,
        (Some('*'), next) => {
            matches(pattern_chars.as_str(), text)
                || next.is_some_and(|c| c != '/' && matches(pattern, rest(text)))
        }
        (Some('?'), Some(c)) if c != '/' => matches(pattern_chars.as_str(), rest(text)),
        (Some(wanted), Some(c)) if wanted == c => matches(pattern_chars.as_str(), rest(text)),
        _ => false,
    }
}

fn rest(text: &str) -> &str {
    let mut chars = text.chars();
    chars.next();
    chars.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_of_paths_or_of_last_names() {
        for (pattern, path, expected) in [
            ("/usr/lib/*", "/usr/lib/a.so", true),
            ("/usr/lib/*", "/usr/lib/x/a.so", false),
            ("**/lib?.so*", "/usr/lib/x/liba.so.1", true),
            ("**/liba", "/usr/lib/liba.so", false),
            ("/a", "/a", true),
        ] {
            assert_eq!(is_ignored(pattern, path), expected, "{pattern} {path}");
        }
    }
}
