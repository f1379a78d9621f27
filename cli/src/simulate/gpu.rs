//! The simulated GPUs: those of a DGX A100, as many as asked for.

/// `nvidia-smi` of a DGX A100 shows its eight GPUs at these buses of domain 0000.
const BUSES: [u8; 8] = [0x07, 0x0f, 0x47, 0x4e, 0x87, 0x90, 0xb7, 0xbd];

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gpu {
    /// As `nvidia-smi` counts: PCI order.
    pub(super) index: u32,
    /// Of `/dev/nvidia<minor>`: the driver numbers GPUs as it probes them, in any order; here in
    /// reverse, so that whoever takes an index for a minor is found out.
    pub(super) minor: u32,
    /// `0000:07:00.0`
    pub(super) bus_id: String,
    pub(super) uuid: String,
}

impl Gpu {
    pub(super) const MODEL: &'static str = "NVIDIA A100-SXM4-40GB";
    /// "GA100 \[A100 SXM4 40GB\]" in the PCI ID database.
    pub(super) const PCI_DEVICE: &'static str = "0x20b0";

    /// `count` GPUs in index order.
    pub(super) fn all(count: u32) -> Vec<Self> {
        let buses = (0_u32..).flat_map(|domain| BUSES.map(|bus| (domain, bus)));
        (0..count)
            .zip(buses)
            .map(|(index, (domain, bus))| Self {
                index,
                minor: count - 1 - index,
                bus_id: format!("{domain:04x}:{bus:02x}:00.0"),
                uuid: format!("GPU-a{index:07x}-1111-2222-3333-{index:012x}"),
            })
            .collect()
    }

    /// `card<N>` and `renderD<N>` of DRM. `card0` is left to the BMC's display adapter, as on a
    /// server; render nodes begin at 128 (kernel `drm_drv.c`: minor type × 64).
    pub(super) fn drm(&self) -> (String, String) {
        (format!("card{}", self.index + 1), format!("renderD{}", 128 + self.index))
    }
}
