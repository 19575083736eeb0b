//! Rates of concurrent copies: host and GPU each way and both, and every
//! pattern of peers that tells a fabric's limits.

use cudarc::driver::sys;

use crate::error::Result;
use crate::gpu::bench::Bench;
use crate::gpu::bench::Word;
use crate::gpu::device;
use crate::gpu::fault::Explain;
use crate::gpu::graph::order;
use crate::gpu::implementation::Grid;
use crate::gpu::memory::DeviceBuffer;
use crate::gpu::memory::HostBuffer;
use crate::gpu::micro;
use crate::gpu::micro::Tell;
use crate::gpu::observation::Flow;
use crate::gpu::observation::spread;

const BYTES: usize = 64 << 20;
const REPEATS: usize = 7;
const GRID: Grid = Grid { blocks: 32, threads: 512 };

/// How bytes are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// Kernels store to the far side.
    Write,
    /// Kernels load from the far side.
    Read,
    /// Copy engines.
    Copy,
}

impl Access {
    fn name(self) -> &'static str {
        match self {
            Access::Write => "write",
            Access::Read => "read",
            Access::Copy => "copy",
        }
    }
}

/// An end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Gpu(usize),
    Host,
}

struct Places {
    benches: Vec<Bench>,
    memory: Vec<[DeviceBuffer; 2]>,
    host: Vec<[HostBuffer; 2]>,
}

/// All rates of this machine.
///
/// # Errors
/// When a device fails.
pub fn flows(machine: &str, tell: &mut dyn FnMut(Flow)) -> Result<()> {
    let benches = (0..device::count()?).map(Bench::open).collect::<Result<Vec<_>>>()?;
    let mut peers = true;
    for from in &benches {
        for to in benches.iter().filter(|to| to.context.ordinal() != from.context.ordinal()) {
            peers &= device::enable_peer(&from.context, &to.context)?;
        }
    }
    let memory = benches.iter().map(|b| Ok([b.device(BYTES)?, b.device(BYTES)?])).collect::<Result<Vec<_>>>()?;
    let pinned = |b: &Bench| HostBuffer::zeros(&b.context, BYTES);
    let host = benches.iter().map(|b| Ok([pinned(b)?, pinned(b)?])).collect::<Result<Vec<_>>>()?;
    let places = Places { benches, memory, host };
    for pattern in patterns(places.benches.len(), peers) {
        for access in [Access::Write, Access::Read, Access::Copy] {
            let total = rate(&places, &pattern, access)?;
            tell(Flow {
                machine: machine.to_owned(),
                access: access.name().to_owned(),
                flows: pattern.iter().map(|(from, to)| format!("{}>{}", label(*from), label(*to))).collect::<Vec<_>>().join(";"),
                total_gbps: total,
                source: format!("calibrate, {} MiB a flow, median of {REPEATS}", BYTES >> 20),
            });
        }
    }
    Ok(())
}

fn label(end: End) -> String {
    match end {
        End::Gpu(gpu) => gpu.to_string(),
        End::Host => "h".to_owned(),
    }
}

/// Single links, both ways at once, all GPUs with the host, then peers: pairs,
/// both ways, the ring, and from each half into the other.
fn patterns(gpus: usize, peers: bool) -> Vec<Vec<(End, End)>> {
    let up = |g: usize| (End::Gpu(g), End::Host);
    let down = |g: usize| (End::Host, End::Gpu(g));
    let mut all = Vec::new();
    for g in 0..gpus {
        all.extend([vec![down(g)], vec![up(g)], vec![down(g), up(g)]]);
    }
    if gpus > 1 {
        all.extend([(0..gpus).map(down).collect(), (0..gpus).map(up).collect::<Vec<_>>()]);
    }
    if !peers {
        return all;
    }
    let pair = |a: usize, b: usize| (End::Gpu(a), End::Gpu(b));
    for a in 0..gpus {
        for b in (0..gpus).filter(|b| *b != a) {
            all.push(vec![pair(a, b)]);
            if a < b {
                all.push(vec![pair(a, b), pair(b, a)]);
            }
        }
    }
    if gpus > 2 {
        all.push((0..gpus).map(|g| pair(g, (g + 1) % gpus)).collect());
        let half = gpus / 2;
        all.push((0..half).map(|g| pair(g, g + half)).collect());
        all.push((0..half).flat_map(|g| [pair(g, g + half), pair(g + half, g)]).collect());
        // Two sources of one half to two targets of the other: posted writes collapse here on some switches.
        all.push(
            (0..half)
                .flat_map(|g| (0..half).map(move |h| (g, h)))
                .filter(|(g, h)| g != h)
                .map(|(g, h)| pair(g, h + half))
                .take(2)
                .collect(),
        );
    }
    all.retain(|pattern: &Vec<(End, End)>| !pattern.is_empty());
    all
}

