use lanecast::knob::Constants;
use lanecast::*;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let mut m = machine::Machine::load("h200-shared").unwrap();
    for a in &args[2..] {
        let (k, v) = a.split_once('=').unwrap();
        let k2 = m.kinds.values_mut();
        for kk in k2 {
            if let Some(q) = kk.protocol.quantity_mut(k) {
                q.value = v.parse().unwrap();
            } else if let Some(q) = kk.launch.quantity_mut(k) {
                q.value = v.parse().unwrap();
            } else if let Some(q) = kk.chip.quantity_mut(k) {
                q.value = v.parse().unwrap();
            } else {
                panic!("{k}")
            }
        }
    }
    let obs = trace::observation::read_file(std::path::Path::new(&args[1])).unwrap();
    let version: nccl::Version = "2.31.2".parse().unwrap();
    let env = nccl::Environment::parse(&Default::default(), version).unwrap();
    println!("ranks,algo,proto,ch,thr,bytes,measured,simulated,parts");
    let mut errs: std::collections::BTreeMap<String, Vec<f64>> = Default::default();
    let t0 = std::time::Instant::now();
    let mut events = 0;
    for o in &obs {
        let ranks = o.ranks;
        let comm = nccl::Communicator::from_graphs(
            version,
            env.clone(),
            ranks,
            (90, 90),
            nccl::Graph::given(nccl::Pattern::Ring, ranks, 4, 20.0, nccl::PathType::Loc),
            nccl::Graph::given(nccl::Pattern::Tree, ranks, 4, 20.0, nccl::PathType::Loc),
        );
        let force = nccl::Force {
            algorithm: Some(match o.algorithm {
                trace::observation::Algorithm::Ring => nccl::Algorithm::Ring,
                _ => nccl::Algorithm::Tree,
            }),
            protocol: Some(match o.protocol {
                trace::observation::Protocol::Ll => nccl::Protocol::Ll,
                trace::observation::Protocol::Ll128 => nccl::Protocol::Ll128,
                _ => nccl::Protocol::Simple,
            }),
            channels_min: o.channels.map(|c| c.min),
            channels_max: o.channels.map(|c| c.max),
            threads: o.threads,
            buffer_bytes: o.buffer_bytes,
        };
        let c = comm.choose(nccl::Collective::AllReduce, o.bytes, &force).unwrap();
        let order: Vec<usize> = (0..ranks as usize).collect();
        let s = strategy::nccl_schedule::schedule(nccl::Collective::AllReduce, &c, &order, o.bytes).unwrap();
        let l = strategy::Lowering { schedule: s, kernel: strategy::Kernel::Nccl, through_host: vec![] };
        let launch = match o.timing {
            trace::observation::Timing::GraphChain => case::chain::ChainLaunch::Graph,
            _ => case::chain::ChainLaunch::EagerSingleThread,
        };
        let out = case::chain::run(&m, &l, launch, 50, Default::default()).unwrap();
        events += out.events;
        let end = out.critical();
        let us = end.time as f64 / 1e6 / 50.0;
        let parts: Vec<String> =
            simulate::Part::ALL.iter().map(|p| format!("{}={:.2}", p.name(), end.parts[*p as usize] as f64 / 50e6)).collect();
        let key = format!("{} {} {} ch{} t{}", ranks, o.algorithm, o.protocol, o.channels.map_or(0, |c| c.max), o.threads.unwrap_or(0));
        errs.entry(key).or_default().push((us / o.latency_us - 1.0) * 100.0);
        println!(
            "{},{},{},{},{},{},{},{:.2},{:+.1}%,thr{} n{},{}",
            ranks,
            o.algorithm,
            o.protocol,
            o.channels.map_or(0, |c| c.max),
            o.threads.unwrap_or(0),
            o.bytes,
            o.latency_us,
            us,
            (us / o.latency_us - 1.0) * 100.0,
            c.threads,
            c.channels,
            parts.join(" ")
        );
    }
    eprintln!("{:?} events {events}", t0.elapsed());
    let mut all = vec![];
    for (k, v) in &errs {
        let mut a: Vec<f64> = v.iter().map(|x| x.abs()).collect();
        a.sort_by(f64::total_cmp);
        all.extend(a.clone());
        eprintln!("{k:28} med {:5.1} | {}", a[a.len() / 2], v.iter().map(|x| format!("{x:+.0}")).collect::<Vec<_>>().join(" "));
    }
    all.sort_by(f64::total_cmp);
    eprintln!("ALL med {:.1} p95 {:.1}", all[all.len() / 2], all[all.len() * 95 / 100]);
}
