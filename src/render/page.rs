//! One HTML file with everything in it: readable in light and dark, on paper,
//! and without a network.

use askama::Template;

use crate::render::table::Table;

/// A page from top to bottom.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// In the browser's title bar and at the top.
    pub title: String,
    /// What follows.
    pub sections: Vec<Section>,
    /// Small, at the end: what reproduces the page.
    pub footer: Vec<String>,
}

/// A heading and what stands under it.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// The heading.
    pub heading: String,
    /// What stands under it, in order.
    pub blocks: Vec<Block>,
}

/// One thing on a page.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// A paragraph.
    Text(String),
    /// A list of sentences.
    List(Vec<String>),
    /// A table.
    Table(Table),
    /// Text to copy, spaces kept: settings, commands.
    Code(String),
    /// A drawing made by this module: `<svg …>`. It is not escaped.
    Drawing(String),
}

#[derive(Template)]
#[template(path = "page.html")]
struct PageTemplate<'a> {
    page: &'a Page,
}

/// The page as HTML. Everything but drawings is escaped.
pub fn to_html(page: &Page) -> String {
    PageTemplate { page }.render().expect("a string takes every byte")
}

/// The class of the cells of a column; used by the template.
fn class_of(table: &Table, column: &usize) -> &'static str {
    if table.columns.get(*column).is_some_and(|column| column.is_number) { "number" } else { "text" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::number::Number;
    use crate::render::table::Column;

    fn sample() -> Page {
        let mut table = Table::new(vec![Column::text("name", "name"), Column::number("us", "us")]);
        table.row(vec!["a<b".into(), Number::new(1234.5, 1).into()]);
        let blocks = vec![
            Block::Text("5 > 4 & \"so\"".to_owned()),
            Block::List(vec!["first".to_owned()]),
            Block::Table(table),
            Block::Code("NCCL_PROTO=LL\n".to_owned()),
            Block::Drawing("<svg></svg>".to_owned()),
        ];
        Page {
            title: "A <title>".to_owned(),
            sections: vec![Section { heading: "One".to_owned(), blocks }],
            footer: vec!["made by".to_owned()],
        }
    }

    #[test]
    fn text_is_escaped_and_drawings_are_not() {
        let html = to_html(&sample());
        assert!(html.contains("<title>A &#60;title&#62;</title>"), "{html}");
        assert!(html.contains("5 &#62; 4 &#38; &#34;so&#34;"), "{html}");
        assert!(html.contains("<svg></svg>"));
        assert!(html.contains("<td class=\"number\">1,234.5</td>"), "{html}");
        assert!(html.contains("a&#60;b"), "{html}");
        assert!(html.contains("made by"));
    }

    #[test]
    fn the_page_loads_nothing() {
        let html = to_html(&sample());
        for word in ["http", "src=", "@import", "url(", "<script", "<link"] {
            assert!(!html.contains(word), "{word}");
        }
        assert!(html.contains("prefers-color-scheme: dark") && html.contains("@media print"));
    }
}
