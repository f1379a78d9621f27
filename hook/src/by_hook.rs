//! What is left to a hook of our own: a mount of the spec would hide it if it was written
//! beforehand, or the root filesystem is of a kind that cannot be written beforehand.

use std::path::{Path, PathBuf};

use nvidia_oci::cdi::Hook;

use crate::covers::{BY_BUS_ID, some};
use crate::profile;
use crate::work::Work;

/// The name of the program.
pub const PROGRAM: &str = "nvidia-cdi-hook";

/// Longer than everything takes on a slow disk, in seconds.
const TIMEOUT: i64 = 30;

/// Work for a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByHook {
    work: Work,
    /// Why, if it is not for a mount.
    reason: Option<String>,
}

impl ByHook {
    /// `None` where there is nothing to do.
    pub(crate) fn of(work: Work, reason: Option<String>) -> Option<Self> {
        (work != Work::default()).then_some(Self { work, reason })
    }

    /// The hook that does it, for an OCI spec. `program` is [`PROGRAM`], as the host names it.
    pub fn hook(&self, program: &Path) -> Hook {
        let mut args = vec![PROGRAM.to_owned()];
        args.extend(self.work.to_words());
        Hook {
            hook_name: "createContainer".to_owned(),
            path: program.display().to_string(),
            args,
            // Without any, runc gives it the environment of the image (CVE-2025-23266).
            env: vec!["NVIDIA_CTK_DEBUG=false".to_owned()],
            timeout: Some(TIMEOUT),
        }
    }

    /// What a person should know where the hook's program is missing.
    pub fn left_out(&self, program: &Path) -> Option<String> {
        let cache = self.work.folders.as_ref().map(|_| PathBuf::from("/etc/ld.so.cache"));
        let links = self.work.links.iter().map(|link| link.link.clone());
        let files = self.work.files.iter().map(|file| file.path.clone());
        let named = |is: bool, path: &str| is.then(|| PathBuf::from(path));
        let params = named(self.work.mask_params, "/proc/driver/nvidia/params");
        let profile = named(self.work.profile, profile::FILE);
        let paths = cache.into_iter().chain(links).chain(files).chain(params).chain(profile);
        let paths: Vec<PathBuf> = paths.filter(|path| !path.starts_with(BY_BUS_ID)).collect();
        let reason = self.reason.as_deref().unwrap_or("mounts would hide it");
        let program = program.display();
        some(&paths).map(|paths| format!("left out, as {reason} and {program} is missing: {paths}"))
    }
}
