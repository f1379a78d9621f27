//! Discovery in the real drivers of Debian, 535 and 550, which `fetch-drivers` brings.
//!
//! What must be found is taken from the packages themselves: their libraries, and the links that
//! Debian made of the SONAMEs.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nvidia_oci::elf::{Class, Machine};
use nvidia_oci::{Capabilities, Config, Driver, FileKind, Host};
use tests::drivers;

const DRIVERS: [(&str, &str); 2] = [("535", "535.261.03"), ("550", "550.163.01")];
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const CURRENT: &str = "usr/lib/x86_64-linux-gnu/nvidia/current";
const DIRS_32: [&str; 2] = ["usr/lib/i386-linux-gnu", "usr/lib/i386-linux-gnu/nvidia/current"];

fn discover(root: &Path, version: &str) -> Driver {
    Driver::discover(&Host::new(root), &Config::default(), Some(version)).unwrap()
}

/// Regular files of the packages that are libraries of the driver, below the root.
fn packaged(root: &Path, dirs: [&str; 2]) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for dir in dirs {
        for entry in fs::read_dir(root.join(dir)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            // One of these has no version and is for the Windows side of Proton.
            let library = name.contains(".so.") && name != "libnvidia-api.so.1";
            if entry.file_type().unwrap().is_file() && library {
                found.insert(Path::new("/").join(dir).join(name));
            }
        }
    }
    found
}

/// Links of the packages that lead to one of their libraries: link and its end, below the root.
fn packaged_links(root: &Path, libraries: &BTreeSet<PathBuf>) -> BTreeSet<(PathBuf, PathBuf)> {
    let host = Host::new(root);
    let mut found = BTreeSet::new();
    for dir in [LIBRARIES, CURRENT] {
        for entry in fs::read_dir(root.join(dir)).unwrap() {
            let entry = entry.unwrap();
            let link = Path::new("/").join(dir).join(entry.file_name());
            let end = host.resolve(&link).unwrap();
            if entry.file_type().unwrap().is_symlink() && libraries.contains(&end) {
                found.insert((link, end));
            }
        }
    }
    found
}

fn check_libraries(root: &Path, version: &str) -> Driver {
    let driver = discover(root, version);
    assert_eq!((driver.root.as_path(), driver.version.as_str()), (Path::new("/"), version));
    assert_eq!(driver.left_out, []);
    let expected = packaged(root, [LIBRARIES, CURRENT]);
    let found: BTreeSet<_> = driver.libraries.iter().map(|library| library.path.clone()).collect();
    assert_eq!(found, expected);
    assert!(found.len() > 25, "{found:?}");
    for library in &driver.libraries {
        assert_eq!((library.class, library.machine), (Class::Elf64, Machine::X86_64));
    }

    let ours: BTreeSet<(PathBuf, PathBuf)> = driver
        .libraries
        .iter()
        .flat_map(|library| {
            let dir = library.path.parent().unwrap();
            library.links.iter().map(|(link, _)| (dir.join(link), library.path.clone()))
        })
        .collect();
    for (link, end) in packaged_links(root, &expected) {
        // Debian has it beside its target; programs look in gbm/, where ours is.
        if link.ends_with("nvidia-drm_gbm.so") {
            assert!(ours.contains(&(end.with_file_name("gbm/nvidia-drm_gbm.so"), end)));
            continue;
        }
        if link.file_name() == end.file_name() {
            continue;
        }
        // Alternatives lead from the library directory to nvidia/current, which is known there.
        let place = end.with_file_name(link.file_name().unwrap());
        assert!(ours.contains(&(place, end)), "{}", link.display());
    }
    driver
}

#[test]
fn every_library_of_the_packages_is_found_with_its_soname() {
    for (name, version) in DRIVERS {
        check_libraries(&drivers().join(name).join("root"), version);
    }
}

/// A copy of the tree by hard links, with what Debian's postinst makes of it.
fn installed(name: &str) -> tempfile::TempDir {
    let copy = tempfile::tempdir_in(drivers()).unwrap();
    let source = drivers().join(name).join("root");
    let status = Command::new("cp").arg("-al").arg(&source).arg(copy.path()).status().unwrap();
    assert!(status.success());
    let root = copy.path().join("root");
    let alternative = |link: PathBuf, target: String| {
        let name = format!("nvidia--{}", link.file_name().unwrap().to_str().unwrap());
        let through = root.join("etc/alternatives").join(&name);
        fs::create_dir_all(through.parent().unwrap()).unwrap();
        symlink(target, through).unwrap();
        symlink(format!("/etc/alternatives/{name}"), root.join(link)).unwrap();
    };
    for entry in fs::read_dir(root.join(CURRENT)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let version = name.split_once(".so.").map(|(_, version)| version);
        // The links that programs load by; those to nvvm under its full name too.
        if version.is_some_and(|version| !version.contains('.') || name.contains("nvvm")) {
            alternative(Path::new(LIBRARIES).join(&name), format!("/{CURRENT}/{name}"));
        }
    }
    for program in ["nvidia-smi", "nvidia-debugdump"] {
        let target = format!("/usr/lib/nvidia/current/{program}");
        alternative(Path::new("usr/bin").join(program), target);
    }
    copy
}

