//! Edits of a device, or of all, before they are written down: what is alike is there once, and
//! hooks are still what they are for.

use std::path::{Path, PathBuf};

use super::Hooks;
use crate::cdi::{ContainerEdits, DeviceNode, Mount};
use crate::plan::FILE_OPTIONS;
use crate::{CudaCompat, GeneratedFile, Link, Plan};

#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    pub(super) env: Vec<String>,
    pub(super) nodes: Vec<DeviceNode>,
    pub(super) mounts: Vec<Mount>,
    pub(super) gids: Vec<u32>,
    pub(super) links: Vec<Link>,
    pub(super) files: Vec<GeneratedFile>,
    pub(super) folders: Vec<PathBuf>,
    pub(super) compat: Option<CudaCompat>,
    pub(super) mask_params: bool,
    pub(super) profile: bool,
}

impl Part {
    pub(super) fn of(plan: Plan) -> Self {
        let Plan { edits, fixups, .. } = plan;
        let nodes = edits.devices.into_iter().map(|node| {
            let path = shown(&node.path);
            let host_path = Some(shown(&node.host_path)).filter(|host| *host != path);
            DeviceNode {
                path,
                host_path: host_path.unwrap_or_default(),
                major: node.major.into(),
                minor: node.minor.into(),
                file_mode: node.mode,
                permissions: node.access,
                gid: Some(node.gid).filter(|gid| *gid != 0),
                ..DeviceNode::default()
            }
        });
        let mounts = edits.mounts.into_iter().map(|mount| Mount {
            host_path: shown(&mount.source),
            container_path: shown(&mount.destination),
            options: mount.options,
            // Options say that it is a bind mount; as type it would need a later version.
            kind: String::new(),
        });
        Self {
            env: edits.env.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            nodes: nodes.collect(),
            mounts: mounts.collect(),
            gids: edits.additional_gids,
            links: fixups.links,
            files: fixups.files,
            folders: fixups.library_dirs,
            ..Self::default()
        }
    }

    /// Mounts a file or directory of the host, read-only.
    pub(super) fn mount(&mut self, source: &Path, destination: &Path) {
        self.mounts.push(Mount {
            host_path: shown(source),
            container_path: shown(destination),
            options: FILE_OPTIONS.map(str::to_owned).to_vec(),
            kind: String::new(),
        });
    }

    /// Adds what `other` has and this has not.
    pub(super) fn merge(&mut self, other: &Self) {
        let other = other.clone();
        add(&mut self.env, other.env);
        add(&mut self.nodes, other.nodes);
        add(&mut self.mounts, other.mounts);
        add(&mut self.gids, other.gids);
        add(&mut self.links, other.links);
        add(&mut self.files, other.files);
        add(&mut self.folders, other.folders);
        self.compat = self.compat.take().or(other.compat);
        self.mask_params |= other.mask_params;
        self.profile |= other.profile;
    }

    /// Written down, what is nearer to the root first.
    pub(super) fn edits(mut self, hooks: &Hooks) -> ContainerEdits {
        let hooks = hooks.of(&self);
        self.nodes.sort_by(|a, b| (depth(&a.path), &a.path).cmp(&(depth(&b.path), &b.path)));
        let place = |mount: &Mount| mount.container_path.clone();
        self.mounts.sort_by_cached_key(|mount| (depth(&place(mount)), place(mount)));
        self.mounts.dedup_by_key(|mount| place(mount));
        self.gids.sort_unstable();
        ContainerEdits {
            env: self.env,
            device_nodes: self.nodes,
            hooks,
            mounts: self.mounts,
            additional_gids: self.gids,
            ..ContainerEdits::default()
        }
    }
}

fn add<T: PartialEq>(list: &mut Vec<T>, items: Vec<T>) {
    for item in items {
        if !list.contains(&item) {
            list.push(item);
        }
    }
}

fn depth(path: &str) -> usize {
    Path::new(path).components().count()
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
