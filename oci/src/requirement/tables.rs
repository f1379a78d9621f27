//! What is known of drivers and GPUs without asking them.

use super::expression::Version;

/// The CUDA version of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cuda {
    Known(Version),
    /// Of a driver that is newer than the table.
    AtLeast(Version),
}

/// The first driver branch of each CUDA version, latest first. Source: the table "CUDA Toolkit and
/// Corresponding Driver Versions" of NVIDIA's CUDA release notes up to 13.3, the Linux column
/// (docs.nvidia.com/cuda/cuda-toolkit-release-notes); 12.7, which no toolkit has, is what
/// `nvidia-smi` of 565 tells. A driver tells the CUDA version that came out with its branch, and
/// one of a branch between two of these that of the earlier.
const CUDA: [(u64, (u64, u64)); 32] = [
    (610, (13, 3)),
    (595, (13, 2)),
    (590, (13, 1)),
    (580, (13, 0)),
    (575, (12, 9)),
    (570, (12, 8)),
    (565, (12, 7)),
    (560, (12, 6)),
    (555, (12, 5)),
    (550, (12, 4)),
    (545, (12, 3)),
    (535, (12, 2)),
    (530, (12, 1)),
    (525, (12, 0)),
    (520, (11, 8)),
    (515, (11, 7)),
    (510, (11, 6)),
    (495, (11, 5)),
    (470, (11, 4)),
    (465, (11, 3)),
    (460, (11, 2)),
    (455, (11, 1)),
    (450, (11, 0)),
    (440, (10, 2)),
    (418, (10, 1)),
    (410, (10, 0)),
    (396, (9, 2)),
    (387, (9, 1)),
    (384, (9, 0)),
    (367, (8, 0)),
    (352, (7, 5)),
    (346, (7, 0)),
];

/// Ranges of PCI device ids and the compute capability of the chips in them. Sources: which chip
/// an id is of, the PCI id database (pci-ids.ucw.cz, version 2026.08.22), with which every range was
/// compared id by id; which compute capability a chip has, NVIDIA's list of CUDA GPUs
/// (developer.nvidia.com/cuda-gpus) by the products of the chip. Chips without a product there
/// (GB112), and those that no driver after 390 serves (Fermi), are left out.
const CHIPS: [(u16, u16, (u64, u64)); 30] = [
    (0x0fc0, 0x0fff, (3, 0)),
    (0x1001, 0x102a, (3, 5)),
    (0x102d, 0x102d, (3, 7)),
    (0x102e, 0x103f, (3, 5)),
    (0x1180, 0x11ff, (3, 0)),
    (0x1280, 0x130b, (3, 5)),
    (0x1340, 0x139d, (5, 0)),
    (0x13ad, 0x13ae, (5, 2)),
    (0x13b0, 0x13bd, (5, 0)),
    (0x13be, 0x1436, (5, 2)),
    (0x15c2, 0x15c2, (6, 0)),
    (0x15f0, 0x15ff, (6, 0)),
    (0x1613, 0x1676, (5, 2)),
    (0x1725, 0x172f, (6, 0)),
    (0x174d, 0x179c, (5, 0)),
    (0x17c2, 0x17fd, (5, 2)),
    (0x1b00, 0x1d56, (6, 1)),
    (0x1d81, 0x1df6, (7, 0)),
    (0x1e02, 0x1ff9, (7, 5)),
    (0x2080, 0x20ff, (8, 0)),
    (0x2182, 0x21d1, (7, 5)),
    (0x2200, 0x223f, (8, 6)),
    (0x2302, 0x23f0, (9, 0)),
    (0x2414, 0x25fb, (8, 6)),
    (0x2681, 0x28f8, (8, 9)),
    (0x2900, 0x29f1, (10, 0)),
    (0x2b85, 0x2df9, (12, 0)),
    (0x2e03, 0x2e2a, (12, 1)),
    (0x2f04, 0x2f58, (12, 0)),
    (0x3180, 0x31fe, (10, 3)),
];

/// Words in a model's name and what NVML may call its brand, in lower case and without spaces as
/// requirements write it; the first that fits. Which of two it is depends on the driver: newer
/// headers call `GEFORCE_RTX` and `TITAN_RTX` unused. Source: the names of `nvmlBrandType_t` in
/// `nvml.h`, and the remarks beside them.
const BRANDS: [(&str, &[&str]); 11] = [
    ("GeForce RTX", &["geforcertx", "geforce"]),
    ("GeForce", &["geforce"]),
    ("TITAN RTX", &["titanrtx", "titan"]),
    ("TITAN", &["titan"]),
    ("Quadro RTX", &["quadrortx", "quadro"]),
    ("Quadro", &["quadro"]),
    ("NVS", &["nvs"]),
    ("GRID", &["grid"]),
    ("Tesla", &["tesla", "nvidia"]),
    ("RTX", &["nvidiartx", "nvidia"]),
    // What remains is of data centres: NVIDIA A100, L4, H200.
    ("NVIDIA ", &["nvidia", "tesla"]),
];

