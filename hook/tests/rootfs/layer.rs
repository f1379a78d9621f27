//! The layer in front of an image, and the root filesystems that have none.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use nvidia_hook::{Look, Prepared};
use nvidia_oci::{Code, Fixups, Spec};

use crate::container::{cached, container};
use crate::fixture::{Fixture, VENDOR_FILE, fixups, link, mount, names, record};

fn check(root: &Path) {
    assert_eq!(
        fs::read_link(root.join("opt/gpu/lib/libcuda.so.1")).unwrap(),
        Path::new("libcuda.so.550")
    );
    assert_eq!(cached(root, "libcuda.so.1").unwrap(), "/opt/gpu/lib/libcuda.so.1");
    let config = fs::read_to_string(root.join("etc/ld.so.conf.d/00-nvidia-shim.conf")).unwrap();
    assert_eq!(config, "/opt/gpu/lib\n");
    for file in ["opt/gpu/lib/libcuda.so.550", "usr/bin/nvidia-smi"] {
        assert!(fs::metadata(root.join(file)).unwrap().is_file(), "{file}");
    }
    assert_eq!(fs::read_to_string(root.join(&VENDOR_FILE[1..])).unwrap(), "{}\n");
    assert!(fs::metadata(root.join("usr/lib/firmware/nvidia/550")).unwrap().is_dir());
}

#[test]
fn an_overlay_gets_a_layer_and_its_snapshot_stays_empty() {
    let fixture = Fixture::new();
    let before = fixture.overlay();
    let prepared = fixture.apply(std::slice::from_ref(&before)).unwrap();
    assert!(prepared.warnings.is_empty(), "{:?}", prepared.warnings);
    assert_eq!(prepared.mounts.len(), 1);
    assert_eq!(prepared.mounts[0].options[..3], before.options[..3]);
    container(&fixture, &prepared.mounts, |root| {
        check(root);
        assert_eq!(fs::read_to_string(root.join("etc/hostname")).unwrap(), "image\n");
        assert!(names(&fixture.upper()).is_empty());
        fs::write(root.join("etc/hostname"), "mine").unwrap();
        fs::write(root.join("etc/ld.so.conf.d/mine.conf"), "").unwrap();
    });
    let work = fs::metadata(fixture.path("3/work/incompat"));
    assert!(work.is_err(), "the snapshot was mounted in another way than containerd's");
}

#[test]
fn parents_keep_owner_mode_attributes_and_time() {
    let fixture = Fixture::new();
    let etc = fixture.path("2/fs/etc");
    chown(&etc, Some(11), Some(12)).unwrap();
    fs::set_permissions(&etc, fs::Permissions::from_mode(0o1751)).unwrap();
    rustix::fs::setxattr(&etc, "security.test", b"label", rustix::fs::XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(&etc, "user.test", b"value", rustix::fs::XattrFlags::empty()).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::open(&etc).unwrap().set_modified(time).unwrap();
    let prepared = fixture.apply(&[fixture.overlay()]).unwrap();
    container(&fixture, &prepared.mounts, |root| {
        let etc = root.join("etc");
        let metadata = fs::metadata(&etc).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (11, 12));
        assert_eq!(metadata.mode() & 0o7777, 0o1751);
        assert_eq!(metadata.modified().unwrap(), time);
        for (name, value) in [("security.test", "label"), ("user.test", "value")] {
            let mut buffer = [0; 16];
            let length = rustix::fs::getxattr(&etc, name, &mut buffer[..]).unwrap();
            assert_eq!(&buffer[..length], value.as_bytes());
        }
        assert_eq!(fs::metadata(root.join("etc/ld.so.conf.d")).unwrap().mode() & 0o7777, 0o755);
    });
}

