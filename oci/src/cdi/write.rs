//! A spec → the text of its file, as JSON or as YAML that means the same.
//!
//! What YAML could read as something other than a text stands in quotes, with JSON's escapes, which
//! are YAML's too.

use std::fmt::Write;

use serde_json::Value;

use super::Spec;

/// Words that one version of YAML or another reads as something else than a text.
const WORDS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];

impl Spec {
    /// As JSON, for a person to read.
    ///
    /// # Errors
    /// None that is known of; serde may have one.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// As YAML.
    ///
    /// # Errors
    /// As [`Self::to_json`].
    pub fn to_yaml(&self) -> Result<String, serde_json::Error> {
        let mut text = String::from("---\n");
        write_value(&mut text, &serde_json::to_value(self)?, 0, false);
        Ok(text)
    }
}

/// Writes a value in lines that begin `depth` deep; the first one goes on `inline` behind a dash.
fn write_value(text: &mut String, value: &Value, depth: usize, inline: bool) {
    let indent = |text: &mut String, first: bool| {
        if !(first && inline) {
            text.extend(std::iter::repeat_n(' ', depth));
        }
    };
    match value {
        Value::Object(map) => {
            for (at, (key, value)) in map.iter().enumerate() {
                indent(text, at == 0);
                text.push_str(&scalar(key));
                text.push(':');
                match value {
                    // A list may begin where its key does.
                    Value::Array(list) if !list.is_empty() => below(text, value, depth),
                    Value::Object(map) if !map.is_empty() => below(text, value, depth + 2),
                    value => {
                        text.push(' ');
                        write_value(text, value, depth, true);
                    }
                }
            }
            if map.is_empty() {
                text.push_str("{}\n");
            }
        }
        Value::Array(list) => {
            for (at, item) in list.iter().enumerate() {
                indent(text, at == 0);
                text.push_str("- ");
                write_value(text, item, depth + 2, true);
            }
            if list.is_empty() {
                text.push_str("[]\n");
            }
        }
        Value::String(string) => {
            text.push_str(&scalar(string));
            text.push('\n');
        }
        // Writing to a String cannot fail.
        Value::Null | Value::Bool(_) | Value::Number(_) => drop(writeln!(text, "{value}")),
    }
}

fn below(text: &mut String, value: &Value, depth: usize) {
    text.push('\n');
    write_value(text, value, depth, false);
}

/// A text as it is, if nobody could read it as something else.
fn scalar(string: &str) -> String {
    let begins = string.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._=+-".contains(c);
    let is_word = WORDS.contains(&string.to_ascii_lowercase().as_str());
    match begins && string.chars().all(plain) && !is_word {
        true => string.to_owned(),
        false => Value::from(string).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{ContainerEdits, Device, DeviceNode, Hook, Mount, parse};
    use super::*;

    fn spec(texts: &[String]) -> Spec {
        let text = |at: usize| texts[at % texts.len()].clone();
        let env = |text: &str| vec![format!("A={text}")];
        let node = DeviceNode {
            path: format!("/{}", text(0)),
            minor: 3,
            major: 195,
            file_mode: Some(0o660),
            ..DeviceNode::default()
        };
        let hook = Hook {
            hook_name: "createContainer".to_owned(),
            path: format!("/{}", text(1)),
            args: vec![text(2), text(3)],
            env: env(&text(4)),
            timeout: Some(-3),
        };
        let mount = Mount {
            host_path: format!("/{}", text(5)),
            container_path: format!("/{}", text(6)),
            options: vec![text(7)],
            ..Mount::default()
        };
        let edits = ContainerEdits {
            env: env(&text(8)),
            device_nodes: vec![node.clone(), node],
            hooks: vec![hook],
            mounts: vec![mount],
            additional_gids: vec![44],
            ..ContainerEdits::default()
        };
        let devices = ["0", "on", "0:1", "1e3", "a"].map(|name| Device {
            name: name.to_owned(),
            annotations: [(text(9), text(10))].into(),
            edits: edits.clone(),
        });
        Spec {
            version: "1.1.0".to_owned(),
            kind: "nvidia.com/gpu".to_owned(),
            annotations: [("a.b/c".to_owned(), text(11))].into(),
            devices: devices.to_vec(),
            edits,
        }
    }

    #[test]
    fn a_text_that_looks_like_something_else_is_quoted() {
        for (string, written) in [
            ("nvidia.com/gpu", "nvidia.com/gpu"),
            ("/dev/nvidia0", "/dev/nvidia0"),
            ("NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_VISIBLE_DEVICES=void"),
            ("0", "\"0\""),
            ("0.7.0", "\"0.7.0\""),
            ("Yes", "\"Yes\""),
            ("", "\"\""),
            ("a: b", "\"a: b\""),
            ("--link", "\"--link\""),
            ("a\n", "\"a\\n\""),
        ] {
            assert_eq!(scalar(string), written);
        }
    }

    #[test]
    fn yaml_is_written_in_blocks() {
        let edits = ContainerEdits {
            env: vec!["A=b".to_owned()],
            hooks: vec![Hook {
                hook_name: "createContainer".to_owned(),
                path: "/h".to_owned(),
                args: vec!["h".to_owned(), "--x".to_owned()],
                ..Hook::default()
            }],
            ..ContainerEdits::default()
        };
        let devices = vec![Device { name: "0".to_owned(), edits, ..Device::default() }];
        let version = "0.5.0".to_owned();
        let spec = Spec { version, kind: "a.b/c".to_owned(), devices, ..Spec::default() };
        assert_eq!(
            spec.to_yaml().unwrap(),
            r#"---
cdiVersion: "0.5.0"
kind: a.b/c
devices:
- name: "0"
  containerEdits:
    env:
    - A=b
    hooks:
    - hookName: createContainer
      path: /h
      args:
      - h
      - "--x"
"#
        );
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_back(texts in prop::collection::vec("[\\PC\n\t\"\\\\:#&*{}-]{0,8}", 12)) {
            let spec = spec(&texts);
            for text in [spec.to_yaml().unwrap(), spec.to_json().unwrap()] {
                prop_assert_eq!(&parse(text.as_bytes()).unwrap(), &spec, "{}", text);
            }
        }
    }
}
