//! Files of the driver: where each goes in the container, and the links and loader folders that
//! make it found there.

use std::collections::HashSet;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::{Fixups, LibraryEntry, Link, vendor};
use crate::capability::Granted;
use crate::driver::{MANDATORY, is_library};
use crate::elf::Class;
use crate::report::{Item, ItemKind, Report};
use crate::{
    Capabilities, Code, Config, Driver, DriverFile, Edits, Error, FileKind, Handler, Host, Image,
    Library, Mount, Result, trust,
};

/// A file may be read and executed; a socket of one of the driver's daemons also written to.
pub(crate) const FILE_OPTIONS: [&str; 5] = ["ro", "nosuid", "nodev", "rbind", "rprivate"];
const SOCKET_OPTIONS: [&str; 5] = ["nosuid", "nodev", "rbind", "rprivate", "noexec"];

/// Collects mounts and fix-ups.
pub(super) struct Files<'a> {
    pub(super) host: &'a Host,
    pub(super) config: &'a Config,
    pub(super) handler: Handler,
    pub(super) image: &'a Image,
    pub(super) driver: &'a Driver,
    pub(super) granted: &'a Granted,
    pub(super) edits: &'a mut Edits,
    pub(super) fixups: &'a mut Fixups,
    pub(super) report: &'a mut Report,
    pub(super) taken: Taken,
}

/// Paths of the container that are given already: each once.
#[derive(Default)]
pub(super) struct Taken {
    mounts: HashSet<PathBuf>,
    links: HashSet<PathBuf>,
    entries: HashSet<PathBuf>,
}

