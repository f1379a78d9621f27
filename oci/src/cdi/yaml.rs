//! YAML → any type that serde can make, as the engines read it: a text is a text even where it
//! looks like a number (`name: 0`), and a mode may be octal (`fileMode: 0666`).
//!
//! What a file can make of a few bytes is bounded: depth, and the values that aliases repeat.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{self, DeserializeOwned, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

/// A spec is 7 deep.
const DEEPEST: usize = 64;
/// More values than a file of the largest size has that is not made to have many.
const MOST_VALUES: usize = 1 << 18;

/// A value, and the line that it begins in.
#[derive(Clone, Debug)]
struct Node<'a> {
    line: usize,
    content: Content<'a>,
}

#[derive(Clone, Debug)]
enum Content<'a> {
    /// Without quotes: what it is depends on what is wanted.
    Plain(Cow<'a, str>),
    Text(Cow<'a, str>),
    List(Vec<Node<'a>>),
    Map(Vec<(Node<'a>, Node<'a>)>),
}

/// What is wrong, and where.
#[derive(Debug)]
pub(super) struct Error {
    line: Option<usize>,
    what: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.line.map_or(Ok(()), |line| write!(f, " at line {line}"))
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(what: T) -> Self {
        Self { line: None, what: what.to_string() }
    }
}

impl Error {
    fn at(line: usize, what: impl Into<String>) -> Self {
        Self { line: Some(line), what: what.into() }
    }

    /// The innermost value that is wrong tells the line.
    fn within(mut self, line: usize) -> Self {
        self.line.get_or_insert(line);
        self
    }
}

/// Reads the first document of `text`.
pub(super) fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    let node = Reader::new(text).document()?;
    T::deserialize(&node)
}

struct Reader<'a> {
    events: Parser<'a, saphyr_parser::StrInput<'a>>,
    /// Values that an alias may repeat, and how many they are.
    anchors: HashMap<usize, (Node<'a>, usize)>,
    values: usize,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        Self { events: Parser::new_from_str(text), anchors: HashMap::new(), values: 0 }
    }

    fn document(&mut self) -> Result<Node<'a>, Error> {
        loop {
            match self.next()? {
                (Event::StreamStart | Event::DocumentStart(_), _) => {}
                (Event::StreamEnd, span) => return Err(Error::at(line(span), "it is empty")),
                (event, span) => return self.node(event, span, 0),
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), Error> {
        match self.events.next() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(Error::at(error.marker().line(), error.info())),
            None => Err(de::Error::custom("it ends too early")),
        }
    }

    /// The value that begins with `event`.
    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node<'a>, Error> {
        let line = line(span);
        let before = self.values;
        self.count(1, line)?;
        if depth > DEEPEST {
            return Err(Error::at(line, "it is too deep"));
        }
        let (content, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_text =
                    tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "str");
                let content = match style {
                    ScalarStyle::Plain if !is_text => Content::Plain(text),
                    _ => Content::Text(text),
                };
                (content, anchor)
            }
            Event::SequenceStart(anchor, _) => (self.list(depth)?, anchor),
            Event::MappingStart(anchor, _) => (self.map(depth)?, anchor),
            Event::Alias(anchor) => {
                let (node, values) = self
                    .anchors
                    .get(&anchor)
                    .cloned()
                    .ok_or_else(|| Error::at(line, "an alias is of no value before it"))?;
                self.count(values, line)?;
                return Ok(node);
            }
            _ => return Err(Error::at(line, "a value is missing")),
        };
        let node = Node { line, content };
        if anchor != 0 {
            let values = self.values - before;
            self.count(values, line)?;
            self.anchors.insert(anchor, (node.clone(), values));
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Content<'a>, Error> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Content::List(items)),
                (event, span) => items.push(self.node(event, span, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Content<'a>, Error> {
        let mut entries = Vec::new();
        loop {
            let key = match self.next()? {
                (Event::MappingEnd, _) => return Ok(Content::Map(entries)),
                (event, span) => self.node(event, span, depth + 1)?,
            };
            let (event, span) = self.next()?;
            entries.push((key, self.node(event, span, depth + 1)?));
        }
    }

    fn count(&mut self, values: usize, line: usize) -> Result<(), Error> {
        self.values = self.values.saturating_add(values);
        if self.values > MOST_VALUES {
            return Err(Error::at(line, "it has too many values"));
        }
        Ok(())
    }
}

fn line(span: Span) -> usize {
    span.start.line()
}

impl Node<'_> {
    fn is_null(&self) -> bool {
        matches!(&self.content, Content::Plain(text) if matches!(&**text, "" | "~" | "null" | "Null" | "NULL"))
    }

    fn visit_number<'de, V: Visitor<'de>>(&self, visitor: V) -> Result<V::Value, Error> {
        match &self.content {
            Content::Plain(text) => match integer(text) {
                Some(number) => visitor.visit_i64(number),
                None => visitor.visit_str(text),
            },
            _ => self.visit(visitor),
        }
    }

    fn visit<'de, V: Visitor<'de>>(&self, visitor: V) -> Result<V::Value, Error> {
        match &self.content {
            Content::Plain(_) if self.is_null() => visitor.visit_unit(),
            Content::Plain(text) | Content::Text(text) => visitor.visit_str(text),
            Content::List(items) => visitor.visit_seq(SeqDeserializer::new(items.iter())),
            Content::Map(entries) => {
                let entries = entries.iter().map(|(key, value)| (key, value));
                visitor.visit_map(MapDeserializer::new(entries))
            }
        }
    }
}

