//! How wide and how colourful the place is on which text appears.

/// What a caller knows about the terminal. The environment is read by the
/// program, not here, so that the same screen gives the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// Columns; `None` means that lines are never broken (a file, a pipe).
    pub width: Option<u16>,
    /// May escape sequences be written?
    pub color: bool,
}

/// What a piece of text is; the colours are chosen here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// A heading.
    Strong,
    /// Less important.
    Faint,
    /// Better, or as wanted.
    Good,
    /// Look here.
    Warn,
    /// Worse, or wrong.
    Bad,
}

impl Screen {
    /// A file or a pipe: no colours, no breaks.
    pub const PLAIN: Screen = Screen { width: None, color: false };

    /// `text` in the ink, if there are colours.
    pub fn paint(self, ink: Ink, text: &str) -> String {
        if !self.color || text.is_empty() {
            return text.to_owned();
        }
        let code = match ink {
            Ink::Strong => "1",
            Ink::Faint => "2",
            Ink::Good => "32",
            Ink::Warn => "33",
            Ink::Bad => "31",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    /// A paragraph broken at spaces to the width, each further line indented.
    pub fn wrap(self, text: &str, indent: usize) -> String {
        let Some(width) = self.width.map(usize::from) else { return text.to_owned() };
        let mut lines: Vec<String> = Vec::new();
        let mut line = String::new();
        for word in text.split_whitespace() {
            if !line.trim().is_empty() && line.chars().count() + 1 + word.chars().count() > width {
                lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            } else if !line.trim().is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paint_is_silent_without_colours() {
        assert_eq!(Screen::PLAIN.paint(Ink::Bad, "x"), "x");
        let screen = Screen { width: None, color: true };
        assert_eq!(screen.paint(Ink::Strong, "x"), "\u{1b}[1mx\u{1b}[0m");
    }

    #[test]
    fn paragraphs_break_at_spaces() {
        let screen = Screen { width: Some(12), color: false };
        assert_eq!(screen.wrap("one two three four", 2), "one two\n  three four");
        assert_eq!(screen.wrap("averyveryverylongword x", 0), "averyveryverylongword\nx");
        assert_eq!(screen.wrap("", 0), "");
    }
}
