//! Opening what a user hands over: plain or gzip, sniffed, with limits.
//!
//! A file that is larger than its format needs, that expands absurdly or that
//! is not UTF-8 is refused here, once for all readers.

use std::fs::File;
use std::io::BufReader;
use std::io::Cursor;
use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;

use crate::error::Fault;
use crate::error::Result;
use crate::trace::table;

/// Bytes looked at to tell what a file is.
const HEAD_BYTES: u64 = 64 << 10;

/// gzip below this output is never called a bomb.
const EXPANSION_FREE_BYTES: u64 = 16 << 20;

/// Real traces compress 10 to 60 times; deflate's limit is 1032.
const EXPANSION_MAX: u64 = 200;

/// Magic of SQLite files, which are not text.
pub const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";

/// A reader that may be handed around.
pub type Stream = BufReader<Box<dyn Read>>;

/// One opened input.
pub struct Input {
    /// What faults call it.
    pub name: String,
    head: Vec<u8>,
    rest: Box<dyn Read>,
}

impl Input {
    /// Opens a file; `-` is standard input.
    ///
    /// # Errors
    /// `io`, `gzip`, `not-utf8`.
    pub fn open(path: &Path) -> Result<Input> {
        if path == Path::new("-") {
            return Input::new("standard input", Box::new(std::io::stdin()));
        }
        let file = File::open(path).map_err(|e| Fault::io("open", path, &e))?;
        Input::new(&path.display().to_string(), Box::new(file))
    }

    /// Takes bytes that came from `name`.
    ///
    /// # Errors
    /// `gzip`, `not-utf8`.
    pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<Input> {
        Input::new(name, Box::new(Cursor::new(bytes.to_vec())))
    }

    fn new(name: &str, mut raw: Box<dyn Read>) -> Result<Input> {
        let mut head = read_head(name, &mut raw)?;
        let mut rest = raw;
        if head.starts_with(&[0x1f, 0x8b]) {
            rest = Box::new(Unzipped::new(Box::new(Cursor::new(head).chain(rest))));
            head = read_head(name, &mut rest)?;
        }
        if let Some(fault) = not_text(name, &head) {
            return Err(fault);
        }
        Ok(Input { name: name.to_owned(), head, rest })
    }

    /// The first bytes, decompressed.
    pub fn head(&self) -> &[u8] {
        self.head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&self.head)
    }

    /// Reads on until `bytes` are in the head; the whole text, if that is all of it.
    ///
    /// # Errors
    /// `io`, `gzip`.
    pub fn whole(&mut self, bytes: u64) -> Result<Option<&str>> {
        let more = bytes.saturating_sub(self.head.len() as u64) + 1;
        self.rest.by_ref().take(more).read_to_end(&mut self.head).map_err(|e| read_fault(&self.name, &e))?;
        let is_all = self.head.len() as u64 <= bytes;
        Ok(if is_all { std::str::from_utf8(self.head()).ok() } else { None })
    }

    /// Everything, as a stream from the start.
    pub fn stream(self) -> Stream {
        let start = if self.head.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let whole = Cursor::new(self.head[start..].to_vec()).chain(self.rest);
        BufReader::with_capacity(256 << 10, Box::new(whole))
    }

    /// Everything, as text of at most [`table::TABLE_BYTES_MAX`].
    ///
    /// # Errors
    /// `io`, `file-too-large`, `not-utf8`.
    pub fn text(self) -> Result<String> {
        let name = self.name.clone();
        let mut bytes = Vec::new();
        let limit = table::TABLE_BYTES_MAX + 1;
        self.stream().take(limit).read_to_end(&mut bytes).map_err(|e| read_fault(&name, &e))?;
        let text = table::text_of(&name, &bytes)?;
        if text.contains('\0') {
            return Err(Fault::new("not-utf8", format!("{name} holds NUL bytes")).help("expected text"));
        }
        Ok(text.to_owned())
    }
}

/// First bytes of files that are no text: what they are, and the way out.
const BINARY: [(&[u8], &str, &str); 6] = [
    (
        b"PAR1",
        "a Parquet table",
        "export it as CSV: python -c \"import pandas; pandas.read_parquet('x.parquet').to_csv('x.csv', index=False)\"",
    ),
    (b"PK\x03\x04", "a ZIP archive", "unpack it first"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "unpack it first: zstd -d"),
    (b"\xfd7zXZ\x00", "compressed with xz", "unpack it first: xz -d"),
    (b"BZh", "compressed with bzip2", "unpack it first: bzip2 -d"),
    (b"%PDF", "a PDF", "give the text that the tool printed"),
];

