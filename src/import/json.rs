//! A pull reader for JSON of any size: constant memory, a limit for everything.
//!
//! Traces have hundreds of megabytes, so no tree is built unless a reader asks
//! for one of a small part. Lenient where real writers are wrong (a trailing
//! comma, `NaN`), strict about structure where values are wanted; what is
//! skipped is only balanced, not checked. Trees are in [`crate::import::json_tree`].

use std::io::Read;

use crate::error::Fault;
use crate::error::Result;
use crate::import::input;

/// Deepest nesting that is entered or built.
const DEPTH_MAX: usize = 64;

/// Longest string that is kept; the rest of a longer one is dropped.
const STRING_BYTES_MAX: usize = 64 << 10;

/// Longest number or literal.
const WORD_BYTES_MAX: usize = 64;

const CODE: &str = "json";

/// What the next value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// `{`
    Object,
    /// `[`
    Array,
    /// `"`
    Text,
    /// A number, `true`, `null`, `NaN`, …
    Word,
}

/// A stream of JSON values.
pub struct Json<R> {
    name: String,
    input: R,
    buffer: Vec<u8>,
    at: usize,
    end: usize,
    before: u64,
    depth: usize,
}

impl<R: Read> Json<R> {
    /// Reads `input`, which faults call `name`.
    pub fn new(name: &str, input: R) -> Json<R> {
        Json { name: name.to_owned(), input, buffer: vec![0; 128 << 10], at: 0, end: 0, before: 0, depth: 0 }
    }

    /// Whether nothing but space follows.
    ///
    /// # Errors
    /// `io`, `gzip` of the stream, here and below.
    pub fn at_end(&mut self) -> Result<bool> {
        loop {
            match self.peek()? {
                None => return Ok(true),
                Some(b) if b.is_ascii_whitespace() || b == b',' => self.at += 1,
                Some(_) => return Ok(false),
            }
        }
    }

    /// What the next value is.
    ///
    /// # Errors
    /// `json` at the end and where no value can begin.
    pub fn next_is(&mut self) -> Result<Next> {
        match self.visible()? {
            b'{' => Ok(Next::Object),
            b'[' => Ok(Next::Array),
            b'"' => Ok(Next::Text),
            b if b.is_ascii_alphanumeric() || b == b'-' || b == b'+' || b == b'.' => Ok(Next::Word),
            _ => Err(self.fault("expected a value")),
        }
    }

    /// Enters an object; [`Json::next_key`] walks it.
    ///
    /// # Errors
    /// `json` when the next value is no object or lies too deep.
    pub fn enter_object(&mut self) -> Result<()> {
        self.enter(b'{', "expected an object")
    }

    /// Enters a list; [`Json::next_item`] walks it.
    ///
    /// # Errors
    /// `json` when the next value is no list or lies too deep.
    pub fn enter_array(&mut self) -> Result<()> {
        self.enter(b'[', "expected a list")
    }

