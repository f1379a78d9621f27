//! Libraries as NVIDIA's own installer lays them out, and with it most distributions: file, link
//! by SONAME and bare link side by side in the library directory.

use anyhow::Result;
use nvidia_oci::elf::{Class, Machine};

use super::layout::Directories;
use super::libraries::{LIBRARIES, LIBRARIES_32, Library};
use super::{Driver, PROGRAMS, elf};
use crate::simulate::gpu::Gpu;
use crate::simulate::tree::Tree;

/// Writes libraries and binaries.
pub(super) fn write(
    root: &Tree,
    driver: &Driver<'_>,
    directories: &Directories,
    gpus: &[Gpu],
) -> Result<()> {
    for library in &LIBRARIES {
        let content = driver.library(library)?;
        install(root, &directories.libraries, library, driver.version, content)?;
    }
    // Mesa's buffer manager finds NVIDIA's by this name (gpuop-550.json).
    root.link(
        format!("{}/gbm/nvidia-drm_gbm.so", directories.libraries),
        "../libnvidia-allocator.so.1",
    )?;
    if let Some(folder) = directories.libraries_32 {
        for library in &LIBRARIES_32 {
            let soname = library.soname(driver.version);
            let content = elf::library(Some(&soname), Class::Elf32, Machine::X86);
            install(root, folder, library, driver.version, content)?;
        }
    }
    if let Some(xorg) = &directories.xorg {
        modules(root, xorg, driver)?;
    }
    binaries(root, driver, directories, gpus)
}

fn install(
    root: &Tree,
    folder: &str,
    library: &Library,
    version: &str,
    content: Vec<u8>,
) -> Result<()> {
    let folder = if library.subdir.is_empty() {
        folder.to_owned()
    } else {
        format!("{folder}/{}", library.subdir)
    };
    let (file, soname) = (library.file(version), library.soname(version));
    root.file(format!("{folder}/{file}"), 0o755, content)?;
    if soname != file {
        root.link(format!("{folder}/{soname}"), file)?;
    }
    if library.bare_link {
        root.link(format!("{folder}/{}.so", library.name), soname)?;
    }
    Ok(())
}

/// The modules of the X server; they have no SONAME.
fn modules(root: &Tree, xorg: &str, driver: &Driver<'_>) -> Result<()> {
    let module = elf::library(None, Class::Elf64, driver.machine);
    root.file(format!("{xorg}/drivers/nvidia_drv.so"), 0o755, &module)?;
    let file = format!("libglxserver_nvidia.so.{}", driver.version);
    root.file(format!("{xorg}/extensions/{file}"), 0o755, &module)?;
    root.link(format!("{xorg}/extensions/libglxserver_nvidia.so"), file)
}

fn binaries(
    root: &Tree,
    driver: &Driver<'_>,
    directories: &Directories,
    gpus: &[Gpu],
) -> Result<()> {
    let folder = directories.binaries;
    root.file(format!("{folder}/nvidia-smi"), 0o755, driver.nvidia_smi(gpus)?)?;
    for name in PROGRAMS {
        root.file(format!("{folder}/{name}"), 0o755, driver.program(name)?)?;
    }
    if let Some(links) = directories.binary_links {
        for name in ["nvidia-smi", "nvidia-modprobe"] {
            root.link(format!("{links}/{name}"), format!("/{folder}/{name}"))?;
        }
    }
    Ok(())
}
