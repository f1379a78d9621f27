//! Discovery alone, on the hosts of the corpus.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::Path;

use nvidia_oci::elf::Class;
use nvidia_oci::{Config, Driver, FileKind, Inventory};
use tests::corpus::{Added, Corpus};
use tests::tree::{Tree, hosts};

/// The result for a case that asked for every GPU of `host`.
fn everything(corpus: &Corpus, host: &str) -> Added {
    let case = ["all", "root-all"]
        .map(|what| format!("host/{host}-{what}.auto"))
        .into_iter()
        .chain(["nvd/all.jit".to_owned()])
        .find_map(|name| {
            let case = corpus.cases.iter().find(|case| case.name == name && case.host == host)?;
            corpus.expected(case).filter(|added| !added.mounts.is_empty())
        });
    case.cloned().unwrap_or_else(|| panic!("no case for {host}"))
}

/// What only one of two sets has.
fn difference<T: Ord + Debug>(ours: &BTreeSet<T>, theirs: &BTreeSet<T>) -> Vec<String> {
    let surplus = ours.difference(theirs).map(|item| format!("ours only: {item:?}"));
    surplus.chain(theirs.difference(ours).map(|item| format!("theirs only: {item:?}"))).collect()
}

/// Discovery alone finds what NVIDIA mounts and links, on every host that has a driver.
#[test]
fn discovery_finds_the_driver_of_every_host() {
    let corpus = Corpus::load();
    let facts = hosts();
    for name in ["deb535-2gpu", "deb550-8gpu", "rhel-580", "gpuop-550", "talos-glibc"] {
        let facts = &facts[name];
        let tree = Tree::build(facts).unwrap();
        let host = tree.host();
        let inventory = Inventory::read(&host, &Config::default()).unwrap();
        assert_eq!(inventory.driver_version, facts.driver_version, "{name}");
        let driver =
            Driver::discover(&host, &Config::default(), inventory.driver_version.as_deref())
                .unwrap();
        assert_eq!(driver.root, Path::new(&facts.driver_root), "{name}");
        assert_eq!(driver.left_out, [], "{name}");

        let expected = everything(&corpus, name);
        let wide = driver.libraries.iter().filter(|library| library.class == Class::Elf64);
        let show = |path: &Path| path.display().to_string();
        let mut mounts: BTreeSet<(String, String)> = wide
            .clone()
            .map(|library| (show(&driver.host_path(&library.path)), show(&library.path)))
            .collect();
        // NVIDIA's locator of the MPS directory takes no directories: design.md, "right".
        let files = driver.files.iter().filter(|file| file.source != Path::new("/tmp/nvidia-mps"));
        mounts.extend(files.clone().map(|file| (show(&file.source), show(&file.destination))));
        let theirs = expected.mounts.iter();
        let theirs: BTreeSet<_> =
            theirs.map(|(source, destination, _)| (source.clone(), destination.clone())).collect();
        assert_eq!(difference(&mounts, &theirs), [""; 0], "{name}");
        for file in files {
            let writable =
                expected.mounts.contains(&(show(&file.source), show(&file.destination), false));
            assert_eq!(writable, file.kind == FileKind::Socket, "{name} {file:?}");
        }

        let mut links: BTreeSet<(String, String)> = wide
            .flat_map(|library| {
                let dir = library.path.parent().unwrap();
                library.links.iter().map(|(link, target)| (show(&dir.join(link)), show(target)))
            })
            .collect();
        links.extend(driver.links.iter().map(|(link, target)| (show(link), show(target))));
        for gpu in &inventory.gpus {
            links.extend(gpu.drm_links.iter().map(|(link, target)| (show(link), show(target))));
        }
        let theirs: BTreeSet<_> = expected
            .links
            .iter()
            // NVIDIA leaves the dev root in these: design.md, "by-path links".
            .map(|(link, target)| (link.replace("/run/nvidia/driver/", "/"), target.clone()))
            .collect();
        // NVIDIA leaves out the SONAME links of the EGL platform libraries.
        let sonames: BTreeSet<_> =
            driver.libraries.iter().filter_map(|l| l.soname.as_deref()).collect();
        links.retain(|(link, target)| {
            let soname = Path::new(link).file_name().and_then(|name| name.to_str());
            theirs.contains(&(link.clone(), target.clone()))
                || !soname.is_some_and(|soname| sonames.contains(soname))
        });
        assert_eq!(difference(&links, &theirs), [""; 0], "{name}");
    }
}
