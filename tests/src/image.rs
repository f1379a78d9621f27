//! Images made on the spot, as OCI layouts in a tar file that `ctr images import` reads.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::build::{probe, scratch, static_probe, succeed};
use crate::release::fetched;

/// An image: its name, and what fills the directory of each of its layers.
#[derive(Clone, Copy)]
pub struct Image {
    name: &'static str,
    layers: &'static [fn(&Path)],
}

/// busybox and the probe, both static: no loader, no libc. Also the pause image.
pub const BUSYBOX: Image = Image { name: "busybox", layers: &[busybox_whole] };
/// The same in four layers.
pub const BUSYBOX_LAYERED: Image =
    Image { name: "busybox-layered", layers: &[busybox, accounts, busybox_probe, marker] };
/// Debian's glibc with its loader cache, busybox, `ldconfig`, and the probe, dynamic.
pub const GLIBC: Image = Image { name: "glibc", layers: &[glibc_whole] };
/// The same in four layers.
pub const GLIBC_LAYERED: Image =
    Image { name: "glibc-layered", layers: &[glibc, glibc_tools, accounts, marker] };

impl Image {
    /// An image of one layer, for attacks.
    pub const fn hostile(name: &'static str, layers: &'static [fn(&Path)]) -> Self {
        Self { name, layers }
    }

    /// What containerd calls it.
    pub fn reference(&self) -> String {
        format!("test.invalid/{}:latest", self.name)
    }

    /// Its layers as one directory.
    pub fn unpack(&self, dir: &Path) {
        fs::create_dir_all(dir).expect("rootfs");
        self.layers.iter().for_each(|fill| fill(dir));
    }

    /// The image as a tar file, made once in a test process.
    pub(crate) fn archive(&self) -> PathBuf {
        static MADE: Mutex<BTreeMap<&str, PathBuf>> = Mutex::new(BTreeMap::new());
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        made.entry(self.name).or_insert_with(|| self.make()).clone()
    }

    fn make(&self) -> PathBuf {
        let work = tempfile::tempdir_in(scratch()).expect("a directory");
        let dir = work.path();
        let layout = dir.join("layout");
        fs::create_dir_all(layout.join("blobs/sha256")).expect("layout");
        let mut layers = Vec::new();
        for fill in self.layers {
            let root = tempfile::tempdir_in(dir).expect("a layer's directory");
            fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
            fill(root.path());
            let tar = dir.join("layer.tar");
            pack(root.path(), &tar);
            layers.push(store(&layout, &fs::read(&tar).expect("layer.tar"), LAYER));
        }
        let diff_ids: Vec<_> = layers.iter().map(|layer| layer["digest"].clone()).collect();
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {"Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"], "Cmd": ["/bin/sleep", "1000000"]},
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        let config = store(&layout, config.to_string().as_bytes(), CONFIG);
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers,
        });
        let mut manifest = store(&layout, manifest.to_string().as_bytes(), MANIFEST);
        manifest["annotations"] = json!({"io.containerd.image.name": self.reference()});
        let index = json!({"schemaVersion": 2, "manifests": [manifest]});
        fs::write(layout.join("index.json"), index.to_string()).expect("index.json");
        fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)
            .expect("oci-layout");
        let archive = scratch().join(format!("image-{}.tar", self.name));
        pack(&layout, &dir.join("image.tar"));
        fs::rename(dir.join("image.tar"), &archive).expect("an image's file");
        archive
    }
}

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Adds a blob and describes it.
fn store(layout: &Path, bytes: &[u8], media_type: &str) -> Value {
    let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    fs::write(layout.join("blobs/sha256").join(&digest), bytes).expect("a blob");
    json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": bytes.len()})
}

fn pack(dir: &Path, archive: &Path) {
    succeed(
        Command::new("tar")
            .arg("-C")
            .arg(dir)
            .arg("--numeric-owner")
            .arg("-cf")
            .arg(archive)
            .arg("."),
    );
}

fn busybox_whole(root: &Path) {
    for fill in [busybox, accounts, busybox_probe] {
        fill(root);
    }
}

fn glibc_whole(root: &Path) {
    for fill in [glibc, glibc_tools, accounts] {
        fill(root);
    }
}

/// busybox with links for its applets.
fn busybox(root: &Path) {
    let bin = root.join("bin");
    fs::create_dir_all(&bin).expect("bin");
    for dir in ["etc", "proc", "sys", "dev", "tmp", "root", "usr/lib"] {
        fs::create_dir_all(root.join(dir)).expect(dir);
    }
    let busybox = debian("bin/busybox");
    copy(&busybox, &bin.join("busybox"));
    // Not the copy: another thread may start a program while it is open for writing.
    for applet in succeed(Command::new(&busybox).arg("--list")).lines() {
        let link = bin.join(applet);
        if applet != "busybox" && !link.exists() {
            symlink("busybox", link).expect("an applet");
        }
    }
}

fn busybox_probe(root: &Path) {
    fs::create_dir_all(root.join("bin")).expect("bin");
    copy(static_probe(), &root.join("bin/probe"));
}

fn accounts(root: &Path) {
    fs::create_dir_all(root.join("etc")).expect("etc");
    fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").expect("passwd");
    fs::write(root.join("etc/group"), "root:x:0:\n").expect("group");
}

fn marker(root: &Path) {
    fs::create_dir_all(root.join("etc")).expect("etc");
    fs::write(root.join("etc/topmost-layer"), "yes\n").expect("marker");
}

/// A merged-/usr Debian of libc and loader, with busybox as its shell.
fn glibc(root: &Path) {
    for (name, target) in
        [("lib", "usr/lib"), ("lib64", "usr/lib64"), ("bin", "usr/bin"), ("sbin", "usr/sbin")]
    {
        fs::create_dir_all(root.join(target)).expect(target);
        symlink(target, root.join(name)).expect(name);
    }
    busybox(root);
    // Through the links above, as dpkg does.
    for dir in ["lib", "lib64", "usr", "etc"] {
        let source = fetched("image").join(dir);
        if source.is_dir() {
            let target = root.join(dir);
            fs::create_dir_all(&target).expect(dir);
            succeed(Command::new("cp").args(["-a", "-T"]).arg(&source).arg(target.join(".")));
        }
    }
    for unused in ["usr/share", "usr/lib/x86_64-linux-gnu/gconv"] {
        let _ = fs::remove_dir_all(root.join(unused));
    }
}

/// `ldconfig` and its cache, and the probe.
fn glibc_tools(root: &Path) {
    for dir in ["usr/sbin", "usr/bin", "etc"] {
        fs::create_dir_all(root.join(dir)).expect(dir);
    }
    copy(&debian("sbin/ldconfig"), &root.join("usr/sbin/ldconfig"));
    copy(&probe(), &root.join("usr/bin/probe"));
    // The cache is that of the whole image, whatever layer this is.
    let whole = tempfile::tempdir().expect("a directory");
    glibc(whole.path());
    succeed(Command::new("ldconfig").arg("-r").arg(whole.path()));
    copy(&whole.path().join("etc/ld.so.cache"), &root.join("etc/ld.so.cache"));
}

/// A file of the fetched Debian packages, which may or may not be of a merged /usr.
fn debian(path: &str) -> PathBuf {
    let root = fetched("image");
    let places = [root.join(path), root.join("usr").join(path)];
    places
        .into_iter()
        .find(|place| place.is_file())
        .unwrap_or_else(|| panic!("{path} in Debian's packages"))
}

fn copy(from: &Path, to: &Path) {
    fs::copy(from, to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
}