    fn enter(&mut self, open: u8, expected: &str) -> Result<()> {
        if self.visible()? != open {
            return Err(self.fault(expected));
        }
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.fault(&format!("nested deeper than {DEPTH_MAX}")));
        }
        self.at += 1;
        Ok(())
    }

    /// The next key into `key`, or false after the object's end. The caller
    /// then reads or skips the value.
    ///
    /// # Errors
    /// `json` when neither a key nor the end follows.
    pub fn next_key(&mut self, key: &mut String) -> Result<bool> {
        match self.after_comma()? {
            b'}' => {
                self.leave();
                Ok(false)
            }
            b'"' => {
                self.text(key)?;
                if self.visible()? != b':' {
                    return Err(self.fault("expected `:`"));
                }
                self.at += 1;
                Ok(true)
            }
            _ => Err(self.fault("expected a key or `}`")),
        }
    }

    /// Whether another item follows; false after the list's end.
    ///
    /// # Errors
    /// `json` at the end of the file.
    pub fn next_item(&mut self) -> Result<bool> {
        if self.after_comma()? == b']' {
            self.leave();
            return Ok(false);
        }
        Ok(true)
    }

    fn leave(&mut self) {
        self.at += 1;
        self.depth = self.depth.saturating_sub(1);
    }

    fn after_comma(&mut self) -> Result<u8> {
        loop {
            let b = self.visible()?;
            if b != b',' {
                return Ok(b);
            }
            self.at += 1;
        }
    }

    /// A string into `out`, at most 64 KiB of it.
    ///
    /// # Errors
    /// `json` when the next value is no string or it does not end.
    pub fn text(&mut self, out: &mut String) -> Result<()> {
        out.clear();
        if self.visible()? != b'"' {
            return Err(self.fault("expected a string"));
        }
        self.at += 1;
        let mut bytes = std::mem::take(out).into_bytes();
        loop {
            let chunk = self.chunk()?;
            let stop = chunk.iter().position(|&b| b == b'"' || b == b'\\').unwrap_or(chunk.len());
            let room = STRING_BYTES_MAX.saturating_sub(bytes.len());
            bytes.extend_from_slice(&chunk[..stop.min(room)]);
            let found = chunk.get(stop).copied();
            self.at += stop;
            match found {
                None => {}
                Some(b'"') => break,
                Some(_) => self.escape(&mut bytes)?,
            }
        }
        self.at += 1;
        *out = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        };
        Ok(())
    }

    fn escape(&mut self, bytes: &mut Vec<u8>) -> Result<()> {
        self.at += 1;
        let escaped = self.byte()?;
        let room = bytes.len() < STRING_BYTES_MAX;
        let c = match escaped {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'u' => self.unicode()?,
            b'"' | b'\\' | b'/' => char::from(escaped),
            _ => return Err(self.fault("unknown escape in a string")),
        };
        if room {
            let mut encoded = [0; 4];
            bytes.extend_from_slice(c.encode_utf8(&mut encoded).as_bytes());
        }
        Ok(())
    }

    /// `\uXXXX` after the `u`; half pairs become the replacement character.
    fn unicode(&mut self) -> Result<char> {
        let first = self.hex4()?;
        if !(0xd800..0xdc00).contains(&first) {
            return Ok(char::from_u32(first).unwrap_or('\u{fffd}'));
        }
        if self.byte()? != b'\\' || self.byte()? != b'u' {
            return Err(self.fault("half of a surrogate pair"));
        }
        let second = self.hex4()?;
        let code = 0x10000 + ((first - 0xd800) << 10) + (second.wrapping_sub(0xdc00) & 0x3ff);
        Ok(char::from_u32(code).unwrap_or('\u{fffd}'))
    }

    fn hex4(&mut self) -> Result<u32> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = char::from(self.byte()?).to_digit(16);
            code = code * 16 + digit.ok_or_else(|| self.fault("expected four hexadecimal digits"))?;
        }
        Ok(code)
    }

    /// A number or literal as it stands into `out`; for a string, its content.
    ///
    /// # Errors
    /// `json` for lists, objects and words that are too long.
    pub fn word(&mut self, out: &mut String) -> Result<()> {
        match self.next_is()? {
            Next::Text => return self.text(out),
            Next::Word => {}
            Next::Object | Next::Array => return Err(self.fault("expected a number or a string")),
        }
        out.clear();
        while let Some(b) = self.peek()? {
            if !(b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.' | b'_')) {
                break;
            }
            if out.len() >= WORD_BYTES_MAX {
                return Err(self.fault("a number with more than 64 digits"));
            }
            out.push(char::from(b));
            self.at += 1;
        }
        Ok(())
    }

    /// Passes over one value. Not recursive, constant memory.
    ///
    /// # Errors
    /// `json` when the file ends before the value does.
    pub fn skip(&mut self) -> Result<()> {
        match self.next_is()? {
            Next::Text => {
                self.at += 1;
                return self.skip_text();
            }
            Next::Word => return self.word(&mut String::new()),
            Next::Object | Next::Array => {}
        }
        let mut open = 0u64;
        loop {
            let chunk = self.chunk()?;
            let stop = chunk.iter().position(|b| matches!(b, b'"' | b'{' | b'}' | b'[' | b']'));
            let found = stop.map(|s| chunk[s]);
            self.at += stop.map_or(chunk.len(), |s| s + 1);
            match found {
                Some(b'"') => self.skip_text()?,
                Some(b'{' | b'[') => open += 1,
                Some(_) => open -= 1,
                None => {}
            }
            if open == 0 {
                return Ok(());
            }
        }
    }

    /// The rest of a string, after its first quote.
    fn skip_text(&mut self) -> Result<()> {
        loop {
            let chunk = self.chunk()?;
            let stop = chunk.iter().position(|&b| b == b'"' || b == b'\\');
            let found = stop.map(|s| chunk[s]);
            self.at += stop.map_or(chunk.len(), |s| s + 1);
            match found {
                Some(b'"') => return Ok(()),
                Some(_) => {
                    self.byte()?;
                }
                None => {}
            }
        }
    }

    /// A fault at the present byte, with the text around it.
    pub fn fault(&self, message: &str) -> Box<Fault> {
        let start = self.at.saturating_sub(60).min(self.end);
        let stop = self.at.saturating_add(60).min(self.end);
        let at = self.at.min(self.end);
        let before = String::from_utf8_lossy(&self.buffer[start..at]).into_owned();
        let after = String::from_utf8_lossy(&self.buffer[at..stop]).into_owned();
        let offset = self.before + self.at as u64;
        let span = before.len()..before.len() + usize::from(!after.is_empty());
        Fault::new(CODE, format!("{}: byte {offset}: {message}", self.name)).at(
            &format!("{} around byte {offset}", self.name),
            &format!("{before}{after}"),
            span,
            "here",
        )
    }

    fn visible(&mut self) -> Result<u8> {
        loop {
            match self.peek()? {
                None => return Err(self.fault("the file ends in the middle of a value")),
                Some(b) if b.is_ascii_whitespace() => self.at += 1,
                Some(b) => return Ok(b),
            }
        }
    }

    fn byte(&mut self) -> Result<u8> {
        let byte = self.chunk()?[0];
        self.at += 1;
        Ok(byte)
    }

    /// What is buffered, at least one byte.
    fn chunk(&mut self) -> Result<&[u8]> {
        if self.peek()?.is_none() {
            return Err(self.fault("the file ends in the middle of a value"));
        }
        Ok(&self.buffer[self.at..self.end])
    }

    #[inline]
    fn peek(&mut self) -> Result<Option<u8>> {
        if self.at < self.end {
            return Ok(Some(self.buffer[self.at]));
        }
        self.refill()
    }

    fn refill(&mut self) -> Result<Option<u8>> {
        self.before += self.end as u64;
        (self.at, self.end) = (0, 0);
        loop {
            match self.input.read(&mut self.buffer) {
                Ok(count) => {
                    self.end = count;
                    return Ok(self.buffer[..count].first().copied());
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(input::read_fault(&self.name, &error)),
            }
        }
    }
}
