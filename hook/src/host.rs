//! Changes on the host: device nodes, `/dev/char` links, kernel modules, GPUs to wake.

use nvidia_oci::{Host, MissingNode, Need, Result};

/// Makes what [`nvidia_oci::needs`] found wanting.
pub fn satisfy(host: &Host, need: &Need) -> Result<()> {
    let _ = (host, need);
    todo!()
}

/// Makes a device node with its `/dev/char` link; one that another process made meanwhile is
/// left as it is if it is the same device.
pub fn make_node(host: &Host, node: &MissingNode) -> Result<()> {
    let _ = (host, node);
    todo!()
}
