//! Where we differ from NVIDIA on purpose: the case, the row of the design's table that says so,
//! and what a container gets instead.

use nvidia_oci::Code;

#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) case: &'static str,
    /// The subject in the table of the design, or the step that is to come.
    #[expect(dead_code, reason = "shown when a row is stale")]
    pub(crate) row: &'static str,
    pub(crate) ours: Ours,
}

#[derive(Debug)]
pub(crate) enum Ours {
    Refused(Code),
    Untouched,
    /// As NVIDIA's result for this case, but for lines that begin so: `+` ours, `-` NVIDIA's.
    Like(&'static str, &'static [&'static str]),
}

const fn row(case: &'static str, row: &'static str, ours: Ours) -> Difference {
    Difference { case, row, ours }
}

use Ours::{Like, Refused, Untouched};

/// 32-bit libraries of the RHEL host, in /usr/lib.
const COMPAT32: &[&str] = &["+mount /usr/lib/lib", "+folder /usr/lib"];
/// Nodes that are made, or are in `/dev` and not below the driver root.
const NODES: &[&str] = &["+device /dev/nvidia", "+rule c 195:", "+rule c 510:"];
/// Made, as its module is loaded.
const MODESET: &[&str] = &["+device /dev/nvidia-modeset ", "+rule c 195:254 "];
/// NVIDIA's locator of files does not take a directory.
const MPS: &[&str] = &["+mount /tmp/nvidia-mps /tmp/nvidia-mps rw"];
/// NVIDIA leaves the driver root in the path of the link.
const BY_PATH: &[&str] = &["+link /dev/dri/by-path/", "-link /run/nvidia/driver/dev/dri/by-path/"];

/// "CDI specs just in time": decision 5.
const JIT: &str = "just in time";

pub(crate) const DIFFERENCES: &[Difference] = &[
    row("nvd/three-with-dup.jit", "duplicate devices", Like("nvd/all.jit", &[])),
    row("host/rhel-580-all.auto", "32-bit libraries", Like("host/rhel-580-all.auto", COMPAT32)),
    row("host/rhel-580-idx0.jit", "32-bit libraries", Like("host/rhel-580-idx0.jit", COMPAT32)),
    row("host/deb550-8gpu-all.auto", "MPS directory", Like("host/deb550-8gpu-all.auto", MPS)),
    row(
        "host/deb550-nodev-all.auto",
        "device nodes missing though the driver is loaded",
        Like("host/deb550-nodev-all.auto", NODES),
    ),
    row("host/deb550-nogpu-all.auto", "missing device node", Refused(Code::NoGpu)),
    row(
        "host/talos-glibc-root-all.auto",
        "dev root",
        Like("host/talos-glibc-root-all.auto", NODES),
    ),
    row("host/talos-glibc-all.auto", "driver root", Like("host/talos-glibc-root-all.auto", NODES)),
    row(
        "host/gpuop-550-root-all.auto",
        "by-path links",
        Like("host/gpuop-550-root-all.auto", BY_PATH),
    ),
    row("host/gpuop-550-all.auto", "driver root", Like("host/gpuop-550-root-all.auto", BY_PATH)),
    row(
        "shape/unknown-fields.jit",
        "unknown fields in config.json",
        Like("shape/unknown-fields-allowed.jit", &[]),
    ),
    row("shape/unknown-fields-nogpu.jit", "unknown fields in config.json", Untouched),
    // It asks for nothing, and so is not looked at.
    row("shape/wrong-type.jit", "decision 6", Untouched),
    row("host/tegra-csv-all.auto", "csv", Refused(Code::PlatformUnsupported)),
    row(
        "config/jit-flags.jit",
        "links",
        Like("config/jit-flags.jit", &["+link /usr/lib/x86_64-linux-gnu/libnvidia-egl-"]),
    ),
    row("host/rhel-580-graphics-0.legacy", "32-bit libraries", Like("host/rhel-580-idx0.jit", &[])),
    row(
        "caps/bogus.legacy",
        "driver capabilities",
        Like("nvd/idx0.jit", &["-mount /lib/firmware/nvidia/"]),
    ),
    row("config/no-runtimes", "the front's own matter", Like("config/none.auto", &[])),
    row("vmount/on-imex.jit", "MPS directory", Like("vmount/on-imex.jit", MPS)),
    row("vmount/on-imex-only.jit", "MPS directory", Like("vmount/on-imex-only.jit", MPS)),
    row("imex/env-0.jit", "MPS directory", Like("imex/env-0.jit", MPS)),
    row("imex/env-0-2.jit", "MPS directory", Like("imex/env-0-2.jit", MPS)),
    row("imex/env-dup.jit", "MPS directory", Like("imex/env-dup.jit", MPS)),
    row("imex/env-0-ignored.jit", "MPS directory", Like("imex/env-0-ignored.jit", MPS)),
    row("imex/env-0.legacy", "MPS directory", Like("imex/env-0.jit", MPS)),
    // Of mode legacy, where NVIDIA decides in a hook that was not recorded: what the documents say.
    row("nvd/dup00.legacy", "duplicate devices", Like("nvd/idx0.jit", &[])),
    row("nvd/empty.legacy", "decision 9", Untouched),
    row("nvd/unset.legacy", "decision 9", Untouched),
    row("nvd/oob7.legacy", "decision 6", Refused(Code::UnknownGpu)),
    row("nvd/minor-path.legacy", "decision 6", Refused(Code::InvalidRequest)),
    row("nvd/pci.legacy", "PCI bus ids", Like("nvd/idx0.jit", &[])),
    row("nvd/uuid-both.legacy", "decision 9", Like("nvd/all.jit", &[])),
    row("require/require-unsat.legacy", "NVIDIA_REQUIRE_*", Refused(Code::RequirementUnmet)),
    row("require/require-malformed.legacy", "NVIDIA_REQUIRE_*", Refused(Code::RequirementInvalid)),
    row("config/compat-hook.legacy", "decision 3", Like("config/none.auto", &[])),
    row("config/hook-path.legacy", "decision 3", Like("config/none.auto", &[])),
    // NVIDIA takes the beginning of the name for the directory.
    row("vmount/on-similar-prefix.jit", "decision 9", Untouched),
    // CDI: what no spec describes is given from what is there, alone or beside other devices.
    row("nvd/cdi-q0.jit", JIT, Like("nvd/idx0.jit", &[])),
    row("nvd/cdi-q0-q1.auto", JIT, Like("nvd/all.jit", &[])),
    row("nvd/cdi-qall.auto", JIT, Like("nvd/all.jit", &[])),
    row("nvd/cdi-qall.jit", JIT, Like("nvd/all.jit", &[])),
    row("nvd/mixed-q-unq.auto", JIT, Like("nvd/all.jit", &[])),
    row("nvd/mixed-rt-q.auto", JIT, Like("nvd/all.jit", &[])),
    row("nvd/mixed-rt-q.cdi", JIT, Like("nvd/all.jit", &[])),
    row("nvd/mixed-rt-q.jit", JIT, Like("nvd/all.jit", &[])),
    row("nvd/none.cdi", JIT, Like("nvd/none.jit", &[])),
    row("mig/parent0.cdi", JIT, Like("mig/parent0.jit", MODESET)),
    row("host/deb550-8gpu-all.cdi", JIT, Like("host/deb550-8gpu-all.auto", MPS)),
    row("host/deb550-nodev-all.cdi", JIT, Like("host/deb550-nodev-all.auto", NODES)),
    row("host/gpuop-550-all.cdi", JIT, Like("host/gpuop-550-root-all.auto", BY_PATH)),
    row("host/gpuop-550-root-all.cdi", JIT, Like("host/gpuop-550-root-all.auto", BY_PATH)),
    row("host/rhel-580-all.cdi", JIT, Like("host/rhel-580-all.auto", COMPAT32)),
    row("host/talos-glibc-root-all.cdi", JIT, Like("host/talos-glibc-root-all.auto", NODES)),
    row("nvd/three-with-dup.cdi", "duplicate devices", Like("nvd/all.jit", &[])),
    row("cdi/same-device-twice", "duplicate devices", Like("cdi/simple-json", &[])),
    row("cdi/edit-hooks", "decision 7: no such hook", Refused(Code::HookMissing)),
];
