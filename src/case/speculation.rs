//! The numbers of speculative decoding: knobs of the workload and the engine
//! that no machine file holds.

use crate::constants;

constants! {
    /// How often drafts are accepted, and what a cycle costs beside its kernels.
    pub struct SpeculationConstants {
        /// Chance that the first draft of a cycle is accepted.
        acceptance: "1", 0.0..=1.0, default 0.58 in 0.45..=0.70, "rtx6kpro kimi-k26-v2 (8 GPUs, EAGLE-3, three drafts): 0.316 of the drafts accepted at one request and 0.430 at 128, so 0.53 and 0.63 a position; wider, as prompts differ";
        /// Factor from the chance of one draft, all before it accepted, to that of the next.
        acceptance_decay: "1", 0.3..=1.0, default 1.0 in 0.85..=1.0, "assumed: a draft that feeds on drafts knows less; the public figures fit one rate";
        /// Chance that the next candidate of a tree is right where those before it at its place were wrong.
        sibling: "1", 0.0..=1.0, default 0.35 in 0.2..=0.5, "assumed: below the first candidate's chance; EAGLE's papers gain 10 to 20 % of accepted length from trees";
        /// Host time of a cycle that the GPUs wait for, beyond that of a plain step: sampling, acceptance, metadata of the next graph.
        cycle_host_us: "us", 0.0..=100000.0, default 500.0 in 0.0..=1500.0, "assumed: one exchange with the host and a graph of its own for each of drafting and verifying";
        /// Host time to look up an n-gram's continuation.
        ngram_lookup_us: "us", 0.0..=100000.0, default 100.0 in 30.0..=500.0, "assumed: a search of the prompt on one core";
    }
}
