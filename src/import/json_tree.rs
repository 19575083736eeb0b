//! Small parts of JSON as trees, and what readers ask of them.

use std::io::Read;

use serde_json::Value;

use crate::error::Result;
use crate::import::json::Json;
use crate::import::json::Next;

/// Values in a tree.
const TREE_NODES_MAX: usize = 4_000_000;

impl<R: Read> Json<R> {
    /// One value as a tree. `NaN` and the infinities become null; keys below
    /// `env` and `environment` are dropped, for they may hold secrets.
    ///
    /// # Errors
    /// `json` for wrong structure, too deep nesting and too many values.
    pub fn tree(&mut self) -> Result<Value> {
        let mut left = TREE_NODES_MAX;
        self.build(&mut left)
    }

    fn build(&mut self, left: &mut usize) -> Result<Value> {
        *left = left.checked_sub(1).ok_or_else(|| self.fault("too many values"))?;
        let mut text = String::new();
        match self.next_is()? {
            Next::Text => {
                self.text(&mut text)?;
                *left = left.saturating_sub(text.len() / 64);
                Ok(Value::String(text))
            }
            Next::Word => {
                self.word(&mut text)?;
                self.literal(&text)
            }
            Next::Array => {
                self.enter_array()?;
                let mut items = Vec::new();
                while self.next_item()? {
                    items.push(self.build(left)?);
                }
                Ok(Value::Array(items))
            }
            Next::Object => {
                self.enter_object()?;
                let mut map = serde_json::Map::new();
                while self.next_key(&mut text)? {
                    if text.eq_ignore_ascii_case("env") || text.eq_ignore_ascii_case("environment") {
                        self.skip()?;
                    } else {
                        let value = self.build(left)?;
                        map.insert(text.clone(), value);
                    }
                }
                Ok(Value::Object(map))
            }
        }
    }

    fn literal(&self, word: &str) -> Result<Value> {
        match word {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            "null" | "NaN" | "nan" | "-nan" | "inf" | "-inf" | "Infinity" | "-Infinity" => Ok(Value::Null),
            _ => match (word.parse::<i64>(), word.parse::<u64>(), word.parse::<f64>()) {
                (Ok(whole), ..) => Ok(Value::from(whole)),
                (_, Ok(whole), _) => Ok(Value::from(whole)),
                (.., Ok(number)) => Ok(Value::from(number)),
                _ => Err(self.fault("expected a value")),
            },
        }
    }
}

/// The keys that the head of a JSON file shows, outermost first, those of the
/// first item where it is a list. Stops quietly where the head ends.
pub fn keys_of(head: &[u8]) -> Vec<String> {
    let mut keys = Vec::new();
    let mut json = Json::new("", head);
    while matches!(json.next_is(), Ok(Next::Array)) && json.enter_array().is_ok() && matches!(json.next_item(), Ok(true)) {}
    if json.enter_object().is_ok() {
        let mut key = String::new();
        while matches!(json.next_key(&mut key), Ok(true)) {
            keys.push(key.clone());
            if json.skip().is_err() {
                break;
            }
        }
    }
    keys
}

/// A finite number, written as a number or as text.
pub fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
    .filter(|n: &f64| n.is_finite())
}

/// A whole number from 0, written as a number or as text.
pub fn whole(value: &Value) -> Option<u64> {
    number(value).filter(|n| (0.0..1.8e19).contains(n) && libm::floor(*n) == *n).map(|n| n as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tree(text: &str) -> Result<Value> {
        let mut json = Json::new("x.json", text.as_bytes());
        let value = json.tree()?;
        if json.at_end()? { Ok(value) } else { Err(json.fault("more follows")) }
    }

    #[test]
    fn trees_are_as_serde_builds_them() {
        let text = r#" {"a":[1,-2.5,1e3,"x\n\u00e9\ud83d\ude00"],"b":{"c":null,"d":true},"e":[]} "#;
        let expected: Value = serde_json::from_str(text).expect("JSON");
        assert_eq!(tree(text).expect("reads"), expected);
        assert_eq!(tree("[1,2,]").expect("a trailing comma"), serde_json::json!([1, 2]));
        assert_eq!(tree("[NaN]").expect("NaN"), serde_json::json!([null]));
    }

    #[test]
    fn environments_are_dropped() {
        assert_eq!(tree(r#"{"env":["TOKEN=x"],"a":{"Environment":{"K":1},"b":2}}"#).expect("reads"), serde_json::json!({"a":{"b":2}}));
    }

    #[test]
    fn wrong_structure_is_refused() {
        for text in ["", "{", "[", "{\"a\"}", "{\"a\":}", "{a:1}", "\"x", "tru", "[1 2", "\"\\x\"", "\"\\u12\"", "{\"a\":1]", "1 x"] {
            assert!(tree(text).is_err(), "{text}");
        }
        assert!(tree(&"[".repeat(100_000)).expect_err("deep").message.contains("deeper"));
        assert!(tree(&"9".repeat(1000)).is_err());
        let mut json = Json::new("x", &b"[1,2"[..]);
        assert!(json.skip().is_err());
        let deep = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
        assert!(Json::new("x", deep.as_bytes()).skip().is_ok());
    }

    #[test]
    fn heads_show_their_keys() {
        assert_eq!(keys_of(br#"{"a":{"b":1},"c":[1,2"#), ["a", "c"]);
        assert_eq!(keys_of(br#"[[{"a":1}"#), ["a"]);
        assert!(keys_of(b"text").is_empty());
    }

    proptest! {
        #[test]
        fn any_text_ends(text in "[\\[\\]{}\",:0-9a-z\\\\ ]{0,60}") {
            let ours = tree(&text);
            if let Ok(expected) = serde_json::from_str::<Value>(&text) {
                if !text.contains("env") { prop_assert_eq!(ours.expect("valid JSON reads"), expected); }
            }
            let _ = Json::new("x", text.as_bytes()).skip();
            let _ = keys_of(text.as_bytes());
        }
    }
}
