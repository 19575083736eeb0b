//! The kernel model against the tables it was fitted on.
//!
//! `LANECAST_REFIT=1 cargo test --test cost` refits the constants, and writes
//! `validation/kernels/*.toml` and `docs/kernels.md`.

#[path = "kernels/kimi.rs"]
mod kimi;
#[path = "kernels/support.rs"]
mod support;

use std::fs;

use lanecast::cost;
use lanecast::cost::Cache;
use lanecast::cost::accuracy;
use lanecast::cost::observations;
use lanecast::knob::Constants;
use lanecast::machine::KernelConstants;
use lanecast::model::op::Dtype;
use lanecast::model::op::Family;
use lanecast::model::op::Op;
use proptest::prelude::*;

#[test]
fn the_committed_constants_and_page_are_what_the_tables_give() {
    let write = std::env::var_os("LANECAST_REFIT").is_some();
    for name in ["rtx-pro-6000", "h200"] {
        let (fitted, text) = support::toml_text(name, &support::rows(name));
        if write {
            fs::write(support::path(&format!("validation/kernels/{name}.toml")), text).expect("writes");
        }
        let committed = support::committed(name);
        for spec in KernelConstants::specs() {
            let ours = fitted.kernels.quantity(spec.name).expect("known").value;
            let theirs = committed.kernels.quantity(spec.name).expect("known").value;
            assert!((ours - theirs).abs() <= 1e-3 * theirs.abs(), "{name} {}: the tables give {ours}, the file says {theirs}", spec.name);
            assert!(spec.bounds.contains(&theirs), "{name} {}: {theirs} is out of bounds", spec.name);
        }
    }
    let page = support::page();
    let at = support::path("docs/kernels.md");
    if write {
        fs::write(&at, &page).expect("writes");
    }
    assert_eq!(fs::read_to_string(at).expect("the page"), page, "docs/kernels.md is stale: LANECAST_REFIT=1 cargo test --test cost");
}

#[test]
fn held_out_shapes_are_met() {
    let rows = support::rows("rtx-pro-6000");
    let groups = accuracy::validate(rows.iter().filter(|row| row.held_out), &support::committed("rtx-pro-6000"));
    let mut checked = 0;
    for group in groups {
        let limits = match group.name.as_str() {
            // cuBLAS's own choices (long reductions it does not split) are the tail.
            "gemm bfloat16" => (8.0, 30.0),
            name if name.starts_with("gemm") || name.starts_with("mla_decode_module") => (8.0, 25.0),
            name if name.ends_with("above L2") => (8.0, 25.0),
            _ => continue,
        };
        checked += 1;
        assert!(group.median_pct <= limits.0 && group.p95_pct <= limits.1, "{group:?}");
    }
    assert_eq!(checked, 10, "three products, five kernels of experts, two blocks");
}

#[test]
fn h200_products_cold_are_met() {
    let rows = support::rows("h200");
    let groups = accuracy::validate(rows.iter().filter(|row| row.held_out), &support::committed("h200"));
    let cold = groups.iter().find(|group| group.name == "gemm bf16 cold").expect("the group");
    assert!(cold.median_pct <= 8.0 && cold.p95_pct <= 25.0, "{cold:?}");
}

#[test]
fn a_plain_pass_of_kimi_is_near_the_estimates() {
    // 122 all-reduces of 14,336 B at 20 us (NCCL) and at 11.8 us (custom kernel).
    // 12.5 and 11.4 ms are estimates for such a server, not measurements of one;
    // the forecast is 12 % and 14 % above them, and above 15 % if the shared
    // expert is not hidden behind the routed ones (see `kimi`).
    let compute = kimi::compute(&support::committed("rtx-pro-6000"), 1, 2048, 8_000).ms();
    for (all_reduce_us, pass_ms) in [(20.0, 12.5), (11.8, 11.4)] {
        let ours = compute + 122.0 * all_reduce_us / 1e3;
        assert!((ours / pass_ms - 1.0).abs() < 0.15, "{all_reduce_us} us: {ours} ms against {pass_ms} ms (compute {compute} ms)");
    }
}

#[test]
fn tokens_of_a_sequence_share_one_read_of_the_cache() {
    let kind = support::committed("rtx-pro-6000");
    let attention = |tokens| Op {
        name: "attention",
        family: Family::MlaDecode { batch: 1, tokens, context: 32_768, heads: 8, width: 576 },
        dtype: Dtype::Bf16,
        flops: 0,
        weight_bytes: 0,
        cache_bytes: Dtype::Bf16.bytes_of(32_768 * 576),
        activation_bytes: 0,
        launches: 2,
    };
    let parts = |tokens| cost::parts(&attention(tokens), &kind, Cache::Cold);
    assert_eq!(parts(1).memory_ns, parts(4).memory_ns);
    // 2 × 8 rows fill one group of 16, 4 × 8 need two.
    assert_eq!(parts(1).compute_ns, parts(2).compute_ns);
    assert_eq!(2.0 * parts(2).compute_ns, parts(4).compute_ns);
}

#[test]
fn a_wrong_cell_is_pointed_at() {
    let text = "framework,kernel,dtype,m,n,k,latency_us\nvllm,x,bfloat16,1,64,64,2.0\nvllm,x,bfloat16,1,no,64,2.0\n";
    let fault = observations::read("t.csv", text).expect_err("a word for n");
    assert_eq!(fault.code, "kernel-table");
    let place = fault.place.expect("a place");
    assert_eq!(&text[place.span], "vllm,x,bfloat16,1,no,64,2.0");
}

const HEADERS: [&str; 4] = [
    "dtype,cache,m,n,k,latency_us",
    "kernel,dtype,tokens,hidden,expert_intermediate,top_k,experts,moe_tp,moe_ep,distribution,latency_us",
    "operation,kernel,kv_dtype,projection_dtype,heads,batch,context,latency_us",
    "operation,dtype,tokens,heads,latency_us",
];

proptest! {
    #[test]
    fn mangled_tables_never_panic(header in 0usize..4, cells in "([a-z0-9_.,\\-\n\"#]|bfloat16|nvfp4|int4_wo|balanced|power_law_1.2|mla_decode_module|mla_gen_pre|[0-9]{1,12}|,){0,60}") {
        let text = format!("{}\n{cells}", HEADERS[header]);
        if let Ok(read) = observations::read("mangled.csv", &text) {
            let kind = support::kind("rtx-pro-6000");
            for row in &read.rows {
                accuracy::forecast(row, &kind);
            }
        }
    }

    #[test]
    fn any_experts_row_is_priced(tokens in 1u64..1 << 31, hidden in 1u64..1 << 31, inner in 1u64..1 << 31, experts in 1u64..20_000, ranks in 1u64..20_000) {
        let text = format!("{}\nk,nvfp4,{tokens},{hidden},{inner},8,{experts},1,{ranks},power_law_1.2,1.0", HEADERS[1]);
        let read = observations::read("experts.csv", &text).expect("whole numbers");
        prop_assert_eq!(read.rows.len() + read.skipped.len(), 1);
        let kind = support::kind("rtx-pro-6000");
        read.rows.iter().for_each(|row| { accuracy::forecast(row, &kind); });
    }
}
