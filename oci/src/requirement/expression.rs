//! The grammar of `NVIDIA_REQUIRE_*`: alternatives with spaces between them, each of them parts
//! with commas, all of which must be met; a part is a property, an operator and a value.

use std::cmp::Ordering;
use std::fmt;

/// What one variable says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expression<'a> {
    pub(super) alternatives: Vec<Vec<Atom<'a>>>,
}

/// `cuda>=12.2`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Atom<'a> {
    pub(super) property: Property<'a>,
    pub(super) operator: Operator,
    pub(super) value: &'a str,
    /// The value, if versions are compared.
    pub(super) version: Option<Version>,
    /// As it was written.
    pub(super) text: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Property<'a> {
    Cuda,
    Driver,
    Arch,
    Brand,
    Unknown(&'a str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// Longest first, as each is looked for where the others may begin.
const OPERATORS: [(&str, Operator); 6] = [
    ("!=", Operator::NotEqual),
    ("<=", Operator::AtMost),
    (">=", Operator::AtLeast),
    ("<", Operator::Less),
    (">", Operator::Greater),
    ("=", Operator::Equal),
];

/// Numbers with points between them; missing ones count as 0.
#[derive(Clone, Debug)]
pub(super) struct Version(Vec<u64>);

impl<'a> Expression<'a> {
    /// # Errors
    /// The part that is none.
    pub(super) fn parse(text: &'a str) -> Result<Self, &'a str> {
        let alternatives = text.split_ascii_whitespace().map(|alternative| {
            alternative.split(',').map(|atom| Atom::parse(atom).ok_or(atom)).collect()
        });
        Ok(Self { alternatives: alternatives.collect::<Result<_, _>>()? })
    }
}

impl<'a> Atom<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (name, rest) = text.split_at(text.find(['!', '<', '>', '='])?);
        let (operator, value) = OPERATORS
            .iter()
            .find_map(|(sign, operator)| Some((*operator, rest.strip_prefix(sign)?)))?;
        if name.is_empty() || value.is_empty() {
            return None;
        }
        let property = match name {
            "cuda" => Property::Cuda,
            "driver" => Property::Driver,
            "arch" => Property::Arch,
            "brand" => Property::Brand,
            other => Property::Unknown(other),
        };
        let version = match property {
            Property::Cuda | Property::Driver | Property::Arch => Some(Version::parse(value)?),
            Property::Brand if !matches!(operator, Operator::Equal | Operator::NotEqual) => {
                return None;
            }
            Property::Brand | Property::Unknown(_) => None,
        };
        Some(Self { property, operator, value, version, text })
    }
}

impl fmt::Display for Property<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cuda => "cuda",
            Self::Driver => "driver",
            Self::Arch => "arch",
            Self::Brand => "brand",
            Self::Unknown(name) => name,
        })
    }
}

impl Operator {
    pub(super) fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::AtMost => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::AtLeast => order.is_ge(),
        }
    }
}

impl Version {
    pub(super) fn new(major: u64, minor: u64) -> Self {
        Self(vec![major, minor])
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_number = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
        let parts = text.split('.').map(|part| Some(part).filter(is_number)?.parse().ok());
        parts.collect::<Option<_>>().map(Self)
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let number = |version: &Self, at: usize| version.0.get(at).copied().unwrap_or_default();
        let length = self.0.len().max(other.0.len());
        let orders = (0..length).map(|at| number(self, at).cmp(&number(other, at)));
        orders.fold(Ordering::Equal, Ordering::then)
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Version {}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(u64::to_string).collect();
        f.write_str(&numbers.join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_or_and_comma_is_and() {
        let parsed = Expression::parse(" cuda>=11.6  brand=tesla,driver>=470,driver<471 ").unwrap();
        let texts: Vec<Vec<&str>> = parsed
            .alternatives
            .iter()
            .map(|atoms| atoms.iter().map(|atom| atom.text).collect())
            .collect();
        assert_eq!(texts, [vec!["cuda>=11.6"], vec!["brand=tesla", "driver>=470", "driver<471"]]);
        assert_eq!(Expression::parse("").unwrap().alternatives.len(), 0);
    }

    #[test]
    fn what_is_no_part_is_named() {
        for (text, part) in [
            ("cuda>>", "cuda>>"),
            ("cuda>=", "cuda>="),
            ("cuda", "cuda"),
            ("cuda>=1 >=2", ">=2"),
            ("cuda>=1,", ""),
            ("cuda>=x", "cuda>=x"),
            ("driver>=470.", "driver>=470."),
            ("brand<tesla", "brand<tesla"),
            ("cuda==1", "cuda==1"),
        ] {
            assert_eq!(Expression::parse(text), Err(part), "{text}");
        }
    }

    #[test]
    fn versions_are_compared_number_by_number() {
        let version = |text| Version::parse(text).unwrap();
        assert!(version("470.57.02") > version("470"));
        assert!(version("470.57.02") < version("471"));
        assert!(version("12.10") > version("12.9"));
        assert_eq!(version("12"), version("12.0"));
        for text in ["", ".", "1.", "1.x", "99999999999999999999999"] {
            assert!(Version::parse(text).is_none(), "{text}");
        }
    }
}
