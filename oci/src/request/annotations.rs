//! Annotations by which a scheduler or a device plugin asks: names of CDI devices, with commas.
//!
//! Annotations of the pod and of the container arrive in one map. A value is taken as it is
//! written, as the engines do: a space is part of a name, and no name has one.

use crate::cdi::QualifiedName;

/// Keys of NVIDIA's NRI plugin may name the container that is meant: `…/container.NAME`.
const NRI_PREFIX: &str = "nvidia.cdi.k8s.io/";
const OF_CONTAINER: &str = "container.";
/// Where containerd and CRI-O write the name of a container.
const CONTAINER_NAME: [&str; 2] =
    ["io.kubernetes.cri.container-name", "io.kubernetes.container.name"];

/// What is asked for by annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Annotations<'a> {
    /// Those that ask, by key.
    pub(super) entries: Vec<(&'a str, &'a str)>,
    /// In the order of keys, then of values; not validated.
    pub(super) names: Vec<&'a str>,
}

impl<'a> Annotations<'a> {
    /// Of a map of annotations, those whose key begins with one of `prefixes`.
    pub(crate) fn of(
        annotations: impl Iterator<Item = (&'a str, &'a str)> + Clone,
        prefixes: &[String],
    ) -> Self {
        let container = annotations.clone().find(|(key, _)| CONTAINER_NAME.contains(key));
        let container = container.map(|(_, name)| name);
        let asks = |key: &str| {
            let of_other = key
                .strip_prefix(NRI_PREFIX)
                .and_then(|rest| rest.strip_prefix(OF_CONTAINER))
                .is_some_and(|name| container.is_some_and(|container| container != name));
            prefixes.iter().any(|prefix| key.starts_with(prefix.as_str())) && !of_other
        };
        let mut entries: Vec<_> = annotations.filter(|(key, _)| asks(key)).collect();
        entries.sort_unstable();
        // Beside others nothing is a name too, and a wrong one.
        let values = entries.iter().map(|(_, value)| *value).filter(|value| !value.is_empty());
        let names = values.flat_map(|value| value.split(',')).collect();
        Self { entries, names }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether each of them is `vendor/class=device`.
    pub(crate) fn are_qualified(&self) -> bool {
        self.names.iter().all(|name| QualifiedName::parse(name).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names<'a>(annotations: &'a [(&'a str, &'a str)]) -> Vec<&'a str> {
        let prefixes = crate::config::ANNOTATION_PREFIXES.map(str::to_owned);
        Annotations::of(annotations.iter().copied(), &prefixes).names
    }

    #[test]
    fn names_are_in_the_order_of_keys() {
        let map = [("cdi.k8s.io/b", "a/b=2,a/b=3"), ("cdi.k8s.io/a", "a/b=1"), ("x", "a/b=4")];
        assert_eq!(names(&map), ["a/b=1", "a/b=2", "a/b=3"]);
        assert_eq!(names(&[("cdi.k8s.io/a", ""), ("nvidia.cdi.k8s.io/x", " 0,")]), [" 0", ""]);
    }

    #[test]
    fn a_container_is_not_given_what_another_is_asked_for() {
        let name = ("io.kubernetes.cri.container-name", "main");
        let of = |key| names(&[name, (key, "a/b=1")].map(|it| it)).len();
        assert_eq!(of("nvidia.cdi.k8s.io/container.main"), 1);
        assert_eq!(of("nvidia.cdi.k8s.io/container.side"), 0);
        assert_eq!(of("nvidia.cdi.k8s.io/pod"), 1);
        assert_eq!(of("cdi.k8s.io/container.side"), 1);
    }

    proptest! {
        #[test]
        fn no_annotation_makes_it_panic(map in prop::collection::vec(("(nvidia.)?(cdi.k8s.io/)?\\PC{0,8}", "\\PC{0,20}|[a/=,]{0,12}"), 0..4)) {
            let prefixes = crate::config::ANNOTATION_PREFIXES.map(str::to_owned);
            let map = map.iter().map(|(key, value)| (key.as_str(), value.as_str()));
            let annotations = Annotations::of(map, &prefixes);
            prop_assert!(annotations.names.iter().all(|name| !name.contains(',')));
            let _ = annotations.are_qualified();
        }
    }
}
