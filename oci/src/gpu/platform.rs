//! Machines whose GPUs are not those of the kernel driver on PCI, which this version does not serve.

use std::path::Path;

use crate::Host;

/// Its name, if this host is one. As NVIDIA Container Toolkit (go-nvlib, `pkg/nvlib/info`) tells
/// them apart.
pub(super) fn other(host: &Host) -> Option<&'static str> {
    let family = host.read_text(Path::new("/sys/devices/soc0/family"), 256).unwrap_or_default();
    let is_tegra = host.exists(Path::new("/etc/nv_tegra_release"))
        || family.trim().to_ascii_lowercase().starts_with("tegra");
    if is_tegra {
        return Some("Tegra");
    }
    host.exists(Path::new("/dev/dxg")).then_some("WSL2")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn platforms_are_known_by_their_files() {
        let other = |path: &str, text: &str| {
            let dir = tempfile::tempdir().unwrap();
            let place = dir.path().join(path);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, text).unwrap();
            super::other(&Host::new(dir.path()))
        };
        assert_eq!(other("etc/nv_tegra_release", ""), Some("Tegra"));
        assert_eq!(other("sys/devices/soc0/family", "Tegra\n"), Some("Tegra"));
        assert_eq!(other("sys/devices/soc0/family", "i.MX\n"), None);
        assert_eq!(other("dev/dxg", ""), Some("WSL2"));
    }
}
