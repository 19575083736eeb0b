//! NCCL's configurations: what needs a process of its own (variables read at
//! start) and what the tuner changes from call to call.

use std::path::Path;

use crate::gpu::nccl;
use crate::gpu::nccl_series::Forced;
use crate::gpu::tuner;

/// One process of NCCL: columns of its rows and its variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// What it is, for people.
    pub name: String,
    /// `NCCL_MIN_NCHANNELS` and `NCCL_MAX_NCHANNELS`, 0 where unset.
    pub channels: (u32, u32),
    /// `NCCL_NTHREADS`, 0 where unset.
    pub threads: u32,
    /// `NCCL_BUFFSIZE`, 0 where unset.
    pub buffer_bytes: u32,
    /// Allow LL128 where NCCL would not (`NCCL_PROTO`), for the tuner to choose from.
    pub all_protocols: bool,
    /// Forced one after the other in this process.
    pub forced: Vec<Forced>,
}

impl Setting {
    /// NCCL's own choice, but for bounds on channels (0: none).
    pub fn choice(name: &str, min: u32, max: u32) -> Setting {
        Setting { name: name.to_owned(), channels: (min, max), forced: vec![Forced::default()], ..Setting::default() }
    }

    /// The variables of its process. `sharing`: several ranks on one GPU.
    pub fn environment(&self, sharing: bool, debug_file: &Path) -> Vec<(String, String)> {
        let mut all = environment(sharing);
        let mut set = |name: &str, value: String| all.push((name.to_owned(), value));
        for (name, value) in [
            ("NCCL_MIN_NCHANNELS", self.channels.0),
            ("NCCL_MAX_NCHANNELS", self.channels.1),
            ("NCCL_NTHREADS", self.threads),
            ("NCCL_BUFFSIZE", self.buffer_bytes),
        ] {
            if value > 0 {
                set(name, value.to_string());
            }
        }
        if self.all_protocols {
            set("NCCL_PROTO", "LL,LL128,Simple".to_owned());
        }
        if self.forced.iter().any(|f| *f != Forced::default()) {
            set(tuner::ENVIRONMENT.0, tuner::ENVIRONMENT.1.to_owned());
        }
        set("NCCL_DEBUG", "INFO".to_owned());
        set("NCCL_DEBUG_SUBSYS", "TUNING".to_owned());
        set("NCCL_DEBUG_FILE", debug_file.display().to_string());
        all
    }

    /// The column for channels: `N`, `N-M` or empty.
    pub fn channels_text(&self) -> String {
        match self.channels {
            (0, 0) => String::new(),
            (min, max) if min == max => min.to_string(),
            (min, 0) => format!("{min}-"),
            (min, max) => format!("{}-{max}", min.max(1)),
        }
    }
}

/// The variables of every worker: those of a shared GPU, where one is.
pub fn environment(sharing: bool) -> Vec<(String, String)> {
    let own = if sharing { &nccl::SHARED_GPU_ENVIRONMENT[..] } else { &[] };
    own.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

/// NCCL's choice beside ring LL and tree LL, all in one process.
pub fn versus(most: u32) -> Setting {
    let forced = vec![Forced::default(), Forced::new("ring", "ll", 0), Forced::new("tree", "ll", 0)];
    Setting { forced, ..Setting::choice("NCCL's choice, ring LL, tree LL", 0, most) }
}

/// Ring and tree with every protocol and each of `channels`, all in one process. `most` bounds them; 0: nothing does.
pub fn every_choice(most: u32, channels: &[u32]) -> Setting {
    let mut forced = Vec::new();
    for algorithm in ["ring", "tree"] {
        for protocol in ["ll", "ll128", "simple"] {
            let fits = channels.iter().filter(|count| most == 0 || **count <= most);
            forced.extend(fits.map(|count| Forced::new(algorithm, protocol, *count)));
        }
    }
    let counts: Vec<String> = channels.iter().map(u32::to_string).collect();
    let name = format!("ring and tree, every protocol, {} channels", counts.join(", "));
    Setting { forced, all_protocols: true, ..Setting::choice(&name, 0, most) }
}

/// The variables of the few-channels proposal, one at a time and together:
/// `NCCL_MIN_NCHANNELS=1`, `NCCL_MAX_NCHANNELS=2`, `NCCL_BUFFSIZE=131072`,
/// `NCCL_NTHREADS=64`; before them `most` channels at least and at most, and at
/// most. `most` caps channels where ranks share a GPU.
pub fn four_variables(most: u32) -> Vec<Setting> {
    let open = |name: &str| Setting::choice(name, 0, most);
    vec![
        Setting::choice("as many channels as allowed", most, most),
        open("none of the four"),
        Setting::choice("NCCL_MIN_NCHANNELS=1", 1, most),
        Setting::choice("NCCL_MAX_NCHANNELS=2", 0, 2),
        Setting { buffer_bytes: 131_072, ..open("NCCL_BUFFSIZE=131072") },
        Setting { threads: 64, ..open("NCCL_NTHREADS=64") },
        Setting { threads: 64, buffer_bytes: 131_072, ..Setting::choice("all four", 1, 2) },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable<'a>(all: &'a [(String, String)], name: &str) -> Option<&'a str> {
        all.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str())
    }

    #[test]
    fn channels_are_written_as_observations_have_them() {
        let text = |min, max| Setting::choice("", min, max).channels_text();
        assert_eq!([text(0, 0), text(4, 4), text(1, 2), text(0, 2), text(1, 0)], ["", "4", "1-2", "1-2", "1-"]);
    }

    #[test]
    fn each_of_the_four_variables_stands_alone_once() {
        let all: Vec<_> = four_variables(8).iter().map(|s| s.environment(true, Path::new("/tmp/x"))).collect();
        let names = ["NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_BUFFSIZE", "NCCL_NTHREADS"];
        let values = [Some("1"), Some("2"), Some("131072"), Some("64")];
        for (i, (name, value)) in names.iter().zip(values).enumerate() {
            assert_eq!(variable(&all[2 + i], name), value);
            assert_eq!(variable(&all[6], name), value);
        }
        assert_eq!(variable(&all[1], "NCCL_NTHREADS"), None);
        assert!(all.iter().all(|e| variable(e, "NCCL_TUNER_PLUGIN").is_none() && variable(e, "NCCL_PROTO").is_none()));
    }

    #[test]
    fn only_processes_that_force_something_bring_the_tuner() {
        let of = |setting: &Setting, sharing| setting.environment(sharing, Path::new("/tmp/x"));
        assert_eq!(variable(&of(&versus(8), true), "NCCL_TUNER_PLUGIN"), Some("STATIC_PLUGIN"));
        // NCCL's own choice is only its own while its protocols are.
        assert_eq!(variable(&of(&versus(8), true), "NCCL_PROTO"), None);
        assert_eq!(variable(&of(&every_choice(8, &[1, 4]), true), "NCCL_PROTO"), Some("LL,LL128,Simple"));
        assert_eq!(every_choice(8, &[1, 4]).forced.len(), 12);
        assert_eq!(every_choice(2, &[1, 2, 4]).forced.len(), 12);
        assert_eq!(variable(&of(&versus(0), false), "NCCL_MULTI_RANK_GPU_ENABLE"), None);
        assert_eq!(variable(&of(&versus(0), true), "NCCL_MULTI_RANK_GPU_ENABLE"), Some("1"));
    }
}
