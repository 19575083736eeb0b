//! The embedded models, and finding a model by name or path.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::path::PathBuf;

use super::Model;
use super::config;
use crate::error::Fault;
use crate::error::Result;

/// An embedded `config.json`.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The id, which is the file's stem under `models/`.
    pub id: &'static str,
    /// The repository on Hugging Face.
    pub name: &'static str,
    /// Parameters as published, in thousands of millions.
    pub published_billions: f64,
    /// What the published figure counts, and where it stands.
    pub published_source: &'static str,
    text: &'static str,
}

macro_rules! entry {
    ($id:literal, $name:literal, $billions:literal, $source:literal) => {
        Entry {
            id: $id,
            name: $name,
            published_billions: $billions,
            published_source: $source,
            text: include_str!(concat!("../../models/", $id, ".json")),
        }
    };
}

/// All embedded models; the first is the default.
pub const CATALOG: [Entry; 8] = [
    entry!(
        "kimi-k2.5",
        "moonshotai/Kimi-K2.5",
        1030.0,
        "model card: 1T in all, 32B active; 1.03T by its tensors, without the vision tower (0.4B)"
    ),
    entry!("deepseek-v3", "deepseek-ai/DeepSeek-V3", 671.0, "model card: 671B main model, 37B active; the 14B of the MTP module apart"),
    entry!("glm-5", "zai-org/GLM-5", 744.0, "model card: 744B, 40B active; the MTP layer apart"),
    entry!("qwen3.5-397b", "nvidia/Qwen3.5-397B-A17B-NVFP4", 397.0, "its name: 397B, 17B active; language part, the MTP layer apart"),
    entry!("qwen3-235b", "Qwen/Qwen3-235B-A22B", 235.0, "model card: 235B, 22B active"),
    entry!("minimax-m2.5", "nvidia/MiniMax-M2.5-NVFP4", 229.0, "model page: 229B, 10B active; the MTP modules apart"),
    entry!("gpt-oss-120b", "openai/gpt-oss-120b", 117.0, "model card: 117B, 5.1B active (embedding not among the active)"),
    entry!("llama-3.1-70b", "meta-llama/Meta-Llama-3.1-70B", 70.6, "model page: 70.6B"),
];

/// Largest file that is read; real ones have a few dozen kilobytes.
const LARGEST_BYTES: u64 = 8 << 20;

impl Model {
    /// An embedded model by id or repository name, else a `config.json` or a
    /// folder that holds one (with `hf_quant_config.json` beside it, if any).
    ///
    /// # Errors
    /// `model-unknown`, `model-too-large`, `io`, and those of [`Model::parse`].
    pub fn load(name_or_path: &str) -> Result<Model> {
        let wanted = name_or_path.to_ascii_lowercase();
        let known = CATALOG.iter().find(|e| e.id == wanted || e.name.eq_ignore_ascii_case(name_or_path));
        if let Some(entry) = known {
            let mut model = Model::parse(entry.id, entry.text, None)?;
            entry.name.clone_into(&mut model.name);
            return Ok(model);
        }
        let path = Path::new(name_or_path);
        if path.is_dir() {
            return load_file(&path.join("config.json"));
        }
        if path.exists() {
            return load_file(path);
        }
        let ids: Vec<&str> = CATALOG.iter().map(|e| e.id).collect();
        Err(Fault::new("model-unknown", format!("no model and no file is called `{name_or_path}`"))
            .help(format!("known models: {}; or give the path of a config.json", ids.join(", "))))
    }

    /// Reads the text of a `config.json`, and of a separate
    /// `hf_quant_config.json` as (name, text); `name` is for messages and the id.
    ///
    /// # Errors
    /// `model-not-json`, `model-missing-key`, `model-bad-value`,
    /// `model-unknown-attention`, `model-unknown-quantization`.
    pub fn parse(name: &str, text: &str, separate: Option<(&str, &str)>) -> Result<Model> {
        config::read(name, text, separate)
    }
}

fn load_file(path: &Path) -> Result<Model> {
    let text = read_text(path)?;
    let beside = beside(path).into_iter().find(|p| p.is_file());
    let beside = beside.map(|p| read_text(&p).map(|t| (p.display().to_string(), t))).transpose()?;
    let separate = beside.as_ref().map(|(name, text)| (name.as_str(), text.as_str()));
    let mut model = Model::parse(&path.display().to_string(), &text, separate)?;
    model.id = id_of(path);
    Ok(model)
}

/// Where a separate quantization file may lie: by its own name, or with the
/// configuration's stem before it.
fn beside(path: &Path) -> Vec<PathBuf> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    vec![path.with_file_name(format!("{stem}_hf_quant_config.json")), path.with_file_name("hf_quant_config.json")]
}

fn id_of(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let parent = path.parent().and_then(Path::file_name).map(|p| p.to_string_lossy());
    let name = if stem == "config" { parent.unwrap_or(stem) } else { stem };
    let letters = name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c.to_ascii_lowercase() } else { '-' });
    letters.collect()
}

fn read_text(path: &Path) -> Result<String> {
    let size = fs::metadata(path).map_err(|e| Fault::io("read", path, &e))?;
    if size.is_dir() {
        return Err(Fault::new("io", format!("cannot read {}: it is a folder", path.display())));
    }
    if size.len() > LARGEST_BYTES {
        let message = format!("{} has {} bytes; a config.json has some thousands", path.display(), size.len());
        return Err(Fault::new("model-too-large", message).help("give the config.json, not the weights"));
    }
    // A pipe or a device has no size to ask for.
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(|e| Fault::io("read", path, &e))?;
    file.take(LARGEST_BYTES + 1).read_to_end(&mut bytes).map_err(|e| Fault::io("read", path, &e))?;
    if bytes.len() as u64 > LARGEST_BYTES {
        return Err(Fault::new("model-too-large", format!("{} has more than {LARGEST_BYTES} bytes", path.display()))
            .help("give the config.json, not the weights"));
    }
    String::from_utf8(bytes)
        .map_err(|_| Fault::new("model-not-json", format!("{} is not text", path.display())).help("give the config.json, not the weights"))
}
