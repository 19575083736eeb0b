//! Every kernel compiles for every architecture that the project names, with
//! NVRTC alone: no GPU, no header. Registers, spills and shared memory are
//! held to bounds.
//!
//! Without NVRTC on the library path the test says so and passes, unless
//! `LANECAST_REQUIRE_NVRTC=1`: then it fails.
#![cfg(feature = "gpu")]

use lanecast::gpu::compile;
use lanecast::gpu::element::Element;
use lanecast::gpu::kernel::SOURCES;
use lanecast::gpu::kernel::Source;
use lanecast::gpu::kernel::Variant;

const ARCHITECTURES: [u32; 6] = [80, 86, 89, 90, 100, 120];

/// NVRTC, or a loud reason why not.
fn compiler() -> bool {
    if compile::available() {
        return true;
    }
    let required = std::env::var("LANECAST_REQUIRE_NVRTC").is_ok_and(|v| v == "1");
    assert!(!required, "LANECAST_REQUIRE_NVRTC=1, but NVRTC is not on the library path");
    eprintln!("SKIPPED: NVRTC is not on the library path; no kernel was compiled");
    false
}

/// Whether the source communicates, so that its code depends on ranks and element.
fn communicates(source: &Source) -> bool {
    source.text().contains("Arguments a)") || source.text().contains("Arguments a,")
}

/// Few ranks and fp16 on the oldest and newest architecture only: two thirds of
/// the time for what the others repeat.
fn variants(source: &Source, sm: u32) -> Vec<Variant> {
    if !communicates(source) {
        return compute_variants(source);
    }
    let mut all = vec![Variant::new(8, Element::Bf16)];
    if sm == 80 || sm == 120 {
        all.push(Variant::new(2, Element::F16));
    }
    if source.name == "hierarchical_ll" {
        let mut islands = Variant::new(8, Element::Bf16);
        islands.macros.push(("GROUP", 4));
        all.push(islands);
    }
    if source.name == "fused_one_shot" {
        let mut split = Variant::new(8, Element::Bf16);
        split.macros = vec![("SPLIT", 4), ("LINES_PER_THREAD", 1)];
        all.push(split);
    }
    all
}

/// The shapes of a model's pass: weights of each kind, heads of each width.
fn compute_variants(source: &Source) -> Vec<Variant> {
    let with = |macros: &[(&'static str, u32)]| Variant { macros: macros.to_vec(), ..Variant::new(2, Element::Bf16) };
    match source.name {
        "matvec" => [(0, 8), (0, 1), (1, 8), (1, 1), (2, 4)].map(|(dtype, split)| with(&[("DTYPE", dtype), ("KSPLIT", split)])).to_vec(),
        "attention" => [(576, 512), (128, 128), (64, 64)].map(|(key, value)| with(&[("KEY_WIDTH", key), ("VALUE_WIDTH", value)])).to_vec(),
        _ => vec![with(&[])],
    }
}

/// Static shared memory that a source may take: a step of the cache in
/// attention, parts of sums in products, counts of experts, a float a warp in
/// norms. The newest architectures reserve 1 KiB more for the system.
fn shared_most(source: &Source) -> u32 {
    1024 + match source.name {
        "attention" => 20 << 10,
        "matvec" => 4 << 10,
        "router" => 2 << 10,
        "sample" => 256,
        _ => 128,
    }
}

fn compile_within_bounds(source: &Source, sm: u32, variant: &Variant) {
    let built = compile::compile(source, variant, sm).unwrap_or_else(|fault| panic!("{fault}\n{}", fault.help.as_deref().unwrap_or("")));
    assert!(built.code.starts_with(b"\x7fELF"), "{} for sm_{sm} is machine code", source.name);
    for function in source.functions {
        let found = built.resources.iter().find(|r| r.function == *function);
        let took = found.unwrap_or_else(|| panic!("{} reports nothing on {function}: {:?}", source.name, built.resources));
        let place = format!("{function} for sm_{sm}, {variant:?}: {took:?}");
        // 512 threads a block and 64K registers a multiprocessor: 128 each.
        assert!(took.registers > 0 && took.registers <= 128, "registers of {place}");
        // A few words around the slow path's call are no harm; arrays in memory would be.
        assert!(took.spill_bytes <= 128, "spills of {place}");
        assert!(took.shared_bytes <= shared_most(source), "shared memory of {place}");
        if std::env::var_os("LANECAST_SHOW_RESOURCES").is_some() {
            eprintln!("{place}");
        }
    }
}

#[test]
fn every_kernel_compiles_within_its_bounds() {
    if !compiler() {
        return;
    }
    let work: Vec<(&Source, u32, Variant)> = SOURCES
        .iter()
        .flat_map(|s| ARCHITECTURES.into_iter().flat_map(move |sm| variants(s, sm).into_iter().map(move |v| (s, sm, v))))
        .collect();
    assert!(work.len() >= ARCHITECTURES.len() * SOURCES.len());
    let next = std::sync::atomic::AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(2, usize::from).min(8);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((source, sm, variant)) = work.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    compile_within_bounds(source, *sm, variant);
                }
            });
        }
    });
}

#[test]
fn a_mistake_is_reported_with_the_compilers_words() {
    if !compiler() {
        return;
    }
    let mut variant = Variant::new(2, Element::Bf16);
    variant.macros.push(("RANKS_MAX", 1));
    // The macro is redefined by the common text: a warning at most. An unknown
    // architecture is an error.
    let Err(fault) = compile::compile(&SOURCES[0], &variant, 12) else { panic!("sm_12 does not exist") };
    assert_eq!(fault.code, "gpu-compile");
    assert!(fault.message.contains("sm_12"));
}

#[test]
fn every_kernel_file_is_embedded() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .expect("kernels/ is readable")
        .filter_map(|entry| entry.expect("an entry").file_name().to_str().map(str::to_owned))
        .filter_map(|name| name.strip_suffix(".cu").map(str::to_owned))
        .filter(|name| name != "common")
        .collect();
    files.sort();
    let mut known: Vec<&str> = SOURCES.iter().map(|s| s.name).collect();
    known.sort_unstable();
    assert_eq!(files, known);
    for source in SOURCES {
        let text = source.text();
        assert!(!text.contains("#include"), "{} includes nothing", source.name);
        for function in source.functions {
            assert!(text.contains(&format!(" {function}(")), "{function} is in {}", source.name);
        }
    }
}