/// GB/s of all flows together: bytes over the time from the first start to the last end.
fn rate(places: &Places, pattern: &[(End, End)], access: Access) -> Result<f64> {
    let first = &places.benches[0];
    let mut streams = Vec::new();
    for (from, to) in pattern {
        // Writes are issued by the source, reads by the target; the host issues none.
        let issuer = match (access, from, to) {
            (Access::Read, _, End::Gpu(g))
            | (Access::Write | Access::Copy, End::Gpu(g), _)
            | (_, End::Host, End::Gpu(g))
            | (_, End::Gpu(g), End::Host) => *g,
            (_, End::Host, End::Host) => 0,
        };
        streams.push((issuer, places.benches[issuer].context.new_stream().explain("make a stream")?));
    }
    let timing = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
    let started = first.context.new_event(timing).explain("make an event")?;
    let ended = first.context.new_event(timing).explain("make an event")?;
    let mut rates = Vec::new();
    for repeat in 0..=REPEATS {
        started.record(&first.stream).explain("record an event")?;
        for (_, stream) in &streams {
            order(&first.stream, stream)?;
        }
        for ((from, to), (issuer, stream)) in pattern.iter().zip(&streams) {
            let source = address(places, *from, *issuer, 0);
            let target = address(places, *to, *issuer, 1);
            let bench = &places.benches[*issuer];
            if access == Access::Copy {
                bench.context.bind_to_thread().explain("select the device")?;
                // SAFETY: both ranges hold `BYTES`; unified addresses tell the devices.
                unsafe { sys::cuMemcpyAsync(target, source, BYTES, stream.cu_stream()) }.explain("copy")?;
            } else {
                let words = [Word::Long(source), Word::Long(target), Word::Long(BYTES as u64 / 16)];
                bench.launch(stream, "copy_packs", "copy_packs", GRID, &words)?;
            }
        }
        for (_, stream) in &streams {
            order(stream, &first.stream)?;
        }
        ended.record(&first.stream).explain("record an event")?;
        let ms = started.elapsed_ms(&ended).explain("read the events")?;
        if repeat > 0 {
            rates.push((BYTES * pattern.len()) as f64 / (f64::from(ms) * 1e6));
        }
    }
    Ok(spread(&rates).0)
}

fn address(places: &Places, end: End, issuer: usize, side: usize) -> u64 {
    match end {
        End::Gpu(gpu) => places.memory[gpu][side].address(),
        End::Host => places.host[issuer][side].address(),
    }
}

/// Flags, reads and stores between GPU 0 and each peer of it.
///
/// # Errors
/// When a device fails.
pub fn peers_micro(bench: &Bench, tell: Tell<'_>) -> Result<()> {
    for ordinal in (0..device::count()?).filter(|o| *o != bench.context.ordinal()) {
        let other = Bench::open(ordinal)?;
        if !device::enable_peer(&bench.context, &other.context)? || !device::enable_peer(&other.context, &bench.context)? {
            continue;
        }
        let far = other.device(1 << 20)?;
        let chain: Vec<u64> = (0..512_u64).map(|i| far.address() + (i * 797 + 797) % 512 * 2048).collect();
        for (i, next) in chain.iter().enumerate() {
            far.write(i * 2048, &[*next])?;
        }
        micro::latency(bench, &format!("peer{ordinal}_read_latency_ns"), far.address(), tell)?;
        micro::fences(bench, &format!("peer{ordinal}"), far.address(), tell)?;
        micro::in_flight(bench, &format!("peer{ordinal}"), far.address(), tell)?;
        peer_ping_pong(bench, &other, tell)?;
    }
    Ok(())
}

/// Each GPU polls its own memory and writes the other's.
fn peer_ping_pong(bench: &Bench, other: &Bench, tell: Tell<'_>) -> Result<()> {
    const ROUNDS: u32 = 500;
    let (near, far) = (bench.device(8192)?, other.device(8192)?);
    for fenced in [0_u32, 1] {
        let spreads = bench.counted_ns(&[0], f64::from(2 * ROUNDS), &|| {
            near.fill(0)?;
            far.fill(0)?;
            let sides = [(bench, near.address(), far.address(), 1_u32, 0_u64), (other, far.address(), near.address(), 0, 512)];
            for (side, mine, theirs, first, offset) in sides {
                let words = [
                    Word::Long(mine),
                    Word::Long(theirs),
                    Word::Long(theirs + 4096),
                    Word::Short(ROUNDS),
                    Word::Short(first),
                    Word::Short(fenced),
                    Word::Long(bench.cycles.address() + offset),
                    Word::Long(4_000_000_000),
                ];
                side.launch(&side.stream, "flag_ping_pong", "flag_ping_pong", Grid { blocks: 1, threads: 32 }, &words)?;
            }
            other.context.synchronize().explain("wait for the peer")
        })?;
        micro::put(tell, &format!("pingpong_peer{}_fence{fenced}_oneway_ns", other.context.ordinal()), spreads[0]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_only_gpus_that_exist() {
        assert_eq!(patterns(1, true).len(), 3);
        for gpus in [2, 3, 4, 8] {
            for pattern in patterns(gpus, true) {
                assert!(pattern.iter().all(|(a, b)| a != b));
                assert!(pattern.iter().flat_map(|(a, b)| [*a, *b]).all(|e| e == End::Host || matches!(e, End::Gpu(g) if g < gpus)));
            }
        }
    }
}
