//! NVRTC: a kernel's source to machine code for exactly one architecture, kept
//! in the user's cache.

use std::ffi::CString;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use cudarc::nvrtc::result;
use cudarc::nvrtc::sys;

use crate::error::{Fault, Result};
use crate::gpu::fault::Explain;
use crate::gpu::kernel::Source;
use crate::gpu::kernel::Variant;
use crate::gpu::library;

/// Machine code and what the assembler said of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// The CUBIN.
    pub code: Vec<u8>,
    /// One entry a function, in no particular order.
    pub resources: Vec<Resources>,
}

/// What one function takes, as `ptxas -v` reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// The function's name.
    pub function: String,
    /// 32-bit registers a thread.
    pub registers: u32,
    /// Bytes of registers spilled to memory, stores and loads together.
    pub spill_bytes: u32,
    /// Static shared memory of a block.
    pub shared_bytes: u32,
}

/// Whether NVRTC can be opened; asked once.
pub fn available() -> bool {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: opens and closes the library, nothing else.
    *PRESENT.get_or_init(|| unsafe { sys::is_culib_present() })
}

/// Compiles `source` for compute capability `sm` (90 for 9.0), without cache.
///
/// # Errors
/// `gpu-library` without NVRTC, `gpu-compile` with the compiler's log.
pub fn compile(source: &Source, variant: &Variant, sm: u32) -> Result<Compiled> {
    if !available() {
        return Err(missing());
    }
    let text = CString::new(source.text()).map_err(|_| Fault::new("gpu-compile", format!("{} holds a zero byte", source.name)))?;
    let name = CString::new(format!("{}.cu", source.name)).map_err(|_| Fault::new("gpu-compile", "the name holds a zero byte"))?;
    let program = result::create_program(&text, Some(&name)).explain("start NVRTC")?;
    // SAFETY: `program` was just created and is destroyed below, once.
    let outcome = unsafe { result::compile_program(program, &variant.options(sm)) };
    // SAFETY: `program` is alive.
    let log = unsafe { result::get_program_log(program) }.map(|l| log_text(&l)).unwrap_or_default();
    let built = match outcome {
        Ok(()) => cubin(program).map(|code| Compiled { code, resources: resources(&log) }),
        Err(error) => Err(Fault::new("gpu-compile", format!("cannot compile {} for sm_{sm}: {:?}", source.name, error.0)).help(log)),
    };
    // SAFETY: created above, destroyed once.
    unsafe { result::destroy_program(program) }.explain("end NVRTC")?;
    built
}

/// The same through the cache: keyed by source, options and NVRTC's version.
///
/// # Errors
/// As [`compile`]; a cache that cannot be written is no error.
pub fn compile_cached(source: &Source, variant: &Variant, sm: u32) -> Result<Vec<u8>> {
    let mut key = source.text();
    key.push_str(&variant.options(sm).join(" "));
    key.push_str(&version().map_or_else(String::new, |(major, minor)| format!("{major}.{minor}")));
    let folder = library::cache_folder().join("kernels");
    let path = folder.join(format!("{}-sm_{sm}-{:016x}.cubin", source.name, library::hash(key.as_bytes())));
    // What is no ELF file was cut short: made again.
    if let Some(code) = fs::read(&path).ok().filter(|code| code.starts_with(b"\x7fELF")) {
        return Ok(code);
    }
    let code = compile(source, variant, sm)?.code;
    let _ = store(&folder, &path, &code);
    Ok(code)
}

/// NVRTC's version, major and minor; none where it cannot be opened.
pub fn version() -> Option<(i32, i32)> {
    if !available() {
        return None;
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both are valid places for an int.
    let status = unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
    (status == sys::nvrtcResult::NVRTC_SUCCESS).then_some((major, minor))
}

fn missing() -> Box<Fault> {
    Fault::new("gpu-library", "NVRTC, the compiler for the kernels, was not found")
        .help("install it with `pip install nvidia-cuda-nvrtc` (CUDA 13) or `pip install nvidia-cuda-nvrtc-cu12`, or use a Python environment that has PyTorch")
}

fn store(folder: &Path, path: &Path, code: &[u8]) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    let fresh = path.with_extension(format!("{}.part", std::process::id()));
    fs::write(&fresh, code)?;
    fs::rename(&fresh, path)
}

fn cubin(program: sys::nvrtcProgram) -> Result<Vec<u8>> {
    let mut bytes = 0;
    // SAFETY: `program` compiled; `bytes` is a valid place.
    unsafe { sys::nvrtcGetCUBINSize(program, &mut bytes) }.result().explain("take the machine code")?;
    let mut code = vec![0_u8; bytes];
    // SAFETY: the buffer has the size that NVRTC asked for.
    unsafe { sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast()) }.result().explain("take the machine code")?;
    Ok(code)
}

fn log_text(log: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = log.iter().map(|c| *c as u8).take_while(|b| *b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads `ptxas -v`: "Function properties for NAME" (or "Compiling entry
/// function 'NAME'"), then "N bytes spill stores, M bytes spill loads" and
/// "Used R registers, …, S bytes smem".
fn resources(log: &str) -> Vec<Resources> {
    let mut all: Vec<Resources> = Vec::new();
    for line in log.lines() {
        if let Some(rest) = line.split("Compiling entry function '").nth(1) {
            let function = rest.split('\'').next().unwrap_or("").to_owned();
            all.push(Resources { function, ..Resources::default() });
        }
        let Some(last) = all.last_mut() else { continue };
        last.spill_bytes += number_before(line, " bytes spill stores") + number_before(line, " bytes spill loads");
        last.registers = last.registers.max(number_before(line, " registers"));
        last.shared_bytes = last.shared_bytes.max(number_before(line, " bytes smem"));
    }
    all
}

fn number_before(line: &str, unit: &str) -> u32 {
    let Some(end) = line.find(unit) else { return 0 };
    let digits = line[..end].rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or("");
    digits.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_assemblers_report_is_read() {
        let log = "ptxas info    : 0 bytes gmem\nptxas info    : Compiling entry function 'ring_ll' for 'sm_90'\n\
                   ptxas info    : Function properties for ring_ll\n    0 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads\n\
                   ptxas info    : Used 64 registers, used 1 barriers, 128 bytes smem, 1004 bytes cmem[0]\n";
        let expected = Resources { function: "ring_ll".to_owned(), registers: 64, spill_bytes: 12, shared_bytes: 128 };
        assert_eq!(resources(log), vec![expected]);
    }
}
