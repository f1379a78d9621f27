use std::fs;
use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::*;
use crate::elf::testing;
use crate::ldcache::Cache;

struct Node(tempfile::TempDir);

impl Node {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, path: &str, content: &[u8]) -> &Self {
        let path = self.0.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    fn library(&self, path: &str, soname: &str) -> &Self {
        self.write(path, &testing::library(soname, true, true))
    }

    /// libcuda and libnvidia-ml of `version` in `dir`.
    fn driver(&self, dir: &str, version: &str) -> &Self {
        self.library(&format!("{dir}/libcuda.so.{version}"), "libcuda.so.1")
            .library(&format!("{dir}/libnvidia-ml.so.{version}"), "libnvidia-ml.so.1")
    }

    fn discover(&self, version: Option<&str>) -> Result<Driver> {
        self.discover_with(&Config::default(), version)
    }

    fn discover_with(&self, config: &Config, version: Option<&str>) -> Result<Driver> {
        Driver::discover(&Host::new(self.0.path()), config, version)
    }
}

fn paths(driver: &Driver) -> Vec<&str> {
    driver.libraries.iter().map(|library| library.path.to_str().unwrap()).collect()
}

#[test]
fn an_empty_driver_container_is_passed_over() {
    let node = Node::new();
    fs::create_dir_all(node.0.path().join("run/nvidia/driver/usr/lib64")).unwrap();
    let driver = node.driver("/usr/lib64", "550.1").discover(Some("550.1")).unwrap();
    assert_eq!(driver.root, Path::new("/"));
    assert_eq!(paths(&driver), ["/usr/lib64/libcuda.so.550.1", "/usr/lib64/libnvidia-ml.so.550.1"]);
}

#[test]
fn the_root_of_the_loaded_version_is_taken() {
    let node = Node::new();
    node.driver("/run/nvidia/driver/usr/lib64", "535.1").driver("/usr/lib64", "550.1");
    assert_eq!(node.discover(Some("550.1")).unwrap().root, Path::new("/"));
    let driver = node.discover(Some("535.1")).unwrap();
    assert_eq!(driver.root, Path::new("/run/nvidia/driver"));
    let path = driver.host_path(Path::new("/usr/lib64/x"));
    assert_eq!(path, Path::new("/run/nvidia/driver/usr/lib64/x"));
}

#[test]
fn of_two_drivers_side_by_side_the_loaded_one_is_taken() {
    let node = Node::new();
    let dir = "/usr/lib/x86_64-linux-gnu/nvidia";
    node.driver(&format!("{dir}/current"), "550.1").driver(&format!("{dir}/tesla-535"), "535.1");
    let driver = node.discover(Some("535.1")).unwrap();
    assert_eq!(driver.version, "535.1");
    assert!(paths(&driver).iter().all(|path| path.contains("tesla-535")), "{driver:?}");
}

#[test]
fn a_mismatch_names_both_versions() {
    let node = Node::new();
    let error = node.driver("/usr/lib64", "535.1").discover(Some("550.1")).unwrap_err();
    assert_eq!(error.code(), Code::DriverMismatch);
    let text = error.to_string();
    assert!(text.contains("550.1") && text.contains("535.1"), "{text}");
}

#[test]
fn without_driver_the_places_are_named() {
    let error = Node::new().discover(Some("550.1")).unwrap_err();
    assert_eq!(error.code(), Code::NoDriverFiles);
    assert!(error.to_string().contains("/run/nvidia/driver"), "{error}");
    let config = Config { driver_root: Some("/opt/driver".into()), ..Config::default() };
    let error = Node::new().discover_with(&config, None).unwrap_err();
    assert!(error.to_string().contains("/opt/driver"), "{error}");
}

#[test]
fn a_module_that_is_not_loaded_leaves_the_version_to_libcuda() {
    let node = Node::new();
    node.driver("/usr/lib64", "550.1");
    assert_eq!(node.discover(None).unwrap().version, "550.1");
}

#[test]
fn talos_of_today_and_of_yesterday() {
    let node = Node::new();
    let today = node.driver("/usr/local/lib", "580.1").discover(Some("580.1")).unwrap();
    assert_eq!(today.root, Path::new("/"));
    assert_eq!(paths(&today).first(), Some(&"/usr/local/lib/libcuda.so.580.1"));
    let node = Node::new();
    let old = node.driver("/usr/local/glibc/usr/lib", "570.1").discover(Some("570.1")).unwrap();
    assert_eq!(old.root, Path::new("/usr/local/glibc"));
    assert_eq!(paths(&old).first(), Some(&"/usr/lib/libcuda.so.570.1"));
}