#[test]
fn directories_that_are_links_are_resolved() {
    let fixture = Fixture::new();
    let image = fixture.path("2/fs");
    fs::remove_dir_all(image.join("etc")).unwrap();
    fs::remove_dir(fixture.path("1/fs/etc")).unwrap();
    fs::create_dir_all(image.join("private/etc")).unwrap();
    symlink("/private/etc", image.join("etc")).unwrap();
    let prepared = fixture.apply(&[fixture.overlay()]).unwrap();
    assert!(fixture.layer().join("private/etc/ld.so.cache").is_file());
    assert!(fixture.layer().join("usr/lib/firmware/nvidia/550").is_dir());
    container(&fixture, &prepared.mounts, |root| {
        assert!(fs::symlink_metadata(root.join("etc")).unwrap().is_symlink());
        assert!(root.join("private/etc/ld.so.conf.d/00-nvidia-shim.conf").is_file());
        assert!(fs::symlink_metadata(root.join("lib")).unwrap().is_symlink());
    });
}

/// The words of the hook that is left to do something.
fn words(prepared: &Prepared) -> Vec<String> {
    let hook =
        prepared.by_hook.as_ref().expect("a hook").hook(Path::new("/opt/bin/nvidia-cdi-hook"));
    assert_eq!(
        (hook.hook_name.as_str(), hook.path.as_str()),
        ("createContainer", "/opt/bin/nvidia-cdi-hook")
    );
    assert!(!hook.env.is_empty(), "CVE-2025-23266");
    hook.args
}

#[test]
fn what_a_mount_would_hide_is_left_to_a_hook() {
    let fixture = Fixture::new();
    let spec = fixture.spec(
        r#"[{"destination": "/opt/gpu", "type": "bind", "source": "/volume", "options": ["rbind"]},
            {"destination": "/run", "type": "tmpfs", "source": "tmpfs"},
            {"destination": "/etc", "type": "bind", "source": "/volume", "options": ["rbind", "rw"]}]"#,
    );
    let mut fixups = fixups();
    fixups.links.push(link("/run/nvidia/x", "y"));
    fixups.links.push(link("/dev/dri/by-path/pci-0000:07:00.0-card", "../card0"));
    let prepared = fixture.apply_with(&[fixture.overlay()], &fixups, &spec).unwrap();
    assert_eq!(
        words(&prepared).join(" "),
        "nvidia-cdi-hook apply --link libcuda.so.550::/opt/gpu/lib/libcuda.so.1 \
         --link y::/run/nvidia/x --link ../card0::/dev/dri/by-path/pci-0000:07:00.0-card \
         --folder /opt/gpu/lib"
    );
    assert_eq!(
        prepared.warnings,
        ["runc will make mount points in the mount at /opt/gpu: /opt/gpu/lib/libcuda.so.550"]
    );
    assert_eq!(
        prepared.by_hook.unwrap().left_out(Path::new("/bin/nvidia-cdi-hook")).unwrap(),
        "left out, as mounts would hide it and /bin/nvidia-cdi-hook is missing: \
         /etc/ld.so.cache, /opt/gpu/lib/libcuda.so.1, /run/nvidia/x"
    );
    for path in ["opt", "run", "dev", "etc"] {
        assert!(!fixture.layer().join(path).exists(), "{path}");
    }
}

