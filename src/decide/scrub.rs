//! Takes out of a text what must not be published: secrets, host and user names,
//! addresses, folders.

use std::collections::BTreeMap;

/// Parts of names whose values are secrets.
const SECRET: [&str; 12] =
    ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "API_KEY", "APIKEY", "ACCESS_KEY", "PRIVATE", "AUTH", "COOKIE", "SESSION"];

/// Beginnings of words that are secrets wherever they stand.
const SECRET_WORDS: [&str; 10] = ["hf_", "sk-", "ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "AKIA", "eyJ"];

/// Beginnings of the names of variables that bear on a result.
const TELLING: [&str; 14] = [
    "NCCL_",
    "CUDA_",
    "SGLANG_",
    "SGL_",
    "VLLM_",
    "TORCH_",
    "PYTORCH_",
    "FLASHINFER_",
    "OMP_NUM",
    "TRITON_",
    "TRTLLM_",
    "MSCCLPP_",
    "NVIDIA_TF32",
    "GLOO_",
];

/// Whether the value of a variable of this name is a secret.
pub fn is_secret(name: &str) -> bool {
    // Counts of tokens are none.
    let name = name.to_ascii_uppercase().replace("TOKENS", "");
    SECRET.iter().any(|part| name.contains(part)) || name.ends_with("_KEY") || name == "KEY"
}

/// Variables that bear on a result, secrets left out and values scrubbed.
pub fn environment(all: impl Iterator<Item = (String, String)>, scrubber: &Scrubber) -> BTreeMap<String, String> {
    all.filter(|(name, _)| TELLING.iter().any(|start| name.starts_with(start)) && !is_secret(name))
        .map(|(name, value)| (name, scrubber.text(&value)))
        .collect()
}

/// Knows the names of this host and user, as far as there are any.
#[derive(Clone, Debug, Default)]
pub struct Scrubber {
    names: Vec<(String, &'static str)>,
}

impl Scrubber {
    /// From the names to take out; those shorter than three letters would hit ordinary words.
    pub fn new(hosts: &[String], users: &[String]) -> Scrubber {
        let named = |names: &[String], mark: &'static str| -> Vec<(String, &'static str)> {
            names.iter().filter(|name| name.len() >= 3).map(|name| (name.to_ascii_lowercase(), mark)).collect()
        };
        let mut names = named(hosts, "HOST");
        names.extend(named(users, "USER"));
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        Scrubber { names }
    }

    /// The same with more names.
    #[must_use]
    pub fn and(mut self, names: &[String]) -> Scrubber {
        self.names.extend(names.iter().map(|name| (name.trim().to_ascii_lowercase(), "NAME")).filter(|(name, _)| name.len() >= 3));
        self.names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        self
    }

    /// The text without what must not be published. Lines stay lines.
    pub fn text(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            self.line(line, &mut out);
        }
        out
    }

    fn line(&self, line: &str, out: &mut String) {
        let (mut hides_next, mut before) = (false, String::new());
        for word in line.split_inclusive(|c: char| c.is_whitespace() || "\"'`,;()[]{}<>|".contains(c)) {
            let end = word.char_indices().next_back().filter(|(_, c)| c.is_whitespace() || "\"'`,;()[]{}<>|".contains(*c));
            let (core, tail) = word.split_at(end.map_or(word.len(), |(at, _)| at));
            if core.is_empty() {
                out.push_str(tail);
                continue;
            }
            let bearer = core.eq_ignore_ascii_case("bearer") || core.eq_ignore_ascii_case("basic");
            let flag = core.starts_with('-') && !core.contains('=') && is_secret(&core.replace('-', "_"));
            let colon = core.ends_with(':') && is_secret(&core[..core.len() - 1].replace('-', "_"));
            if hides_next && !bearer && core != ":" {
                out.push_str("SECRET");
            } else {
                out.push_str(&self.word(core));
            }
            let names = tells_a_name(&before, core);
            hides_next = bearer || flag || colon || names || (hides_next && core == ":");
            before = core.to_ascii_lowercase();
            out.push_str(tail);
        }
    }

    fn word(&self, word: &str) -> String {
        if let Some((name, value)) = word.split_once('=') {
            let shown = if is_secret(&name.replace('-', "_")) && !value.is_empty() { "SECRET".to_owned() } else { self.word(value) };
            return format!("{}={shown}", self.plain(name));
        }
        if SECRET_WORDS.iter().any(|start| word.starts_with(start) && word.len() >= start.len() + 12) {
            return "SECRET".to_owned();
        }
        if word.contains("://") {
            return self.address(word);
        }
        // A prompt's alice@box:~$, an address.
        if word.trim_start_matches('@').contains('@') {
            return "ADDRESS".to_owned();
        }
        if word.len() >= 20 && (word.starts_with("GPU-") || word.starts_with("MIG-")) {
            return "UUID".to_owned();
        }
        if word.matches('/').count() >= 2 || word.starts_with("~/") || word.contains(":\\") {
            return self.path(word);
        }
        if is_ip(word) {
            return "ADDRESS".to_owned();
        }
        self.plain(word)
    }

    /// A folder's files are named by their last part alone; known places of the system stay.
    fn path(&self, word: &str) -> String {
        let start =
            word.find(['/', '~']).or(word.find(":\\").map(|at| word[..at].char_indices().next_back().map_or(0, |(at, _)| at))).unwrap_or(0);
        let (before, path) = word.split_at(start);
        if ["/proc/", "/sys/", "/dev/"].iter().any(|known| path.starts_with(known)) {
            return word.to_owned();
        }
        let last = path.trim_end_matches('/').rsplit(['/', '\\']).next().unwrap_or("");
        format!("{}…/{}", self.plain(before), self.plain(last))
    }

    fn address(&self, word: &str) -> String {
        let scheme = word.split("://").next().unwrap_or("");
        format!("{}://ADDRESS", self.plain(scheme))
    }

    /// Names of host and user inside a word, at the bounds of its parts.
    fn plain(&self, word: &str) -> String {
        let mut word = word.to_owned();
        for (name, mark) in &self.names {
            let mut from = 0;
            // ASCII alone: lower case may have another length in other scripts.
            while let Some(at) = word[from..].to_ascii_lowercase().find(name.as_str()).map(|at| at + from) {
                let end = at + name.len();
                let part = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
                if part(word[..at].chars().next_back()) || part(word[end..].chars().next()) {
                    from = end;
                } else {
                    word.replace_range(at..end, mark);
                    from = at + mark.len();
                }
                if from >= word.len() {
                    break;
                }
            }
        }
        word
    }
}

