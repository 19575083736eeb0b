//! The file that a sweep grows in, `OUT.part`: its first line says of which
//! grid and program it is, so that a sweep that was killed goes on where it
//! stopped. What is complete is renamed to `OUT`, without that line.

use std::ffi::OsString;
use std::fs;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::io::BufWriter;
use std::io::Seek;
use std::io::SeekFrom;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;

use crate::error::Fault;
use crate::error::Result;

/// A file of rows that grows.
pub struct Part {
    out: PathBuf,
    path: PathBuf,
    file: BufWriter<File>,
    /// The case whose row comes next.
    pub next: u64,
}

impl Part {
    /// Opens `OUT.part`, or makes it. `tag` names grid, program and shard; `header`
    /// is empty where rows have none; `first` is the first case.
    ///
    /// # Errors
    /// `sweep-part-differs` when it belongs to another sweep, `sweep-part-busy` when another process writes it, `io`.
    pub fn open(out: &Path, tag: &str, header: &str, first: u64) -> Result<Part> {
        let mut name = OsString::from(out.as_os_str());
        name.push(".part");
        let path = PathBuf::from(name);
        let fault = |error: &io::Error| Fault::io("write", &path, error);
        if out.is_dir() {
            return Err(Fault::new("io", format!("cannot write {}: it is a folder", out.display())));
        }
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(|e| fault(&e))?;
        if let Err(fs::TryLockError::WouldBlock) = file.try_lock() {
            return Err(Fault::new("sweep-part-busy", format!("another process is writing {}", path.display()))
                .help("wait for it, or give another -o"));
        }
        let first_line = format!("# lanecast-sweep 1 {tag}\n");
        let (whole, next) = kept(&mut file, &path, &first_line, header, first)?;
        file.set_len(whole).map_err(|e| fault(&e))?;
        file.seek(SeekFrom::End(0)).map_err(|e| fault(&e))?;
        let mut file = BufWriter::new(file);
        if whole == 0 {
            file.write_all(first_line.as_bytes()).and_then(|()| file.write_all(header.as_bytes())).map_err(|e| fault(&e))?;
            file.flush().map_err(|e| fault(&e))?;
        }
        Ok(Part { out: out.to_owned(), path, file, next })
    }

    /// Adds the row of the case `next`.
    ///
    /// # Errors
    /// `io`; what is whole in the file stays.
    pub fn push(&mut self, row: &str) -> Result<()> {
        // A row at a time: a kill loses no more than the one being written.
        self.file.write_all(row.as_bytes()).and_then(|()| self.file.flush()).map_err(|e| Fault::io("write", &self.path, &e))?;
        self.next += 1;
        Ok(())
    }

    /// Everything is there: `OUT` takes its place.
    ///
    /// # Errors
    /// `io`.
    pub fn finish(self) -> Result<()> {
        let Part { out, path, file, .. } = self;
        let done = || -> io::Result<()> {
            let file = file.into_inner().map_err(|error| error.into_error())?;
            file.sync_all()?;
            let mut name = OsString::from(out.as_os_str());
            name.push(format!(".{}.part", std::process::id()));
            let beside = PathBuf::from(name);
            let copied = without_first_line(&path, &beside).and_then(|()| fs::rename(&beside, &out));
            if copied.is_err() {
                let _ = fs::remove_file(&beside);
            }
            copied?;
            fs::remove_file(&path)
        };
        done().map_err(|error| Fault::io("write", &out, &error))
    }
}

fn without_first_line(from: &Path, to: &Path) -> io::Result<()> {
    let mut reader = BufReader::new(File::open(from)?);
    reader.read_until(b'\n', &mut Vec::new())?;
    let mut file = File::create(to)?;
    io::copy(&mut reader, &mut file)?;
    file.sync_all()
}

/// How many bytes of the file are whole rows of this sweep, and the case that comes next.
fn kept(file: &mut File, path: &Path, first_line: &str, header: &str, first: u64) -> Result<(u64, u64)> {
    let io = |error: &io::Error| Fault::io("read", path, error);
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    let mut read = |line: &mut Vec<u8>| -> Result<bool> {
        line.clear();
        reader.read_until(b'\n', line).map_err(|e| io(&e))?;
        Ok(line.last() == Some(&b'\n'))
    };
    if !read(&mut line)? {
        // Killed within the first line, or new: begin again, but only over what this program began.
        let ours = first_line.as_bytes().starts_with(&line);
        return if ours { Ok((0, first)) } else { Err(differs(path)) };
    }
    if line != first_line.as_bytes() {
        return Err(differs(path));
    }
    let mut whole = line.len() as u64;
    if !header.is_empty() {
        if !read(&mut line)? {
            return Ok((0, first));
        }
        if line != header.as_bytes() {
            return Err(differs(path));
        }
        whole += line.len() as u64;
    }
    let mut next = first;
    while read(&mut line)? {
        let number = line.split(|byte| *byte == b',').next().unwrap_or_default();
        if number != next.to_string().as_bytes() {
            return Err(differs(path));
        }
        next += 1;
        whole += line.len() as u64;
    }
    Ok((whole, next))
}

fn differs(path: &Path) -> Box<Fault> {
    Fault::new("sweep-part-differs", format!("{} holds rows of another grid, program or shard", path.display()))
        .help("finish that sweep with what it was begun with, or remove the file")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(out: &Path, tag: &str) -> Result<Part> {
        Part::open(out, tag, "case,x\n", 5)
    }

    #[test]
    fn a_part_goes_on_after_its_last_whole_row() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("a.csv");
        let part_path = folder.path().join("a.csv.part");
        let mut part = open(&out, "grid=1").expect("new");
        assert_eq!(part.next, 5);
        part.push("5,a\n").expect("written");
        part.push("6,b\n").expect("written");
        drop(part);
        // Killed within the row of case 7.
        let mut torn = fs::read(&part_path).expect("there");
        torn.extend(b"7,\"c");
        fs::write(&part_path, &torn).expect("written");
        assert_eq!(open(&out, "grid=2").err().map(|fault| fault.code), Some("sweep-part-differs"));
        let mut part = open(&out, "grid=1").expect("goes on");
        assert_eq!(part.next, 7);
        assert_eq!(open(&out, "grid=1").err().map(|fault| fault.code), Some("sweep-part-busy"));
        part.push("7,c\n").expect("written");
        part.finish().expect("renamed");
        assert_eq!(fs::read_to_string(&out).expect("there"), "case,x\n5,a\n6,b\n7,c\n");
        assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 1);
    }

    #[test]
    fn a_file_of_someone_else_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("a.csv");
        let part_path = folder.path().join("a.csv.part");
        for theirs in ["my notes", "my notes\nand more\n", "# lanecast-sweep 1 grid=1\ncase,x\n9,a\n"] {
            fs::write(&part_path, theirs).expect("written");
            assert_eq!(open(&out, "grid=1").err().map(|fault| fault.code), Some("sweep-part-differs"));
            assert_eq!(fs::read_to_string(&part_path).expect("there"), theirs);
        }
        // Cut within the first line or the header: nothing is lost by beginning again.
        for begun in ["", "# lanecast-sw", "# lanecast-sweep 1 grid=1\ncas"] {
            fs::write(&part_path, begun).expect("written");
            assert_eq!(open(&out, "grid=1").expect("begins again").next, 5);
        }
    }
}
