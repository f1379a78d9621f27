//! Is the driver still the one that a plan was made of? A driver container may end, and a package
//! be upgraded, while a container is prepared: its mounts would then be of nothing, or of two
//! versions.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::Plan;
use crate::{Code, Error, Host, Result, gpu};

/// The driver as it stood once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// That of the kernel module.
    version: Option<String>,
    root: PathBuf,
    /// Device and inode of the root: another where something else is mounted there by now.
    identity: (u64, u64),
}

impl Plan {
    /// The driver that was planned with, as it stands now.
    ///
    /// # Errors
    /// [`Code::DriverChanged`] if it is not there any more.
    pub fn standing(&self, host: &Host) -> Result<Option<Standing>> {
        let Some(driver) = &self.report.driver else { return Ok(None) };
        let root = driver.root.clone();
        let metadata = host.metadata(&root).map_err(|error| {
            let what = format!("driver root {}", root.display());
            Error::caused(Code::DriverChanged, what, error)
        })?;
        let identity = (metadata.dev(), metadata.ino());
        Ok(Some(Standing { version: gpu::kernel_version(host)?, root, identity }))
    }

    /// Whether the driver stands as it stood `before`.
    ///
    /// # Errors
    /// [`Code::DriverChanged`] if it does not.
    pub fn confirm(&self, host: &Host, before: Option<&Standing>) -> Result<()> {
        // Not by the links that the first look followed.
        let now = self.standing(&host.afresh())?;
        if now.as_ref() == before {
            return Ok(());
        }
        let told = |standing: Option<&Standing>| {
            let version = standing.and_then(|standing| standing.version.clone());
            version.unwrap_or_else(|| "no driver".to_owned())
        };
        let (then, now) = (told(before), told(now.as_ref()));
        let what = if then == now {
            let root = before.map(|before| before.root.display().to_string()).unwrap_or_default();
            format!("something else was mounted at driver root {root} meanwhile")
        } else {
            format!("the kernel driver was {then} and is {now} by now")
        };
        Err(Error::new(Code::DriverChanged, what))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::report::DriverFound;
    use crate::{Edits, Fixups, Report};

    #[test]
    fn a_driver_that_changed_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::new(dir.path());
        let version = dir.path().join("proc/driver/nvidia/version");
        fs::create_dir_all(version.parent().unwrap()).unwrap();
        let load = |number: &str| {
            fs::write(&version, format!("NVRM version: NVIDIA Kernel Module  {number}  x\n"))
        };
        load("550.1").unwrap();
        let root = dir.path().join("run/nvidia/driver");
        fs::create_dir_all(&root).unwrap();
        let found = DriverFound { version: "550.1".to_owned(), root: "/run/nvidia/driver".into() };
        let plan = Plan {
            edits: Edits::default(),
            fixups: Fixups::default(),
            missing_nodes: Vec::new(),
            report: Report { driver: Some(found), ..Report::default() },
        };
        let before = plan.standing(&host).unwrap();
        let confirm = || plan.confirm(&host, before.as_ref()).map_err(|error| error.to_string());
        confirm().unwrap();

        load("551.2").unwrap();
        let told = confirm().unwrap_err();
        assert!(told.contains("NVS-211: the kernel driver was 550.1 and is 551.2"), "{told}");
        load("550.1").unwrap();
        confirm().unwrap();
        fs::rename(&root, dir.path().join("run/nvidia/old")).unwrap();
        let told = confirm().unwrap_err();
        assert!(told.contains("driver root /run/nvidia/driver: No such file"), "{told}");
        fs::create_dir(&root).unwrap();
        assert!(confirm().unwrap_err().contains("something else was mounted"));
    }

    #[test]
    fn a_link_on_the_way_that_leads_elsewhere_by_now_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::new(dir.path());
        let opt = dir.path().join("opt");
        for version in ["1", "2"] {
            fs::create_dir_all(opt.join(version).join("driver")).unwrap();
        }
        symlink("1", opt.join("current")).unwrap();
        let found = DriverFound { version: "1".to_owned(), root: "/opt/current/driver".into() };
        let plan = Plan {
            edits: Edits::default(),
            fixups: Fixups::default(),
            missing_nodes: Vec::new(),
            report: Report { driver: Some(found), ..Report::default() },
        };
        let before = plan.standing(&host).unwrap();
        plan.confirm(&host, before.as_ref()).unwrap();
        fs::remove_file(opt.join("current")).unwrap();
        symlink("2", opt.join("current")).unwrap();
        let error = plan.confirm(&host, before.as_ref()).unwrap_err();
        assert_eq!(error.code(), Code::DriverChanged);
    }
}
