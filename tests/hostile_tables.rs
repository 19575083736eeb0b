//! Tables and files that contradict themselves: columns given twice, headers
//! without rows, ledgers with impossible days. One message, exit 2.

use std::fs;
use std::path::Path;
use std::process::Command;

struct Desk(tempfile::TempDir);

impl Desk {
    fn new(files: &[(&str, &str)]) -> Desk {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            fs::write(folder.path().join(name), text).expect("written");
        }
        Desk(folder)
    }

    /// Exit code, stdout and stderr.
    fn run(&self, words: &str) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lanecast"));
        let ran = command.args(words.split_whitespace()).current_dir(self.path()).env("NO_COLOR", "1").output().expect("ran");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (ran.status.code(), text(&ran.stdout), text(&ran.stderr))
    }

    fn refused(&self, words: &str, parts: &[&str]) {
        let (code, stdout, stderr) = self.run(words);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{words}: {stderr}");
        for part in parts {
            assert!(stderr.contains(part), "{words} does not say {part}: {stderr}");
        }
    }

    fn done(&self, words: &str) -> (String, String) {
        let (code, stdout, stderr) = self.run(words);
        assert_eq!(code, Some(0), "{words}: {stderr}");
        (stdout, stderr)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

const TRACE: &str = "# lanecast-trace 1\n# ranks = 1\n";

#[test]
fn a_column_stands_there_once() {
    let trace = |header: &str| format!("{TRACE}{header}\n0,0,a.r0,a,compute,0,1,2,0,,7\n");
    let desk = Desk::new(&[
        ("rows.csv", "ranks,bytes,latency_us,bytes\n2,1024,5,2048\n"),
        ("flows.csv", "flows,total_GBps,flows\n0>1,50,1>0\n"),
        ("serving.csv", "engine,concurrency,accepted_length,engine\nvllm,4,2.1,sglang\n"),
        ("trace.csv", &trace("pass,rank,op,name,kind,layer,start_ns,end_ns,bytes,detail,rank")),
        ("aic.csv", "framework,version,nccl_dtype,num_gpus,message_size,latency,latency\nNCCL,2,half,2,256,0.006,0.007\n"),
        ("nsys.csv", "Start (ns),Duration (ns),CorrId,Device,Strm,Name,Name\n1000,2500,7,X,7,k,q\n"),
        ("sum.csv", "Time (%),Total Time (ns),Instances,Avg (ns),Min (ns),Max (ns),Name,Instances\n70.0,7000,7,1000,900,1200,k,8\n"),
    ]);
    desk.refused("validate rows.csv --machine h200-shared", &["`bytes` stands there twice"]);
    desk.refused("fit --machine h200-shared rows.csv", &["`bytes` stands there twice"]);
    desk.refused("validate flows.csv --machine h200-shared", &["twice"]);
    desk.refused("speculate --acceptance-file serving.csv", &["`engine` stands there twice"]);
    desk.refused("compare trace.csv trace.csv", &["`rank` stands there twice"]);
    desk.refused("import aic.csv", &["`latency` stands there twice"]);
    desk.refused("import nsys.csv", &["nsys"]);
    desk.refused("import sum.csv", &["`Instances` stands there twice"]);
}

#[test]
fn a_header_alone_is_no_answer() {
    let desk = Desk::new(&[
        ("rows.csv", "# none yet\nranks,bytes,latency_us\n"),
        ("flows.csv", "flows,total_GBps\n"),
        ("serving.csv", "engine,concurrency,accepted_length\n"),
        ("trace.csv", &format!("{TRACE}pass,rank,op,name,kind,layer,start_ns,end_ns,bytes,detail\n")),
        ("aic.csv", "framework,version,nccl_dtype,num_gpus,message_size,latency\n"),
    ]);
    desk.refused("validate rows.csv --machine h200-shared", &["no row"]);
    desk.refused("fit --machine h200-shared rows.csv", &["no row"]);
    desk.refused("validate flows.csv --machine h200-shared", &["no row"]);
    desk.refused("allreduce --sizes 4K --strategies nccl-default --html p.html --measured rows.csv", &["no row"]);
    desk.refused("speculate --acceptance-file serving.csv", &["no row"]);
    desk.refused("compare trace.csv trace.csv", &["compare-empty"]);
    desk.refused("import aic.csv", &["no row"]);
    desk.refused("diagnose rows.csv", &["no row"]);
}

#[test]
fn ledgers_have_days_and_an_order() {
    let desk = Desk::new(&[]);
    desk.done("experiment new l.toml");
    let before = fs::read_to_string(desk.path().join("l.toml")).expect("there");
    for (words, part) in [
        ("--value 5 --low 6 --high 4", "above its largest"),
        ("--value 5 --low 6 --high 7", "between"),
        ("--value 5 --high 4", "between"),
        ("--outcome serves --date yesterday", "no date"),
        ("--outcome serves --date 2026-02-30", "no date"),
        ("--outcome serves --date 2026-13-01", "no date"),
        ("--outcome serves --date 02/28/2026", "no date"),
        ("--value nan", "above zero"),
        ("--value inf", "above zero"),
    ] {
        desk.refused(&format!("experiment add l.toml {words}"), &["ledger", part]);
    }
    assert_eq!(fs::read_to_string(desk.path().join("l.toml")).expect("there"), before, "nothing was written");
    desk.done("experiment add l.toml --value 5 --low 4 --high 6 --date 2028-02-29");
    desk.done("experiment add l.toml --outcome interrupted --factors fused --date 2026-12-01T10:00");
}

#[test]
fn variables_that_nobody_knows_are_named() {
    let desk = Desk::new(&[]);
    let small = "simulate --quiet --machine 4x-rtx-5090-direct --model llama-3.1-70b --tp 2 --tokens 1";
    for (pair, part) in [
        ("NCCL_P2P_LEVEL=FOO", "NCCL_P2P_LEVEL=\"FOO\" is no level"),
        ("NCCL_MIN_NCHANELS=4", "did you mean NCCL_MIN_NCHANNELS?"),
        ("NCCL_FOO_BAR_BAZ=4", "NCCL_FOO_BAR_BAZ is not modelled and ignored"),
        ("NCCL_NTHREADS=100", "must be a multiple of 32"),
        ("OMP_NUM_THREADS=4", "OMP_NUM_THREADS is no variable of NCCL"),
    ] {
        let (_, stderr) = desk.done(&format!("{small} --env {pair}"));
        assert!(stderr.contains(part), "{pair}: {stderr}");
    }
    for (pair, part) in [
        ("NCCL_NTHREADS=many", "nccl-environment"),
        ("NCCL_ALGO=Foo", "nccl-environment"),
        ("NCCL_PROTO=", "NCCL_PROTO"),
        ("=4", "argument-environment"),
    ] {
        let (code, _, stderr) = desk.run(&format!("{small} --env {pair}"));
        assert!(code == Some(0) || stderr.contains(part), "{pair}: {code:?} {stderr}");
    }
    desk.refused(&format!("{small} --env NCCL_NTHREADS=many"), &["nccl-environment"]);
    desk.refused(&format!("{small} --env =4"), &["argument-environment"]);
}

#[test]
fn a_wrong_graph_file_is_called_by_its_name() {
    let graph = "<graphs version=\"1\"><graph id=\"0\" pattern=\"4\" nchannels=\"1\" speedintra=\"24\" typeintra=\"PHB\"><channel><gpu dev=\"7\"/></channel></graph></graphs>";
    let desk = Desk::new(&[("my-graph.xml", graph), ("cut.xml", &graph[..60])]);
    for name in ["my-graph.xml", "cut.xml"] {
        desk.refused(&format!("simulate --machine 4x-rtx-5090-direct --model llama-3.1-70b --tp 2 --env NCCL_GRAPH_FILE={name}"), &[name]);
    }
}

#[test]
fn models_that_cannot_be_are_refused_and_unknown_ones_said() {
    let config = |architecture: &str, heads: &str| {
        format!(
            "{{\"model_type\": \"{architecture}\", \"hidden_size\": 1024, \"vocab_size\": 32000, \"num_hidden_layers\": 2, \
             \"num_attention_heads\": 8, \"num_key_value_heads\": {heads}, \"intermediate_size\": 4096}}"
        )
    };
    let desk = Desk::new(&[
        ("zero.json", &config("llama", "0")),
        ("huge.json", &config("llama", &"9".repeat(300))),
        ("new.json", &config("brand_new", "8")),
        ("known.json", &config("llama", "8")),
    ]);
    let with = |model: &str| format!("simulate --quiet --machine 4x-rtx-5090-direct --tp 2 --tokens 1 --model {model}");
    desk.refused(&with("zero.json"), &["model-bad-value", "num_key_value_heads", "at least 1"]);
    desk.refused(&with("huge.json"), &["model-bad-value", "num_key_value_heads"]);
    assert!(desk.done(&with("new.json")).1.contains("`brand_new` is not known"));
    assert_eq!(desk.done(&with("known.json")).1, "");
}

#[test]
fn several_outputs_in_one_file_are_all_read() {
    let topo = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\tX\tPIX\t0-3\t0\nGPU1\tPIX\tX\t0-3\t0\n";
    let tests = "# nThread 1 nGpus 2\n#  Rank  0 Group  0 Pid 1 on x\n#  Rank  1 Group  0 Pid 1 on x\n 43008 21504 bfloat16 sum -1 29.51 1.46 1.46 0 28.70 1.50 1.50 0\n";
    let desk = Desk::new(&[("paste.txt", &format!("$ all_reduce_perf\n{tests}\n$ nvidia-smi topo -m\n{topo}"))]);
    let (machine, notes) = desk.done("import paste.txt --as machine --gpu rtx-pro-6000 --cpu amd-zen5");
    assert!(machine.contains("gpu1") && notes.contains("several outputs: nccl-tests, topo-matrix"), "{notes}");
    let (rows, _) = desk.done("import paste.txt --as observations");
    assert!(rows.contains("43008") && rows.contains("29.51"), "{rows}");
}

#[test]
fn numbers_of_hundreds_of_digits_and_empty_lists_are_refused() {
    let desk = Desk::new(&[]);
    let digits = "9".repeat(300);
    for words in [
        format!("rank --observed verify_ms={digits}"),
        "rank --observed verify_ms=1e-300".to_owned(),
        format!("rank --set fabric.host_read_gbps={digits}"),
        format!("rank --samples {digits}"),
        format!("diagnose --noise {digits}"),
        format!("allreduce --sizes {digits}"),
        format!("optimize --drafts {digits}"),
        "optimize --drafts 1048576".to_owned(),
        "rank --strategies ,".to_owned(),
        "allreduce --sizes ,".to_owned(),
        "optimize --channels ,".to_owned(),
        "speculate --acceptance ,".to_owned(),
        "compare --passes , a b".to_owned(),
    ] {
        let (code, _, stderr) = desk.run(&words);
        assert_eq!(code, Some(2), "{words}: {stderr}");
    }
    // A fault of ours counts the digits instead of printing them.
    desk.refused(&format!("rank --set fabric.host_read_gbps={digits}"), &["(301 digits)"]);
}
