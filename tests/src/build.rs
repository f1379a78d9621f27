//! The programs under test, and the static probe, built once in a test process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Cargo's target directory.
pub(crate) fn target_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        // target/PROFILE/deps/TEST-HASH or target/PROFILE/BIN
        let program = std::env::current_exe().expect("the running program");
        let profile = program.ancestors().find(|dir| dir.join("deps").is_dir());
        profile.and_then(Path::parent).expect("a program below target/").to_owned()
    })
}

/// A directory below `target/` for what the harness builds and keeps.
pub fn scratch() -> PathBuf {
    let dir = target_dir().join("e2e");
    fs::create_dir_all(&dir).expect("target/e2e");
    dir
}

/// The directory with shims, OCI runtime and `nvidia-shim`, built from this work tree; another one that
/// holds them if `NVS_PROGRAMS` names it, as `make bench` does with those of `make release`.
pub fn product() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(dir) = std::env::var_os("NVS_PROGRAMS") {
            return PathBuf::from(dir);
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        succeed(
            Command::new(cargo)
                .args(["build", "--quiet", "--workspace", "--bins"])
                .arg("--manifest-path")
                .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml"))
                .arg("--target-dir")
                .arg(target_dir()),
        );
        let built = target_dir().join("debug");
        let dir = scratch().join("bin");
        fs::create_dir_all(&dir).expect("target/e2e/bin");
        for (name, file) in [
            ("containerd-shim-nvidia-v2", "containerd-shim-nvidia-v2"),
            ("containerd-shim-nvidia-cdi-v2", "containerd-shim-nvidia-v2"),
            ("nvidia-container-runtime", "containerd-shim-nvidia-v2"),
            ("nvidia-container-runtime.cdi", "containerd-shim-nvidia-v2"),
            ("nvidia-container-runtime.legacy", "containerd-shim-nvidia-v2"),
            ("nvidia-container-runtime-experimental", "containerd-shim-nvidia-v2"),
            ("nvidia-shim", "nvidia-shim"),
            ("nvidia-cdi-hook", "nvidia-cdi-hook"),
        ] {
            place(&built.join(file), &dir.join(name));
        }
        dir
    })
}

/// The probe for images with a glibc: dynamic, as this machine's compiler links it.
pub(crate) fn probe() -> PathBuf {
    target_dir().join("debug/probe")
}

/// The probe for images without a loader.
pub(crate) fn static_probe() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let program = scratch().join("probe-static");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin/probe.rs");
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let partial = scratch().join(format!("probe-static.{}", std::process::id()));
        succeed(
            Command::new(rustc)
                .args(["--edition", "2024", "--crate-name", "probe", "-C", "strip=symbols"])
                .args(["-C", "target-feature=+crt-static", "-o"])
                .args([&partial, &source]),
        );
        fs::rename(partial, &program).expect("target/e2e/probe-static");
        program
    })
}

/// Replaces `name` by a hard link to `file`; a running program of that name goes on.
fn place(file: &Path, name: &Path) {
    let partial = name.with_extension(std::process::id().to_string());
    fs::hard_link(file, &partial)
        .and_then(|()| fs::rename(&partial, name))
        .unwrap_or_else(|error| panic!("{}: {error}", name.display()));
    // A rename onto another name of the same file leaves both.
    let _ = fs::remove_file(partial);
}

/// Runs a program that must succeed; its words are those of the panic if it does not.
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}{errors}", output.status);
    text
}
