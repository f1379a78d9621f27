//! Libraries as Debian's packages lay them out: the files in `nvidia/current`, and links to them
//! that go through `/etc/alternatives` (`driver-debian-550.json` of the corpus).

use anyhow::Result;
use nvidia_oci::elf::Class;

use super::layout::Directories;
use super::libraries::{LIBRARIES, Library, Soname};
use super::{Driver, PROGRAMS, elf, machine_name};
use crate::simulate::gpu::Gpu;
use crate::simulate::tree::Tree;

/// Of what does not depend on the architecture's triplet.
const CURRENT: &str = "usr/lib/nvidia/current";

/// Writes libraries and binaries.
pub(super) fn write(
    root: &Tree,
    driver: &Driver<'_>,
    directories: &Directories,
    gpus: &[Gpu],
) -> Result<()> {
    root.link("etc/alternatives/nvidia", "/usr/lib/nvidia/current")?;
    root.link("usr/lib/nvidia/nvidia", "/etc/alternatives/nvidia")?;
    let packages = Packages { root, driver, directories };
    for library in &LIBRARIES {
        packages.library(library)?;
    }
    packages.modules()?;
    packages.binaries(gpus)
}

struct Packages<'a> {
    root: &'a Tree,
    driver: &'a Driver<'a>,
    directories: &'a Directories,
}

impl Packages<'_> {
    /// Libraries of which one version serves all are in the library directory; the others are
    /// alternatives.
    fn library(&self, library: &Library) -> Result<()> {
        let folder = &self.directories.libraries;
        let version = self.driver.version;
        let (file, soname) = (library.file(version), library.soname(version));
        let is_alternative = matches!(library.soname, Soname::Number(_) | Soname::Only(_));
        let home = if is_alternative { format!("{folder}/nvidia/current") } else { folder.clone() };

        let content = self.driver.library(library)?;
        self.root.file(format!("{home}/{file}"), 0o644, content)?;
        if soname != file {
            self.root.link(format!("{home}/{soname}"), &file)?;
        }
        if library.bare_link {
            self.root.link(format!("{home}/{}.so", library.name), &soname)?;
        }
        if is_alternative {
            let shown = match library.name {
                "libnvidia-cfg" => format!("{folder}/nvidia"),
                _ => format!("{folder}/{}", library.subdir).trim_end_matches('/').to_owned(),
            };
            self.alternative(&home, &shown, &soname)?;
            // Only these two have their bare link in the library directory.
            if ["libcuda", "libnvcuvid"].contains(&library.name) {
                self.alternative(&home, &shown, &format!("{}.so", library.name))?;
            }
        }
        Ok(())
    }

    /// `shown/name` → `/etc/alternatives/nvidia--name-<triplet>` → `home/name`.
    fn alternative(&self, home: &str, shown: &str, name: &str) -> Result<()> {
        let triplet = format!("{}-linux-gnu", machine_name(self.driver.machine));
        self.link_through(&format!("nvidia--{name}-{triplet}"), home, shown, name)
    }

    fn link_through(&self, alternative: &str, home: &str, shown: &str, name: &str) -> Result<()> {
        let alternative = format!("etc/alternatives/{alternative}");
        self.root.link(format!("{shown}/{name}"), format!("/{alternative}"))?;
        self.root.link(alternative, format!("/{home}/{name}"))
    }

    /// The modules of the X server and of Mesa's buffer manager.
    fn modules(&self) -> Result<()> {
        let module = elf::library(None, Class::Elf64, self.driver.machine);
        let file = format!("libglxserver_nvidia.so.{}", self.driver.version);
        self.root.file(format!("{CURRENT}/{file}"), 0o644, &module)?;
        self.root.link(format!("{CURRENT}/libglxserver_nvidia.so"), file)?;
        self.root.file(format!("{CURRENT}/nvidia_drv.so"), 0o644, &module)?;
        for name in ["libglxserver_nvidia.so", "nvidia_drv.so"] {
            self.link_through(&format!("nvidia--{name}"), CURRENT, "usr/lib/nvidia", name)?;
        }

        let folder = &self.directories.libraries;
        let home = format!("{folder}/nvidia/current");
        let allocator = format!("libnvidia-allocator.so.{}", self.driver.version);
        self.root.link(format!("{home}/nvidia-drm_gbm.so"), allocator)?;
        self.alternative(&home, &format!("{folder}/gbm"), "nvidia-drm_gbm.so")
    }

    /// nvidia-smi and nvidia-debugdump are alternatives, the others are not.
    fn binaries(&self, gpus: &[Gpu]) -> Result<()> {
        let folder = self.directories.binaries;
        let smi = self.driver.nvidia_smi(gpus)?;
        self.root.file(format!("{CURRENT}/nvidia-smi"), 0o755, smi)?;
        self.link_through("nvidia--nvidia-smi", CURRENT, folder, "nvidia-smi")?;
        for name in PROGRAMS {
            let program = self.driver.program(name)?;
            if name == "nvidia-debugdump" {
                self.root.file(format!("{CURRENT}/{name}"), 0o755, program)?;
                self.link_through(&format!("nvidia--{name}"), CURRENT, folder, name)?;
            } else {
                self.root.file(format!("{folder}/{name}"), 0o755, program)?;
            }
        }
        Ok(())
    }
}