#[test]
fn alternatives_change_nothing_but_the_programs() {
    for (name, version) in DRIVERS {
        let copy = installed(name);
        let installed = check_libraries(&copy.path().join("root"), version);
        let unpacked = discover(&drivers().join(name).join("root"), version);
        assert_eq!(installed.libraries, unpacked.libraries);
        let smi = installed.files.iter().find(|file| file.destination.ends_with("nvidia-smi"));
        assert_eq!(smi.unwrap().destination, Path::new("/usr/bin/nvidia-smi"));
    }
}

/// Debian's packages for i386 beside those for amd64, as `compat32` wants them.
#[test]
fn libraries_of_32_bits_are_found_beside_the_others() {
    let (name, version) = DRIVERS[0];
    let copy = tempfile::tempdir_in(drivers()).unwrap();
    let root = copy.path().join("root");
    for tree in [name.to_owned(), format!("{name}-32")] {
        let source = drivers().join(tree).join("root");
        let status = Command::new("cp").args(["-al", "-T"]).arg(&source).arg(&root).status();
        assert!(status.unwrap().success());
    }
    let driver = discover(&root, version);
    assert_eq!(driver.left_out, []);
    let narrow = || driver.libraries.iter().filter(|library| library.class == Class::Elf32);
    let found: BTreeSet<_> = narrow().map(|library| library.path.clone()).collect();
    assert_eq!(found, packaged(&root, DIRS_32));
    assert!(found.len() > 15, "{found:?}");
    for library in narrow() {
        assert_eq!(library.machine, Machine::X86);
        let soname = library.soname.as_deref().expect("a SONAME");
        let file = library.path.file_name().unwrap();
        let is_linked = library.links.iter().any(|(link, _)| link == Path::new(soname));
        assert!(is_linked || file == soname, "{library:?}");
        assert!(!library.is_for(Capabilities::COMPUTE), "{library:?}");
    }
    let cuda = narrow().find(|library| library.name() == "libcuda").unwrap();
    assert!(cuda.is_for(Capabilities::COMPUTE.or(Capabilities::COMPAT32)));
    let wide = driver.libraries.iter().filter(|library| library.class == Class::Elf64);
    let wide: BTreeSet<_> = wide.map(|library| library.path.clone()).collect();
    assert_eq!(wide, packaged(&root, [LIBRARIES, CURRENT]));
}

/// As a driver container: links of the tree must not lead to the host's files.
#[test]
fn a_driver_root_below_the_host() {
    for (name, version) in DRIVERS {
        let copy = installed(name);
        let host = tempfile::tempdir_in(drivers()).unwrap();
        fs::create_dir_all(host.path().join("run/nvidia")).unwrap();
        fs::rename(copy.path().join("root"), host.path().join("run/nvidia/driver")).unwrap();
        let driver = discover(host.path(), version);
        assert_eq!(driver.root, Path::new("/run/nvidia/driver"));
        let smi = driver.files.iter().find(|file| file.destination.ends_with("nvidia-smi"));
        assert_eq!(
            smi.unwrap().source,
            Path::new("/run/nvidia/driver/usr/lib/nvidia/current/nvidia-smi")
        );
        let kinds: BTreeSet<_> =
            driver.files.iter().map(|file| format!("{:?}", file.kind)).collect();
        assert!(kinds.contains("Firmware") && kinds.contains("Data"), "{kinds:?}");
        let firmware = driver.files.iter().filter(|file| file.kind == FileKind::Firmware);
        assert_eq!(firmware.count(), 2);
    }
}

/// Printed, not judged: what discovery costs on a warm cache.
#[test]
#[expect(clippy::print_stdout, reason = "a measurement is for a person")]
fn what_it_costs() {
    for (name, version) in DRIVERS {
        let root = drivers().join(name).join("root");
        let mut times: Vec<Duration> = (0..50)
            .map(|_| {
                let start = Instant::now();
                discover(&root, version);
                start.elapsed()
            })
            .collect();
        times.sort();
        println!("discovery of {version}: median {:?}, least {:?}", times[25], times[0]);
    }
}