/// Words before a serial number or a host's name: `Serial Number : 123`, `hostname box7`.
fn tells_a_name(before: &str, word: &str) -> bool {
    let word = word.trim_end_matches(':').to_ascii_lowercase();
    (before == "serial" && word == "number") || matches!(word.as_str(), "hostname" | "nodename" | "host" | "serial_number" | "uuid")
}

/// Four numbers with dots, or at least three colons between hexadecimal parts; bus ids are none.
fn is_ip(word: &str) -> bool {
    let core = word.split(':').next().unwrap_or("");
    let parts: Vec<&str> = core.split('.').collect();
    let is_byte = |part: &&str| part.parse::<u8>().is_ok();
    if parts.len() == 4 && parts.iter().all(is_byte) {
        return true;
    }
    let groups: Vec<&str> = word.split(':').collect();
    let hexadecimal = |part: &&str| part.len() <= 4 && part.chars().all(|c| c.is_ascii_hexdigit());
    groups.len() >= 4 && groups.iter().all(hexadecimal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrubber() -> Scrubber {
        Scrubber::new(&["gpu-box7".to_owned()], &["alice".to_owned()])
    }

    #[test]
    fn what_must_not_be_published_is_taken_out() {
        let text = scrubber().text(
            "alice@gpu-box7.lan ran HF_TOKEN=hf_abcdefghijklmnop python /data/alice/run.py --api-key sk-1234567890abcdef\n\
             Authorization: Bearer abc.def http://10.0.0.7:8000/v1 192.168.1.5:3000 on gpu-box7 as alice, NCCL_PROTO=LL\n",
        );
        for secret in ["alice", "gpu-box7", "hf_abc", "sk-123", "abc.def", "10.0.0.7", "192.168", "/data/"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
        for kept in ["HF_TOKEN=SECRET", "run.py", "NCCL_PROTO=LL", "python"] {
            assert!(text.contains(kept), "{kept} in {text}");
        }
    }

    #[test]
    fn what_tells_something_stays() {
        let plain = "[9, 10] 0000:41:00.0 /proc/cmdline iommu=pt 2.29.2 malice GB/s i/o\n";
        assert_eq!(scrubber().text(plain), plain);
    }

    #[test]
    fn variables_that_tell_are_kept_without_secrets() {
        let all = [("NCCL_PROTO", "LL"), ("VLLM_API_KEY", "x"), ("HOSTNAME", "gpu-box7"), ("CUDA_HOME", "/opt/x/cuda")];
        let kept = environment(all.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())), &scrubber());
        assert_eq!(kept.keys().map(String::as_str).collect::<Vec<_>>(), ["CUDA_HOME", "NCCL_PROTO"]);
        assert_eq!(kept["CUDA_HOME"], "…/cuda");
    }

    proptest::proptest! {
        #[test]
        fn names_never_survive_and_nothing_panics(before in "[ -~äß\\n]{0,30}", after in "[ -~äß\\n]{0,30}") {
            let text = scrubber().text(&format!("{before} gpu-box7 {after}"));
            proptest::prop_assert!(!text.contains(" gpu-box7 "));
        }
    }
}