#[test]
fn an_unusual_directory_is_found_by_the_cache() {
    let node = Node::new();
    node.driver("/usr/lib/nvidia-390", "390.1");
    let mut cache = Cache::default();
    let path = Path::new("/usr/lib/nvidia-390/libcuda.so.1");
    cache.insert("libcuda.so.1", path, Class::Elf64, Machine::X86_64);
    node.write("/etc/ld.so.cache", &cache.to_bytes().unwrap());
    symlink("libcuda.so.390.1", node.0.path().join("usr/lib/nvidia-390/libcuda.so.1")).unwrap();
    let driver = node.discover(Some("390.1")).unwrap();
    assert_eq!(paths(&driver).len(), 2);
}

#[test]
fn both_classes_but_no_other_machine() {
    let node = Node::new();
    node.driver("/usr/lib64", "550.1");
    node.write("/usr/lib/libcuda.so.550.1", &testing::library("libcuda.so.1", false, true));
    let mut foreign = testing::library("libcuda.so.1", true, true);
    // e_machine: AArch64
    foreign[18] = 183;
    node.write("/usr/lib/aarch64-linux-gnu/libcuda.so.550.1", &foreign);
    let driver = node.discover(Some("550.1")).unwrap();
    let found: Vec<_> = driver
        .libraries
        .iter()
        .filter(|library| library.soname.as_deref() == Some("libcuda.so.1"))
        .map(|library| (library.class, library.machine, library.path.to_str().unwrap()))
        .collect();
    assert_eq!(
        found,
        [
            (Class::Elf32, Machine::X86, "/usr/lib/libcuda.so.550.1"),
            (Class::Elf64, Machine::X86_64, "/usr/lib64/libcuda.so.550.1"),
        ]
    );
}

#[test]
fn a_damaged_library_is_noted() {
    let node = Node::new();
    node.driver("/usr/lib64", "550.1").write("/usr/lib64/libnvidia-tls.so.550.1", b"text");
    // A SONAME must not lead to another directory.
    node.library("/usr/lib64/libnvidia-x.so.550.1", "../../etc/x");
    let driver = node.discover(Some("550.1")).unwrap();
    let noted: Vec<_> = driver.left_out.iter().map(|(path, _)| path.to_str().unwrap()).collect();
    let expected = ["/usr/lib64/libnvidia-tls.so.550.1", "/usr/lib64/libnvidia-x.so.550.1"];
    assert_eq!(noted, expected);
    assert_eq!(paths(&driver).len(), 2);
}

#[test]
fn links_of_libraries() {
    let node = Node::new();
    node.driver("/usr/lib64", "550.1")
        .library("/usr/lib64/libGLX_nvidia.so.550.1", "libGLX_nvidia.so.0")
        .library("/usr/lib64/libnvidia-allocator.so.550.1", "libnvidia-allocator.so.1")
        .library("/usr/lib64/libnvidia-nvvm70.so.4", "libnvidia-nvvm70.so.4")
        .library("/usr/lib64/vdpau/libvdpau_nvidia.so.550.1", "libvdpau_nvidia.so.1");
    symlink("libnvidia-ml.so.1", node.0.path().join("usr/lib64/libnvidia-ml.so")).unwrap();
    let driver = node.discover(Some("550.1")).unwrap();
    let links = |name: &str| -> Vec<String> {
        let library = driver.libraries.iter().find(|library| library.path.ends_with(name));
        let show = |(link, target): &(PathBuf, PathBuf)| {
            format!("{} {}", link.display(), target.display())
        };
        library.unwrap().links.iter().map(show).collect()
    };
    assert_eq!(
        links("libcuda.so.550.1"),
        ["libcuda.so.1 libcuda.so.550.1", "libcuda.so libcuda.so.1"]
    );
    assert_eq!(
        links("libnvidia-ml.so.550.1"),
        ["libnvidia-ml.so.1 libnvidia-ml.so.550.1", "libnvidia-ml.so libnvidia-ml.so.1"]
    );
    assert_eq!(
        links("libGLX_nvidia.so.550.1"),
        [
            "libGLX_nvidia.so.0 libGLX_nvidia.so.550.1",
            "libGLX_indirect.so.0 libGLX_nvidia.so.550.1"
        ]
    );
    assert_eq!(
        links("libnvidia-allocator.so.550.1"),
        [
            "libnvidia-allocator.so.1 libnvidia-allocator.so.550.1",
            "gbm/nvidia-drm_gbm.so ../libnvidia-allocator.so.1"
        ]
    );
    assert_eq!(links("libnvidia-nvvm70.so.4"), [""; 0]);
    let vdpau =
        driver.libraries.iter().find(|library| library.path.ends_with("libvdpau_nvidia.so.550.1"));
    assert_eq!(vdpau.unwrap().subdir, Path::new("vdpau"));
}

