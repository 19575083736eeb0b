//! How each weight is stored: the dialects of `quantization_config` and of
//! `hf_quant_config.json`, resolved per module name.
//!
//! Embeddings, norms and routers stay 16-bit in every dialect. What a list of
//! exceptions names stays 16-bit too.

use serde_json::Value;

use super::json::Keys;
use super::op::Dtype;
use super::pattern::Pattern;
use crate::error::Fault;
use crate::error::Result;

/// Which weights are stored how.
#[derive(Clone, Debug)]
pub struct Quantization {
    plain: Dtype,
    groups: Vec<Group>,
    ignored: Vec<Pattern>,
    /// Edge of the square blocks that share a scale (FP8), or the group of a
    /// 4-bit format; a rank's share must be a multiple of it.
    pub block: Option<u64>,
    /// How the cache is kept when the checkpoint brings its scales.
    pub cache: Option<Dtype>,
    /// `lm_head` is quantized unless the list of exceptions names it.
    head: bool,
}

#[derive(Clone, Debug)]
struct Group {
    /// Empty means every linear layer.
    targets: Vec<Pattern>,
    dtype: Dtype,
}

impl Quantization {
    /// All weights as `plain`.
    pub fn none(plain: Dtype) -> Quantization {
        Quantization { plain, groups: Vec::new(), ignored: Vec::new(), block: None, cache: None, head: false }
    }

    /// Reads `quantization_config`.
    ///
    /// # Errors
    /// `model-unknown-quantization` for a method that is not known: weights
    /// assumed wrongly would be off by a factor of two to four.
    pub fn read(keys: &Keys, plain: Dtype, notes: &mut Vec<String>) -> Result<Quantization> {
        let method = keys.text("quant_method").unwrap_or("");
        let mut quantization = Quantization::none(plain);
        match method {
            "compressed-tensors" => quantization.read_groups(keys)?,
            "modelopt" | "modelopt_fp4" => quantization.read_modelopt(keys)?,
            "fp8" => {
                quantization.groups.push(Group { targets: Vec::new(), dtype: Dtype::Fp8 });
                quantization.block = keys.numbers("weight_block_size").first().copied().filter(|b| *b > 0);
            }
            "mxfp4" => quantization.groups.push(Group { targets: vec![Pattern::new("*.experts*")], dtype: Dtype::Mxfp4 }),
            "awq" | "gptq" => {
                let group = group_size(keys.size("group_size", 1 << 20).ok().flatten());
                let dtype = match keys.size("bits", 16)? {
                    Some(8) => Dtype::Int8,
                    Some(4) | None => Dtype::Int4 { group },
                    Some(bits) => return Err(unknown(keys, "bits", &format!("{method} with {bits} bits"))),
                };
                quantization.groups.push(Group { targets: Vec::new(), dtype });
            }
            other => return Err(unknown(keys, "quant_method", &format!("method `{other}`"))),
        }
        for key in ["ignore", "exclude_modules", "modules_to_not_convert"] {
            quantization.ignore(&keys.strings(key), notes);
        }
        quantization.read_cache(keys, notes);
        Ok(quantization)
    }

    /// Reads the `quantization` object of a separate `hf_quant_config.json`.
    pub fn read_separate(keys: &Keys, plain: Dtype, notes: &mut Vec<String>) -> Result<Quantization> {
        let mut quantization = Quantization::none(plain);
        quantization.read_modelopt(keys)?;
        quantization.ignore(&keys.strings("exclude_modules"), notes);
        match keys.text("kv_cache_quant_algo") {
            Some("FP8") => quantization.cache = Some(Dtype::Fp8),
            Some("NVFP4") => quantization.cache = Some(Dtype::Nvfp4),
            Some(other) => notes.push(format!("kv_cache_quant_algo {other}: cache taken as 16-bit")),
            None => {}
        }
        Ok(quantization)
    }

    /// Whether layers of one shape may be stored differently: some pattern tells their numbers apart.
    pub fn tells_layers(&self) -> bool {
        self.groups.iter().flat_map(|group| &group.targets).chain(&self.ignored).any(Pattern::tells_numbers)
    }

    fn ignore(&mut self, names: &[&str], notes: &mut Vec<String>) {
        for name in names {
            let pattern = Pattern::new(name);
            if matches!(pattern, Pattern::Unknown) {
                notes.push(format!("exception `{}` of the quantization: not understood", name.chars().take(80).collect::<String>()));
            }
            self.ignored.push(pattern);
        }
    }