/// The CUDA version of a driver.
pub(super) fn cuda(driver: &str) -> Option<Cuda> {
    let branch: u64 = driver.split('.').next()?.parse().ok()?;
    let (_, (major, minor)) = CUDA.iter().find(|(first, _)| branch >= *first)?;
    let version = Version::new(*major, *minor);
    // What is newer than the table may have a newer CUDA.
    let is_newer = CUDA.first().is_some_and(|(last, _)| branch > *last);
    Some(if is_newer { Cuda::AtLeast(version) } else { Cuda::Known(version) })
}

/// The compute capability of the GPU with that PCI device id.
pub(super) fn compute_capability(device_id: u16) -> Option<Version> {
    let chip = CHIPS.iter().find(|(first, last, _)| (*first..=*last).contains(&device_id));
    chip.map(|(_, _, (major, minor))| Version::new(*major, *minor))
}

/// What NVML may call the brand of a GPU; empty if that is not known.
pub(super) fn brands(model: &str) -> &'static [&'static str] {
    BRANDS.iter().find(|(word, _)| model.contains(word)).map_or(&[], |(_, brands)| brands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_has_the_cuda_version_of_its_branch() {
        let known = |major, minor| Some(Cuda::Known(Version::new(major, minor)));
        assert_eq!(cuda("470.256.02"), known(11, 4));
        assert_eq!(cuda("535.261.03"), known(12, 2));
        assert_eq!(cuda("550.163.01"), known(12, 4));
        assert_eq!(cuda("580.65.06"), known(13, 0));
        assert_eq!(cuda("590.48.01"), known(13, 1));
        assert_eq!(cuda("595.45.04"), known(13, 2));
        assert_eq!(cuda("610.43.02"), known(13, 3));
        assert_eq!(cuda("611.1"), Some(Cuda::AtLeast(Version::new(13, 3))));
        assert_eq!(cuda("435.21"), known(10, 1));
        assert_eq!(cuda("340.108"), None);
        assert_eq!(cuda("x"), None);
        assert!(CUDA.is_sorted_by(|one, next| one.0 > next.0 && one.1 > next.1));
    }

    #[test]
    fn a_chip_has_its_compute_capability() {
        for (id, shown) in [
            (0x1db4, "7.0"),  // Tesla V100
            (0x1eb8, "7.5"),  // Tesla T4
            (0x20b0, "8.0"),  // A100
            (0x2236, "8.6"),  // A10
            (0x2684, "8.9"),  // GeForce RTX 4090
            (0x27b8, "8.9"),  // L4
            (0x2330, "9.0"),  // H100
            (0x2335, "9.0"),  // H200
            (0x2901, "10.0"), // B200
            (0x2b85, "12.0"), // GeForce RTX 5090
            (0x3182, "10.3"), // B300
            (0x2e12, "12.1"), // GB10
            (0x102d, "3.7"),  // Tesla K80
            (0x15f8, "6.0"),  // Tesla P100
            (0x1b38, "6.1"),  // Tesla P40
        ] {
            assert_eq!(compute_capability(id).unwrap().to_string(), shown, "{id:x}");
        }
        assert_eq!(compute_capability(0xffff), None);
        assert!(CHIPS.iter().all(|(first, last, _)| first <= last));
        assert!(CHIPS.is_sorted_by(|one, next| one.1 < next.0));
    }

    #[test]
    fn a_model_has_a_brand() {
        for (model, brand) in [
            ("Tesla V100-SXM2-16GB", "tesla"),
            ("NVIDIA A100-SXM4-40GB", "nvidia"),
            ("NVIDIA GeForce RTX 4090", "geforcertx"),
            ("NVIDIA GeForce GTX 1080", "geforce"),
            ("NVIDIA RTX A6000", "nvidiartx"),
            ("Quadro RTX 6000", "quadrortx"),
            ("NVIDIA TITAN V", "titan"),
            ("Unknown", ""),
        ] {
            assert_eq!(brands(model).first().copied().unwrap_or_default(), brand, "{model}");
        }
    }
}
