//! Names of CDI devices: `vendor/class=device`, and which characters they may have.
//!
//! The rules are those of the CDI library, not of the specification's text, which also limits
//! lengths: what containerd takes for a name is one here.

use std::fmt;

/// The name of a device with its kind: `nvidia.com/gpu=0`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QualifiedName {
    /// `vendor/class`
    pub kind: String,
    /// The name of the device within its kind.
    pub device: String,
}

/// Why a text is no name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("{0:?} is not vendor/class=device")]
    Unqualified(String),
    #[error("{0:?} is not vendor/class")]
    NoKind(String),
    #[error("{part} {text:?} {fault}")]
    Characters { part: &'static str, text: String, fault: &'static str },
}

impl QualifiedName {
    /// Reads `vendor/class=device`.
    ///
    /// # Errors
    /// The text is not of that form, or has a character that is not allowed where it stands.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let unqualified = || NameError::Unqualified(text.to_owned());
        let (kind, device) = text.split_once('=').ok_or_else(unqualified)?;
        if device.is_empty() || split_kind(kind).is_none() {
            return Err(unqualified());
        }
        check_kind(kind)?;
        check_device_name(device)?;
        Ok(Self { kind: kind.to_owned(), device: device.to_owned() })
    }

    /// `nvidia.com` of `nvidia.com/gpu=0`.
    pub fn vendor(&self) -> &str {
        self.kind.split_once('/').map_or("", |(vendor, _)| vendor)
    }

    /// `gpu` of `nvidia.com/gpu=0`.
    pub fn class(&self) -> &str {
        self.kind.split_once('/').map_or("", |(_, class)| class)
    }
}

impl fmt::Display for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind, self.device)
    }
}

/// Checks a kind, `vendor/class`.
///
/// # Errors
/// What is wrong with it.
pub fn check_kind(kind: &str) -> Result<(), NameError> {
    let (vendor, class) = split_kind(kind).ok_or_else(|| NameError::NoKind(kind.to_owned()))?;
    let letter = |c: char| c.is_ascii_alphabetic();
    check("vendor", vendor, letter, "does not begin with a letter", "_-.")?;
    check("class", class, letter, "does not begin with a letter", "_-.")
}

/// Checks the name of a device within its kind.
///
/// # Errors
/// What is wrong with it.
pub fn check_device_name(name: &str) -> Result<(), NameError> {
    let first = |c: char| c.is_ascii_alphanumeric();
    check("device name", name, first, "does not begin with a letter or a digit", "_-.:")
}

fn split_kind(kind: &str) -> Option<(&str, &str)> {
    kind.split_once('/').filter(|(vendor, class)| !vendor.is_empty() && !class.is_empty())
}

/// `inner`: characters that may stand between the first and the last one, beside letters and digits.
fn check(
    part: &'static str,
    text: &str,
    may_begin: impl Fn(char) -> bool,
    begins_wrong: &'static str,
    inner: &str,
) -> Result<(), NameError> {
    let wrong = |fault| Err(NameError::Characters { part, text: text.to_owned(), fault });
    let Some(first) = text.chars().next() else { return wrong("is empty") };
    if !may_begin(first) {
        return wrong(begins_wrong);
    }
    if !text.ends_with(|c: char| c.is_ascii_alphanumeric()) {
        return wrong("does not end with a letter or a digit");
    }
    if !text.chars().all(|c| c.is_ascii_alphanumeric() || inner.contains(c)) {
        return wrong("has a character that is not allowed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_split_at_the_first_signs() {
        let name = QualifiedName::parse("k8s.device-plugin.nvidia.com/gpu=MIG-1:2").unwrap();
        assert_eq!(name.vendor(), "k8s.device-plugin.nvidia.com");
        assert_eq!(name.class(), "gpu");
        assert_eq!(name.device, "MIG-1:2");
        assert_eq!(name.to_string(), "k8s.device-plugin.nvidia.com/gpu=MIG-1:2");
        for good in ["a/b=c", "A.b_c-d/e.f_g-h=0", "v/c=0:1", "v/c=a..b"] {
            QualifiedName::parse(good).unwrap();
        }
    }

    #[test]
    fn what_the_library_refuses_is_refused() {
        for unqualified in ["", "0", "all", "a/b", "=a", "/b=c", "a/=c", "a=c", "nvidia.com/gpu="] {
            let error = QualifiedName::parse(unqualified).unwrap_err();
            assert!(matches!(error, NameError::Unqualified(_)), "{unqualified}: {error}");
        }
        for characters in [
            "1a/b=c",
            "a/1=c",
            "a-/b=c",
            "a/b-=c",
            "a/b/c=d",
            "a b/c=d",
            " a/b=c",
            "a/b=c ",
            "a/b=-c",
            "a/b=c=d",
            "a/b=MIG-GPU-x/1/0",
            "a/b=ä",
            "é/b=c",
            "a/b=c\n",
        ] {
            let error = QualifiedName::parse(characters).unwrap_err();
            assert!(matches!(error, NameError::Characters { .. }), "{characters}: {error}");
        }
    }

    proptest! {
        #[test]
        fn a_name_that_is_read_is_written_as_it_was(text in "\\PC{0,30}|[a-z/=.:_0-9-]{0,20}") {
            if let Ok(name) = QualifiedName::parse(&text) {
                prop_assert_eq!(name.to_string(), text);
            }
        }
    }
}
