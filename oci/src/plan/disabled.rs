//! What is left out because NVIDIA's hook for it is disabled (`nvcdi-disable-hooks`).

use super::Plan;
use crate::config::NvcdiHook;
use crate::report::{Item, ItemKind};
use crate::{Config, Mode};

impl Plan {
    /// Takes out what would come of disabled hooks. Mode `legacy` has none of them.
    pub(super) fn leave_out_disabled(&mut self, config: &Config) {
        let is_disabled =
            |hook| config.mode != Mode::Legacy && config.disabled_hooks.contains(hook);
        let no_cache = is_disabled(NvcdiHook::UpdateLdcache);
        self.fixups.mask_params &= !is_disabled(NvcdiHook::DisableDeviceNodeModification);
        if is_disabled(NvcdiHook::CreateSymlinks) {
            // The other hook runs ldconfig, which makes the links that its cache names.
            let entries = &self.fixups.libraries;
            let is_entry = |link: &_| !no_cache && entries.iter().any(|entry| entry.path == *link);
            self.fixups.links.retain(|link| is_entry(&link.link));
            let kept = &self.fixups.links;
            let reason = "nvcdi-disable-hooks has create-symlinks";
            let (links, given) = std::mem::take(&mut self.report.given)
                .into_iter()
                .partition::<Vec<Item>, _>(|item| item.kind == ItemKind::Link);
            self.report.given = given;
            for item in links {
                let link = item.name.split(" -> ").next().unwrap_or_default();
                if kept.iter().any(|kept| kept.link.as_os_str() == link) {
                    self.report.given.push(item);
                } else {
                    self.report.withheld.push(Item::new(ItemKind::Link, item.name, reason));
                }
            }
        }
        if no_cache {
            self.fixups.library_dirs.clear();
            self.fixups.libraries.clear();
            let what = "nvcdi-disable-hooks has update-ldcache: the loader of the container is \
                        not told where the driver's libraries are";
            self.report.warnings.push(what.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Case;
    use super::*;

    const KEY: &str = "nvidia-container-runtime.modes.jit-cdi.nvcdi-disable-hooks";

    fn plan(hooks: &str, mode: &str) -> Plan {
        let mut case = Case::asking("0");
        case.config.set(KEY, hooks).unwrap();
        case.config.set("nvidia-container-runtime.mode", mode).unwrap();
        case.plan().unwrap()
    }

    #[test]
    fn a_disabled_hook_has_no_effect() {
        let all = plan("", "auto");
        assert_eq!(plan("all", "legacy").fixups, all.fixups);

        let no_cache = plan("update-ldcache", "auto");
        assert_eq!(no_cache.fixups.links, all.fixups.links);
        assert!(no_cache.fixups.library_dirs.is_empty() && no_cache.fixups.libraries.is_empty());
        assert_eq!(no_cache.edits, all.edits);

        let no_links = plan("create-symlinks", "jit-cdi");
        assert_eq!(no_links.fixups.libraries, all.fixups.libraries);
        let mut links = no_links.fixups.links.iter();
        assert!(links.all(|link| all.fixups.libraries.iter().any(|it| it.path == link.link)));
        assert!(no_links.fixups.links.len() < all.fixups.links.len());
        let items = |plan: &Plan| plan.report.given.len() + plan.report.withheld.len();
        assert_eq!(items(&no_links), items(&all));

        let nothing = plan("all", "auto");
        assert!(nothing.fixups.links.is_empty() && nothing.fixups.libraries.is_empty());
    }
}
