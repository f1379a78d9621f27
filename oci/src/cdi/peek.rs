//! A cheap look at the beginning and the end of a spec file: of which kind are its devices?
//!
//! On a node with a hundred spec files one or two are of the kind that a container asks for; the
//! rest need not be parsed. Where the look does not tell, the answer is `None`, and the file is
//! parsed after all.

use super::name::check_kind;
use super::read::is_json;

/// How much of either end is looked at.
pub(super) const LENGTH: usize = 4096;

/// The kind of the spec that begins with `head` and, where that does not tell, ends with `tail`.
/// They may overlap.
pub(super) fn kind(head: &[u8], tail: impl FnOnce() -> Option<Vec<u8>>) -> Option<String> {
    let kind = if is_json(head) {
        in_object(head).or_else(|| at_end_of_object(&tail()?))?
    } else {
        let head = std::str::from_utf8(head).ok().or_else(|| valid_part(head))?;
        in_lines(head).or_else(|| {
            let tail = tail()?;
            let cut = tail.iter().position(|byte| *byte == b'\n')?;
            in_lines(std::str::from_utf8(tail.get(cut..)?).ok()?)
        })?
    };
    check_kind(&kind).ok()?;
    Some(kind)
}

/// The value of `"kind"` in the outermost object.
fn in_object(json: &[u8]) -> Option<String> {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(byte) = json.get(at) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            b'"' => {
                let end = at + 1 + end_of_string(json.get(at + 1..)?)?;
                let rest = skip_space(json.get(end + 1..)?);
                if depth == 1 && json.get(at..=end)? == b"\"kind\"" && rest.first() == Some(&b':') {
                    return string(skip_space(rest.get(1..)?));
                }
                at = end;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// The value of `"kind"` where it stands last in an object that ends with the file: a text with a
/// quote in it has a backslash before that.
fn at_end_of_object(json: &[u8]) -> Option<String> {
    let before_brace = trim_end(trim_end(json).strip_suffix(b"}")?).strip_suffix(b"\"")?;
    let begin = before_brace.iter().rposition(|byte| *byte == b'"')?;
    let (before, value) = before_brace.split_at_checked(begin)?;
    let before = trim_end(trim_end(before).strip_suffix(b":")?).strip_suffix(b"\"kind\"")?;
    let separated = matches!(trim_end(before).last(), Some(b',' | b'{'));
    separated.then(|| String::from_utf8(value.get(1..)?.to_vec()).ok())?
}

/// The value of a key `kind` that begins a line.
fn in_lines(yaml: &str) -> Option<String> {
    // A last line without end may go on.
    let whole = yaml.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let mut values = whole.filter_map(|line| line.strip_prefix("kind:"));
    let value = values.next()?.split(" #").next()?.trim();
    let quoted = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
    Some(quoted('"').or_else(|| quoted('\'')).unwrap_or(value).to_owned())
}

fn valid_part(bytes: &[u8]) -> Option<&str> {
    let valid = std::str::from_utf8(bytes).err()?.valid_up_to();
    std::str::from_utf8(bytes.get(..valid)?).ok()
}

fn string(json: &[u8]) -> Option<String> {
    let text = json.strip_prefix(b"\"")?;
    String::from_utf8(text.get(..end_of_string(text)?)?.to_vec()).ok()
}

/// Where the quote is that ends a string.
fn end_of_string(json: &[u8]) -> Option<usize> {
    let mut escaped = false;
    json.iter().position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    })
}

fn skip_space(bytes: &[u8]) -> &[u8] {
    bytes.trim_ascii_start()
}

fn trim_end(bytes: &[u8]) -> &[u8] {
    bytes.trim_ascii_end()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::parse;

    fn kind(head: &[u8], tail: &[u8]) -> Option<String> {
        super::kind(head, || Some(tail.to_vec()))
    }

    fn whole(text: &str) -> Option<String> {
        kind(text.as_bytes(), text.as_bytes())
    }

    #[test]
    fn a_kind_is_seen_where_it_usually_stands() {
        for text in [
            r#"{"cdiVersion": "0.6.0", "kind": "a.b/c", "devices": [{"na"#,
            r#"{"annotations": {"kind": "x/y", "a\"": "\\"}, "kind" : "a.b/c", "devices""#,
            "---\ncdiVersion: 0.5.0\nkind: a.b/c\ndevices:\n- name: x\n  kind: d.e/f\n",
            "kind: 'a.b/c'  # ours\n",
            "cdiVersion: 0.5.0\nkind: \"a.b/c\"\n",
        ] {
            assert_eq!(whole(text).as_deref(), Some("a.b/c"), "{text}");
        }
        let end = |text: &str| kind(b"{\"containerEdits\":", text.as_bytes());
        assert_eq!(end("]}],\"kind\" : \"a.b/c\" }\n").as_deref(), Some("a.b/c"));
        let end = |text: &str| kind(b"cdiVersion: 0.5.0\n", text.as_bytes());
        assert_eq!(end("x\n  kind: x/y\nkind: a.b/c\n").as_deref(), Some("a.b/c"));
    }

    #[test]
    fn what_is_not_clear_is_left_to_the_parser() {
        for text in [
            "",
            "{",
            "{}",
            "{kind: a/b}",
            r#"{"x": {"kind": "a/b"}}"#,
            r#"{"kind": 3}"#,
            "kind: a/b",
            "kind: [a]\n",
            "kind: &x a/b\n",
            " kind: a/b\n",
            "a: \"\\\nkind: a\"\n",
            r#"{"a": "\"#,
        ] {
            assert_eq!(whole(text), None, "{text}");
        }
        assert_eq!(kind(b"{\"a\":", b"\\\"kind\":\"a/b\"}"), None);
        // Cut in the middle of a line.
        assert_eq!(kind(b"a: 1\n", b"kind: a/b"), None);
    }

    proptest! {
        /// Whatever is written where: what the look tells is what the parser reads.
        #[test]
        fn the_look_never_contradicts_the_parser(
            keys in prop::sample::subsequence(vec!["annotations", "containerEdits"], 0..=2),
            kind_first: bool, pretty: bool, text in "[\\PC\"{}:,]{0,20}",
        ) {
            let mut spec = serde_json::Map::new();
            let mut put = |key: &str, value: Value| spec.insert(key.to_owned(), value);
            put("cdiVersion", json!("1.1.0"));
            if kind_first {
                put("kind", json!("a.b/c"));
            }
            for key in keys {
                put(key, if key == "annotations" { json!({"kind": text, "x": "\"kind\":\"d/e\"}"}) }
                    else { json!({"env": [format!("A={text}"), "B={\"kind\":\"d/e\"}"]}) });
            }
            put("devices", json!([{"name": "x", "containerEdits": {"env": [format!("kind={text}")]}}]));
            put("kind", json!("a.b/c"));
            let spec = Value::Object(spec);
            let text = if pretty { format!("{spec:#}") } else { spec.to_string() };
            let bytes = text.as_bytes();
            prop_assert_eq!(&parse(bytes).unwrap().kind, "a.b/c");
            for cut in [10, 40, 80, bytes.len()] {
                let cut = cut.min(bytes.len());
                let seen = kind(&bytes[..cut], &bytes[bytes.len() - cut..]);
                prop_assert!(seen.is_none_or(|seen| seen == "a.b/c"));
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), text in "[{}\":,kind\\\\ \n]{0,40}") {
            let _ = kind(&bytes, &bytes);
            let _ = kind(text.as_bytes(), text.as_bytes());
        }
    }
}
