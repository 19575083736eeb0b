//! Errors of CUDA, NVRTC and NCCL as faults of the program.

use std::ffi::CStr;

use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;
use cudarc::nccl::result::NcclError;
use cudarc::nvrtc::result::NvrtcError;

use crate::error::Fault;

/// Turns an error of a library into a [`Fault`] that says what was being done.
pub trait Explain<T> {
    /// `what` completes "cannot …".
    fn explain(self, what: &str) -> crate::error::Result<T>;
}

impl<T> Explain<T> for Result<T, DriverError> {
    fn explain(self, what: &str) -> crate::error::Result<T> {
        self.map_err(|error| {
            let name = error.error_name().map_or_else(|_| format!("{:?}", error.0), |n| n.to_string_lossy().into_owned());
            let text = error.error_string().map_or_else(|_| String::new(), |t| t.to_string_lossy().into_owned());
            Fault::new("gpu-driver", format!("cannot {what}: {text} ({name})"))
        })
    }
}

impl Explain<()> for CUresult {
    fn explain(self, what: &str) -> crate::error::Result<()> {
        self.result().explain(what)
    }
}

impl<T> Explain<T> for Result<T, NvrtcError> {
    fn explain(self, what: &str) -> crate::error::Result<T> {
        self.map_err(|error| Fault::new("gpu-compile", format!("cannot {what}: {:?}", error.0)))
    }
}

impl<T> Explain<T> for Result<T, NcclError> {
    fn explain(self, what: &str) -> crate::error::Result<T> {
        self.map_err(|error| {
            // SAFETY: takes any result code and returns a static string.
            let text = unsafe { cudarc::nccl::sys::ncclGetErrorString(error.0) };
            // SAFETY: a null communicator is allowed: the last error of any.
            let last = unsafe { cudarc::nccl::sys::ncclGetLastError(std::ptr::null_mut()) };
            let fault = Fault::new("gpu-nccl", format!("cannot {what}: NCCL says \"{}\"", text_at(text)));
            match text_at(last) {
                more if more.is_empty() => fault,
                more => fault.help(more),
            }
        })
    }
}

fn text_at(at: *const std::ffi::c_char) -> String {
    if at.is_null() {
        return String::new();
    }
    // SAFETY: NCCL's error strings are static and end with a zero byte.
    unsafe { CStr::from_ptr(at) }.to_string_lossy().trim().to_owned()
}
