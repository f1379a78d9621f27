//! The proof: a root with this machine's own glibc and ldconfig, which find the library.

use std::fs;
use std::path::Path;

use crate::container::{container, output};
use crate::fixture::{Fixture, LOADER};

/// Copies a file to the same place in the image, its directory's links resolved.
fn copy(fixture: &Fixture, file: &str) {
    let place = fixture.path("1/fs").join(file.trim_start_matches('/'));
    let name = place.file_name().unwrap().to_owned();
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    let directory = fs::canonicalize(place.parent().unwrap()).unwrap();
    fs::copy(file, directory.join(name)).unwrap();
}

#[test]
fn ldconfig_and_the_loader_agree() {
    let fixture = Fixture::new();
    let libc = "/usr/lib/x86_64-linux-gnu/libc.so.6";
    for file in ["/sbin/ldconfig", "/bin/true", LOADER, libc] {
        copy(&fixture, file);
    }
    // Any real library will do as the driver's.
    let library = fixture.path("driver/libcuda.so.550");
    fs::copy(libc, &library).unwrap();
    fs::create_dir_all(fixture.path("1/fs/opt/gpu/lib")).unwrap();
    let prepared = fixture.apply(&[fixture.overlay()]).unwrap();
    container(&fixture, &prepared.mounts, |root| {
        let mount_library = || {
            nix::mount::mount(
                Some(&library),
                &root.join("opt/gpu/lib/libcuda.so.550"),
                None::<&str>,
                nix::mount::MsFlags::MS_BIND,
                None::<&str>,
            )
            .unwrap();
        };
        mount_library();
        let entry = "libcuda.so.1 (libc6,x86-64) => /opt/gpu/lib/libcuda.so.1";
        let cache = output(root, &["/sbin/ldconfig", "-p"]);
        assert!(cache.contains(entry), "{cache}");
        let listed = output(root, &[LOADER, "--preload", "libcuda.so.1", "/bin/true"]);
        assert_eq!(listed, "");

        fs::write(root.join("etc/of-the-container"), "").unwrap();
        output(root, &["/sbin/ldconfig"]);
        let cache = output(root, &["/sbin/ldconfig", "-p"]);
        assert!(cache.contains("/opt/gpu/lib/"), "{cache}");
        nix::mount::umount(Path::new(&root.join("opt/gpu/lib/libcuda.so.550"))).unwrap();
    });
    // ldconfig's cache hides the layer's now.
    assert!(fixture.upper().join("etc/ld.so.cache").is_file());
    let prepared = fixture.apply(&[fixture.overlay()]).unwrap();
    container(&fixture, &prepared.mounts, |root| {
        let cache = output(root, &["/sbin/ldconfig", "-p"]);
        assert!(
            cache.contains("libcuda.so.1 (libc6,x86-64) => /opt/gpu/lib/libcuda.so.1"),
            "{cache}"
        );
        assert!(cache.contains("libc.so.6"), "{cache}");
    });
}