#[test]
fn sockets_of_the_driver_root_or_else_of_the_host() {
    let node = Node::new();
    node.driver("/run/nvidia/driver/usr/lib64", "550.1");
    let place = |path: &str| {
        let path = node.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::net::UnixListener::bind(path).unwrap();
    };
    place("run/nvidia/driver/run/nvidia-persistenced/socket");
    place("run/nvidia-fabricmanager/socket");
    fs::create_dir_all(node.0.path().join("tmp/nvidia-mps")).unwrap();
    let driver = node.discover(Some("550.1")).unwrap();
    let sockets: Vec<_> = driver
        .files
        .iter()
        .filter(|file| file.kind == FileKind::Socket)
        .map(|file| (file.source.to_str().unwrap(), file.destination.to_str().unwrap()))
        .collect();
    assert_eq!(
        sockets,
        [
            (
                "/run/nvidia/driver/run/nvidia-persistenced/socket",
                "/run/nvidia-persistenced/socket"
            ),
            ("/run/nvidia-fabricmanager/socket", "/run/nvidia-fabricmanager/socket"),
            ("/tmp/nvidia-mps", "/tmp/nvidia-mps"),
        ]
    );
}

#[test]
fn a_link_in_place_of_a_daemons_directory_is_none() {
    for root in ["", "run/nvidia/driver"] {
        let node = Node::new();
        node.driver(&format!("{root}/usr/lib64"), "550.1")
            .write(&format!("{root}/etc/shadow"), b"");
        let tmp = node.0.path().join(root).join("tmp");
        fs::create_dir(&tmp).unwrap();
        symlink("/etc", tmp.join("nvidia-mps")).unwrap();
        fs::create_dir_all(node.0.path().join(root).join("run/nvidia-persistenced")).unwrap();
        let socket = node.0.path().join(root).join("run/nvidia-persistenced/socket");
        let other = node.0.path().join(root).join("run/containerd.sock");
        drop(std::os::unix::net::UnixListener::bind(other).unwrap());
        symlink("../containerd.sock", socket).unwrap();
        let driver = node.discover(Some("550.1")).unwrap();
        assert_eq!(driver.files, []);
    }
}

#[test]
fn of_two_versions_of_an_egl_library_the_loaded_one_is_taken() {
    let node = Node::new();
    let gbm = "/usr/lib64/libnvidia-egl-gbm.so";
    node.driver("/usr/lib64", "550.1")
        .library(&format!("{gbm}.1.1.1"), "libnvidia-egl-gbm.so.1")
        .library(&format!("{gbm}.1.1.2"), "libnvidia-egl-gbm.so.1");
    let taken = || {
        let driver = node.discover(Some("550.1")).unwrap();
        let egl = driver.libraries.iter().filter(|library| library.name() == "libnvidia-egl-gbm");
        egl.map(|library| library.path.display().to_string()).collect::<Vec<_>>()
    };
    let link = node.0.path().join("usr/lib64/libnvidia-egl-gbm.so.1");
    symlink("libnvidia-egl-gbm.so.1.1.2", &link).unwrap();
    assert_eq!(taken(), [format!("{gbm}.1.1.2")]);
    fs::remove_file(&link).unwrap();
    symlink("libnvidia-egl-gbm.so.1.1.1", &link).unwrap();
    assert_eq!(taken(), [format!("{gbm}.1.1.1")]);
}

#[test]
fn a_half_removed_driver_gives_nothing() {
    let node = Node::new();
    node.driver("/usr/lib64", "550.1");
    for (name, soname) in [
        ("libnvidia-nvvm.so.535.1", "libnvidia-nvvm.so.4"),
        ("libnvcuvid.so.535.1", "libnvcuvid.so.1"),
        ("libcuda.so.535.1", "libcuda.so.1"),
    ] {
        node.library(&format!("/usr/lib64/{name}"), soname);
    }
    // The link of the removed driver is still the loader's.
    symlink("libcuda.so.535.1", node.0.path().join("usr/lib64/libcuda.so.1")).unwrap();
    let driver = node.discover(Some("550.1")).unwrap();
    assert_eq!(paths(&driver), ["/usr/lib64/libcuda.so.550.1", "/usr/lib64/libnvidia-ml.so.550.1"]);
    assert_eq!(driver.libraries[0].links[0].1, Path::new("libcuda.so.550.1"));
}

#[test]
fn the_compiler_of_old_drivers_has_a_version_of_its_own() {
    let node = Node::new();
    node.driver("/usr/lib64", "470.1");
    node.library("/usr/lib64/libnvidia-nvvm.so.4.0.0", "libnvidia-nvvm.so.4");
    let driver = node.discover(Some("470.1")).unwrap();
    assert!(paths(&driver).contains(&"/usr/lib64/libnvidia-nvvm.so.4.0.0"));
}

