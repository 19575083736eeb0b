//! Finds the driver, NVRTC and NCCL where they usually are, and prepares the
//! environment in which a worker opens them by name.
//!
//! cudarc opens libraries by bare name and never tries `libnccl.so.2`, the only
//! name in Python wheels and Debian packages; NVRTC opens its builtins by bare
//! name too. So a worker gets an `LD_LIBRARY_PATH` with their folders and a
//! folder of links under the cache. Nothing here opens a library.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Fault, Result};

/// Overrides the search for NCCL: the file or its folder.
pub const NCCL_VARIABLE: &str = "LANECAST_NCCL";
/// Overrides the folder for compiled kernels and links.
pub const CACHE_VARIABLE: &str = "LANECAST_CACHE";

/// The libraries found, by full path; absent ones may still be known to the
/// system's loader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Libraries {
    /// `libcuda.so.1`.
    pub driver: Option<PathBuf>,
    /// `libnvrtc.so.13` or `.12`.
    pub nvrtc: Option<PathBuf>,
    /// `libnccl.so.2`.
    pub nccl: Option<PathBuf>,
}

const SYSTEM_FOLDERS: [&str; 12] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/targets/x86_64-linux/lib",
    "/opt/cuda/lib64",
    "/run/opengl-driver/lib",
    "/usr/local/lib",
];

impl Libraries {
    /// Searches, in this order: `LD_LIBRARY_PATH`, the Python environments on
    /// the path, the system's folders.
    pub fn find() -> Libraries {
        let listed: Vec<PathBuf> = env::var_os("LD_LIBRARY_PATH")
            .map_or_else(Vec::new, |paths| env::split_paths(&paths).filter(|p| !p.as_os_str().is_empty()).collect());
        let system = SYSTEM_FOLDERS.iter().map(PathBuf::from);
        let folders: Vec<PathBuf> = listed.into_iter().chain(python_folders()).chain(system).collect();
        let mut found = search(&folders);
        if let Some(path) = env::var_os(NCCL_VARIABLE).map(PathBuf::from) {
            found.nccl = if path.is_dir() { first(&[path], &NCCL_NAMES) } else { Some(path) };
        }
        found
    }

    /// The environment for a worker: `LD_LIBRARY_PATH` only.
    ///
    /// # Errors
    /// When the folder of links cannot be written.
    pub fn environment(&self, cache: &Path) -> Result<Vec<(OsString, OsString)>> {
        let mut paths: Vec<PathBuf> = Vec::new();
        if let Some(nccl) = &self.nccl {
            paths.push(link(cache, nccl, "libnccl.so")?);
            paths.extend(nccl.parent().map(Path::to_path_buf));
        }
        for library in [&self.nvrtc, &self.driver].into_iter().flatten() {
            paths.extend(library.parent().map(Path::to_path_buf));
        }
        if let Some(given) = env::var_os("LD_LIBRARY_PATH") {
            paths.extend(env::split_paths(&given));
        }
        let mut kept: Vec<PathBuf> = Vec::new();
        for path in paths {
            // A colon cannot be written into the variable; such a folder is left out.
            if !path.as_os_str().is_empty() && !path.to_string_lossy().contains(':') && !kept.contains(&path) {
                kept.push(path);
            }
        }
        let joined = env::join_paths(kept).map_err(|e| Fault::new("gpu-library", format!("cannot set LD_LIBRARY_PATH: {e}")))?;
        Ok(vec![(OsString::from("LD_LIBRARY_PATH"), joined)])
    }
}

const NCCL_NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

fn search(folders: &[PathBuf]) -> Libraries {
    Libraries {
        driver: first(folders, &["libcuda.so.1", "libcuda.so"]),
        nvrtc: first(folders, &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]),
        nccl: first(folders, &NCCL_NAMES),
    }
}

fn first(folders: &[PathBuf], names: &[&str]) -> Option<PathBuf> {
    folders.iter().flat_map(|folder| names.iter().map(move |name| folder.join(name))).find(|path| path.is_file())
}