/// Neither a read-only mount nor the host's own directories, nor the very place of a mount.
#[test]
fn what_no_hook_may_write_is_left_out_and_said() {
    let fixture = Fixture::new();
    for (mount, place) in [
        (r#"{"destination": "/opt/gpu", "type": "tmpfs", "options": ["ro"]}"#, "/opt/gpu"),
        (r#"{"destination": "/opt", "source": "/etc", "options": ["rbind"]}"#, "/opt"),
        (r#"{"destination": "/opt", "type": "sysfs", "source": "sysfs"}"#, "/opt"),
        (
            r#"{"destination": "/opt", "type": "tmpfs", "options": ["ro"]},
               {"destination": "/dev", "source": "/dev", "options": ["rbind"]}"#,
            "/opt",
        ),
        (
            r#"{"destination": "/opt/gpu/lib/libcuda.so.1", "source": "/x", "options": ["bind"]}"#,
            "/opt/gpu/lib/libcuda.so.1",
        ),
    ] {
        let spec = fixture.spec(&format!("[{mount}]"));
        let mut fixups = fixups();
        if mount.contains("/dev") {
            fixups.links.push(link("/dev/dri/by-path/pci-0000:07:00.0-card", "../card0"));
        }
        let prepared = fixture.apply_with(&[fixture.overlay()], &fixups, &spec).unwrap();
        let warning =
            format!("left out, as the mount at {place} would hide it: /opt/gpu/lib/libcuda.so.1");
        assert_eq!(prepared.warnings.first(), Some(&warning), "{mount}");
        assert!(!prepared.warnings.iter().any(|line| line.contains("by-path")), "{mount}");
        assert_eq!(prepared.by_hook, None, "{mount}");
        assert!(fixture.layer().join("etc/ld.so.cache").is_file());
    }
}

#[test]
fn a_user_namespace_owns_what_is_new() {
    let fixture = Fixture::new();
    let mut spec = fixture.spec("[]").value().clone();
    spec["linux"] = serde_json::json!({
        "uidMappings": [{"containerID": 0, "hostID": 100_000, "size": 65536}],
        "gidMappings": [{"containerID": 0, "hostID": 200_000, "size": 65536}],
    });
    let spec = Spec::new(spec);
    let owners = |path: &str| {
        let metadata = fs::symlink_metadata(fixture.layer().join(path)).unwrap();
        (metadata.uid(), metadata.gid())
    };
    fixture.apply_with(&[fixture.overlay()], &fixups(), &spec).unwrap();
    assert_eq!(owners("opt/gpu/lib/libcuda.so.1"), (100_000, 200_000));
    assert_eq!(owners("opt/gpu/lib"), (100_000, 200_000));
    assert_eq!(owners("etc/ld.so.cache"), (100_000, 200_000));
    assert_eq!(owners("etc"), (0, 0));

    let mut mapped = fixture.overlay();
    mapped.options.push("uidmap=0:100000:65536".to_owned());
    let prepared = fixture.apply_with(&[mapped.clone()], &fixups(), &spec).unwrap();
    assert_eq!(prepared.mounts[0].options.last(), mapped.options.last());
    assert_eq!(owners("opt/gpu/lib/libcuda.so.1"), (0, 0));
    assert_eq!(owners("etc/ld.so.cache"), (0, 0));

    // The upper directory is stored with the host's ids all the same.
    let hidden = fixture.upper().join("opt/gpu/lib/libcuda.so.1");
    fs::create_dir_all(hidden.parent().unwrap()).unwrap();
    symlink("elsewhere", &hidden).unwrap();
    fixture.apply_with(&[mapped], &fixups(), &spec).unwrap();
    assert_eq!(fs::symlink_metadata(&hidden).unwrap().uid(), 100_000);
}

#[test]
fn a_view_gets_its_layer_in_the_bundle() {
    let fixture = Fixture::new();
    let images = [fixture.path("1/fs"), fixture.path("2/fs")];
    let before = images.each_ref().map(|image| record(image));
    for view in [fixture.view(), fixture.bind("ro")] {
        let prepared = fixture.apply(&[view]).unwrap();
        assert_eq!(prepared.mounts[0].kind, "overlay");
        container(&fixture, &prepared.mounts, |root| {
            check(root);
            assert_eq!(
                fs::metadata(root).unwrap().mode(),
                fs::metadata(&images[1]).unwrap().mode()
            );
            assert!(fs::write(root.join("etc/new"), "").is_err());
        });
    }
    assert_eq!(images.each_ref().map(|image| record(image)), before);
}

#[test]
fn views_that_no_layer_fits_start_with_a_warning() {
    let fixture = Fixture::new();
    let mut mapped = fixture.view();
    mapped.options.push("uidmap=0:100000:65536".to_owned());
    let mut long = fixture.bind("ro");
    long.options.push("x".repeat(4000));
    for view in [mapped, long] {
        let prepared = fixture.apply(std::slice::from_ref(&view)).unwrap();
        assert_eq!(prepared.mounts, [view]);
        assert_eq!(prepared.warnings.len(), 1);
    }
}

#[test]
fn a_bind_mount_and_a_mounted_root_are_written_in_place_once() {
    for native in [true, false] {
        let fixture = Fixture::new();
        if !native {
            fs::remove_dir(fixture.bundle().join("rootfs")).unwrap();
            fs::rename(fixture.path("1/fs"), fixture.bundle().join("rootfs")).unwrap();
        }
        let mounts = if native { vec![fixture.bind("rw")] } else { Vec::new() };
        let root = if native { fixture.path("1/fs") } else { fixture.bundle().join("rootfs") };
        assert_eq!(fixture.apply(&mounts).unwrap().mounts, mounts);
        check(&root);
        let once = record(&root);
        fixture.apply(&mounts).unwrap();
        assert_eq!(record(&root), once);
    }
}

#[test]
fn a_root_that_is_mounted_read_only_starts_with_a_warning() {
    let fixture = Fixture::new();
    let mut overlay = fixture.overlay();
    overlay.options.push("ro".to_owned());
    let prepared = container(&fixture, &[overlay], |_| fixture.apply(&[])).unwrap();
    assert_eq!(prepared.mounts, []);
    assert!(prepared.warnings[0].contains("read-only"), "{:?}", prepared.warnings);
}

#[test]
fn applied_twice_is_once() {
    let fixture = Fixture::new();
    let first = fixture.apply(&[fixture.overlay()]).unwrap();
    let layer = record(&fixture.layer());
    assert_eq!(fixture.apply(&[fixture.overlay()]).unwrap().mounts, first.mounts);
    assert_eq!(record(&fixture.layer()), layer);
    // The same for a mount that has the layer in front already.
    assert_eq!(fixture.apply(&first.mounts).unwrap().mounts, first.mounts);
    assert_eq!(record(&fixture.layer()), layer);
}

#[test]
fn links_of_the_image_that_differ_are_replaced_and_directories_are_not() {
    let fixture = Fixture::new();
    let place = fixture.path("2/fs/opt/gpu/lib");
    fs::create_dir_all(&place).unwrap();
    symlink("libcuda.so.535", place.join("libcuda.so.1")).unwrap();
    let prepared = fixture.apply(&[fixture.overlay()]).unwrap();
    container(&fixture, &prepared.mounts, check);

    fs::remove_file(place.join("libcuda.so.1")).unwrap();
    symlink("libcuda.so.550", place.join("libcuda.so.1")).unwrap();
    fixture.apply(&[fixture.overlay()]).unwrap();
    assert!(fs::symlink_metadata(fixture.layer().join("opt/gpu/lib/libcuda.so.1")).is_err());

    fs::remove_file(place.join("libcuda.so.1")).unwrap();
    fs::create_dir(place.join("libcuda.so.1")).unwrap();
    let error = fixture.apply(&[fixture.overlay()]).unwrap_err();
    assert_eq!(error.code(), Code::FixupFailed);
    assert!(error.to_string().contains("/opt/gpu/lib/libcuda.so.1"), "{error}");
}

#[test]
fn other_kinds_of_mounts_are_left_to_a_hook() {
    let fixture = Fixture::new();
    let erofs = mount("erofs", "/image", &[]);
    let mut below = fixture.overlay();
    below.target = "usr".to_owned();
    for mounts in [vec![erofs.clone()], vec![erofs, fixture.overlay()], vec![below]] {
        let look = Look::open(&mounts, &fixture.bundle(), &fixture.spec("[]")).unwrap();
        assert_eq!(nvidia_hook::facts(look.rootfs()).unwrap(), nvidia_oci::Image::default());
        let prepared = fixture.apply(&mounts).unwrap();
        assert_eq!(prepared.mounts, mounts);
        assert_eq!(
            words(&prepared).join(" "),
            "nvidia-cdi-hook apply --link libcuda.so.550::/opt/gpu/lib/libcuda.so.1 \
             --file /usr/share/glvnd/egl_vendor.d/10_nvidia.json::{}\n --folder /opt/gpu/lib"
        );
        let left_out = prepared.by_hook.unwrap().left_out(Path::new("/hook")).unwrap();
        assert!(
            left_out.contains("cannot be changed beforehand and /hook is missing"),
            "{left_out}"
        );
    }
    let read_only = mount("erofs", "/image", &["ro".to_owned()]);
    let prepared = fixture.apply(&[read_only]).unwrap();
    assert!(prepared.warnings[0].contains("left out"), "{:?}", prepared.warnings);
    assert_eq!(prepared.by_hook, None);
}

/// The device is mounted where nobody else sees it.
#[test]
fn a_block_device_is_written_and_released() {
    let fixture = Fixture::new();
    let image = fixture.path("image.ext4");
    fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let tree = fixture.path("1/fs");
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().unwrap();
        assert!(output.status.success(), "{program}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let image = image.to_str().unwrap();
    run("/usr/sbin/mkfs.ext4", &["-q", "-d", tree.to_str().unwrap(), image]);
    let device = run("/usr/sbin/losetup", &["--find", "--show", image]);
    let mounts = [mount("ext4", &device, &["rw".to_owned(), "nodiscard".to_owned()])];
    let prepared = fixture.apply(&mounts);
    let seen = container(&fixture, &mounts, names);
    run("/usr/sbin/losetup", &["--detach", &device]);
    assert_eq!(prepared.unwrap().mounts, mounts);
    assert!(seen.contains(&"etc/ld.so.conf.d/00-nvidia-shim.conf".to_owned()), "{seen:?}");

    let read_only = [mount("ext4", &device, &["ro".to_owned()])];
    assert_eq!(fixture.apply(&read_only).unwrap().warnings.len(), 1);
}

#[test]
fn nothing_to_fix_changes_nothing() {
    let fixture = Fixture::new();
    let spec = fixture.spec("[]");
    let look = Look::open(&[fixture.overlay()], &fixture.bundle(), &spec).unwrap();
    let (image, edits) = (nvidia_oci::Image::default(), nvidia_oci::Edits::default());
    let prepared = look.apply(&image, &Fixups::default(), &edits, &spec).unwrap();
    assert_eq!(prepared.mounts, [fixture.overlay()]);
    assert!(!fixture.layer().exists());
}

#[test]
fn a_root_that_is_not_there_is_named() {
    let fixture = Fixture::new();
    fs::remove_dir(fixture.bundle().join("rootfs")).unwrap();
    let error = fixture.apply(&[]).unwrap_err();
    assert_eq!(error.code(), Code::RootfsUnreadable);
    assert!(error.to_string().contains("bundle/rootfs"), "{error}");
}

#[test]
fn a_musl_image_gets_a_search_path_instead_of_a_cache() {
    let fixture = Fixture::new();
    let base = fixture.path("1/fs");
    fs::rename(
        base.join("usr/lib64/ld-linux-x86-64.so.2"),
        base.join("usr/lib/ld-musl-x86_64.so.1"),
    )
    .unwrap();
    fixture.apply(&[fixture.overlay()]).unwrap();
    let path = fixture.layer().join("etc/ld-musl-x86_64.path");
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "/lib\n/usr/local/lib\n/usr/lib\n/opt/gpu/lib\n"
    );
    assert!(!fixture.layer().join("etc/ld.so.cache").exists());

    fs::write(fixture.path("2/fs/etc/ld-musl-x86_64.path"), "/lib:/opt/gpu/lib").unwrap();
    fixture.apply(&[fixture.overlay()]).unwrap();
    assert!(!path.exists());
}
