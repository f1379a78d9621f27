//! A container that is started again on the same snapshot, having changed what hides the layer.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use nvidia_oci::elf::{Class, Machine};
use nvidia_oci::ldcache::Cache;

use crate::container::{cached, container};
use crate::fixture::{Fixture, fixups, library, link, names};

#[test]
fn three_starts_leave_only_what_the_container_wrote() {
    let fixture = Fixture::new();
    for start in 0..3 {
        let prepared = fixture.apply(&[fixture.overlay()]).unwrap();
        container(&fixture, &prepared.mounts, |root| {
            assert!(cached(root, "libcuda.so.1").is_some());
            fs::write(root.join("etc/started"), start.to_string()).unwrap();
        });
    }
    assert_eq!(names(&fixture.upper()), ["etc", "etc/started"]);
}

#[test]
fn the_layer_holds_nothing_of_an_earlier_driver() {
    let fixture = Fixture::new();
    let mut old = fixups();
    old.links.push(link("/opt/gpu/lib/libold.so.1", "libold.so.535"));
    old.libraries.push(library("libold.so.1"));
    fixture.apply_with(&[fixture.overlay()], &old, &fixture.spec("[]")).unwrap();
    let prepared = fixture.apply(&[fixture.overlay()]).unwrap();
    container(&fixture, &prepared.mounts, |root| {
        assert_eq!(cached(root, "libold.so.1"), None);
        assert!(fs::symlink_metadata(root.join("opt/gpu/lib/libold.so.1")).is_err());
    });
}

/// A container that ran ldconfig has its own cache in the upper directory.
#[test]
fn a_cache_of_the_container_is_merged_and_stale_entries_go() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.upper().join("etc")).unwrap();
    fs::create_dir_all(fixture.upper().join("opt/gpu/lib")).unwrap();
    fs::write(fixture.upper().join("opt/gpu/lib/libmine.so.1"), "").unwrap();
    let mut cache = Cache::default();
    let mut add = |soname: &str, path: &str| {
        assert!(cache.insert(soname, Path::new(path), Class::Elf64, Machine::X86_64));
    };
    add("libold.so.1", "/opt/gpu/lib/libold.so.1");
    add("libmine.so.1", "/opt/gpu/lib/libmine.so.1");
    add("libother.so.1", "/elsewhere/libother.so.1");
    let place = fixture.upper().join("etc/ld.so.cache");
    fs::write(&place, cache.to_bytes().unwrap()).unwrap();
    std::os::unix::fs::chown(&place, Some(7), Some(8)).unwrap();
    let prepared = fixture.apply(&[fixture.overlay()]).unwrap();
    container(&fixture, &prepared.mounts, |root| {
        assert_eq!(cached(root, "libcuda.so.1").unwrap(), "/opt/gpu/lib/libcuda.so.1");
        assert_eq!(cached(root, "libold.so.1"), None);
        assert!(cached(root, "libmine.so.1").is_some());
        assert!(cached(root, "libother.so.1").is_some());
    });
    let metadata = fs::metadata(&place).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (7, 8));
}

#[test]
fn what_the_container_removed_comes_back_alone() {
    let fixture = Fixture::new();
    for directory in ["1/fs/etc/ld.so.conf.d", "1/fs/opt/gpu/lib"] {
        fs::create_dir_all(fixture.path(directory)).unwrap();
    }
    fs::write(fixture.path("1/fs/etc/ld.so.conf.d/image.conf"), "/image\n").unwrap();
    let prepared = fixture.apply(&[fixture.overlay()]).unwrap();
    container(&fixture, &prepared.mounts, |root| {
        // A directory becomes a whiteout, a link too, and one made anew is opaque.
        fs::remove_dir_all(root.join("etc/ld.so.conf.d")).unwrap();
        fs::remove_file(root.join("opt/gpu/lib/libcuda.so.1")).unwrap();
        fs::remove_dir_all(root.join("usr/lib/firmware")).unwrap();
        fs::create_dir(root.join("usr/lib/firmware")).unwrap();
    });
    let whiteout = fs::symlink_metadata(fixture.upper().join("etc/ld.so.conf.d")).unwrap();
    assert!(whiteout.file_type().is_char_device());
    for _ in 0..2 {
        let prepared = fixture.apply(&[fixture.overlay()]).unwrap();
        container(&fixture, &prepared.mounts, |root| {
            assert_eq!(names(&root.join("etc/ld.so.conf.d")), ["00-nvidia-shim.conf"]);
            let link = fs::read_link(root.join("opt/gpu/lib/libcuda.so.1")).unwrap();
            assert_eq!(link, Path::new("libcuda.so.550"));
            assert!(root.join("usr/lib/firmware/nvidia/550").is_dir());
        });
    }
}

#[test]
fn a_directory_made_anew_hides_the_layer_and_is_written_itself() {
    let fixture = Fixture::new();
    let prepared = fixture.apply(&[fixture.overlay()]).unwrap();
    container(&fixture, &prepared.mounts, |root| {
        fs::remove_dir_all(root.join("etc")).unwrap();
        fs::create_dir(root.join("etc")).unwrap();
    });
    let prepared = fixture.apply(&[fixture.overlay()]).unwrap();
    container(&fixture, &prepared.mounts, |root| {
        assert!(cached(root, "libcuda.so.1").is_some());
        assert!(!root.join("etc/hostname").exists());
    });
}
