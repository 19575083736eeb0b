//! One table, four ways to write it.
//!
//! Keys name the columns in CSV and JSON, headings name them for people.
//! Numbers stand right, text left; a missing number is a dash, an empty field
//! or null.

use comfy_table::{CellAlignment, ContentArrangement};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use crate::render::number::Number;
use crate::render::number::to_json;
use crate::render::screen::Ink;
use crate::render::screen::Screen;

/// One field.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A number with fixed decimals.
    Number(Number),
    /// True or false.
    Flag(bool),
    /// Nothing: empty for people, an empty field, null.
    Empty,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

impl From<Number> for Cell {
    fn from(number: Number) -> Cell {
        Cell::Number(number)
    }
}

impl From<bool> for Cell {
    fn from(flag: bool) -> Cell {
        Cell::Flag(flag)
    }
}

impl Cell {
    /// As people read it.
    pub fn shown(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Number(number) if number.is_missing() => "-".to_owned(),
            Cell::Number(number) => number.grouped(),
            Cell::Flag(true) => "yes".to_owned(),
            Cell::Flag(false) => "no".to_owned(),
            Cell::Empty => String::new(),
        }
    }

    /// As programs read it.
    pub fn field(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Number(number) => number.digits(),
            Cell::Flag(flag) => flag.to_string(),
            Cell::Empty => String::new(),
        }
    }
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Cell::Text(text) => serializer.serialize_str(text),
            Cell::Number(number) => number.serialize(serializer),
            Cell::Flag(flag) => serializer.serialize_bool(*flag),
            Cell::Empty => serializer.serialize_none(),
        }
    }
}

/// One column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Name in CSV and JSON, unit last: `pass_ms`.
    pub key: String,
    /// Name for people: `pass, ms`.
    pub heading: String,
    /// Digits align at the right.
    pub is_number: bool,
}

impl Column {
    /// A column of words.
    pub fn text(key: &str, heading: &str) -> Column {
        Column { key: key.to_owned(), heading: heading.to_owned(), is_number: false }
    }

    /// A column of numbers.
    pub fn number(key: &str, heading: &str) -> Column {
        Column { key: key.to_owned(), heading: heading.to_owned(), is_number: true }
    }
}

/// Columns and rows of equal length.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// What the columns are.
    pub columns: Vec<Column>,
    /// Each as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// An empty table.
    pub fn new(columns: Vec<Column>) -> Table {
        Table { columns, rows: Vec::new() }
    }

    /// Adds a column whose cell is the same in every row that is there.
    pub fn fill(&mut self, column: Column, cell: impl Into<Cell>) {
        let cell = cell.into();
        self.columns.push(column);
        self.rows.iter_mut().for_each(|row| row.push(cell.clone()));
    }

    /// Adds a row. A row of another length than the columns is a bug.
    pub fn row(&mut self, cells: Vec<Cell>) {
        assert_eq!(cells.len(), self.columns.len(), "one cell a column");
        self.rows.push(cells);
    }

    /// For people, each line closed by a newline. Broken to the screen's width.
    pub fn to_text(&self, screen: Screen) -> String {
        if self.columns.is_empty() {
            return String::new();
        }
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table.style_mut().header_separator = comfy_table::LineStyle::none().fill('-').junction(' ');
        table.set_header(self.columns.iter().map(|column| column.heading.as_str()));
        for row in &self.rows {
            table.add_row(row.iter().map(Cell::shown));
        }
        if let Some(width) = screen.width {
            table.set_content_arrangement(ContentArrangement::Dynamic);
            table.set_width(width);
        }
        for (at, column) in self.columns.iter().enumerate() {
            let Some(shape) = table.column_mut(at) else { continue };
            shape.set_padding((0, 1));
            shape.set_cell_alignment(if column.is_number { CellAlignment::Right } else { CellAlignment::Left });
        }
        let mut text = String::new();
        let mut in_header = true;
        for line in table.lines() {
            let line = line.trim_end();
            in_header &= !(line.starts_with("--") || line.starts_with(" -"));
            text.push_str(&if in_header { screen.paint(Ink::Strong, line) } else { line.to_owned() });
            text.push('\n');
        }
        text
    }

    /// Comma-separated, a header line of keys, `\n` at line ends, quotes where needed.
    pub fn to_csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let fields = self.rows.iter().map(|row| row.iter().map(Cell::field).collect::<Vec<_>>());
        let header = self.columns.iter().map(|column| column.key.clone()).collect::<Vec<_>>();
        for record in std::iter::once(header).chain(fields) {
            writer.write_record(&record).expect("records of equal length fit in memory");
        }
        let bytes = writer.into_inner().expect("a Vec takes every byte");
        String::from_utf8(bytes).expect("made of strings")
    }

    /// An array of one object a row, keys in the order of the columns.
    pub fn to_json(&self) -> String {
        to_json(self)
    }
}

/// A row with its keys.
struct Keyed<'a>(&'a [Column], &'a [Cell]);

impl Serialize for Keyed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.1.len()))?;
        for (column, cell) in self.0.iter().zip(self.1) {
            map.serialize_entry(&column.key, cell)?;
        }
        map.end()
    }
}

impl Serialize for Table {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut rows = serializer.serialize_seq(Some(self.rows.len()))?;
        for row in &self.rows {
            rows.serialize_element(&Keyed(&self.columns, row))?;
        }
        rows.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Table {
        let mut table = Table::new(vec![Column::text("name", "name"), Column::number("pass_ms", "pass, ms"), Column::text("note", "note")]);
        table.row(vec!["a".into(), Number::new(1234.5, 2).into(), "says \"hi\", twice".into()]);
        table.row(vec!["longer".into(), Number::MISSING.into(), Cell::Empty]);
        table
    }

    #[test]
    fn text_aligns_numbers_at_the_right() {
        let expected = "\
name    pass, ms  note
------- --------- -----------------
a       1,234.50  says \"hi\", twice
longer         -
";
        assert_eq!(sample().to_text(Screen::PLAIN), expected);
    }

    #[test]
    fn text_keeps_to_the_width() {
        for width in [18, 24, 40] {
            let text = sample().to_text(Screen { width: Some(width), color: false });
            assert!(text.lines().all(|line| line.chars().count() <= usize::from(width)), "{width}\n{text}");
        }
    }

    #[test]
    fn colours_mark_the_header_only() {
        let text = sample().to_text(Screen { width: None, color: true });
        assert_eq!(text.matches("\u{1b}[1m").count(), 1);
        assert!(text.starts_with("\u{1b}[1mname"));
    }

    #[test]
    fn csv_quotes_and_keeps_plain_digits() {
        assert_eq!(sample().to_csv(), "name,pass_ms,note\na,1234.50,\"says \"\"hi\"\", twice\"\nlonger,,\n");
    }

    #[test]
    fn json_keeps_the_order_of_columns() {
        let value = serde_json::to_string(&sample()).expect("json");
        let expected = r#"[{"name":"a","pass_ms":1234.5,"note":"says \"hi\", twice"},{"name":"longer","pass_ms":null,"note":null}]"#;
        assert_eq!(value, expected);
    }
}
