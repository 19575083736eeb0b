//! Results in words, tables and drawings: what a command hands to the terminal,
//! to a file, or to another program.
//!
//! A [`Report`] holds one answer in the forms that its readers need; it ends
//! with what reproduces it ([`reproduce`]).

pub mod allreduce;
pub mod allreduce_page;
#[cfg(feature = "gpu")]
pub mod calibrate;
pub mod compare;
mod compare_page;
mod compare_rows;
mod compare_words;
#[cfg(feature = "gpu")]
pub mod detect;
pub mod diagnose;
pub mod doctor;
pub mod experiment;
mod machine_page;
pub mod optimize;
pub mod rank;
pub mod rank_page;
pub mod reproduce;
pub mod settings;
pub mod simulate;
pub mod speculate;
pub mod timeline;
pub mod uncertain;
pub mod validate;

use crate::render::page::Block;
use crate::render::page::Page;
use crate::render::page::Section;
use crate::render::page::to_html;
use crate::render::screen::Ink;
use crate::render::screen::Screen;
use crate::render::table::Table;
use crate::report::reproduce::Reproduce;

pub use reproduce::fnv1a_64;

/// One answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// What it is about; the title of its HTML page.
    pub title: String,
    /// For people. A section with an empty heading has none.
    pub sections: Vec<Section>,
    /// The rows for CSV.
    pub rows: Table,
    /// Text that is the whole result, e.g. an exported file: nothing is added to it.
    pub exact: Option<String>,
    /// The value for JSON, when it is more than `rows` as an array of objects.
    pub json: Option<String>,
    /// What gives the same answer again.
    pub reproduce: Reproduce,
    /// Did every check that was asked for hold? The exit code is 1 if not.
    pub passed: bool,
}

impl Report {
    /// For a terminal, the footer included.
    pub fn to_text(&self, screen: Screen) -> String {
        if let Some(exact) = &self.exact {
            return exact.clone();
        }
        let mut parts: Vec<String> = Vec::new();
        let is_drawn = |section: &&Section| section.blocks.iter().all(|block| matches!(block, Block::Drawing(_)));
        for section in self.sections.iter().filter(|section| !is_drawn(section) || section.blocks.is_empty()) {
            if !section.heading.is_empty() {
                parts.push(format!("{}\n", screen.paint(Ink::Strong, &section.heading)));
            }
            parts.extend(section.blocks.iter().filter_map(|block| block_text(block, screen)));
        }
        let footer = self.reproduce.lines();
        parts.push(footer.iter().map(|line| screen.paint(Ink::Faint, line) + "\n").collect());
        parts.join("\n")
    }

    /// The rows alone.
    pub fn to_csv(&self) -> String {
        self.rows.to_csv()
    }

    /// The value alone.
    pub fn to_json(&self) -> String {
        self.json.clone().unwrap_or_else(|| self.rows.to_json())
    }

    /// One page with drawings and footer.
    pub fn to_html(&self) -> String {
        to_html(&Page { title: self.title.clone(), sections: self.sections.clone(), footer: self.reproduce.lines() })
    }
}

/// A block as text, closed by a newline; drawings have none.
fn block_text(block: &Block, screen: Screen) -> Option<String> {
    match block {
        Block::Text(text) => Some(screen.wrap(text, 0) + "\n"),
        Block::List(items) => Some(items.iter().map(|item| screen.wrap(&format!("- {item}"), 2) + "\n").collect()),
        Block::Table(table) => Some(table.to_text(screen)),
        Block::Code(text) => Some(text.lines().map(|line| format!("    {line}\n")).collect()),
        Block::Drawing(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::table::Column;

    fn sample() -> Report {
        let mut rows = Table::new(vec![Column::text("name", "name")]);
        rows.row(vec!["a".into()]);
        let blocks = vec![
            Block::Text("One sentence.".to_owned()),
            Block::Table(rows.clone()),
            Block::Code("A=1\n".to_owned()),
            Block::Drawing("<svg></svg>".to_owned()),
        ];
        Report {
            title: "t".to_owned(),
            sections: vec![Section { heading: "Finding".to_owned(), blocks }],
            rows,
            exact: None,
            json: None,
            reproduce: Reproduce::new(["lanecast", "rank"].iter().map(|s| (*s).to_owned())).input("machine", b"x"),
            passed: true,
        }
    }

    #[test]
    fn text_ends_with_what_reproduces_it() {
        let text = sample().to_text(Screen::PLAIN);
        let expected = "Finding\n\nOne sentence.\n\nname\n-----\na\n\n    A=1\n\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.ends_with("inputs (FNV-1a 64): machine af63f54c86021707\n"), "{text}");
    }

    #[test]
    fn programs_get_the_value_alone() {
        assert_eq!(sample().to_csv(), "name\na\n");
        assert_eq!(sample().to_json(), "[\n  {\n    \"name\": \"a\"\n  }\n]\n");
        assert_eq!(Report { json: Some("{}\n".to_owned()), ..sample() }.to_json(), "{}\n");
        assert!(sample().to_html().contains("<svg></svg>"));
    }
}
