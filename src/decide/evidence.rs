//! How much a forecast rests on: the weakest of the constants it uses, and the
//! uncertainty that their intervals give it.

use crate::case::Answer;
use crate::fit::accuracy::share_90;
use crate::fit::residuals;
use crate::knob::Quantity;
use crate::machine::GpuKind;
use crate::machine::Machine;
use crate::simulate::Part;
use crate::strategy::Executor;
use crate::strategy::Strategy;

/// What the constants of a forecast are, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evidence {
    /// This kind of kernel was measured on this kind of GPU and its constants were fitted on that.
    Fitted,
    /// Constants of other kernels or of another GPU.
    Extrapolated,
    /// Defaults that nothing pins.
    Assumed,
}

impl Evidence {
    /// As reports and JSON name it.
    pub fn name(self) -> &'static str {
        match self {
            Evidence::Fitted => "fitted",
            Evidence::Extrapolated => "extrapolated",
            Evidence::Assumed => "assumed",
        }
    }

    /// What a strategy's forecast rests on, on a kind of GPU.
    pub fn of(strategy: &Strategy, kind: &GpuKind) -> Evidence {
        let constants = match strategy.executor {
            Executor::Nccl => [&kind.protocol.nccl_kernel_ns, &kind.protocol.ll_trip_ns, &kind.protocol.poll_ns],
            Executor::Ours | Executor::ModelledOnly => [&kind.protocol.custom_kernel_ns, &kind.protocol.poll_ns, &kind.protocol.peer_share],
        };
        let worst = constants.into_iter().map(of_source).max().unwrap_or(Evidence::Assumed);
        if strategy.executor == Executor::ModelledOnly { worst.max(Evidence::Extrapolated) } else { worst }
    }
}

fn of_source(quantity: &Quantity) -> Evidence {
    if quantity.source.starts_with("fitted") || quantity.source.starts_with("measured") {
        Evidence::Fitted
    } else if quantity.source.starts_with("assumed") || quantity.source.is_empty() {
        Evidence::Assumed
    } else {
        Evidence::Extrapolated
    }
}

/// Half of a 90 % interval of the communication of a pass, in milliseconds: each
/// part's time times the relative half-width of its constant, added in squares;
/// at least what forecasts of such kernels were off where they were measured.
pub fn communication_margin_ms(answer: &Answer, machine: &Machine, strategy: &Strategy) -> f64 {
    let Some(kind) = machine.gpu_kind(0) else { return 0.0 };
    let protocol = &kind.protocol;
    let end = answer.outcome.critical();
    let links = |pick: fn(&crate::machine::Link) -> &Quantity| {
        let widths: Vec<f64> = machine.links.iter().map(|link| half_width(pick(link))).collect();
        widths.iter().sum::<f64>() / (widths.len().max(1) as f64)
    };
    let latency = links(|link| &link.latency_ns);
    let kernel = if strategy.executor == Executor::Nccl { &protocol.nccl_kernel_ns } else { &protocol.custom_kernel_ns };
    let widths = [
        (Part::Kernel, half_width(kernel)),
        (Part::Step, half_width(&protocol.ll_entry_ns)),
        (Part::Work, half_width(&protocol.ll_trip_ns)),
        (Part::Poll, half_width(&protocol.poll_ns)),
        (Part::Fence, half_width(&protocol.fence_ns)),
        (Part::Latency, latency),
        (Part::Credit, latency),
        (Part::Wire, links(|link| &link.forward_gbps)),
    ];
    let square = |(part, width): (Part, f64)| {
        let ms = end.parts[part as usize] as f64 / 1e9;
        (ms * width) * (ms * width)
    };
    let constants = libm::sqrt(widths.into_iter().map(square).sum());
    // Errors on measured rows hold what no interval of a constant does: missing mechanisms.
    let share = match strategy.executor {
        Executor::Nccl => share_90(&machine.id),
        Executor::Ours | Executor::ModelledOnly => {
            let (implementation, variant) = residual_group(strategy);
            let ranks = answer.assembled.partition.tp;
            let residual = residuals::of_collective(residuals::committed(), &machine.id, ranks, implementation, variant);
            (libm::exp(residual.at(0.95)) - 1.0).max(1.0 - libm::exp(residual.at(0.05)))
        }
    };
    // No pass is shorter than one without communication.
    constants.max(answer.communication.ms() * share).min((answer.communication + answer.skew).ms())
}

/// The group of observations that a strategy's kernel belongs to.
pub(super) fn residual_group(strategy: &Strategy) -> (&'static str, &'static str) {
    match (strategy.executor, strategy.id) {
        (Executor::Nccl, "nccl-ring-ll") => ("nccl", "ring ll"),
        (Executor::Nccl, "nccl-ring-ll128") => ("nccl", "ring ll128"),
        (Executor::Nccl, "nccl-ring-simple") => ("nccl", "ring simple"),
        (Executor::Nccl, "nccl-tree-ll") => ("nccl", "tree ll"),
        (Executor::Nccl, "nccl-tree-simple") => ("nccl", "tree simple"),
        (Executor::Nccl, _) => ("nccl", "auto auto"),
        (_, id) if id.starts_with("one-shot-pull") => ("one_shot_pull", ""),
        // Pushed lines, once or twice.
        (_, id) if id.starts_with("one-shot-push") || id.starts_with("fused") || id == "two-shot-push" => ("one_shot_push", ""),
        (_, id) if id.starts_with("two-shot") => ("two_shot", ""),
        (_, id) if id.starts_with("hierarchical") => ("hierarchical", ""),
        (_, id) if id.contains("allpair") => ("mscclpp_allpair", ""),
        (_, id) if id.contains("packet") => ("mscclpp_packet", ""),
        _ => ("custom", ""),
    }
}

/// Half of the interval over the value.
fn half_width(quantity: &Quantity) -> f64 {
    if quantity.value.abs() < 1e-12 { 0.0 } else { (quantity.high - quantity.low) / 2.0 / quantity.value.abs() }
}
