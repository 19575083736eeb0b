//! Exports one symbol of the executables, so that NCCL finds its tuner in the
//! running program (`NCCL_TUNER_PLUGIN=STATIC_PLUGIN`, `src/gpu/tuner.rs`).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let set = |name: &str| std::env::var_os(name).is_some();
    let target = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if set("CARGO_FEATURE_GPU") && target == "linux" {
        // `-u` keeps it although no code refers to it; the second writes it into
        // the table that `dlsym` searches.
        println!("cargo::rustc-link-arg-bins=-Wl,-u,ncclTunerPlugin_v4");
        println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=ncclTunerPlugin_v4");
    }
}
