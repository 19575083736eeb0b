//! A small XML tree with limits: attributes and children, no text, no entities
//! but the five predefined ones, no document types.

use std::collections::BTreeMap;

use quick_xml::Reader;
use quick_xml::XmlVersion;
use quick_xml::events::BytesStart;
use quick_xml::events::Event;

use crate::error::Fault;
use crate::error::Result;

const DEPTH_MAX: usize = 64;
const ELEMENTS_MAX: usize = 200_000;
const CODE: &str = "xml";

/// One element.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Element {
    /// Its tag.
    pub name: String,
    /// Its attributes.
    pub attributes: BTreeMap<String, String>,
    /// Elements inside.
    pub children: Vec<Element>,
}

impl Element {
    /// An attribute, empty when absent.
    pub fn get(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }

    /// An attribute as a whole number (decimal, or hexadecimal with `0x`), 0 when absent or wrong.
    pub fn number(&self, name: &str) -> u32 {
        let text = self.get(name).trim();
        match text.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16).unwrap_or(0),
            None => text.parse().unwrap_or(0),
        }
    }

    /// Children of that tag.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.children.iter().filter(move |c| c.name == name)
    }
}

/// The root element of `text`, which came from `name`.
///
/// # Errors
/// `xml` with the byte, for what is not well formed, too deep or too large.
pub fn read(name: &str, text: &str) -> Result<Element> {
    let mut reader = Reader::from_str(text);
    let mut open: Vec<Element> = Vec::new();
    let mut elements = 0;
    loop {
        let at = usize::try_from(reader.buffer_position()).unwrap_or(0);
        let fault = |message: String| {
            let shown = at.min(text.len());
            Fault::new(CODE, format!("{name}: byte {shown}: {message}")).at(name, text, shown..(shown + 20).min(text.len()), "here")
        };
        let event = reader.read_event().map_err(|e| fault(e.to_string()))?;
        let (start, closed) = match &event {
            Event::Start(start) => (Some(start), false),
            Event::Empty(start) => (Some(start), true),
            Event::End(_) => (None, true),
            Event::DocType(_) => return Err(fault("document types are not accepted".to_owned())),
            Event::Eof => return Err(fault("the file ends before its root element does".to_owned())),
            _ => continue,
        };
        if let Some(start) = start {
            elements += 1;
            if elements > ELEMENTS_MAX || open.len() >= DEPTH_MAX {
                return Err(fault(format!("more than {ELEMENTS_MAX} elements or deeper than {DEPTH_MAX}")));
            }
            open.push(element(start).map_err(fault)?);
        }
        if closed {
            let Some(done) = open.pop() else { return Err(fault("a closing tag too many".to_owned())) };
            match open.last_mut() {
                Some(parent) => parent.children.push(done),
                None => return Ok(done),
            }
        }
    }
}

fn element(start: &BytesStart<'_>) -> std::result::Result<Element, String> {
    let mut element = Element { name: text_of(start.name().as_ref()), ..Element::default() };
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|e| e.to_string())?;
        let value = attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|e| e.to_string())?;
        element.attributes.insert(text_of(attribute.key.as_ref()), value.into_owned());
    }
    Ok(element)
}

fn text_of(name: impl AsRef<[u8]>) -> String {
    String::from_utf8_lossy(name.as_ref()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_nest() {
        let root = read("x.xml", "<?xml version=\"1.0\"?><a x='1'><b y=\"0x10\"/><b/><!-- c --></a>").expect("reads");
        assert_eq!((root.get("x"), root.all("b").count(), root.children[0].number("y")), ("1", 2, 16));
    }

    #[test]
    fn bombs_and_broken_files_are_refused() {
        let bomb = "<!DOCTYPE l [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]><l x=\"&b;\"/>";
        let deep = "<a>".repeat(100_000);
        let two = format!("<a>{}</a>", "<b/>".repeat(ELEMENTS_MAX + 1));
        for text in ["", "<a>", "<a></b>", "</a>", "<a x=1/>", "<a x='&b;'/>", "<a x='1' x='2'/>", bomb, &deep, &two] {
            assert_eq!(read("x.xml", text).expect_err("wrong").code, CODE, "{}", text.chars().take(40).collect::<String>());
        }
    }
}
