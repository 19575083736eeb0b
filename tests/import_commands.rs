//! `lanecast import` and `export` as a user meets them: two commands from what
//! is pasted to a ranking, round trips, no file lost, no secret let out.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;

const TOPO: &str = include_str!("cmd/import.in/topo.txt");

struct Desk {
    folder: tempfile::TempDir,
}

impl Desk {
    fn new() -> Desk {
        let desk = Desk { folder: tempfile::tempdir().expect("a folder") };
        for name in ["topo.txt", "p2p.txt"] {
            let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cmd/import.in").join(name);
            fs::copy(from, desk.path(name)).expect("copied");
        }
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).expect("written");
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lanecast"));
        command.args(arguments.split_whitespace()).current_dir(self.folder.path()).env("NO_COLOR", "1");
        command
    }

    fn run(&self, arguments: &str) -> (Option<i32>, String, String) {
        said(&self.command(arguments).output().expect("ran"))
    }

    /// Runs what must succeed; stdout.
    fn done(&self, arguments: &str) -> String {
        let (code, stdout, stderr) = self.run(arguments);
        assert_eq!(code, Some(0), "{arguments}: {stderr}");
        stdout
    }

    fn refused(&self, arguments: &str, words: &[&str]) {
        let (code, stdout, stderr) = self.run(arguments);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{arguments}: {stderr}");
        words.iter().for_each(|word| assert!(stderr.contains(word), "{arguments} does not say {word}: {stderr}"));
    }
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn two_commands_lead_from_pasted_text_to_a_ranking() {
    let desk = Desk::new();
    let (code, stdout, stderr) = desk.run("import topo.txt p2p.txt -o mine.toml");
    assert_eq!((code, stdout.as_str()), (Some(0), ""), "{stderr}");
    for word in ["4 GPUs (nvidia-smi topo -m)", "6 matrices", "left out: topo.txt", "ASSUMED", "wrote a machine to mine.toml"] {
        assert!(stderr.contains(word), "{word}: {stderr}");
    }
    let ranking = desk.done("rank --quiet --machine mine.toml --tp 4 --strategies nccl-default,one-shot-push");
    for word in ["on mine (4 GPUs, imported)", "What is assumed of mine", "NCCL 2.29.2 is ASSUMED", "one-shot-push"] {
        assert!(ranking.contains(word), "{word}: {ranking}");
    }
    let (_, built_in, _) = desk.run("rank --quiet --strategies nccl-default");
    assert!(!built_in.contains("What is assumed of"), "built-in machines have sources");
    // The version that the note names is the one that forecasts take.
    assert!(ranking.contains(lanecast::strategy::context::NCCL_ASSUMED));
}

#[test]
fn stdin_gzip_and_stdout_are_as_good_as_files() {
    let desk = Desk::new();
    let plain = desk.done("import --quiet --id x topo.txt");
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(TOPO.as_bytes()).expect("memory");
    let zipped = encoder.finish().expect("memory");
    desk.write("topo.txt.gz", &zipped);
    assert_eq!(desk.done("import --quiet --id x topo.txt.gz"), plain);
    for bytes in [TOPO.as_bytes(), &zipped] {
        let mut child = desk.command("import --quiet --id x -").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("started");
        child.stdin.take().expect("piped").write_all(bytes).expect("taken");
        assert_eq!(said(&child.wait_with_output().expect("ended")).1, plain);
    }
    desk.done("import --quiet --id x topo.txt -o x.toml");
    assert_eq!(desk.read("x.toml"), plain);
}

#[test]
fn no_input_is_overwritten_and_no_output_is_lost() {
    let desk = Desk::new();
    desk.refused("import topo.txt -o topo.txt", &["argument-same-file"]);
    desk.refused("import topo.txt p2p.txt -o ./p2p.txt", &["argument-same-file"]);
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(desk.path("topo.txt"), desk.path("link")).expect("linked");
        fs::hard_link(desk.path("topo.txt"), desk.path("twin")).expect("linked");
        desk.refused("import topo.txt -o link", &["argument-same-file"]);
        desk.refused("import link -o topo.txt", &["argument-same-file"]);
        desk.refused("import topo.txt -o twin", &["argument-same-file"]);
    }
    assert_eq!(desk.read("topo.txt"), TOPO);
    desk.write("old.toml", "old");
    desk.write("bad.txt", "GPU0 GPU1\nGPU0 X PIX\n");
    desk.refused("import --kind topo-matrix bad.txt -o old.toml", &["import-topo"]);
    desk.refused("import topo.txt --as trace -o old.toml", &["import-nothing", "it gives a machine, facts"]);
    desk.refused("import topo.txt -o no/folder/x.toml", &["io", "no/folder/x.toml"]);
    assert_eq!(desk.read("old.toml"), "old");
    let left: Vec<_> = fs::read_dir(desk.folder.path()).expect("readable").map(|e| e.expect("an entry").file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().ends_with(".part")), "{left:?}");
}

