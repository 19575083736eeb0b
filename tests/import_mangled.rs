//! No input makes a reader panic or hang: whatever is cut, replaced or
//! doubled, there is an outcome or a fault.

#[path = "samples/nasty.rs"]
mod nasty;
mod samples;

use std::io::Write;

use lanecast::import::ForeignKind;
use lanecast::import::read_bytes;
use lanecast::import::read_path;
use nasty::NASTY;
use proptest::prelude::*;
use samples::SAMPLES;

fn survives(kind: ForeignKind, bytes: &[u8]) {
    // What counts is that both return; the outcome is checked where it is made.
    let _ = read_bytes("mangled", bytes, Some(kind));
    let _ = read_bytes("mangled", bytes, None);
}

/// An outcome's trace can be written too, or refused.
fn finishes(kind: ForeignKind, bytes: &[u8]) {
    if let Ok(outcome) = read_bytes("mangled", bytes, Some(kind)) {
        if let Some(mut trace) = outcome.trace {
            trace.finish();
            let _ = trace.records(None);
        }
        let _ = lanecast::import::machine::machine(&outcome.facts, &lanecast::import::machine::Wish::default());
    }
}

#[test]
fn every_sample_is_read_and_recognised() {
    for (kind, text) in SAMPLES {
        read_bytes("sample", text.as_bytes(), Some(*kind)).unwrap_or_else(|fault| panic!("{}: {fault}", kind.name()));
        read_bytes("sample", text.as_bytes(), None).unwrap_or_else(|fault| panic!("{} is not recognised: {fault}", kind.name()));
    }
    let covered = SAMPLES.len() + 2; // a folder (sysfs) and SQLite have tests of their own
    assert_eq!(covered, ForeignKind::all().count());
}

#[test]
fn every_cut_is_survived() {
    for (kind, text) in SAMPLES {
        for cut in 0..text.len() {
            survives(*kind, &text.as_bytes()[..cut]);
        }
    }
}

#[test]
fn every_number_may_be_anything() {
    for (kind, text) in SAMPLES {
        let bytes = text.as_bytes();
        for start in 0..bytes.len() {
            if !bytes[start].is_ascii_digit() || (start > 0 && bytes[start - 1].is_ascii_digit()) {
                continue;
            }
            let end = (start..bytes.len()).find(|&i| !bytes[i].is_ascii_digit() && bytes[i] != b'.').unwrap_or(bytes.len());
            for nasty in NASTY {
                let mangled = [&bytes[..start], nasty.as_bytes(), &bytes[end..]].concat();
                survives(*kind, &mangled);
                finishes(*kind, &mangled);
            }
        }
    }
}

#[test]
fn foreign_encodings_are_refused() {
    for (kind, text) in SAMPLES {
        let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        for bytes in [utf16.clone(), [&b"\xff\xfe"[..], &utf16].concat(), [&b"\xfe\xff\0"[..], &utf16].concat()] {
            let fault = read_bytes("utf16", &bytes, Some(*kind)).map(|_| ()).expect_err(kind.name());
            assert_eq!(fault.code, "not-utf8", "{}", kind.name());
        }
    }
}

#[test]
fn every_kind_refuses_every_other() {
    for (kind, _) in SAMPLES {
        for (other, text) in SAMPLES {
            if kind != other {
                survives(*kind, text.as_bytes());
            }
        }
    }
}

#[test]
fn deep_and_long_inputs_end() {
    let deep = [
        "{\"a\":".repeat(200_000),
        "[".repeat(200_000),
        "{\"traceEvents\":[".repeat(50_000),
        "<a>".repeat(200_000),
        "<system version=\"1\"><cpu>".to_owned() + &"<pci busid=\"1:1.0\">".repeat(5_000),
    ];
    let long = [
        "x".repeat(8 << 20),
        "GPU0 ".repeat(1 << 20),
        "1,".repeat(4 << 20),
        format!("{{\"traceEvents\":[{{\"name\":\"{}\"}}]}}", "y".repeat(8 << 20)),
    ];
    for text in deep.iter().chain(&long) {
        for (kind, _) in SAMPLES {
            let _ = read_bytes("large", text.as_bytes(), Some(*kind));
        }
        let _ = read_bytes("large", text.as_bytes(), None);
    }
}

#[test]
fn bombs_are_refused_by_every_kind() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..96 {
        encoder.write_all(&vec![b' '; 1 << 20]).expect("memory");
    }
    let bomb = encoder.finish().expect("memory");
    for (kind, _) in SAMPLES {
        assert!(read_bytes("bomb.gz", &bomb, Some(*kind)).is_err(), "{}", kind.name());
    }
}

#[test]
fn missing_and_odd_paths_are_faults() {
    let folder = tempfile::tempdir().expect("a folder");
    assert!(read_path(&folder.path().join("none"), None).is_err());
    assert!(read_path(folder.path(), Some(ForeignKind::of("kineto"))).is_err());
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "").expect("writes");
    for (kind, _) in SAMPLES {
        assert!(read_path(&empty, Some(*kind)).is_err(), "{}", kind.name());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn mangled_bytes_are_survived(which in 0..SAMPLES.len(), edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), nasty in 0..NASTY.len(), at: prop::sample::Index) {
        let (kind, text) = SAMPLES[which];
        let mut bytes = text.as_bytes().to_vec();
        for (place, byte) in edits {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        survives(kind, &bytes);
        let at = at.index(bytes.len());
        bytes.splice(at..at, NASTY[nasty].bytes());
        survives(kind, &bytes);
        finishes(kind, &bytes);
    }

    #[test]
    fn spliced_files_are_survived(a in 0..SAMPLES.len(), b in 0..SAMPLES.len(), cut: prop::sample::Index, from: prop::sample::Index) {
        let (kind, first) = SAMPLES[a];
        let second = SAMPLES[b].1.as_bytes();
        let bytes = [&first.as_bytes()[..cut.index(first.len())], &second[from.index(second.len())..]].concat();
        survives(kind, &bytes);
    }

    #[test]
    fn any_bytes_are_survived(bytes: Vec<u8>, which in 0..SAMPLES.len()) {
        survives(SAMPLES[which].0, &bytes);
    }
}