    fn read_groups(&mut self, keys: &Keys) -> Result<()> {
        self.head = true;
        let Some(groups) = keys.object("config_groups") else {
            return Err(unknown(keys, "quant_method", "compressed-tensors without `config_groups`"));
        };
        for (name, _) in groups.all() {
            let Some(group) = groups.object(name) else { continue };
            let Some(weights) = group.object("weights") else { continue };
            let dtype = group_dtype(&weights)?;
            let targets = group.strings("targets");
            let all = targets.contains(&"Linear");
            let targets = if all { Vec::new() } else { targets.iter().map(|t| Pattern::new(t)).collect() };
            if let Dtype::Int4 { group } = dtype
                && group < 1 << 20
            {
                self.block = Some(u64::from(group));
            }
            self.groups.push(Group { targets, dtype });
        }
        Ok(())
    }

    fn read_modelopt(&mut self, keys: &Keys) -> Result<()> {
        self.head = true;
        let algorithm = keys.text("quant_algo").unwrap_or("");
        let group = keys.size("group_size", 1 << 20)?;
        if algorithm == "MIXED_PRECISION" {
            let Some(layers) = keys.object("quantized_layers") else {
                return Err(unknown(keys, "quant_algo", "MIXED_PRECISION without `quantized_layers`"));
            };
            for (name, _) in layers.all() {
                let Some(layer) = layers.object(name) else { continue };
                let dtype = modelopt_dtype(layer.text("quant_algo").unwrap_or(""), group);
                let dtype = dtype.ok_or_else(|| unknown(keys, "quantized_layers", &format!("the algorithm of `{name}`")))?;
                self.groups.push(Group { targets: vec![Pattern::new(name)], dtype });
            }
            return Ok(());
        }
        let dtype = modelopt_dtype(algorithm, group);
        let dtype = dtype.ok_or_else(|| unknown(keys, "quant_algo", &format!("algorithm `{algorithm}`")))?;
        self.groups.push(Group { targets: Vec::new(), dtype });
        Ok(())
    }

    fn read_cache(&mut self, keys: &Keys, notes: &mut Vec<String>) {
        let Some(scheme) = keys.object("kv_cache_scheme") else { return };
        match scheme.get("num_bits").and_then(Value::as_u64) {
            Some(8) => self.cache = Some(Dtype::Fp8),
            _ => notes.push("kv_cache_scheme: not understood, cache taken as 16-bit".to_owned()),
        }
    }

    /// How the module is stored that goes by any of `names`.
    pub fn dtype_of(&self, names: &[String]) -> Dtype {
        let named = |patterns: &[Pattern]| patterns.iter().any(|p| names.iter().any(|n| p.matches(n)));
        if named(&self.ignored) {
            return self.plain;
        }
        let group = self.groups.iter().find(|g| g.targets.is_empty() || named(&g.targets));
        group.map_or(self.plain, |g| g.dtype)
    }

    /// How `lm_head` is stored.
    pub fn head_dtype(&self) -> Dtype {
        if self.head { self.dtype_of(&["lm_head".to_owned(), "language_model.lm_head".to_owned()]) } else { self.plain }
    }
}

fn group_size(size: Option<u64>) -> u32 {
    size.and_then(|s| u32::try_from(s).ok()).filter(|s| *s > 0).unwrap_or(1 << 20)
}

fn group_dtype(weights: &Keys) -> Result<Dtype> {
    let bits = weights.size("num_bits", 64)?.unwrap_or(16);
    let group = weights.size("group_size", 1 << 20).ok().flatten();
    match (weights.text("type").unwrap_or("int"), bits) {
        ("int", 4) => Ok(Dtype::Int4 { group: group_size(group) }),
        ("int", 8) => Ok(Dtype::Int8),
        ("float", 8) => Ok(Dtype::Fp8),
        ("float", 4) if group == Some(32) => Ok(Dtype::Mxfp4),
        ("float", 4) => Ok(Dtype::Nvfp4),
        (kind, bits) => Err(unknown(weights, "num_bits", &format!("{bits}-bit {kind} weights"))),
    }
}

fn modelopt_dtype(algorithm: &str, group: Option<u64>) -> Option<Dtype> {
    match algorithm.to_ascii_uppercase().as_str() {
        "NVFP4" | "NVFP4_AWQ" | "W4A16_NVFP4" => Some(Dtype::Nvfp4),
        "MXFP4" => Some(Dtype::Mxfp4),
        "FP8" | "FP8_PB_WO" | "FP8_PER_CHANNEL_PER_TOKEN" | "MXFP8" => Some(Dtype::Fp8),
        "W4A16_AWQ" | "INT4_AWQ" | "W4A8_AWQ" => Some(Dtype::Int4 { group: group_size(group) }),
        "INT8_SQ" | "W8A8_SQ_PER_CHANNEL" | "W8A16" => Some(Dtype::Int8),
        _ => None,
    }
}

fn unknown(keys: &Keys, key: &str, what: &str) -> Box<Fault> {
    keys.fault("model-unknown-quantization", key, format!("quantization {what} is not known"))
        .help("known: compressed-tensors, modelopt, fp8, mxfp4, awq, gptq; without `quantization_config` the weights are taken as 16-bit")
}