impl<'de> de::Deserializer<'de> for &Node<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.visit(visitor).map_err(|error| error.within(self.line))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let value = match &self.content {
            Content::Plain(text) => boolean(text),
            _ => None,
        };
        let visited = match value {
            Some(value) => visitor.visit_bool(value),
            None => self.visit(visitor),
        };
        visited.map_err(|error: Error| error.within(self.line))
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.visit_number(visitor).map_err(|error| error.within(self.line))
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_i64(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let visited = if self.is_null() { visitor.visit_str("") } else { self.visit(visitor) };
        visited.map_err(|error: Error| error.within(self.line))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    /// A list is none, even with as many values as the type has fields.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match &self.content {
            Content::Map(_) => self.deserialize_any(visitor),
            _ => Err(Error::at(self.line, "a mapping is wanted")),
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i128 u8 u16 u64 u128 f32 f64 char str bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Error> for &Node<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// Decimal, or by its prefix hexadecimal, octal (also in the older way, `0666`) or binary.
fn integer(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let (radix, digits) = match digits.get(..2) {
        Some("0x") => (16, digits.get(2..)?),
        Some("0o") => (8, digits.get(2..)?),
        Some("0b") => (2, digits.get(2..)?),
        Some(_) if digits.starts_with('0') => (8, digits),
        _ => (10, digits),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    i64::from_str_radix(&format!("{sign}{digits}"), radix).ok()
}

/// The words of YAML 1.1, which Go's readers take.
fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" => Some(true),
        "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_gos_readers() {
        for (text, number) in [
            ("0", Some(0)),
            ("438", Some(438)),
            ("0666", Some(438)),
            ("0o666", Some(438)),
            ("0x1b6", Some(438)),
            ("-1", Some(-1)),
            ("+7", Some(7)),
            ("0b11", Some(3)),
            ("08", None),
            ("0x", None),
            ("--1", None),
            ("0x-1", None),
            ("1.5", None),
            ("", None),
            ("99999999999999999999", None),
            ("é1", None),
        ] {
            assert_eq!(integer(text), number, "{text}");
        }
    }

    #[test]
    fn aliases_repeat_and_are_bounded() {
        let lists: Vec<Vec<String>> = from_str("- &a [x, y]\n- *a\n").unwrap();
        assert_eq!(lists[0], lists[1]);
        let mut bomb = "- &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let below = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb += &format!("- &a{level} [{below}]\n");
        }
        let error = from_str::<Vec<de::IgnoredAny>>(&bomb).unwrap_err();
        assert!(error.to_string().contains("too many values at line"), "{error}");
        from_str::<Vec<de::IgnoredAny>>("- &a [*a]\n").unwrap_err();
    }

    #[test]
    fn depth_is_bounded() {
        for deep in ["[".repeat(1 << 20), "- ".repeat(1 << 19), "{a: ".repeat(1 << 18)] {
            let error = from_str::<de::IgnoredAny>(&deep).unwrap_err();
            assert!(error.to_string().contains("at line"), "{error}");
        }
    }
}
