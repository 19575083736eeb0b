//! Tools write their whole environment beside their results. None of it
//! reaches anything that is written here: no product, no export, no message.

mod samples;

use lanecast::import;
use lanecast::import::ForeignKind;
use lanecast::import::Outcome;
use lanecast::import::export::chakra;
use lanecast::import::export::topology_xml;
use lanecast::import::machine::Wish;
use lanecast::import::product;
use lanecast::trace::perfetto;
use lanecast::trace::record::Reader;
use samples::SAMPLES;

const SECRET: &str = "hf_QxSecret77";

/// A sample with the secret where a tool of that kind writes what surrounds it.
fn with_secret(kind: ForeignKind, text: &str) -> String {
    let pairs = format!(
        "\"env\":[\"HF_TOKEN={SECRET}\",\"AWS_KEY={SECRET}\"],\"environment\":{{\"HF_TOKEN\":\"{SECRET}\"}},\"server_info\":{{\"api_key\":\"{SECRET}\"}},\"hostname\":\"{SECRET}\","
    );
    match kind.name() {
        // Into every object: at the top, in metadata, in results, in events.
        _ if text.starts_with('{') => text.replace("{\"", &format!("{{{pairs}\"")),
        "nccl-topology" | "nccl-graph" => text.replacen("version=\"1\"", &format!("version=\"1\" env=\"{SECRET}\""), 1),
        "cmdline" => format!("{text} token={SECRET} {SECRET}"),
        "driver-params" => format!("{text}Token: {SECRET}\n"),
        "nccl-log" => format!(
            "HF_TOKEN={SECRET}\n{text}x [0] NCCL INFO HF_TOKEN set by environment to {SECRET}\nx [0] NCCL INFO Bootstrap: Using {SECRET}\n"
        ),
        // Rows of tables have no place for it; what stands before the header does.
        "aiconfigurator" => format!("# HF_TOKEN={SECRET}\n{text}"),
        _ => format!("HF_TOKEN={SECRET}\n{text}HF_TOKEN={SECRET}\n"),
    }
}

fn everything_written(outcome: &Outcome) -> String {
    let wish = Wish { id: "box".into(), ..Wish::default() };
    let mut all = [outcome.understood.join("\n"), outcome.skipped.join("\n"), outcome.warnings.join("\n")].join("\n");
    for product in product::products(outcome) {
        let mut bytes = Vec::new();
        product::write(outcome, product, &wish, None, &mut bytes).unwrap_or_else(|fault| panic!("{product:?}: {fault}"));
        let text = String::from_utf8(bytes).expect("text");
        if product == product::Product::Trace {
            let records = Reader::open("t", text.as_bytes()).and_then(|mut reader| reader.read_all()).expect("reads");
            chakra::write(&records).values().for_each(|file| all.push_str(&String::from_utf8_lossy(file)));
            let mut reader = Reader::open("t", text.as_bytes()).expect("reads");
            all.push_str(&String::from_utf8_lossy(&perfetto::convert(&mut reader, Vec::new()).expect("converts")));
        }
        all.push_str(&text);
    }
    if let Ok(machine) = import::machine::machine(&outcome.facts, &wish) {
        all.push_str(&topology_xml::write(&machine));
    }
    all
}

#[test]
fn environments_reach_no_output() {
    let mut merged = Outcome::default();
    let mut kinds = 0;
    for (kind, text) in SAMPLES {
        let spoiled = with_secret(*kind, text);
        assert!(spoiled.contains(SECRET));
        let read = || {
            let mut outcome = import::read_bytes("sample", spoiled.as_bytes(), Some(*kind))?;
            if let Some(trace) = &mut outcome.trace {
                trace.finish();
            }
            Ok::<_, Box<lanecast::error::Fault>>(outcome)
        };
        match read() {
            Ok(outcome) => {
                kinds += 1;
                let written = everything_written(&outcome);
                assert!(!written.is_empty() && !written.contains(SECRET), "{}: {written}", kind.name());
                merged.merge(read().expect("again"));
            }
            // Refused is safe too, if the refusal does not quote a JSON value.
            Err(fault) => assert!(!text.starts_with('{') || !fault.to_string().contains(SECRET), "{}: {fault}", kind.name()),
        }
    }
    assert!(kinds >= SAMPLES.len() - 3, "{kinds} of {} kinds are read with an environment beside", SAMPLES.len());
    if let Some(trace) = &mut merged.trace {
        trace.finish();
    }
    let written = everything_written(&merged);
    assert_eq!(product::products(&merged).len(), 6, "all kinds of output");
    assert!(!written.contains(SECRET), "{written}");
}

/// Cut anywhere, a dump of the environment is not quoted in the refusal.
#[test]
fn refusals_do_not_quote_environments() {
    for (kind, text) in SAMPLES.iter().filter(|(_, text)| text.starts_with('{')) {
        let spoiled = with_secret(*kind, text);
        for cut in (1..spoiled.len()).step_by(7).filter(|cut| spoiled.is_char_boundary(*cut)) {
            for told in [Some(*kind), None] {
                if let Err(fault) = import::read_bytes("sample", &spoiled.as_bytes()[..cut], told) {
                    let place = fault.place.as_ref().map_or("", |place| place.source.inner());
                    let said = format!("{} {:?} {place}", fault.message, fault.help);
                    assert!(!said.contains(SECRET), "{}: {said}", kind.name());
                }
            }
        }
    }
}

#[cfg(feature = "nsys")]
#[test]
fn environments_of_nsight_reports_reach_no_output() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("report.sqlite");
    let database = rusqlite_open(&path);
    database
        .execute_batch(&format!(
            "CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT);
             INSERT INTO StringIds VALUES (5, 'ncclDevKernel_AllReduce_Sum_bf16_RING_LL'), (6, 'HF_TOKEN={SECRET}');
             CREATE TABLE TARGET_INFO_SYSTEM_ENV(globalVid INT, devStateName TEXT, name TEXT, nameEnum INT, value TEXT);
             INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (1, 'x', 'Environment', 1, 'HF_TOKEN={SECRET}');
             CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INT, end INT, deviceId INT, streamId INT, correlationId INT, demangledName INT);
             INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000, 30000, 2, 7, 1, 5);"
        ))
        .expect("made");
    drop(database);
    let mut outcome = import::read_path(&path, None).expect("reads");
    if let Some(trace) = &mut outcome.trace {
        trace.finish();
    }
    assert!(!everything_written(&outcome).contains(SECRET));
}

#[cfg(feature = "nsys")]
fn rusqlite_open(path: &std::path::Path) -> rusqlite::Connection {
    rusqlite::Connection::open(path).expect("opens")
}
