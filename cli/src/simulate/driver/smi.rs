//! What the simulated `nvidia-smi` says.

use std::fmt::Write as _;

use super::CudaVersion;
use crate::simulate::gpu::Gpu;

/// The answer to `nvidia-smi -L`.
pub(super) fn list(gpus: &[Gpu]) -> String {
    gpus.iter()
        .map(|gpu| format!("GPU {}: {} (UUID: {})\n", gpu.index, Gpu::MODEL, gpu.uuid))
        .collect()
}

/// The answer to `nvidia-smi -q -x`: of its hundreds of elements those that name a GPU and say
/// whether MIG is on; bus ids have eight digits of domain and are upper case there.
pub(super) fn query(gpus: &[Gpu], version: &str, cuda: CudaVersion) -> String {
    let mut xml = format!(
        "<?xml version=\"1.0\" ?>\n\
         <!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">\n\
         <nvidia_smi_log>\n\
         \t<driver_version>{version}</driver_version>\n\
         \t<cuda_version>{cuda}</cuda_version>\n\
         \t<attached_gpus>{count}</attached_gpus>\n",
        count = gpus.len()
    );
    for gpu in gpus {
        let _ = write!(
            xml,
            "\t<gpu id=\"0000{bus_id}\">\n\
             \t\t<product_name>{model}</product_name>\n\
             \t\t<mig_mode>\n\
             \t\t\t<current_mig>Disabled</current_mig>\n\
             \t\t\t<pending_mig>Disabled</pending_mig>\n\
             \t\t</mig_mode>\n\
             \t\t<mig_devices>\n\
             \t\t\tNone\n\
             \t\t</mig_devices>\n\
             \t\t<uuid>{uuid}</uuid>\n\
             \t\t<minor_number>{minor}</minor_number>\n\
             \t\t<pci>\n\
             \t\t\t<pci_bus_id>0000{bus_id}</pci_bus_id>\n\
             \t\t</pci>\n\
             \t</gpu>\n",
            bus_id = gpu.bus_id.to_uppercase(),
            model = Gpu::MODEL,
            uuid = gpu.uuid,
            minor = gpu.minor,
        );
    }
    xml.push_str("</nvidia_smi_log>\n");
    xml
}

/// The answer to anything else.
pub(super) const USAGE: &str = "simulated nvidia-smi: it answers -L and -q -x only\n";
