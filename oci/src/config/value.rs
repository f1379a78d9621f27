//! What a setting may be, and what one is.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use crate::Capabilities;

/// Which values a key takes, and which it has when nobody sets it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// `None`: not set, and that differs from either.
    Bool(Option<bool>),
    Text(&'static str),
    /// An absolute path; empty or not set: none.
    Path,
    /// One of these words; the first is the default.
    Choice(&'static [&'static str]),
    List(&'static [&'static str]),
    /// Driver capabilities, with commas.
    Capabilities(&'static str),
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Value {
    Bool(bool),
    Text(String),
    List(Vec<String>),
}

impl Kind {
    /// `None`: not set.
    pub(super) fn default(self) -> Option<Value> {
        match self {
            Self::Bool(value) => value.map(Value::Bool),
            Self::Text(value) | Self::Capabilities(value) => Some(Value::Text(value.to_owned())),
            Self::Path => None,
            Self::Choice(words) => words.first().map(|word| Value::Text((*word).to_owned())),
            Self::List(items) => {
                Some(Value::List(items.iter().map(|item| (*item).to_owned()).collect()))
            }
        }
    }

    /// `value` if a key of this kind may have it; else what is wrong, in words.
    pub(super) fn check(self, value: Value) -> Result<Value, String> {
        match (self, &value) {
            (Self::Bool(_), Value::Bool(_))
            | (Self::Text(_), Value::Text(_))
            | (Self::List(_), Value::List(_)) => Ok(value),
            (Self::Capabilities(_), Value::Text(text)) => Capabilities::listed(text).map(|_| value),
            (Self::Path, Value::Text(text)) if text.is_empty() || text.starts_with('/') => {
                Ok(value)
            }
            (Self::Path, Value::Text(text)) => Err(format!("{text:?} is not an absolute path")),
            (Self::Choice(words), Value::Text(text)) => {
                if words.contains(&text.as_str()) {
                    return Ok(value);
                }
                Err(format!("{text:?} is not one of {}", alternatives(words)))
            }
            _ => Err(format!("is a {} where a {} belongs", value.word(), self.word())),
        }
    }

    /// A value as it is typed on a command line.
    pub(super) fn parse(self, text: &str) -> Result<Value, String> {
        let value = match self {
            Self::Bool(_) => match text {
                "true" => Value::Bool(true),
                "false" => Value::Bool(false),
                _ => return Err(format!("{text:?} is not one of \"true\" or \"false\"")),
            },
            Self::List(_) => Value::List(names(text)),
            Self::Text(_) | Self::Path | Self::Choice(_) | Self::Capabilities(_) => {
                Value::Text(text.to_owned())
            }
        };
        self.check(value)
    }

    fn word(self) -> &'static str {
        match self {
            Self::Bool(_) => "boolean",
            Self::Text(_) | Self::Path | Self::Choice(_) | Self::Capabilities(_) => "string",
            Self::List(_) => "list of strings",
        }
    }
}

impl Value {
    pub(super) fn is_true(&self) -> bool {
        *self == Self::Bool(true)
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Bool(_) | Self::List(_) => "",
        }
    }

    /// `None`: empty, which is how NVIDIA writes that none is set.
    pub(super) fn path(&self) -> Option<PathBuf> {
        Some(self.text()).filter(|text| !text.is_empty()).map(PathBuf::from)
    }

    pub(super) fn list(&self) -> &[String] {
        match self {
            Self::List(items) => items,
            Self::Bool(_) | Self::Text(_) => &[],
        }
    }

    /// The items of a text that is a list with commas.
    pub(super) fn names(&self) -> Vec<String> {
        names(self.text())
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        Capabilities::listed(self.text()).unwrap_or(Capabilities::ALL)
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Bool(_) => "boolean",
            Self::Text(_) => "string",
            Self::List(_) => "list of strings",
        }
    }
}

/// As TOML.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Text(text) => quoted(text).fmt(f),
            Self::List(items) => {
                let items: Vec<_> = items.iter().map(|item| quoted(item)).collect();
                write!(f, "[{}]", items.join(", "))
            }
        }
    }
}

/// A string of JSON is one of TOML too.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn names(text: &str) -> Vec<String> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    items.map(str::to_owned).collect()
}

/// `"a", "b" or "c"`
fn alternatives(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    match words.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => words.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_shown_as_toml() {
        let list = Value::List(vec!["a".to_owned(), "b\"\n".to_owned()]);
        for (value, shown) in [
            (Value::Bool(true), "true"),
            (Value::Text("é".to_owned()), "\"é\""),
            (list, r#"["a", "b\"\n"]"#),
        ] {
            assert_eq!(value.to_string(), shown);
            let table: toml::Table = format!("a = {value}").parse().unwrap();
            assert_eq!(serde_json::json!(table["a"]), serde_json::json!(value));
        }
    }

    #[test]
    fn a_value_that_does_not_fit_is_told_why() {
        let wrong = |kind: Kind, value| kind.check(value).unwrap_err();
        let text = |text: &str| Value::Text(text.to_owned());
        assert_eq!(wrong(Kind::Path, text("a")), "\"a\" is not an absolute path");
        assert_eq!(
            wrong(Kind::Choice(&["a", "b", "c"]), text("d")),
            "\"d\" is not one of \"a\", \"b\" or \"c\""
        );
        assert_eq!(
            wrong(Kind::List(&[]), Value::Bool(true)),
            "is a boolean where a list of strings belongs"
        );
        assert_eq!(Kind::List(&[]).parse(" a,,b ").unwrap().names(), Vec::<String>::new());
        assert_eq!(Kind::List(&[]).parse(" a,,b ").unwrap().list(), ["a", "b"]);
    }
}
