//! Whole files or none, and a stdout that may close.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::io::Write;
use std::path::Path;

use crate::error::Fault;
use crate::error::Result;

/// What is collected before it goes to the disk.
const BUFFER_BYTES: usize = 256 << 10;

/// Writes `bytes` to `path` whole or not at all; see [`write_file_with`].
///
/// # Errors
/// `io` with the path when any step fails; the part file is then removed.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    write_file_with(path, |file| file.write_all(bytes).map_err(|error| Fault::io("write", path, &error)))
}

/// Writes to `path` what `fill` writes: beside it first, then to the disk, then
/// renamed. A write that is interrupted leaves the old file as it was. What a
/// link leads to is replaced, not the link; devices and pipes are written directly.
///
/// # Errors
/// Those of `fill`; `io` with the path when any step fails; the part file is then removed.
pub fn write_file_with(path: &Path, fill: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let Some(name) = real.file_name() else {
        return Err(Fault::new("io", format!("cannot write {}: it names no file", path.display())));
    };
    if fs::metadata(&real).is_ok_and(|old| !old.is_file() && !old.is_dir()) {
        let device = fs::OpenOptions::new().write(true).open(&real).map_err(|error| Fault::io("write", path, &error))?;
        return fill_and_flush(device, path, fill).map(|_| ());
    }
    // The process id keeps two writers of one file apart; `.part` is ignored by git.
    let mut part_name = OsString::from(".");
    part_name.push(name);
    part_name.push(format!(".{}.part", std::process::id()));
    let part = real.with_file_name(part_name);
    let file = fs::File::create(&part).map_err(|error| Fault::io("write", path, &error))?;
    let done =
        fill_and_flush(file, path, fill).and_then(|file| complete(&file, &part, &real).map_err(|error| Fault::io("write", path, &error)));
    if done.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&part);
    }
    done
}

fn fill_and_flush(file: fs::File, path: &Path, fill: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<fs::File> {
    let mut buffered = io::BufWriter::with_capacity(BUFFER_BYTES, file);
    fill(&mut buffered)?;
    buffered.into_inner().map_err(|error| Fault::io("write", path, error.error()))
}

fn complete(file: &fs::File, part: &Path, path: &Path) -> io::Result<()> {
    file.sync_all()?;
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

    #[cfg(unix)]
    #[test]
    fn links_lead_to_their_target_and_devices_stay_devices() {
        let folder = tempfile::tempdir().expect("a folder");
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        fs::write(&target, "old").expect("written");
        std::os::unix::fs::symlink(&target, &link).expect("linked");
        write_file(&link, b"new").expect("written");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(fs::read(&target).expect("there"), b"new");
        write_file(Path::new("/dev/null"), b"gone").expect("swallowed");
        assert!(!fs::metadata("/dev/null").expect("there").is_file());
    }

    #[test]
    fn what_fails_while_it_is_written_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.csv");
        let done = write_file_with(&path, |file| {
            file.write_all(b"half").expect("memory");
            Err(Fault::new("io", "stopped"))
        });
        assert_eq!(done.expect_err("stopped").message, "stopped");
        assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 0);
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
