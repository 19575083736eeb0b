//! `docs/guide.md` shows what its commands really print. Each line `$ …` of its
//! `console` blocks is run by a shell, one folder for all of them, `traces` in
//! it. `TRYCMD=overwrite cargo test --test guide` rewrites the outputs; read
//! the difference before committing it.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A line of the guide, or a command with the output below it.
enum Piece {
    Text(String),
    Command { line: String, output: String },
}

fn pieces(guide: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut inside = false;
    for line in guide.lines() {
        inside = if line.starts_with("```") { line == "```console" } else { inside };
        match (inside, line.strip_prefix("$ "), pieces.last_mut()) {
            (true, Some(command), _) => pieces.push(Piece::Command { line: command.to_owned(), output: String::new() }),
            (true, None, Some(Piece::Command { output, .. })) => output.push_str(&format!("{line}\n")),
            _ => pieces.push(Piece::Text(line.to_owned())),
        }
    }
    pieces
}

/// Both streams of a command as a terminal shows them, trailing empty lines aside.
fn run(line: &str, folder: &Path) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_lanecast")).parent().expect("a folder");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").expect("a path"));
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(folder).env("PATH", path).env("NO_COLOR", "1").env("COLUMNS", "100");
    let ran = shell.output().expect("ran");
    let text = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    let text = text.replace(env!("CARGO_PKG_VERSION"), "[VERSION]");
    let lines: Vec<&str> = text.trim_end().lines().map(str::trim_end).collect();
    let code = ran.status.code().unwrap_or(-1);
    let said = if code == 0 { String::new() } else { format!("? {code}\n") };
    if text.trim().is_empty() { said } else { format!("{said}{}\n", lines.join("\n")) }
}

#[test]
fn the_guide_shows_what_its_commands_print() {
    let file = root().join("docs/guide.md");
    let guide = std::fs::read_to_string(&file).expect("readable");
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(root().join("traces"), folder.path().join("traces")).expect("a link");
    let overwrite = std::env::var("TRYCMD").as_deref() == Ok("overwrite");
    let (mut written, mut wrong, mut count) = (String::new(), Vec::new(), 0);
    for piece in pieces(&guide) {
        match piece {
            Piece::Text(line) => written.push_str(&format!("{line}\n")),
            Piece::Command { line, output } => {
                let now = run(&line, folder.path());
                count += 1;
                if now.trim_end() != output.trim_end() {
                    wrong.push(format!("$ {line}\n--- in the guide\n{output}--- printed\n{now}"));
                }
                written.push_str(&format!("$ {line}\n{now}"));
            }
        }
    }
    assert!(count >= 10, "the guide has only {count} commands");
    if overwrite {
        std::fs::write(&file, written).expect("written");
    } else {
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
