//! An image, a snapshot of it as containerd's overlay snapshotter lays it out, and what a driver
//! would bring.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use nvidia_hook::{Look, Prepared, RootfsMount};
use nvidia_oci::elf::{Class, Machine};
use nvidia_oci::{Edits, Fixups, GeneratedFile, LibraryEntry, Link, Mount, Result, Spec};

pub(crate) const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";
/// A directory that no loader searches by itself: libraries in default directories would be found
/// without a cache, and hide mistakes in it.
pub(crate) const LIBRARIES: &str = "/opt/gpu/lib";

/// A temporary directory with a bundle, an image of two layers and a snapshot.
pub(crate) struct Fixture {
    pub dir: tempfile::TempDir,
    /// Where in it everything is.
    place: PathBuf,
}

impl Fixture {
    /// An image with a glibc loader, `/etc` and `/usr/lib`.
    pub(crate) fn new() -> Self {
        Self::below(Path::new(""))
    }

    /// The same in a directory of this name.
    pub(crate) fn below(name: &Path) -> Self {
        let fixture = Self { dir: tempfile::tempdir().unwrap(), place: name.to_owned() };
        for directory in ["bundle/rootfs", "1/fs", "2/fs", "3/fs", "3/work", "driver"] {
            fs::create_dir_all(fixture.path(directory)).unwrap();
        }
        let base = fixture.path("1/fs");
        for directory in ["etc", "usr/lib/x86_64-linux-gnu", "usr/lib64", "proc", "dev", "opt"] {
            fs::create_dir_all(base.join(directory)).unwrap();
        }
        symlink("usr/lib", base.join("lib")).unwrap();
        symlink("usr/lib64", base.join("lib64")).unwrap();
        fs::copy(LOADER, base.join("usr/lib64/ld-linux-x86-64.so.2")).unwrap();
        fs::write(base.join("usr/lib/x86_64-linux-gnu/libc.so.6"), "").unwrap();
        fs::create_dir_all(fixture.path("2/fs/etc")).unwrap();
        fs::write(fixture.path("2/fs/etc/hostname"), "image\n").unwrap();
        for file in ["libcuda.so.550", "nvidia-smi"] {
            fs::write(fixture.path("driver").join(file), "").unwrap();
        }
        fs::create_dir(fixture.path("driver/firmware")).unwrap();
        fixture
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(&self.place).join(path)
    }

    pub(crate) fn bundle(&self) -> PathBuf {
        self.path("bundle")
    }

    /// The upper directory of the snapshot.
    pub(crate) fn upper(&self) -> PathBuf {
        self.path("3/fs")
    }

    /// The layer of ours.
    pub(crate) fn layer(&self) -> PathBuf {
        self.path("3/nvidia-shim-layer")
    }

    /// The mount that containerd asks for.
    pub(crate) fn overlay(&self) -> RootfsMount {
        self.overlay_of(|path| path)
    }

    /// The same, with paths escaped as overlayfs wants them.
    pub(crate) fn overlay_escaped(&self) -> RootfsMount {
        let escape = |path: String| path.replace('\\', "\\\\").replace(':', "\\:");
        self.overlay_of(|path| escape(path).replace(',', "\\,"))
    }

    fn overlay_of(&self, escaped: impl Fn(String) -> String) -> RootfsMount {
        let path = |path: &str| escaped(self.path(path).display().to_string());
        mount(
            "overlay",
            "overlay",
            &[
                "index=off".to_owned(),
                format!("workdir={}", path("3/work")),
                format!("upperdir={}", path("3/fs")),
                format!("lowerdir={}:{}", path("2/fs"), path("1/fs")),
            ],
        )
    }

    /// The same without upper directory.
    pub(crate) fn view(&self) -> RootfsMount {
        let (two, one) = (self.path("2/fs"), self.path("1/fs"));
        mount("overlay", "overlay", &[format!("lowerdir={}:{}", two.display(), one.display())])
    }

    /// A bind mount of the lowest layer, as the native snapshotter has it.
    pub(crate) fn bind(&self, access: &str) -> RootfsMount {
        let source = self.path("1/fs").display().to_string();
        mount("bind", &source, &["rbind".to_owned(), access.to_owned()])
    }

