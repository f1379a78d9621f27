//! CUDA's compatibility libraries of an image, and what else is there for a driver only when the
//! container's mounts are.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use nvidia_oci::{CudaCompat, Fixups};

use crate::container::{cached, container};
use crate::fixture::{Fixture, fixups};

/// Any real library will do as libcuda.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/libm.so.6";
const SONAME: &str = "libm.so.6";

fn with_driver(version: &str) -> Fixups {
    let cuda_compat = Some(CudaCompat {
        driver: Some(version.to_owned()),
        cuda: None,
        directory: "/usr/local/cuda/compat".into(),
    });
    Fixups { cuda_compat, ..fixups() }
}

#[test]
fn compatibility_libraries_go_first_where_they_are_newer() {
    let fixture = Fixture::new();
    let compat = fixture.path("1/fs/usr/local/cuda-12/compat");
    fs::create_dir_all(&compat).unwrap();
    fs::copy(LIBRARY, compat.join("libcuda.so.575.57.08")).unwrap();
    symlink("cuda-12", fixture.path("1/fs/usr/local/cuda")).unwrap();
    for (driver, expected) in
        [("550.163.01", Some("/usr/local/cuda-12/compat/libm.so.6")), ("580.1", None)]
    {
        let spec = fixture.spec("[]");
        let prepared =
            fixture.apply_with(&[fixture.overlay()], &with_driver(driver), &spec).unwrap();
        assert_eq!(prepared.by_hook, None);
        container(&fixture, &prepared.mounts, |root| {
            assert_eq!(cached(root, SONAME).as_deref(), expected);
            let made = fs::read_link(root.join("usr/local/cuda/compat").join(SONAME)).ok();
            assert_eq!(made, expected.map(|_| "libcuda.so.575.57.08".into()));
            assert!(cached(root, "libcuda.so.1").is_some());
            let config = root.join("etc/ld.so.conf.d/00-compat-nvidia-shim.conf");
            let line = expected.map(|_| "/usr/local/cuda-12/compat\n".to_owned());
            assert_eq!(fs::read_to_string(config).ok(), line);
        });
    }
}

#[test]
fn what_is_about_devices_and_procfs_is_left_to_a_hook() {
    let fixture = Fixture::new();
    let fixups = Fixups { mask_params: true, application_profile: true, ..fixups() };
    let prepared = fixture.apply_with(&[fixture.overlay()], &fixups, &fixture.spec("[]")).unwrap();
    let by_hook = prepared.by_hook.unwrap();
    let hook = by_hook.hook(Path::new("/bin/nvidia-cdi-hook"));
    assert_eq!(
        hook.args[1..],
        ["apply", "--update-application-profile", "--disable-device-node-modification"]
    );
    let left_out = by_hook.left_out(Path::new("/bin/nvidia-cdi-hook")).unwrap();
    assert!(left_out.contains("/proc/driver/nvidia/params"), "{left_out}");
}
