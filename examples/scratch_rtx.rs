use lanecast::knob::Constants;
use lanecast::*;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let mut m = machine::Machine::load("8x-rtx-pro-6000-server").unwrap();
    for a in &args[2..] {
        let (k, v) = a.split_once('=').unwrap();
        let v: f64 = v.parse().unwrap();
        if k.contains('.') {
            m.set(k, v).unwrap();
            continue;
        }
        for kk in m.kinds.values_mut() {
            if let Some(q) = kk.protocol.quantity_mut(k) {
                q.value = v;
            } else if let Some(q) = kk.launch.quantity_mut(k) {
                q.value = v;
            } else if let Some(q) = kk.chip.quantity_mut(k) {
                q.value = v;
            } else {
                panic!("{k}")
            }
        }
    }
    let obs = trace::observation::read_file(std::path::Path::new(&args[1])).unwrap();
    println!("ranks,algo,proto,ch,thr,bytes,measured,simulated,parts");
    for o in &obs {
        use trace::observation::*;
        if o.latency_us > 3000.0 {
            continue;
        }
        let ctx = strategy::Context::new(&m, o.ranks as usize);
        let id = match o.implementation {
            Implementation::Nccl => "nccl-default",
            Implementation::OneShotPull => "one-shot-pull",
            Implementation::TwoShot => "two-shot",
            _ => continue,
        };
        let s = strategy::Strategy::find(id).unwrap();
        let logical = match o.collective {
            Collective::AllReduce => strategy::Logical::AllReduce,
            Collective::AllGather => strategy::Logical::AllGather,
            Collective::ReduceScatter => strategy::Logical::ReduceScatter,
            _ => continue,
        };
        let l = (s.lower)(&ctx, s, logical, o.bytes).unwrap();
        let launch = match o.timing {
            Timing::GraphChain => case::chain::ChainLaunch::Graph,
            _ => case::chain::ChainLaunch::Framework,
        };
        let out = case::chain::run(&m, &l, launch, 50, Default::default()).unwrap();
        let end = out.critical();
        let us = end.time as f64 / 1e6 / 50.0;
        let parts: Vec<String> =
            simulate::Part::ALL.iter().map(|p| format!("{}={:.2}", p.name(), end.parts[*p as usize] as f64 / 50e6)).collect();
        let sch = &l.schedule;
        let nb = sch.blocks.iter().filter(|b| b.rank == 0).count();
        println!(
            "{},{},{},{},{},{},{},{:.2},{:+.1}%,{:?} thr{} n{} staged{},{}",
            o.ranks,
            o.implementation,
            o.timing,
            o.collective,
            o.version,
            o.bytes,
            o.latency_us,
            us,
            (us / o.latency_us - 1.0) * 100.0,
            sch.connections[0].protocol,
            sch.blocks[0].threads,
            nb,
            l.through_host.iter().filter(|x| **x).count(),
            parts.join(" ")
        );
    }
}
