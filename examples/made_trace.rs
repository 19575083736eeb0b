//! Writes a large made trace to stdout, for measuring `lanecast import`:
//! `made_trace kineto|nsys MEGABYTES`.

mod made;

use std::io::Write;
use std::process::ExitCode;

use made::Made;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let megabytes = arguments.get(1).and_then(|text| text.parse::<u64>().ok());
    let (Some(kind), Some(megabytes)) = (arguments.first(), megabytes) else {
        eprintln!("made_trace kineto|nsys MEGABYTES");
        return ExitCode::from(2);
    };
    let mut made = if kind == "nsys" { Made::nsys(megabytes * 1_000_000) } else { Made::kineto(megabytes * 1_000_000) };
    let mut out = std::io::stdout().lock();
    match std::io::copy(&mut made, &mut out).and_then(|_| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
