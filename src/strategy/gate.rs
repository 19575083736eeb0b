//! What must hold for a strategy to run, as data.

use crate::machine::PeerAccess;

use super::Context;

/// One condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// GPUs can reach each other's memory directly.
    PeerAccess,
    /// The group has one of these sizes.
    Ranks(&'static [usize]),
    /// All pairs are joined by NVLink, or the group has at most this many ranks.
    Nvlink {
        /// Groups up to this size are exempt.
        unless_at_most: usize,
        /// Who says so, and what happens otherwise.
        because: &'static str,
    },
    /// NVSwitch multicast.
    Multicast {
        /// Who says so.
        because: &'static str,
    },
    /// The compute capability's major is one of these.
    Majors {
        /// Majors.
        majors: &'static [u32],
        /// What happens otherwise.
        because: &'static str,
    },
    /// FlashInfer is new enough for the compute capability: SM 12.x came later.
    FlashInferSm12 {
        /// First version that knows SM 12.x.
        since: (u32, u32, u32),
        /// What happens otherwise.
        because: &'static str,
    },
}

impl Need {
    /// Why the condition fails, or None.
    pub fn refusal(&self, context: &Context<'_>) -> Option<String> {
        let (major, minor) = context.kind().map_or((0, 0), |kind| kind.compute_capability);
        match self {
            Need::PeerAccess => match context.machine.peer_access {
                PeerAccess::Direct => None,
                PeerAccess::HostStaged => Some("GPUs have no peer access on this machine: data goes through host memory".to_owned()),
                PeerAccess::DriverStaged => {
                    Some("the driver stages peer access in system memory on this machine (no ForceP2P): 242 us in place of 16".to_owned())
                }
            },
            Need::Ranks(sizes) if sizes.contains(&context.ranks) => None,
            Need::Ranks(sizes) => Some(format!("it supports groups of {sizes:?} ranks, not {}", context.ranks)),
            Need::Nvlink { unless_at_most, because } => {
                (context.ranks > *unless_at_most && !context.all_nvlink()).then(|| (*because).to_owned())
            }
            Need::Multicast { because } => (!context.all_nvlink() || context.ranks < 2 || major < 9 || major >= 12)
                .then(|| format!("{because} (compute capability {major}.{minor}, no NVSwitch)")),
            Need::Majors { majors, because } => (!majors.contains(&major)).then(|| format!("{because} (this GPU is {major}.{minor})")),
            Need::FlashInferSm12 { since, because } => {
                let installed = context.machine.versions.flashinfer.as_deref();
                let enough = installed.and_then(parse_version).is_some_and(|version| version >= *since);
                (major == 12 && !enough).then(|| {
                    let (a, b, c) = since;
                    format!("{because} (FlashInfer {}; SM 12.x is known since {a}.{b}.{c})", installed.unwrap_or("of unknown version"))
                })
            }
        }
    }

    /// The condition in words, for settings.
    pub fn words(&self) -> String {
        match self {
            Need::PeerAccess => "direct peer access between all GPUs (prove it with a data check)".to_owned(),
            Need::Ranks(sizes) => format!("{sizes:?} ranks in the group"),
            Need::Nvlink { unless_at_most, .. } => format!("NVLink between all GPUs, or at most {unless_at_most} ranks"),
            Need::Multicast { .. } => "NVSwitch multicast".to_owned(),
            Need::Majors { majors, .. } => format!("compute capability of major {majors:?}"),
            Need::FlashInferSm12 { since: (a, b, c), .. } => format!("FlashInfer {a}.{b}.{c} or newer on SM 12.x"),
        }
    }
}

/// `0.6.1`, `v0.6.1.post1`, `0.6` and the like.
fn parse_version(text: &str) -> Option<(u32, u32, u32)> {
    let mut parts = text.trim().trim_start_matches('v').split('.').map(|part| {
        let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().ok()
    });
    let major = parts.next()??;
    Some((major, parts.next().flatten().unwrap_or(0), parts.next().flatten().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_leniently() {
        assert_eq!(parse_version("0.6.1.post2"), Some((0, 6, 1)));
        assert_eq!(parse_version("v1.2"), Some((1, 2, 0)));
        assert_eq!(parse_version("main"), None);
    }
}
