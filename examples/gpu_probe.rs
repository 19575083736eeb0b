//! Drives the GPU module by hand: `gpu_probe detect`, `gpu_probe check`, ….
//! Rows go to stdout as CSV, the rest to stderr.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use clap::Subcommand;
use lanecast::gpu;
use lanecast::gpu::answer::Answer;
use lanecast::gpu::answer::Request;
use lanecast::gpu::calibrate;
use lanecast::gpu::calibrate::NcclSetting;
use lanecast::gpu::check::CheckOptions;
use lanecast::gpu::collectives::OursOptions;
use lanecast::gpu::element::Element;
use lanecast::gpu::implementation::Implementation;
use lanecast::gpu::nccl::SHARED_GPU_ENVIRONMENT;
use lanecast::gpu::observation;
use lanecast::gpu::worker;

#[derive(Parser)]
struct Arguments {
    /// Folder for CSV files.
    #[arg(long, default_value = ".", global = true)]
    out: PathBuf,
    /// Ranks.
    #[arg(long, value_delimiter = ',', default_values_t = [8_u32], global = true)]
    ranks: Vec<u32>,
    /// Message sizes in bytes.
    #[arg(long, value_delimiter = ',', default_values_t = [14_336_u64, 43_008, 57_344], global = true)]
    sizes: Vec<u64>,
    /// fp16 in place of bf16.
    #[arg(long, global = true)]
    fp16: bool,
    /// Machine id in the rows.
    #[arg(long, default_value = "h200-shared", global = true)]
    machine: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The machine as JSON.
    Detect,
    /// Kernels against the reference.
    Check {
        /// Calls of the long chains at 42 B, 43,008 B and 1 MiB.
        #[arg(long, default_value_t = 0)]
        soak: u64,
        /// Calls of the chain elsewhere.
        #[arg(long, default_value_t = 0)]
        calls: u64,
        /// Names the inputs.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// A rank that stops is reported.
    Stop,
    /// Micro-benchmarks and start skew.
    Micro,
    /// Concurrent copies.
    Flows,
    /// Our all-reduces.
    Ours {
        /// Try several grids.
        #[arg(long)]
        tune: bool,
        /// Those through host memory only.
        #[arg(long)]
        host: bool,
        /// Launched one by one too.
        #[arg(long)]
        eager: bool,
    },
    /// Ours beside NCCL's ring LL, tree LL and choice.
    Versus {
        /// Channels at most.
        #[arg(long, default_value_t = 8)]
        channels: u32,
    },
    /// The four variables alone and together.
    FewChannels {
        /// Channels at most where the variables leave them open.
        #[arg(long, default_value_t = 16)]
        channels: u32,
    },
    /// Everything, quick or full.
    Calibrate {
        /// In full.
        #[arg(long)]
        full: bool,
    },
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some(gpu::WORKER_COMMAND) {
        std::process::exit(gpu::worker_main());
    }
    let arguments = Arguments::parse();
    if let Err(fault) = run(&arguments) {
        eprintln!("{}: {fault}{}", fault.code, fault.help.as_ref().map_or(String::new(), |h| format!(" ({h})")));
        std::process::exit(2);
    }
}

fn run(arguments: &Arguments) -> lanecast::error::Result<()> {
    let element = if arguments.fp16 { Element::F16 } else { Element::Bf16 };
    let options = calibrate::Options { full: false, machine: arguments.machine.clone(), ranks: arguments.ranks.clone(), element };
    match &arguments.command {
        Command::Detect => {
            let found = gpu::detect()?;
            println!("{}", serde_json::to_string_pretty(&found).unwrap_or_default());
            Ok(())
        }
        Command::Check { soak, calls, seed } => check(arguments, *soak, *calls, *seed),
        Command::Stop => ask(arguments, &Request::Stop { ranks: arguments.ranks[0] }, "stop"),
        Command::Micro => ask(arguments, &Request::Micro { ordinal: 0, skew_ranks: arguments.ranks.clone() }, "micro"),
        Command::Flows => ask(arguments, &Request::Flows { machine: arguments.machine.clone() }, "flows"),
        Command::Ours { tune, host, eager } => {
            let through_host = vec![Implementation::HostStaged, Implementation::HostRingLl];
            let request = Request::Ours(OursOptions {
                machine: arguments.machine.clone(),
                ranks: arguments.ranks.clone(),
                devices: usize::MAX,
                element,
                sizes: arguments.sizes.clone(),
                implementations: if *host { through_host } else { Vec::new() },
                tune: *tune,
                eager: *eager,
                host_bytes_max: 4 << 20,
            });
            ask(arguments, &request, if *host { "host_staged" } else { "ours" })
        }
        Command::Versus { channels } => {
            let beside = [
                Implementation::OneShotPushLl,
                Implementation::SymmetricLl,
                Implementation::TwoShotLl,
                Implementation::HierarchicalLl,
                Implementation::RingLl,
            ];
            for algorithm in ["", "ring", "tree"] {
                let protocol = if algorithm.is_empty() { "" } else { "ll" };
                let setting = NcclSetting { algorithm, protocol, channels: (0, *channels), threads: 0, buffer_bytes: 0 };
                series(arguments, &setting, &options, &beside, "versus")?;
            }
            Ok(())
        }
        Command::FewChannels { channels } => {
            calibrate::few_channels(*channels).iter().try_for_each(|s| series(arguments, s, &options, &[], "few_channels"))
        }
        Command::Calibrate { full } => whole(arguments, &calibrate::Options { full: *full, ..options }),
    }
}

fn check(arguments: &Arguments, soak: u64, calls: u64, seed: u64) -> lanecast::error::Result<()> {
    let elements = if arguments.fp16 { vec![Element::F16] } else { vec![Element::Bf16, Element::F16] };
    let options = CheckOptions {
        ranks: arguments.ranks.clone(),
        devices: usize::MAX,
        elements,
        sizes: arguments.sizes.clone(),
        implementations: Vec::new(),
        soak_calls: soak,
        soak_sizes: vec![42, 43_008, 1 << 20],
        calls,
        seed,
        host_bytes_max: 4 << 20,
    };
    let (mut rows, mut wrong) = (0_u64, 0_u64);
    let mut file = append(arguments, "check", observation::CHECK_HEADER);
    let outcome = gpu::check_kernels(&options, &mut |row| {
        rows += 1;
        wrong += row.wrong;
        if row.wrong > 0 {
            println!("WRONG {}", row.csv());
        }
        let _ = writeln!(file, "{}", row.csv());
    });
    println!("check: {rows} rows, {wrong} wrong elements");
    outcome
}

fn series(
    arguments: &Arguments,
    setting: &NcclSetting,
    options: &calibrate::Options,
    beside: &[Implementation],
    name: &str,
) -> lanecast::error::Result<()> {
    let mut file = append(arguments, name, observation::OBSERVATION_HEADER);
    for &ranks in &arguments.ranks {
        calibrate::nccl_series(setting, options, ranks, &arguments.sizes, beside, &mut |answer| match answer {
            Answer::Observation(row) => {
                println!("{}", short(&row));
                let _ = writeln!(file, "{}", row.csv());
            }
            Answer::Choice(c) => println!("chosen {} {} {} {}", c.bytes, c.algorithm, c.protocol, c.channels),
            _ => {}
        })?;
    }
    Ok(())
}

fn short(row: &observation::Observation) -> String {
    let observation::Observation {
        ranks,
        implementation,
        algorithm,
        protocol,
        channels,
        threads,
        buffer_bytes,
        timing,
        bytes,
        latency_us,
        ..
    } = row;
    format!("{ranks} {implementation}/{algorithm}/{protocol} ch={channels} t={threads} b={buffer_bytes} {timing} {bytes} {latency_us:.2}")
}

fn ask(arguments: &Arguments, request: &Request, name: &str) -> lanecast::error::Result<()> {
    let environment = SHARED_GPU_ENVIRONMENT.map(|(k, v)| (k.to_owned(), v.to_owned()));
    let header = match name {
        "micro" => observation::MICRO_HEADER,
        "flows" => observation::FLOW_HEADER,
        _ => observation::OBSERVATION_HEADER,
    };
    let mut file = append(arguments, name, header);
    worker::ask(request, &environment, Duration::from_secs(60), &mut |answer| {
        let (line, brief) = match &answer {
            Answer::Micro(row) => (row.csv(), row.csv()),
            Answer::Flow(row) => (row.csv(), row.csv()),
            Answer::Observation(row) => (row.csv(), short(row)),
            _ => return,
        };
        println!("{brief}");
        let _ = writeln!(file, "{line}");
    })
}

fn whole(arguments: &Arguments, options: &calibrate::Options) -> lanecast::error::Result<()> {
    let started = std::time::Instant::now();
    let found = gpu::calibrate(options, &mut |part| eprintln!("{:6.1} s  {part}", started.elapsed().as_secs_f64()))?;
    let write = |name: &str, header: &str, rows: Vec<String>| {
        let mut file = append(arguments, name, header);
        rows.iter().for_each(|row| drop(writeln!(file, "{row}")));
    };
    write("calibrate_observations", observation::OBSERVATION_HEADER, found.observations.iter().map(|r| r.csv()).collect());
    write("calibrate_flows", observation::FLOW_HEADER, found.flows.iter().map(|r| r.csv()).collect());
    write("calibrate_micro", observation::MICRO_HEADER, found.micro.iter().map(|r| r.csv()).collect());
    found.notes.iter().for_each(|note| println!("note: {note}"));
    println!(
        "calibrate: {} observations, {} flows, {} micro, {} choices in {:.1} s",
        found.observations.len(),
        found.flows.len(),
        found.micro.len(),
        found.choices.len(),
        started.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Opens a CSV for appending; a new one gets its header.
fn append(arguments: &Arguments, name: &str, header: &str) -> Box<dyn Write> {
    let path = arguments.out.join(format!("{name}.csv"));
    let fresh = !path.exists();
    match std::fs::OpenOptions::new().create(true).append(true).open(&path) {
        Ok(mut file) => {
            if fresh {
                let _ = writeln!(file, "{header}");
            }
            Box::new(file)
        }
        Err(error) => {
            eprintln!("cannot write {}: {error}", path.display());
            Box::new(std::io::sink())
        }
    }
}
