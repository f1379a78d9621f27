//! Facts of an image: loader, C library, architecture, library directories. They are those of the
//! image's own loader, so that libraries lie where it looks without being told.

use std::io;
use std::path::{Path, PathBuf};

use nvidia_oci::elf::{Class, Elf, Machine};
use nvidia_oci::{Code, Image, Libc, Result};

use crate::Rootfs;
use crate::rootfs::refusal;

/// A dynamic loader at the path that its ABI prescribes, with Debian's name of the ABI.
struct Loader {
    path: &'static str,
    libc: Libc,
    triplet: &'static str,
}

const LOADERS: [Loader; 7] = [
    Loader::new("/lib64/ld-linux-x86-64.so.2", Libc::Glibc, "x86_64-linux-gnu"),
    Loader::new("/lib/ld-linux-aarch64.so.1", Libc::Glibc, "aarch64-linux-gnu"),
    Loader::new("/lib/ld-linux.so.2", Libc::Glibc, "i386-linux-gnu"),
    Loader::new("/lib/ld-musl-x86_64.so.1", Libc::Musl, "x86_64-linux-musl"),
    Loader::new("/lib/ld-musl-aarch64.so.1", Libc::Musl, "aarch64-linux-musl"),
    Loader::new("/lib/ld-musl-i386.so.1", Libc::Musl, "i386-linux-musl"),
    Loader::new("/lib/ld-musl-armhf.so.1", Libc::Musl, "arm-linux-musleabihf"),
];

impl Loader {
    const fn new(path: &'static str, libc: Libc, triplet: &'static str) -> Self {
        Self { path, libc, triplet }
    }
}

/// Looks at an image; nothing of it is trusted, nothing is executed.
///
/// # Errors
/// The root filesystem cannot be read at all. What an image lacks, or has in an odd form, is a
/// fact that is not known.
pub fn facts(rootfs: &Rootfs) -> Result<Image> {
    rootfs.metadata(Path::new("/")).map_err(refusal(Code::RootfsUnreadable, Path::new("/")))?;
    let loaders: Vec<(&Loader, Class, Machine)> = LOADERS
        .iter()
        .filter_map(|loader| abi(rootfs, loader).map(|(class, machine)| (loader, class, machine)))
        .collect();
    let mut image = Image::default();
    let libc = libc(rootfs, &loaders);
    for (loader, class, machine) in loaders {
        if Some(loader.libc) != libc {
            continue;
        }
        let directory = Some(library_dir(rootfs, loader, class));
        match class {
            Class::Elf64 if image.library_dir.is_none() => {
                (image.machine, image.library_dir) = (Some(machine), directory);
            }
            Class::Elf32 if image.library_dir_32.is_none() => {
                image.machine = image.machine.or(Some(machine));
                image.library_dir_32 = directory;
            }
            _ => {}
        }
    }
    image.libc = image.machine.and(libc);
    Ok(image)
}

/// Alpine with a layer of glibc compatibility has loaders of both kinds: it is musl, as for
/// NVIDIA's own hook. Debian with the package musl is glibc.
fn libc(rootfs: &Rootfs, loaders: &[(&Loader, Class, Machine)]) -> Option<Libc> {
    let has = |libc| loaders.iter().any(|(loader, ..)| loader.libc == libc);
    match (has(Libc::Glibc), has(Libc::Musl)) {
        (true, true) if exists(rootfs, "/etc/alpine-release") => Some(Libc::Musl),
        (true, _) => Some(Libc::Glibc),
        (false, true) => Some(Libc::Musl),
        (false, false) => None,
    }
}

fn abi(rootfs: &Rootfs, loader: &Loader) -> Option<(Class, Machine)> {
    let file = rootfs.open_file(Path::new(loader.path)).ok()?;
    let elf = Elf::read(&file).ok()?;
    Some((elf.class, elf.machine))
}

/// The directory that holds the image's libc, or would.
fn library_dir(rootfs: &Rootfs, loader: &Loader, class: Class) -> PathBuf {
    if loader.libc == Libc::Musl {
        return "/usr/lib".into();
    }
    let multiarch = format!("/usr/lib/{}", loader.triplet);
    let wide = match class {
        Class::Elf64 => "/usr/lib64",
        Class::Elf32 => "/usr/lib32",
    };
    let has_libc = |directory: &str| {
        let beside_root = directory.strip_prefix("/usr").unwrap_or(directory);
        exists(rootfs, &format!("{directory}/libc.so.6"))
            || exists(rootfs, &format!("{beside_root}/libc.so.6"))
    };
    let debian = || exists(rootfs, "/etc/debian_version");
    let directory = if has_libc(&multiarch) {
        &multiarch
    } else if has_libc(wide) {
        wide
    } else if has_libc("/usr/lib") {
        "/usr/lib"
    } else if debian() || exists(rootfs, &multiarch) {
        &multiarch
    } else if exists(rootfs, wide) {
        wide
    } else {
        "/usr/lib"
    };
    // Arch has /usr/lib64 → lib.
    match rootfs.canonical(Path::new(directory)) {
        Ok(place) if place == Path::new("/usr/lib") => place,
        _ => directory.into(),
    }
}