    /// What a driver of one library brings.
    pub(crate) fn edits(&self) -> Edits {
        let bind = |source: &str, destination: &str| Mount {
            source: self.path("driver").join(source),
            destination: destination.into(),
            kind: "bind".to_owned(),
            options: ["bind", "ro"].map(str::to_owned).to_vec(),
        };
        Edits {
            mounts: vec![
                bind("libcuda.so.550", "/opt/gpu/lib/libcuda.so.550"),
                bind("nvidia-smi", "/usr/bin/nvidia-smi"),
                bind("firmware", "/lib/firmware/nvidia/550"),
            ],
            ..Edits::default()
        }
    }

    /// The edited spec, with more mounts as JSON.
    pub(crate) fn spec(&self, more: &str) -> Spec {
        let mut spec = serde_json::json!({
            "root": {"path": "rootfs"},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
            ],
        });
        let mounts = spec["mounts"].as_array_mut().unwrap();
        let more: serde_json::Value = serde_json::from_str(more).unwrap();
        mounts.extend(more.as_array().unwrap().iter().cloned());
        for edit in self.edits().mounts {
            mounts.push(serde_json::json!({
                "destination": edit.destination, "type": "bind", "source": edit.source,
                "options": edit.options,
            }));
        }
        Spec::new(spec)
    }

    pub(crate) fn apply(&self, mounts: &[RootfsMount]) -> Result<Prepared> {
        self.apply_with(mounts, &fixups(), &self.spec("[]"))
    }

    pub(crate) fn apply_with(
        &self,
        mounts: &[RootfsMount],
        fixups: &Fixups,
        spec: &Spec,
    ) -> Result<Prepared> {
        let look = Look::open(mounts, &self.bundle(), spec)?;
        let image = nvidia_hook::facts(look.rootfs())?;
        look.apply(&image, fixups, &self.edits(), spec)
    }
}

pub(crate) fn mount(kind: &str, source: &str, options: &[String]) -> RootfsMount {
    RootfsMount {
        kind: kind.to_owned(),
        source: source.to_owned(),
        target: String::new(),
        options: options.to_vec(),
    }
}

pub(crate) const VENDOR_FILE: &str = "/usr/share/glvnd/egl_vendor.d/10_nvidia.json";

/// A library outside of the default directories, with its SONAME link.
pub(crate) fn fixups() -> Fixups {
    Fixups {
        links: vec![link("/opt/gpu/lib/libcuda.so.1", "libcuda.so.550")],
        library_dirs: vec![LIBRARIES.into()],
        libraries: vec![library("libcuda.so.1")],
        files: vec![GeneratedFile { path: VENDOR_FILE.into(), content: "{}\n".to_owned() }],
        ..Fixups::default()
    }
}

pub(crate) fn link(link: &str, target: &str) -> Link {
    Link { link: link.into(), target: target.into() }
}

pub(crate) fn library(soname: &str) -> LibraryEntry {
    LibraryEntry {
        soname: soname.to_owned(),
        path: Path::new(LIBRARIES).join(soname),
        class: Class::Elf64,
        machine: Machine::X86_64,
    }
}

/// Everything about a tree that a write could change, by path.
pub(crate) fn record(tree: &Path) -> BTreeMap<PathBuf, String> {
    let mut record = BTreeMap::new();
    let mut pending = vec![tree.to_owned()];
    while let Some(path) = pending.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let kind = metadata.file_type();
        let content = if kind.is_symlink() {
            fs::read_link(&path).unwrap().display().to_string()
        } else if kind.is_file() {
            format!("{:?}", fs::read(&path).unwrap())
        } else if kind.is_fifo() || kind.is_char_device() {
            format!("{kind:?} {}", metadata.rdev())
        } else {
            pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            String::new()
        };
        let (mode, uid, gid) = (metadata.mode(), metadata.uid(), metadata.gid());
        record.insert(
            path.strip_prefix(tree).unwrap().to_owned(),
            format!("{mode:o} {uid}:{gid} {content}"),
        );
    }
    record
}

/// Paths below a tree, its own root left out.
pub(crate) fn names(tree: &Path) -> Vec<String> {
    record(tree)
        .into_keys()
        .map(|path| path.display().to_string())
        .filter(|p| !p.is_empty())
        .collect()
}
