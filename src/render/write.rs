//! Whole files or none, and a stdout that may close.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::io::Write;
use std::path::Path;

use crate::error::Fault;
use crate::error::Result;

/// Writes `bytes` to `path`: beside it first, then to the disk, then renamed.
/// A write that is interrupted leaves the old file as it was.
///
/// # Errors
/// `io` with the path when any step fails; the part file is then removed.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let Some(name) = path.file_name() else {
        return Err(Fault::new("io", format!("cannot write {}: it names no file", path.display())));
    };
    // The process id keeps two writers of one file apart; `.part` is ignored by git.
    let mut part_name = OsString::from(".");
    part_name.push(name);
    part_name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(part_name);
    let done = write_through(&part, path, bytes);
    if done.is_err() {
        // The first error is the one to tell; a part file that was never made cannot be removed.
        let _ = fs::remove_file(&part);
    }
    done.map_err(|error| Fault::io("write", path, &error))
}

fn write_through(part: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create(part)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    if let Ok(old) = fs::metadata(path) {
        fs::set_permissions(part, old.permissions())?;
    }
    fs::rename(part, path)?;
    sync_folder(path);
    Ok(())
}

/// Makes the new name last through a power cut. Not every file system can, and
/// the file is complete either way, so an error here is no error.
fn sync_folder(path: &Path) {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Ok(folder) = fs::File::open(folder) {
        let _ = folder.sync_all();
    }
}

/// Writes `text` to `out` (stdout as a rule). A reader that went away, as in
/// `lanecast rank | head -1`, has what it wanted: that is a success.
///
/// # Errors
/// `io` for anything else, such as a full disk behind a redirect.
pub fn write_out(out: &mut impl Write, text: &str) -> Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Fault::io("write", Path::new("standard output"), &error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.csv");
        write_file(&path, b"old").expect("written");
        write_file(&path, b"new").expect("written");
        assert_eq!(fs::read(&path).expect("there"), b"new");
        assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 1);
    }

    #[test]
    fn a_failed_write_keeps_the_old_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).expect("made");
        fs::write(taken.join("old"), "old").expect("written");
        // A folder cannot be replaced by a file: the rename fails after the part was written.
        let fault = write_file(&taken, b"new").expect_err("a folder is in the way");
        assert_eq!(fault.code, "io");
        assert!(fault.message.contains("taken"), "{}", fault.message);
        assert_eq!(fs::read_to_string(taken.join("old")).expect("there"), "old");
        assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 1);
    }

    #[test]
    fn a_missing_folder_and_an_empty_name_are_faults() {
        assert_eq!(write_file(Path::new("/nonexistent/x/y"), b"").expect_err("no folder").code, "io");
        assert_eq!(write_file(Path::new("/"), b"").expect_err("no name").code, "io");
    }

    struct Closed(io::ErrorKind);

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::from(self.0))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_went_away_is_no_error() {
        write_out(&mut Closed(io::ErrorKind::BrokenPipe), "text").expect("success");
        assert_eq!(write_out(&mut Closed(io::ErrorKind::StorageFull), "text").expect_err("full").code, "io");
        let mut kept = Vec::new();
        write_out(&mut kept, "text").expect("written");
        assert_eq!(kept, b"text");
    }
}
