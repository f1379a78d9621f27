//! Hooks, as specs of NVIDIA's have them: its program, which ours is too, with one command each.

use std::path::{Path, PathBuf};

use super::part::Part;
use crate::cdi::Hook;
use crate::{GeneratedFile, Link};

/// After mounts and nodes are there, before the container sees them.
const STAGE: &str = "createContainer";
/// One without environment gets the image's from runc (CVE-2025-23266).
const ENV: &str = "NVIDIA_CTK_DEBUG=false";

/// A hook that a spec may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeneratedHook {
    CreateSymlinks,
    EnableCudaCompat,
    UpdateLdcache,
    DisableDeviceNodeModification,
    UpdateApplicationProfile,
    /// Never written: runc makes directories with right permissions.
    Chmod,
}

const NAMES: [(&str, GeneratedHook); 6] = [
    ("create-symlinks", GeneratedHook::CreateSymlinks),
    ("enable-cuda-compat", GeneratedHook::EnableCudaCompat),
    ("update-ldcache", GeneratedHook::UpdateLdcache),
    ("disable-device-node-modification", GeneratedHook::DisableDeviceNodeModification),
    ("update-application-profile", GeneratedHook::UpdateApplicationProfile),
    ("chmod", GeneratedHook::Chmod),
];

/// How hooks are written, and which are not.
#[derive(Clone, Debug)]
pub struct Hooks {
    /// `nvidia-cdi-hook`, or `nvidia-ctk`, as the host names it.
    pub program: PathBuf,
    /// For NVIDIA's program; ours needs none.
    pub ldconfig: Option<PathBuf>,
    pub disabled: Vec<GeneratedHook>,
}

impl GeneratedHook {
    /// As NVIDIA's flag `--disable-hook` has it.
    pub fn parse(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, hook)| *hook)
    }

    /// Each with its name.
    pub fn all() -> impl Iterator<Item = (&'static str, Self)> {
        NAMES.into_iter()
    }

    fn name(self) -> &'static str {
        NAMES.iter().find(|(_, hook)| *hook == self).map_or("", |(name, _)| name)
    }
}

impl Hooks {
    /// The hooks of a part: compatibility libraries must be chosen before the cache is written.
    pub(super) fn of(&self, part: &Part) -> Vec<Hook> {
        let mut hooks = Vec::new();
        let mut add = |hook: GeneratedHook, wanted: bool, words: Vec<String>| {
            if wanted && !self.disabled.contains(&hook) {
                hooks.push(self.hook(hook.name(), words));
            }
        };
        let links = part.links.iter().flat_map(|Link { link, target }| {
            flag("--link", format!("{}::{}", target.display(), link.display()))
        });
        add(GeneratedHook::CreateSymlinks, !part.links.is_empty(), links.collect());
        let compat = part.compat.iter().flat_map(|compat| {
            let driver = compat.driver.iter().map(|it| format!("--host-driver-version={it}"));
            let cuda = compat.cuda.iter().map(|it| format!("--host-cuda-version={it}"));
            driver.chain(cuda).collect::<Vec<_>>()
        });
        add(GeneratedHook::EnableCudaCompat, part.compat.is_some(), compat.collect());
        let ldconfig = self.ldconfig.iter().flat_map(|path| flag("--ldconfig-path", shown(path)));
        let folders = part.folders.iter().flat_map(|folder| flag("--folder", shown(folder)));
        let words = ldconfig.chain(folders).collect();
        add(GeneratedHook::UpdateLdcache, !part.folders.is_empty(), words);
        add(GeneratedHook::DisableDeviceNodeModification, part.mask_params, Vec::new());
        add(GeneratedHook::UpdateApplicationProfile, part.profile, Vec::new());
        if !part.files.is_empty() && !self.disabled.contains(&GeneratedHook::CreateSymlinks) {
            // NVIDIA's program has no such command, warns, and goes on.
            let files = part.files.iter().flat_map(|GeneratedFile { path, content }| {
                flag("--file", format!("{}::{content}", path.display()))
            });
            hooks.push(self.hook("apply", files.collect()));
        }
        hooks
    }

    fn hook(&self, command: &str, words: Vec<String>) -> Hook {
        let name = self.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let group = (name == "nvidia-ctk").then(|| "hook".to_owned());
        let mut args = vec![name];
        args.extend(group);
        args.push(command.to_owned());
        args.extend(words);
        Hook {
            hook_name: STAGE.to_owned(),
            path: shown(&self.program),
            args,
            env: vec![ENV.to_owned()],
            timeout: None,
        }
    }
}

fn flag(name: &str, value: String) -> [String; 2] {
    [name.to_owned(), value]
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