impl Files<'_> {
    /// Gives what the driver has for the granted capabilities.
    ///
    /// # Errors
    /// [`Code::LibraryMissing`] or [`Code::LibraryUnreadable`]: one that a capability is nothing
    /// without.
    pub(super) fn give(&mut self) -> Result<()> {
        let driver = self.driver;
        let capabilities = self.granted.capabilities;
        for (capability, names) in MANDATORY {
            if self.granted.mandatory.meets(capability) {
                self.find_any(names, capability)?;
            }
        }
        for library in &driver.libraries {
            if library.is_for(capabilities) {
                self.give_library(library);
            } else {
                let needed = match library.class {
                    Class::Elf64 => library.capabilities(),
                    Class::Elf32 => library.capabilities().or(Capabilities::COMPAT32),
                };
                self.withhold(ItemKind::Library, &driver.host_path(&library.path), needed);
            }
        }
        // Names of X modules, which are given with the files below.
        if capabilities.meets(Capabilities::GRAPHICS) {
            for (link, target) in &driver.links {
                self.give_link(link.clone(), target, "name of an X module");
            }
        }
        for file in &driver.files {
            if file.capabilities().meets(capabilities) {
                self.give_file(file);
            } else {
                self.withhold(ItemKind::File, &file.source, file.capabilities());
            }
        }
        self.give_vendor_files();
        for (path, error) in &driver.left_out {
            let name = path.display().to_string();
            self.report.withheld.push(Item::new(ItemKind::File, name, error.as_str()));
        }
        Ok(())
    }

    /// Sees to it that one of the libraries is there.
    fn find_any(&self, names: &[&str], capability: Capabilities) -> Result<()> {
        let driver = self.driver;
        let is =
            |library: &Library| library.class == Class::Elf64 && names.contains(&library.name());
        if driver.libraries.iter().any(is) {
            return Ok(());
        }
        let mut left_out = driver.left_out.iter();
        let damaged = |path: &Path| names.iter().any(|name| is_library(path, name));
        if let Some((path, error)) = left_out.find(|(path, _)| damaged(path)) {
            let what = format!("{}, which {capability} is nothing without", path.display());
            return Err(Error::caused(Code::LibraryUnreadable, what, error.as_str()));
        }
        let what = format!(
            "driver {} in {} has no {}.so, which {capability} is nothing without",
            driver.version,
            driver.root.display(),
            names.join(".so or "),
        );
        Err(Error::new(Code::LibraryMissing, what))
    }

    /// Writes what leads a container to the libraries that it has, where the driver came without.
    fn give_vendor_files(&mut self) {
        let given: Vec<&str> = self
            .driver
            .libraries
            .iter()
            .filter(|library| library.class == Class::Elf64)
            .filter(|library| library.is_for(self.granted.capabilities))
            .filter_map(|library| library.soname.as_deref())
            .collect();
        for file in vendor::missing(&given, &self.edits.mounts, &self.driver.version) {
            let shown = file.path.display().to_string();
            self.report.given.push(Item::new(
                ItemKind::File,
                shown,
                "written, the driver has none",
            ));
            self.fixups.files.push(file);
        }
    }

    fn withhold(&mut self, kind: ItemKind, source: &Path, needed: Capabilities) {
        let reason = format!("for {needed}; granted are {}", self.granted.capabilities);
        self.report.withheld.push(Item::new(kind, source.display().to_string(), reason));
    }

    /// Where the driver's own libraries are in the container, joined as in `PATH`.
    pub(super) fn driver_directories(&self) -> String {
        let mut directories: Vec<String> = Vec::new();
        for library in &self.driver.libraries {
            let of_driver = library.path.to_string_lossy().ends_with(&self.driver.version);
            let given = library.is_for(self.granted.capabilities);
            let main = library.class == Class::Elf64 && library.subdir.as_os_str().is_empty();
            if !(given && main && of_driver) {
                continue;
            }
            let directory = self.directory(library).display().to_string();
            if !directories.contains(&directory) {
                directories.push(directory);
            }
        }
        directories.join(":")
    }

    fn give_library(&mut self, library: &Library) {
        let Some(file) = library.path.file_name() else { return };
        let directory = self.directory(library);
        let path = directory.join(file);
        let reason = reason(library);
        let source = self.driver.host_path(&library.path);
        if !self.mount(source, &path, &FILE_OPTIONS, ItemKind::Library, &reason) {
            return;
        }
        if !self.fixups.library_dirs.contains(&directory) {
            self.fixups.library_dirs.push(directory.clone());
        }
        let name = file.to_string_lossy();
        self.enter(library.soname.as_deref().unwrap_or(&name), &directory, library);
        for (link, target) in &library.links {
            self.give_link(directory.join(link), target, "name of a library");
            // What lies deeper is loaded by its path.
            if let Some(name) = link.to_str().filter(|_| link.components().count() == 1) {
                self.enter(name, &directory, library);
            }
        }
    }

    fn give_file(&mut self, file: &DriverFile) {
        let (reason, options) = match file.kind {
            FileKind::Binary => ("driver program", FILE_OPTIONS),
            FileKind::Firmware => ("GSP firmware", FILE_OPTIONS),
            FileKind::Socket => ("socket of a driver daemon", SOCKET_OPTIONS),
            FileKind::Module => ("X module", FILE_OPTIONS),
            FileKind::Data => ("data of graphics and OpenCL", FILE_OPTIONS),
        };
        if file.kind == FileKind::Socket && !self.config.sockets {
            let reason = "nvcdi-feature-flags has disable-ipc-discoverer";
            let name = file.source.display().to_string();
            self.report.withheld.push(Item::new(ItemKind::File, name, reason));
            return;
        }
        if file.kind == FileKind::Socket && !self.is_trusted_socket(&file.source) {
            let reason = "optional, and others than root own it";
            let name = file.source.display().to_string();
            self.report.withheld.push(Item::new(ItemKind::File, name, reason));
            return;
        }
        self.mount(file.source.clone(), &file.destination, &options, ItemKind::File, reason);
    }

    /// A directory of sockets lies in `/tmp`, where anybody could have made it, and could put a
    /// link to any other in its place.
    fn is_trusted_socket(&self, source: &Path) -> bool {
        self.host.symlink_metadata(source).is_ok_and(|found| {
            let made_by_root = found.is_dir()
                && found.uid() == 0
                && trust::check_above(self.host, source, "directory of sockets").is_ok();
            found.file_type().is_socket() || made_by_root
        })
    }

    /// Says whether the place was free.
    fn mount(
        &mut self,
        source: PathBuf,
        destination: &Path,
        options: &[&str],
        kind: ItemKind,
        reason: &str,
    ) -> bool {
        let shown = destination.display().to_string();
        if !self.taken.mounts.insert(destination.to_path_buf()) {
            let reason = format!("{shown} is taken by another file of that name");
            let name = source.display().to_string();
            self.report.withheld.push(Item::new(kind, name, reason));
            return false;
        }
        self.report.given.push(Item::new(kind, shown, reason));
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let (destination, kind) = (destination.to_path_buf(), "bind".to_owned());
        self.edits.mounts.push(Mount { source, destination, kind, options });
        true
    }

    fn give_link(&mut self, link: PathBuf, target: &Path, reason: &str) {
        if !self.taken.mounts.contains(&link) && self.taken.links.insert(link.clone()) {
            let shown = format!("{} -> {}", link.display(), target.display());
            self.report.given.push(Item::new(ItemKind::Link, shown, reason));
            self.fixups.links.push(Link { link, target: target.to_path_buf() });
        }
    }

    fn enter(&mut self, name: &str, directory: &Path, library: &Library) {
        let path = directory.join(name);
        if self.taken.entries.insert(path.clone()) {
            let (class, machine) = (library.class, library.machine);
            let entry = LibraryEntry { soname: name.to_owned(), path, class, machine };
            self.fixups.libraries.push(entry);
        }
    }

    /// The directory of a library in the container.
    fn directory(&self, library: &Library) -> PathBuf {
        match self.image_directory(library.class) {
            // Not `join`: that of an empty path leaves a slash at the end.
            Some(directory) => directory.iter().chain(&library.subdir).collect(),
            None => library.path.parent().unwrap_or(Path::new("/")).to_path_buf(),
        }
    }

    fn image_directory(&self, class: Class) -> Option<&Path> {
        if !self.config.library_at_image(self.handler) {
            return None;
        }
        match class {
            Class::Elf64 => self.image.library_dir.as_deref(),
            Class::Elf32 => self.image.library_dir_32.as_deref(),
        }
    }
}

fn reason(library: &Library) -> String {
    let mut mandatory = MANDATORY.iter().filter(|(_, names)| names.contains(&library.name()));
    match mandatory.next() {
        Some((capability, _)) if library.class == Class::Elf64 => {
            format!("{capability}, mandatory")
        }
        _ if library.class == Class::Elf32 => "driver library, 32 bits".to_owned(),
        _ => "driver library".to_owned(),
    }
}
