//! Lists of GPUs, in the forms of NVIDIA's documentation of `NVIDIA_VISIBLE_DEVICES`.

use std::borrow::Cow;
use std::fmt;

use super::shortened;
use crate::cdi::QualifiedName;
use crate::{BusId, policy};

/// Which GPUs were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// `none`: the driver, and no GPU.
    DriverOnly,
    All,
    /// In the order of the list, as it was written; never empty.
    Listed(Vec<Selector>),
}

/// One item of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Digits, as they were written: they count in PCI order.
    Index(String),
    /// `GPU-…`
    Uuid(String),
    /// `0000:07:00.0`
    BusId(BusId),
    /// `0:1` or `MIG-…`
    Mig(String),
    /// `vendor/class=name`
    Qualified(String),
    /// `all` or `none` of the GPUs, beside devices of other kinds.
    Word(&'static str),
    /// None of these.
    Unknown(String),
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shortened(&self.text()))
    }
}

impl Selector {
    /// As it was written, or as it means the same.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Index(text)
            | Self::Uuid(text)
            | Self::Mig(text)
            | Self::Qualified(text)
            | Self::Unknown(text) => Cow::Borrowed(text),
            Self::Word(word) => Cow::Borrowed(word),
            Self::BusId(id) => Cow::Owned(id.to_string()),
        }
    }

    /// Reads one trimmed, non-empty item; whatever it is, it is something.
    pub(crate) fn parse(text: &str) -> Self {
        let owned = || text.to_owned();
        if is_number(text) {
            return Self::Index(owned());
        }
        if let Some(id) = BusId::parse(text) {
            return Self::BusId(id);
        }
        if text.split_once(':').is_some_and(|(gpu, mig)| is_number(gpu) && is_number(mig)) {
            return Self::Mig(owned());
        }
        match text.get(..4).map(str::to_ascii_uppercase).as_deref() {
            Some("GPU-") => return Self::Uuid(owned()),
            Some("MIG-") => return Self::Mig(owned()),
            _ => {}
        }
        match text.split_once('/') {
            Some((vendor, rest)) if !vendor.is_empty() && rest.contains('=') => {
                Self::Qualified(owned())
            }
            _ => Self::Unknown(owned()),
        }
    }
}

impl Selector {
    /// Whether it names no GPU of NVIDIA's, so that a word for all or none of them says nothing of
    /// it.
    fn is_of_another_kind(&self) -> bool {
        let Self::Qualified(text) = self else { return false };
        QualifiedName::parse(text).map_or(true, |name| {
            !policy::is_nvidia(name.vendor()) || !name.class().starts_with("gpu")
        })
    }
}

impl Selection {
    /// `None`: nothing is asked for.
    pub(crate) fn of(items: &[&str]) -> Option<Self> {
        let items: Vec<&str> =
            items.iter().map(|item| item.trim()).filter(|item| !item.is_empty()).collect();
        Self::of_names(&items)
    }

    /// As [`Self::of`], of items that are taken as they are.
    pub(super) fn of_names(items: &[&str]) -> Option<Self> {
        let items = || items.iter().copied();
        if items().any(|item| item == "void") {
            return None;
        }
        let (word, alone) = match items().find(|item| matches!(*item, "all" | "none")) {
            Some("all") => ("all", Self::All),
            Some(_) => ("none", Self::DriverOnly),
            None => {
                let selectors: Vec<_> = items().map(Selector::parse).collect();
                return (!selectors.is_empty()).then_some(Self::Listed(selectors));
            }
        };
        let mut others: Vec<_> =
            items().map(Selector::parse).filter(Selector::is_of_another_kind).collect();
        if others.is_empty() {
            return Some(alone);
        }
        others.push(Selector::Word(word));
        Some(Self::Listed(others))
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(list: &str) -> Option<Selection> {
        Selection::of(&list.split(',').collect::<Vec<_>>())
    }

    fn listed(value: &str) -> Vec<Selector> {
        match parse(value) {
            Some(Selection::Listed(selectors)) => selectors,
            other => panic!("{value}: {other:?}"),
        }
    }

    #[test]
    fn words() {
        for nothing in ["", ",", " , ", "void", "0,void", "all, void "] {
            assert_eq!(parse(nothing), None, "{nothing:?}");
        }
        for all in ["all", "0,all", "all,none", " all ,"] {
            assert_eq!(parse(all), Some(Selection::All), "{all:?}");
        }
        for driver in ["none", "0,none", "none,all", "nvidia.com/gpu=0,none"] {
            assert_eq!(parse(driver), Some(Selection::DriverOnly), "{driver:?}");
        }
    }

    #[test]
    fn a_word_for_all_gpus_is_none_for_other_devices() {
        for (value, word) in [("a.b/c=d,all,0", "all"), ("none,a.b/c=d,nvidia.com/gpu=0", "none")] {
            let other = Selector::Qualified("a.b/c=d".to_owned());
            assert_eq!(listed(value), [other, Selector::Word(word)], "{value}");
        }
        assert_eq!(listed("nvidia.com/gds=all,all").len(), 2);
        assert_eq!(parse("nvidia.com/gpu=0,all"), Some(Selection::All));
        assert_eq!(parse("a.b/c=d,all,void"), None);
    }

    #[test]
    fn items() {
        let text = |text: &str| text.to_owned();
        assert_eq!(listed(" 0 ,\t1\n,"), [Selector::Index(text("0")), Selector::Index(text("1"))]);
        assert_eq!(listed("gpu-A0"), [Selector::Uuid(text("gpu-A0"))]);
        let bus = BusId::parse("0000:0a:00.0").unwrap();
        assert_eq!(listed("00000000:0A:00.0"), [Selector::BusId(bus)]);
        assert_eq!(listed("0:1"), [Selector::Mig(text("0:1"))]);
        assert_eq!(listed("MIG-GPU-a/1/0"), [Selector::Mig(text("MIG-GPU-a/1/0"))]);
        assert_eq!(listed("nvidia.com/gpu=0"), [Selector::Qualified(text("nvidia.com/gpu=0"))]);
        for unknown in ["-1", "+1", "foo", "ALL", "VOID", "0=1", "/dev/nvidia0", "/=", "é0-x"] {
            assert_eq!(listed(unknown), [Selector::Unknown(text(unknown))]);
        }
    }

    proptest! {
        #[test]
        fn no_value_makes_parsing_panic(value in "\\PC{0,40}", list in "[0-9a-fGPUMI:.,/= -]{0,40}") {
            let _ = parse(&value);
            let _ = parse(&list);
        }
    }
}