#[test]
fn a_name_of_nvidias_that_leads_to_anothers_file_is_left_out() {
    let node = Node::new();
    node.driver("/usr/lib64", "550.1").library("/usr/lib64/libc.so.6", "libc.so.6");
    symlink("libc.so.6", node.0.path().join("usr/lib64/libnvidia-x.so.550.1")).unwrap();
    let driver = node.discover(Some("550.1")).unwrap();
    assert_eq!(paths(&driver).len(), 2);
    let (path, reason) = &driver.left_out[0];
    assert_eq!(path, Path::new("/usr/lib64/libnvidia-x.so.550.1"));
    assert!(reason.contains("/usr/lib64/libc.so.6"), "{reason}");
}

#[test]
fn a_vendor_file_that_names_a_path_of_the_host_is_left_out() {
    let node = Node::new();
    node.driver("/usr/lib64", "550.1");
    let json = |library: &str| format!(r#"{{"ICD": {{"library_path": "{library}"}}}}"#);
    node.write("/usr/share/glvnd/egl_vendor.d/10_nvidia.json", json("/nix/store/x").as_bytes());
    node.write("/usr/share/vulkan/icd.d/nvidia_icd.json", json("libGLX_nvidia.so.0").as_bytes());
    node.write("/etc/OpenCL/vendors/nvidia.icd", b"/opt/libnvidia-opencl.so.1\n");
    let driver = node.discover(Some("550.1")).unwrap();
    let files: Vec<_> =
        driver.files.iter().map(|file| file.destination.to_str().unwrap()).collect();
    assert_eq!(files, ["/etc/vulkan/icd.d/nvidia_icd.json"]);
    let left_out: Vec<_> = driver.left_out.iter().map(|(path, _)| path.to_str().unwrap()).collect();
    let expected =
        ["/usr/share/glvnd/egl_vendor.d/10_nvidia.json", "/etc/OpenCL/vendors/nvidia.icd"];
    assert_eq!(left_out, expected);
}

#[test]
fn programs_go_where_containers_look_and_none_with_a_loader_of_the_store() {
    let node = Node::new();
    node.driver("/run/opengl-driver/lib", "550.1");
    let program = |path: &str, content: &[u8]| {
        node.write(path, content);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(node.0.path().join(&path[1..]), mode).unwrap();
    };
    let patched = testing::program("/nix/store/x-glibc/lib/ld-linux-x86-64.so.2");
    for name in ["nvidia-smi", "nvidia-debugdump"] {
        program(&format!("/nix/store/n-bin/bin/{name}"), &patched);
        let link = node.0.path().join("run/current-system/sw/bin").join(name);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(format!("/nix/store/n-bin/bin/{name}"), link).unwrap();
    }
    program(
        "/nix/store/n-bin/origBin/nvidia-smi",
        &testing::program("/lib64/ld-linux-x86-64.so.2"),
    );
    let driver = node.discover(Some("550.1")).unwrap();
    let files: Vec<_> = driver
        .files
        .iter()
        .map(|file| (file.source.as_path(), file.destination.as_path()))
        .collect();
    let smi = (Path::new("/nix/store/n-bin/origBin/nvidia-smi"), Path::new("/usr/bin/nvidia-smi"));
    assert_eq!(files, [smi]);
    let (path, reason) = &driver.left_out[0];
    assert!(
        path.ends_with("nvidia-debugdump") && reason.contains("/nix/store/x-glibc"),
        "{reason}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever else lies in the directories of libraries, and whatever links lead where.
    #[test]
    fn nothing_but_nvidias_own_files_is_found(
        names in prop::collection::btree_set(
            "lib(c|GL|nvidia-x|nvidia-egl-gbm|cuda|nvidia-nvvm)\\.so(\\.(6|1|550\\.1|535\\.1|1\\.1\\.2)){0,2}",
            0..12,
        ),
        links in prop::collection::vec((0..12usize, 0..12usize), 0..6),
    ) {
        let node = Node::new();
        node.driver("/usr/lib64", "550.1");
        let names: Vec<String> = names.into_iter().collect();
        for name in &names {
            node.library(&format!("/usr/lib64/{name}"), "libx.so.1");
        }
        for (link, target) in links {
            if let (Some(link), Some(target)) = (names.get(link), names.get(target)) {
                let link = node.0.path().join("usr/lib64").join(format!("{link}.550.1"));
                let _ = symlink(target, link);
            }
        }
        let driver = node.discover(Some("550.1")).unwrap();
        for path in paths(&driver) {
            let version = path.split_once(".so.").unwrap().1;
            let is_own = version.ends_with("550.1")
                || path.contains("libnvidia-egl-gbm")
                || path.contains("libnvidia-nvvm");
            prop_assert!(is_own && !version.contains("535.1"), "{}", path);
        }
    }
}
