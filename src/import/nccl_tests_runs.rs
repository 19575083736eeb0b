//! Several runs of nccl-tests in one text, as people paste them: 2 GPUs, then 4,
//! then 8. Each has its own header, so each is read by itself.

use crate::error::Result;
use crate::import::gpu_list;
use crate::import::nccl_tests;
use crate::import::outcome::Outcome;

/// Runs that one text may hold.
const RUNS_MAX: usize = 1000;

/// Reads all runs; one that holds no row is left out if another does.
///
/// # Errors
/// Those of the first run, if none can be read.
pub fn read(name: &str, text: &str) -> Result<Outcome> {
    let mut all = Outcome::default();
    let mut first_fault = None;
    for run in runs(text) {
        match nccl_tests::read_text(name, run) {
            Ok(mut outcome) => {
                outcome.facts.gpus = gpu_list::in_order(run.lines().filter_map(gpu_list::of_rank));
                all.merge(outcome);
            }
            Err(fault) => {
                all.skipped(fault.message.clone());
                first_fault.get_or_insert(fault);
            }
        }
    }
    match first_fault {
        Some(fault) if all.observations.is_empty() => Err(fault),
        _ => Ok(all),
    }
}

/// The text in parts that begin with the line a run begins with; what stands before the first belongs to it.
fn runs(text: &str) -> Vec<&str> {
    // Newer versions print a line before the one with the parameters.
    let begin = if text.contains("# nccl-tests version") { "# nccl-tests version" } else { "# nThread " };
    let mut starts: Vec<usize> = text.match_indices(begin).map(|(at, _)| at).take(RUNS_MAX).collect();
    if starts.len() < 2 {
        return vec![text];
    }
    starts[0] = 0;
    let ends = starts[1..].iter().copied().chain([text.len()]);
    starts.iter().zip(ends).map(|(start, end)| &text[*start..end]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(ranks: usize, us: &str) -> String {
        let ranks: String =
            (0..ranks).map(|r| format!("#  Rank  {r} Group  0 Pid 1 on x device  {r} [0000:0{r}:00] NVIDIA RTX\n")).collect();
        format!("# nThread 1 nGpus 1 graph: 0\n# Using devices\n{ranks} 43008 21504 half sum -1 {us} 1.46 1.46 0 28.70 1.50 1.50 0\n")
    }

    #[test]
    fn each_run_has_its_own_ranks() {
        let text = format!("$ ./all_reduce_perf -g 2\n{}$ ./all_reduce_perf -g 4\n{}", run(2, "29.5"), run(4, "31.5"));
        let outcome = read("x", &text).expect("reads");
        let found: Vec<(u32, f64)> = outcome.observations.iter().map(|o| (o.ranks, o.latency_us)).collect();
        assert_eq!(found, [(2, 29.5), (2, 28.7), (4, 31.5), (4, 28.7)]);
        assert_eq!((outcome.facts.gpus.len(), outcome.facts.gpus[3].bus.as_str()), (4, "0000:03:00.0"));
    }

    #[test]
    fn a_run_that_failed_is_left_out() {
        let text = format!("{}# nThread 1 nGpus 8\ntest failed\n", run(2, "29.5"));
        let outcome = read("x", &text).expect("reads");
        assert_eq!((outcome.observations.len(), outcome.skipped.len()), (2, 1));
        assert!(read("x", "# nThread 1\n# nThread 2\n").is_err());
    }
}