#[test]
fn what_is_not_known_is_refused_in_words() {
    let desk = Desk::new();
    desk.write("x.json", r#"{"alpha": 1, "beta": {"gamma": 2}}"#);
    desk.refused("import x.json", &["import-unknown", "alpha, beta"]);
    desk.refused("import --kind serving x.json", &["import-serving", "alpha"]);
    desk.refused("import --kind nonsense topo.txt", &["nccl-topology"]);
    desk.refused("import nowhere.txt", &["io", "nowhere.txt"]);
    desk.refused("import --gpu gtx-480 topo.txt", &["rtx-pro-6000"]);
    desk.refused("import --cpu z80 topo.txt", &["amd-zen5"]);
    desk.write("x.parquet", "PAR1....");
    desk.refused("import x.parquet", &["Parquet", "to_csv"]);
    desk.write("t.csv", "Start (ns),Duration (ns),Name\n1,2,k\n");
    desk.refused("import t.csv --pass 7", &["import-pass", "has 1"]);
}

/// What is said of a line of a megabyte fits a screen, and no escape sequence gets through.
#[test]
fn messages_stay_short() {
    let desk = Desk::new();
    desk.write("long.txt", format!("GPU0 GPU1\nGPU0 X PIX{}\nGPU1 PIX X\n", "y".repeat(3 << 20)));
    desk.write("escape.txt", "GPU0 GPU1\nGPU0 X \u{7}\u{8}PIX\nGPU1 PIX X\n");
    for name in ["long.txt", "escape.txt"] {
        let (code, _, stderr) = desk.run(&format!("import --kind topo-matrix {name}"));
        assert_eq!(code, Some(2));
        assert!(stderr.len() < 10_000, "{name}: {} bytes", stderr.len());
        assert!(!stderr.contains(|c: char| c.is_control() && c != '\n'), "{stderr:?}");
    }
}

#[test]
fn topologies_come_back_through_nccls_xml() {
    let desk = Desk::new();
    desk.done("import --quiet topo.txt p2p.txt --cpu amd-zen5 -o mine.toml");
    let xml = desk.done("export topology --quiet --machine mine.toml");
    desk.write("topo.xml", &xml);
    desk.done("import --quiet --gpu rtx-pro-6000 topo.xml -o again.toml");
    assert_eq!(desk.done("export topology --quiet --machine again.toml"), xml);
    let labels = |machine: &str| {
        let text = desk.done(&format!("machines --quiet show {machine}"));
        text.lines().filter(|line| line.starts_with("GPU")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(labels("mine.toml"), labels("again.toml"));
}

#[test]
fn graphs_come_back_and_are_used() {
    let desk = Desk::new();
    desk.done("import --quiet topo.txt p2p.txt --cpu amd-zen5 -o mine.toml");
    let own = desk.done("export graph --quiet --machine mine.toml --tp 4");
    desk.write("own.xml", &own);
    assert_eq!(desk.done("export graph --quiet --machine mine.toml --tp 4 --env NCCL_GRAPH_FILE=own.xml"), own);
    let forecast =
        |more: &str| desk.done(&format!("simulate --quiet --format csv --machine mine.toml --tp 4 --strategy nccl-default {more}"));
    assert_eq!(forecast("--env NCCL_GRAPH_FILE=own.xml"), forecast(""));
    // NCCL takes a file's word: three more channels with NVLink's speed change what it chooses.
    let channel = own.split("<channel>").nth(1).and_then(|c| c.split("</channel>").next()).expect("a channel");
    let ring = |id: u32, pattern: u32| {
        let channels = format!("<channel>{channel}</channel>").repeat(4);
        format!("<graph id=\"{id}\" pattern=\"{pattern}\" nchannels=\"4\" speedintra=\"24\" typeintra=\"PXB\">{channels}</graph>")
    };
    desk.write("fast.xml", format!("<graphs version=\"1\">{}{}</graphs>", ring(0, 4), ring(1, 1)));
    assert_ne!(forecast("--env NCCL_GRAPH_FILE=fast.xml"), forecast(""));
    let facts = desk.done("import --quiet fast.xml");
    assert!(facts.contains("channels = 4") && facts.contains("path = \"PXB\""), "{facts}");
    desk.refused("rank --machine mine.toml --tp 4 --env NCCL_GRAPH_FILE=topo.txt", &["nccl-graph-file"]);
    desk.refused("rank --machine mine.toml --tp 4 --env NCCL_GRAPH_FILE=none.xml", &["io", "none.xml"]);
}

#[test]
fn exports_say_what_nccl_and_engines_read() {
    let desk = Desk::new();
    let rules = desk.done("export tuner --quiet --policy 64K:nccl-ring-ll,1M:one-shot-push,nccl-ring-simple");
    let rows: Vec<&str> = rules.lines().filter(|line| line.starts_with("allreduce,")).collect();
    assert_eq!(rows, ["allreduce,0,65536,ring,ll,-1,1,8,-1,-1", "allreduce,1048577,18446744073709551615,ring,simple,-1,1,8,-1,-1"]);
    let read = lanecast::import::export::tuner::read("t.conf", &rules).expect("reads");
    let comments: Vec<String> = rules.lines().take_while(|l| !l.contains("collective_type")).map(|l| l[2..].to_owned()).collect();
    assert_eq!(lanecast::import::export::tuner::write(&comments, &read).expect("writes"), rules);
    let variables = desk.done("export environment --quiet --strategy nccl-few-channels");
    for line in ["export NCCL_BUFFSIZE=131072", "export NCCL_MAX_NCHANNELS=2", "export NCCL_MIN_NCHANNELS=1", "export NCCL_NTHREADS=64"] {
        assert!(variables.lines().any(|found| found == line), "{line}: {variables}");
    }
    assert!(desk.done("export vllm --quiet --strategy nccl-p2p-sys").contains("--disable-custom-all-reduce"));
    assert!(desk.done("export sglang --quiet --strategy nccl-p2p-sys").contains("export NCCL_P2P_LEVEL=SYS"));
    desk.refused("export tuner --strategy one-shot-push", &["policy-without-nccl"]);
    desk.refused("export sglang --strategy torch-symmetric", &["strategy-infeasible"]);
    desk.refused("export environment --policy 64K:nccl-p2p-sys,nccl-host-staged", &["policy-unsayable"]);
    desk.refused("export chakra", &["export-needs-output"]);
    desk.done("export chakra --quiet -o pass");
    desk.done("export goal --quiet -o pass.goal");
    assert!((0..8).all(|rank| desk.path(&format!("pass.{rank}.et")).is_file()));
    assert!(desk.read("pass.goal").starts_with("num_ranks 8\n"));
}

/// Whatever tells a machine is enough to rank on it.
#[test]
fn every_way_to_a_machine_leads_to_a_ranking() {
    let desk = Desk::new();
    desk.write(
        "lspci.txt",
        "00:00.0 Host bridge: Advanced Micro Devices, Inc. [AMD] Turin Root Complex\n\tNUMA node: 0\n\
         00:01.1 PCI bridge: AMD Turin GPP Bridge\n\tBus: primary=00, secondary=01, subordinate=01\n\tCapabilities: [58] Express (v2) Root Port\n\
         01:00.0 3D controller: NVIDIA Corporation GB202GL [RTX PRO 6000 Blackwell Server Edition]\n\tNUMA node: 0\n\t\tLnkCap:\tSpeed 32GT/s, Width x16\n\
         00:01.2 PCI bridge: AMD Turin GPP Bridge\n\tBus: primary=00, secondary=02, subordinate=02\n\tCapabilities: [58] Express (v2) Root Port\n\
         02:00.0 3D controller: NVIDIA Corporation GB202GL [RTX PRO 6000 Blackwell Server Edition]\n\tNUMA node: 0\n\t\tLnkCap:\tSpeed 32GT/s, Width x16\n",
    );
    desk.write("topo.xml", desk.done("export topology --quiet --machine 4x-rtx-pro-6000-one-chip"));
    for input in ["lspci.txt", "topo.xml", "p2p.txt", "topo.txt"] {
        desk.done(&format!("import --quiet {input} -o m.toml"));
        let ranking = desk.done("rank --quiet --machine m.toml --tp 2 --strategies nccl-default");
        assert!(ranking.contains("What is assumed of m") && ranking.contains("nccl-default"), "{input}: {ranking}");
    }
    desk.refused("import m.toml", &["import-own", "machine file", "--machine"]);
}

/// The ending of the output tells what is wanted of files that give several things.
#[test]
fn the_ending_chooses_the_product() {
    let desk = Desk::new();
    let ranks: String = (0..4).map(|r| format!("#  Rank  {r} Group  0 Pid 1 on x device  {r} [0000:0{r}:00] NVIDIA L40S\n")).collect();
    desk.write("tests.txt", format!("# nThread 1 nGpus 4 graph: 0\n{ranks} 43008 21504 half sum -1 19.5 2.20 3.31 0 18.70 2.30 3.45 0\n"));
    desk.done("import --quiet tests.txt topo.txt -o m.toml");
    assert!(desk.read("m.toml").contains("kind = \"l40s\""), "the GPUs of the table are those of the machine");
    desk.done("import --quiet --id m tests.txt topo.txt -o m.csv");
    assert!(desk.read("m.csv").contains("m,4,nccl,auto,auto,,,,eager_chain_single_thread,43008,fp16,"));
    let report = desk.done("validate --quiet m.csv --machines .");
    assert!(report.contains("2 rows, 0 skipped"), "{report}");
}