/// `nvidia/*/lib` of the active environment, of every `python3` on the path,
/// and of the user's and the system's packages; without starting Python.
fn python_folders() -> Vec<PathBuf> {
    let mut prefixes: Vec<PathBuf> = ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(env::var_os).map(PathBuf::from).collect();
    for folder in env::var_os("PATH").iter().flat_map(|p| env::split_paths(p).collect::<Vec<_>>()) {
        let python = folder.join("python3");
        if !python.exists() {
            continue;
        }
        prefixes.extend(folder.parent().map(Path::to_path_buf));
        let real = fs::canonicalize(&python).ok();
        prefixes.extend(real.and_then(|p| Some(p.parent()?.parent()?.to_path_buf())));
    }
    prefixes.extend(env::var_os("HOME").map(|home| PathBuf::from(home).join(".local")));
    prefixes.push(PathBuf::from("/usr/local"));
    let mut found = Vec::new();
    for prefix in prefixes {
        packages_below(&prefix, &mut found);
    }
    found
}

fn packages_below(prefix: &Path, found: &mut Vec<PathBuf>) {
    for python in sorted_entries(&prefix.join("lib")) {
        if !python.file_name().is_some_and(|n| n.to_string_lossy().starts_with("python3")) {
            continue;
        }
        for packages in ["site-packages", "dist-packages"] {
            let folders = sorted_entries(&python.join(packages).join("nvidia")).into_iter().map(|p| p.join("lib"));
            for folder in folders.filter(|f| f.is_dir()) {
                if !found.contains(&folder) {
                    found.push(folder);
                }
            }
        }
    }
}

fn sorted_entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    // Newest Python and CUDA 13 before 12: by name, downwards.
    paths.sort_by(|a, b| b.cmp(a));
    paths
}

/// A folder under the cache, named after `library`'s path, that holds a link
/// `name` to it. Reused by later runs.
fn link(cache: &Path, library: &Path, name: &str) -> Result<PathBuf> {
    let folder = cache.join("links").join(format!("{:016x}", hash(library.to_string_lossy().as_bytes())));
    fs::create_dir_all(&folder).map_err(|e| Fault::io("create", &folder, &e))?;
    let target = folder.join(name);
    if fs::read_link(&target).ok().as_deref() == Some(library) {
        return Ok(folder);
    }
    // Made beside it and renamed, so that a worker started meanwhile never finds it missing.
    let fresh = folder.join(format!("{name}.{}", std::process::id()));
    let _ = fs::remove_file(&fresh);
    std::os::unix::fs::symlink(library, &fresh).map_err(|e| Fault::io("link", &fresh, &e))?;
    fs::rename(&fresh, &target).map_err(|e| Fault::io("write", &target, &e))?;
    Ok(folder)
}

/// Where compiled kernels and links are kept.
pub fn cache_folder() -> PathBuf {
    let named = env::var_os(CACHE_VARIABLE).map(PathBuf::from);
    let user = || env::var_os("XDG_CACHE_HOME").map(|p| PathBuf::from(p).join("lanecast"));
    let home = || env::var_os("HOME").map(|p| PathBuf::from(p).join(".cache").join("lanecast"));
    named.or_else(user).or_else(home).unwrap_or_else(|| env::temp_dir().join("lanecast"))
}

/// FNV-1a, 64 bits: names files of the cache; not for security.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv_matches_its_published_vectors() {
        assert_eq!(hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(hash(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn wheels_are_found_below_a_prefix_newest_first() {
        let root = tempfile::tempdir().expect("a folder");
        for (package, file) in [("nccl", "libnccl.so.2"), ("cu13", "libnvrtc.so.13"), ("cuda_nvrtc", "libnvrtc.so.12")] {
            let lib = root.path().join("lib/python3.12/site-packages/nvidia").join(package).join("lib");
            fs::create_dir_all(&lib).expect("folders");
            fs::write(lib.join(file), b"").expect("a file");
        }
        let mut folders = Vec::new();
        packages_below(root.path(), &mut folders);
        let found = search(&folders);
        assert!(found.nccl.is_some_and(|p| p.ends_with("nccl/lib/libnccl.so.2")));
        assert!(found.nvrtc.is_some());
        assert_eq!(found.driver, None);
    }

    #[test]
    fn a_link_is_made_once_and_follows_its_library() {
        let root = tempfile::tempdir().expect("a folder");
        let library = root.path().join("libnccl.so.2");
        fs::write(&library, b"x").expect("a file");
        let first = link(root.path(), &library, "libnccl.so").expect("linked");
        let second = link(root.path(), &library, "libnccl.so").expect("linked again");
        assert_eq!(first, second);
        assert_eq!(fs::read(first.join("libnccl.so")).expect("through the link"), b"x");
        let found = Libraries { nccl: Some(library), ..Libraries::default() };
        let environment = found.environment(root.path()).expect("an environment");
        assert!(environment[0].1.to_string_lossy().starts_with(&*first.to_string_lossy()));
    }
}
