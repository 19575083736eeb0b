//! Models: a `config.json` becomes layers, and layers become operations of one
//! rank with FLOPs and bytes. Knows no GPU, no time and no collective.
//!
//! Start at [`Model::load`]; [`shape`] says what a layer is made of,
//! [`Model::layer_steps`] turns it into operations for a [`Workload`] and a
//! [`Shard`]. What a configuration says and this module does not price is in
//! [`Model::not_modelled`].

pub mod op;

mod attention_ops;
mod catalog;
mod config;
mod draft;
mod expression;
mod indexer_ops;
mod json;
mod linear_ops;
mod parameters;
mod pattern;
mod quantization;
mod read_layers;
mod routing;
pub mod shape;
mod steps;
mod workload;

pub use attention_ops::QK_NORM_SQUARES;
pub use catalog::CATALOG;
pub use catalog::Entry;
pub use draft::Draft;
pub use draft::Eagle3;
pub use op::{Dtype, Family, Op};
pub use parameters::{Parameters, Totals};
pub use routing::{Routing, RoutingConstants, distinct, fullest};
pub use shape::Layer;
pub use steps::ACTIVATION_BYTES;
pub use steps::ATTENTION_OUTPUT;
pub use steps::Step;
pub use workload::{Load, Phase, Shard, Workload};

/// A decoder-only language model, read from its `config.json`.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Kebab-case id, e.g. `kimi-k2.5`; for a file its stem.
    pub id: String,
    /// As published, e.g. `moonshotai/Kimi-K2.5`; for a file its path.
    pub name: String,
    /// `model_type` of the language part.
    pub architecture: String,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Rows of the embedding.
    pub vocab: u64,
    /// The head is the embedding.
    pub tied: bool,
    /// Longest context that the configuration allows; 0 when not said.
    pub max_positions: u64,
    /// The distinct layers.
    pub kinds: Vec<Layer>,
    /// For each layer its index into `kinds`.
    pub layers: Vec<usize>,
    /// How the embedding is stored.
    pub embedding_dtype: Dtype,
    /// How `lm_head` is stored.
    pub head_dtype: Dtype,
    /// How the cache is kept unless the workload says otherwise.
    pub cache_dtype: Dtype,
    /// A rank's share of a quantized inner size must be a multiple of this.
    pub block: Option<u64>,
    /// Multi-token-prediction layers, if the checkpoint has them.
    pub mtp: Option<Mtp>,
    /// What the configuration says and the forecast leaves out, in words.
    pub not_modelled: Vec<String>,
}

/// Multi-token-prediction layers (DeepSeek-V3's shape): two norms, a
/// projection of twice the width, and one layer like the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mtp {
    /// How many.
    pub layers: u64,
    /// The layer.
    pub layer: Layer,
    /// `eh_proj`.
    pub projection_dtype: Dtype,
}

impl Model {
    /// What is to be said where nobody compared the architecture with its implementation.
    pub fn unknown_architecture(&self) -> Option<String> {
        config::unknown_architecture(&self.architecture)
    }

    /// The layer at `index`, if there is one.
    pub fn layer(&self, index: usize) -> Option<&Layer> {
        self.layers.get(index).and_then(|kind| self.kinds.get(*kind))
    }
}
