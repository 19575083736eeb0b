//! What must hold for a strategy to run, as data.

use crate::machine::PeerAccess;

use super::Context;

/// Most GPUs that one GPU can have as peers without NVSwitch (CUDA programming guide).
const PEERS_MAX: usize = 8;

/// One condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// GPUs can reach each other's memory directly.
    PeerAccess,
    /// The same, and every GPU reaches every other: at most eight peers without NVSwitch.
    Mesh,
    /// The driver stages peer access, so that there is something to repair.
    StagedByDriver,
    /// The GPUs form islands of equal size.
    Islands,
    /// NCCL's version.
    Nccl {
        /// First version (major, minor).
        since: (u32, u32),
        /// First version that is too new, if there is one.
        before: Option<(u32, u32)>,
        /// Whether GPUs joined by NVLink are exempt from `before`.
        nvlink_exempt: bool,
        /// What happens otherwise.
        because: &'static str,
    },
    /// FlashInfer's version.
    FlashInfer {
        /// First version.
        since: (u32, u32, u32),
        /// What happens otherwise.
        because: &'static str,
    },
    /// Nothing refuses, but it must be looked at.
    Check(&'static str),
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
            Need::PeerAccess => no_peer_access(context),
            Need::Mesh => no_peer_access(context).or_else(|| too_many_peers(context)),
            Need::StagedByDriver => (context.machine.peer_access != PeerAccess::DriverStaged)
                .then(|| "the driver does not stage peer access on this machine: there is nothing to switch".to_owned()),
            Need::Islands => context
                .islands()
                .is_none()
                .then(|| "the GPUs do not form islands of equal size below switches or sockets: there is no boundary to spare".to_owned()),
            Need::Nccl { since, before, nvlink_exempt, because } => {
                let exempt = *nvlink_exempt && context.all_nvlink();
                nccl_refusal(context, *since, before.filter(|_| !exempt)).map(|version| format!("{because} ({version})"))
            }
            Need::FlashInfer { since, because } => {
                let installed = context.machine.versions.flashinfer.as_deref();
                let old = installed.and_then(parse_version).is_some_and(|version| version < *since);
                old.then(|| format!("{because} (FlashInfer {})", installed.unwrap_or_default()))
            }
            Need::Check(_) => None,
            Need::Ranks(sizes) if sizes.contains(&context.ranks) => None,
            Need::Ranks(sizes) => Some(format!("it supports groups of {sizes:?} ranks, not {}", context.ranks)),
            Need::Nvlink { unless_at_most, because } => {
                (context.ranks > *unless_at_most && !context.all_nvlink()).then(|| (*because).to_owned())
            }
            Need::Multicast { because } => (!context.all_nvlink() || context.ranks < 2 || !(9..12).contains(&major))
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
            Need::Mesh => {
                format!(
                    "direct peer access from every GPU to every other (prove it with a data check); without NVSwitch at most {PEERS_MAX} peers"
                )
            }
            Need::Check(what) => (*what).to_owned(),
            Need::StagedByDriver => "a driver that stages peer access in system memory".to_owned(),
            Need::Islands => "GPUs in islands of equal size, below switches or sockets".to_owned(),
            Need::Nccl { since: (a, b), before: None, .. } => format!("NCCL {a}.{b} or later"),
            Need::Nccl { since: (a, b), before: Some((c, d)), nvlink_exempt, .. } => {
                let exempt = if *nvlink_exempt { ", or all GPUs joined by NVLink" } else { "" };
                format!("NCCL {a}.{b} or later, older than {c}.{d}{exempt}")
            }
            Need::FlashInfer { since: (a, b, c), .. } => format!("FlashInfer {a}.{b}.{c} or later"),
            Need::PeerAccess => "direct peer access between all GPUs (prove it with a data check)".to_owned(),
            Need::Ranks(sizes) => format!("{sizes:?} ranks in the group"),
            Need::Nvlink { unless_at_most, .. } => format!("NVLink between all GPUs, or at most {unless_at_most} ranks"),
            Need::Multicast { .. } => "NVSwitch multicast".to_owned(),
            Need::Majors { majors, .. } => format!("compute capability of major {majors:?}"),
            Need::FlashInferSm12 { since: (a, b, c), .. } => format!("FlashInfer {a}.{b}.{c} or newer on SM 12.x"),
        }
    }
}

fn no_peer_access(context: &Context<'_>) -> Option<String> {
    match context.machine.peer_access {
        PeerAccess::Direct => None,
        PeerAccess::HostStaged => Some("GPUs have no peer access on this machine: data goes through host memory".to_owned()),
        PeerAccess::DriverStaged => {
            Some("the driver stages peer access in system memory on this machine (no ForceP2P): 242 us in place of 16".to_owned())
        }
    }
}

fn too_many_peers(context: &Context<'_>) -> Option<String> {
    let mut devices = context.devices();
    devices.dedup();
    (devices.len() > PEERS_MAX + 1 && !context.all_nvlink())
        .then(|| format!("CUDA maps at most {PEERS_MAX} peers without NVSwitch, and each of {} GPUs would need all others", devices.len()))
}

/// NCCL's version in words when it is outside the range.
fn nccl_refusal(context: &Context<'_>, since: (u32, u32), before: Option<(u32, u32)>) -> Option<String> {
    let version = context.nccl_version().ok()?;
    let is = (version.major, version.minor);
    let said = if context.machine.versions.nccl.is_some() { "" } else { ", assumed" };
    (is < since || before.is_some_and(|before| is >= before)).then(|| format!("NCCL {version}{said}"))
}

/// Software that leaves a strategy aside without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decline {
    /// Which software, and what it does instead.
    pub what: &'static str,
    /// Where it does not.
    pub unless: Need,
    /// How to see it.
    pub sign: &'static str,
}

impl Decline {
    /// The note, if it applies to the machine.
    pub fn note(&self, context: &Context<'_>) -> Option<String> {
        self.unless.refusal(context).map(|_| self.words())
    }

    /// The note.
    pub fn words(&self) -> String {
        format!("{}; how to see it: {}", self.what, self.sign)
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