/// Why the bytes are no text that a reader takes, if so.
fn not_text(name: &str, head: &[u8]) -> Option<Box<Fault>> {
    if let Some((_, what, help)) = BINARY.iter().find(|(magic, ..)| head.starts_with(magic)) {
        return Some(Fault::new("import-binary", format!("{name} is {what}")).help(*help));
    }
    if [".nsys-rep", ".qdrep"].iter().any(|ending| name.ends_with(ending)) {
        let help = "export it: nsys stats -r cuda_gpu_trace -f csv, or nsys export -t sqlite";
        return Some(Fault::new("import-binary", format!("{name} is a report that only Nsight Systems reads")).help(help));
    }
    let foreign = head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff") || (head.contains(&0) && !head.starts_with(SQLITE_MAGIC));
    foreign.then(|| {
        Fault::new("not-utf8", format!("{name} is not UTF-8 text"))
            .help("save it as UTF-8 (PowerShell's `>` writes UTF-16: use `| Out-File -Encoding utf8`)")
    })
}

/// A fault for a stream that broke.
pub fn read_fault(name: &str, error: &std::io::Error) -> Box<Fault> {
    let code = if matches!(error.kind(), std::io::ErrorKind::InvalidInput | std::io::ErrorKind::InvalidData) { "gzip" } else { "io" };
    Fault::new(code, format!("cannot read {name}: {error}"))
}

fn read_head(name: &str, input: &mut Box<dyn Read>) -> Result<Vec<u8>> {
    let mut head = Vec::new();
    input.by_ref().take(HEAD_BYTES).read_to_end(&mut head).map_err(|e| read_fault(name, &e))?;
    Ok(head)
}

/// Counts what is read through it.
struct Counted {
    input: Box<dyn Read>,
    bytes: u64,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.bytes += count as u64;
        Ok(count)
    }
}

/// gzip that gives up when the output outgrows the input absurdly.
struct Unzipped {
    decoder: MultiGzDecoder<Counted>,
    bytes: u64,
}

impl Unzipped {
    fn new(input: Box<dyn Read>) -> Unzipped {
        Unzipped { decoder: MultiGzDecoder::new(Counted { input, bytes: 0 }), bytes: 0 }
    }
}

impl Read for Unzipped {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.decoder.read(buffer)?;
        self.bytes += count as u64;
        if self.bytes > EXPANSION_FREE_BYTES && self.bytes / self.decoder.get_ref().bytes.max(1) > EXPANSION_MAX {
            let message = format!("it expands more than {EXPANSION_MAX}-fold; decompress it yourself if you trust it");
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, message));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn zipped(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).expect("memory");
        encoder.finish().expect("memory")
    }

    #[test]
    fn gzip_is_transparent() {
        let input = Input::from_bytes("a.gz", &zipped(b"\xef\xbb\xbfhello")).expect("opens");
        assert_eq!(input.head(), b"hello");
        assert_eq!(input.text().expect("reads"), "hello");
    }

    #[test]
    fn bombs_and_broken_gzip_are_refused() {
        let bomb = zipped(&vec![b' '; 40 << 20]);
        let input = Input::from_bytes("bomb.gz", &bomb).expect("the head is small");
        assert_eq!(input.text().map(|_| ()).expect_err("a bomb").code, "gzip");
        let mut cut = zipped(
            &(0..200_000u32).flat_map(|i| (i.wrapping_mul(2_654_435_761) % 95 + 32).to_le_bytes()).filter(|b| *b != 0).collect::<Vec<u8>>(),
        );
        cut.truncate(cut.len() / 2);
        assert!(Input::from_bytes("cut.gz", &cut).and_then(Input::text).is_err());
        assert!(Input::from_bytes("x.gz", b"\x1f\x8bnonsense").is_err());
    }

    #[test]
    fn other_formats_are_called_by_name() {
        for (name, bytes, word) in
            [("a.parquet", &b"PAR1\x15"[..], "Parquet"), ("a.zip", b"PK\x03\x04", "ZIP"), ("a.nsys-rep", b"abc", "Nsight")]
        {
            let fault = Input::from_bytes(name, bytes).map(|_| ()).expect_err(word);
            assert!(fault.code == "import-binary" && fault.message.contains(word) && fault.help.is_some(), "{fault}");
        }
    }

    #[test]
    fn wrong_encodings_are_refused() {
        for bytes in [&b"\xff\xfeG\0P\0"[..], b"G\0P\0U\0", b"\xfe\xff\0G"] {
            assert_eq!(Input::from_bytes("x", bytes).map(|_| ()).expect_err("UTF-16").code, "not-utf8");
        }
        assert_eq!(Input::from_bytes("x", b"caf\xe9").and_then(Input::text).expect_err("Latin-1").code, "not-utf8");
    }
}
