//! musl has no cache: its loader searches the directories of `/etc/ld-musl-ARCH.path`, or, where
//! an image has no such file, three that are built in.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nvidia_oci::elf::Machine;
use nvidia_oci::{Code, Fixups, Image, Result};

use crate::rootfs::refusal;
use crate::target::{Place, Target};

/// `ldso/dynlink.c` of musl.
const BUILT_IN: [&str; 3] = ["/lib", "/usr/local/lib", "/usr/lib"];
const MAX_PATHS: u64 = 64 * 1024;

/// Adds the library directories that the image's loader does not search yet.
pub(crate) fn apply(target: &mut Target<'_>, image: &Image, fixups: &Fixups) -> Result<()> {
    let Some(arch) = image.machine.and_then(arch) else { return Ok(()) };
    let path = format!("/etc/ld-musl-{arch}.path");
    let path = Path::new(&path);
    let mut paths = match target.view().read(path, MAX_PATHS) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => BUILT_IN.join("\n").into_bytes(),
        Err(error) => return Err(refusal(Code::FixupFailed, path)(error)),
    };
    let before = paths.len();
    for directory in &fixups.library_dirs {
        let directory = directory.as_os_str().as_bytes();
        if !paths.split(|byte| matches!(byte, b'\n' | b':')).any(|known| known == directory) {
            if !paths.ends_with(b"\n") {
                paths.push(b'\n');
            }
            paths.extend_from_slice(directory);
            paths.push(b'\n');
        }
    }
    if paths.len() == before {
        return Ok(());
    }
    match target.place(path)? {
        Place::Here(place) => target.put_file(&place, &paths)?,
        Place::InMount => target.by_hook().add_folders(&fixups.library_dirs),
        Place::Hidden => {}
    }
    Ok(())
}

/// The name of the architecture in file names of musl.
fn arch(machine: Machine) -> Option<&'static str> {
    match machine {
        Machine::X86_64 => Some("x86_64"),
        Machine::Aarch64 => Some("aarch64"),
        Machine::X86 => Some("i386"),
        Machine::Arm => Some("armhf"),
        Machine::Other(_) => None,
    }
}