fn exists(rootfs: &Rootfs, path: &str) -> bool {
    let found: io::Result<_> = rootfs.metadata(Path::new(path));
    found.is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// An ELF header, enough to tell class and machine.
    fn loader(class: u8, machine: u16) -> Vec<u8> {
        let mut bytes = vec![0x7f, b'E', b'L', b'F', class, 1, 1, 0];
        bytes.resize(16, 0);
        bytes.extend(3u16.to_le_bytes());
        bytes.extend(machine.to_le_bytes());
        bytes.resize(if class == 2 { 64 } else { 52 }, 0);
        bytes
    }

    fn image(files: &[(&str, Vec<u8>)], links: &[(&str, &str)]) -> Image {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path.trim_start_matches('/'));
        for (link, target) in links {
            fs::create_dir_all(at(link).parent().unwrap()).unwrap();
            symlink(target, at(link)).unwrap();
        }
        for (path, bytes) in files {
            fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            fs::write(at(path), bytes).unwrap();
        }
        facts(&Rootfs::open(dir.path()).unwrap()).unwrap()
    }

    fn directory(path: &str) -> Option<PathBuf> {
        Some(path.into())
    }

    #[test]
    fn debian_with_merged_usr_and_i386() {
        let links = [("/lib", "usr/lib"), ("/lib64", "usr/lib64")];
        let files = [
            ("/usr/lib64/ld-linux-x86-64.so.2", loader(2, 62)),
            ("/usr/lib/ld-linux.so.2", loader(1, 3)),
            ("/usr/lib/x86_64-linux-gnu/libc.so.6", vec![]),
            ("/usr/lib/i386-linux-gnu/libc.so.6", vec![]),
            ("/etc/debian_version", vec![]),
        ];
        let image = image(&files, &links);
        assert_eq!(image.machine, Some(Machine::X86_64));
        assert_eq!(image.libc, Some(Libc::Glibc));
        assert_eq!(image.library_dir, directory("/usr/lib/x86_64-linux-gnu"));
        assert_eq!(image.library_dir_32, directory("/usr/lib/i386-linux-gnu"));
    }

    #[test]
    fn rhel_keeps_lib64_though_a_multiarch_directory_strayed_in() {
        let links = [("/lib64", "usr/lib64"), ("/lib", "usr/lib")];
        let files = [
            ("/usr/lib64/ld-linux-x86-64.so.2", loader(2, 62)),
            ("/usr/lib64/libc.so.6", vec![]),
            ("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", vec![]),
        ];
        let image = image(&files, &links);
        assert_eq!(image.library_dir, directory("/usr/lib64"));
        assert_eq!(image.library_dir_32, None);
    }

    #[test]
    fn arch_has_one_library_directory() {
        let links = [("/lib64", "usr/lib"), ("/lib", "usr/lib"), ("/usr/lib64", "lib")];
        let files =
            [("/usr/lib/ld-linux-x86-64.so.2", loader(2, 62)), ("/usr/lib/libc.so.6", vec![])];
        assert_eq!(image(&files, &links).library_dir, directory("/usr/lib"));
    }

    #[test]
    fn arm64() {
        let files = [
            ("/lib/ld-linux-aarch64.so.1", loader(2, 183)),
            ("/lib/aarch64-linux-gnu/libc.so.6", vec![]),
        ];
        let image = image(&files, &[]);
        assert_eq!(image.machine, Some(Machine::Aarch64));
        assert_eq!(image.library_dir, directory("/usr/lib/aarch64-linux-gnu"));
    }

    #[test]
    fn alpine_with_a_compatibility_loader_is_musl() {
        let files = [
            ("/lib/ld-musl-x86_64.so.1", loader(2, 62)),
            ("/lib64/ld-linux-x86-64.so.2", loader(2, 62)),
            ("/etc/alpine-release", vec![]),
        ];
        let image = image(&files, &[]);
        assert_eq!(image.libc, Some(Libc::Musl));
        assert_eq!(image.library_dir, directory("/usr/lib"));
    }

    #[test]
    fn a_static_image_and_a_loader_that_is_none() {
        assert_eq!(image(&[], &[]), Image::default());
        let files = [("/lib64/ld-linux-x86-64.so.2", b"#!/bin/sh".to_vec())];
        assert_eq!(image(&files, &[]), Image::default());
    }
}
