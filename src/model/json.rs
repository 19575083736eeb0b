//! A checked view of a JSON object: sizes within bounds, faults that point at
//! the key in the file, and a record of the keys that were understood.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::Map;
use serde_json::Value;

use crate::error::Fault;
use crate::error::Result;

/// An object of a configuration file.
pub struct Keys<'a> {
    name: &'a str,
    text: &'a str,
    object: &'a Map<String, Value>,
    used: RefCell<BTreeSet<String>>,
}

impl<'a> Keys<'a> {
    /// A view of `object`, found in the file `name` with the text `text`.
    pub fn new(name: &'a str, text: &'a str, object: &'a Map<String, Value>) -> Keys<'a> {
        Keys { name, text, object, used: RefCell::default() }
    }

    /// The value of `key`, `null` counting as absent; marks it as understood.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.used.borrow_mut().insert(key.to_owned());
        self.object.get(key).filter(|v| !v.is_null())
    }

    /// Whether `key` is there and not `null`; does not mark it.
    pub fn has(&self, key: &str) -> bool {
        self.object.get(key).is_some_and(|v| !v.is_null())
    }

    /// A size from 0 to `most`, if the key is there.
    pub fn size(&self, key: &str, most: u64) -> Result<Option<u64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_u64().filter(|v| *v <= most) {
            Some(size) => Ok(Some(size)),
            None => Err(self.fault("model-bad-value", key, format!("`{key}` is not a whole number from 0 to {most}"))),
        }
    }

    /// A size from 1 to `most`; the key must be there.
    pub fn positive(&self, key: &str, most: u64) -> Result<u64> {
        match self.size(key, most)? {
            Some(0) => Err(self.fault("model-bad-value", key, format!("`{key}` must be at least 1"))),
            Some(size) => Ok(size),
            None => Err(self.missing(key)),
        }
    }

    /// The first of `keys` that is there, as [`Keys::positive`].
    pub fn positive_of(&self, keys: &[&str], most: u64) -> Result<u64> {
        let mut found = None;
        for key in keys {
            if found.is_none() && self.has(key) {
                found = Some(self.positive(key, most)?);
            }
            self.used.borrow_mut().insert((*key).to_owned());
        }
        found.ok_or_else(|| self.missing(keys.first().copied().unwrap_or("")))
    }

    /// A boolean; absent or of another type is false.
    pub fn flag(&self, key: &str) -> bool {
        self.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    /// A string, if the key holds one.
    pub fn text(&self, key: &str) -> Option<&'a str> {
        self.get(key).and_then(Value::as_str)
    }

    /// The strings of a list; other entries are left out.
    pub fn strings(&self, key: &str) -> Vec<&'a str> {
        let list = self.get(key).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// The whole numbers of a list; other entries are left out.
    pub fn numbers(&self, key: &str) -> Vec<u64> {
        let list = self.get(key).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_u64).collect()
    }

    /// An object under `key`.
    pub fn object(&self, key: &str) -> Option<Keys<'a>> {
        let object = self.get(key)?.as_object()?;
        Some(Keys::new(self.name, self.text, object))
    }

    /// All keys with their values.
    pub fn all(&self) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.object.iter()
    }

    /// Keys that say something (not null, false, zero or empty) and were never
    /// asked for, in order of name.
    pub fn not_used(&self) -> Vec<&'a str> {
        let used = self.used.borrow();
        self.object.iter().filter(|(key, value)| says_something(value) && !used.contains(*key)).map(|(key, _)| key.as_str()).collect()
    }

    /// A fault that points at `key`.
    pub fn fault(&self, code: &'static str, key: &str, message: String) -> Box<Fault> {
        let fault = Fault::new(code, message);
        match self.text.find(&format!("\"{key}\"")) {
            Some(at) => fault.at(self.name, self.text, at..at + key.len() + 2, "this key"),
            None => fault,
        }
    }

    fn missing(&self, key: &str) -> Box<Fault> {
        Fault::new("model-missing-key", format!("{} has no `{key}`", self.name))
            .help("give the config.json of a decoder-only language model from Hugging Face")
    }
}

fn says_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(object) => !object.is_empty(),
        Value::Bool(true) => true,
    }
}
