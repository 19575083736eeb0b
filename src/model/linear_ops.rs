//! Gated delta nets as operations of one rank: convolution state and recurrent
//! state in place of a cache that grows.

use super::op::Dtype;
use super::op::Family;
use super::op::Op;
use super::shape::GatedDelta;
use super::steps::ACTIVATION_BYTES;
use super::steps::ATTENTION_OUTPUT;
use super::steps::Steps;
use super::steps::mul;
use super::workload::Phase;
use crate::error::Result;

impl Steps<'_> {
    /// Key and value heads are split over the ranks; both must divide.
    pub fn gated_delta(&mut self, delta: &GatedDelta) -> Result<()> {
        let workload = self.workload;
        let value_heads = self.shard.split(delta.value_heads, "linear-attention value heads")?;
        let key_heads = self.shard.split(delta.key_heads, "linear-attention key heads")?;
        let (rows, hidden) = (workload.rows(), self.model.hidden);
        let values = value_heads * delta.value_dim;
        let channels = 2 * key_heads * delta.key_dim + values;
        self.gemm("in_proj_qkvz", rows, channels + values, hidden, delta.input_dtype, &["input_norm"]);
        self.gemm("in_proj_ba", rows, 2 * value_heads, hidden, delta.input_dtype, &["input_norm"]);
        self.elementwise("causal_conv", rows, channels, channels, 1, &["in_proj_qkvz"]);
        // A verify pass keeps the state after every token, to go back to the
        // last one that is accepted; other passes keep the last state.
        let kept = if workload.phase == Phase::Verify { workload.tokens } else { 1 };
        if let Some(step) = self.list.last_mut() {
            step.op.weight_bytes = Dtype::Bf16.bytes_of(channels * delta.conv_taps);
            step.op.cache_bytes = mul(&[workload.batch, 1 + kept, channels, delta.conv_taps - 1, ACTIVATION_BYTES]);
        }
        let state = delta.key_dim * delta.value_dim;
        let state_bytes = delta.state_dtype.bytes_of(mul(&[value_heads, state]));
        let op = Op {
            name: "delta_rule",
            family: Family::LinearAttention { batch: workload.batch, tokens: workload.tokens, heads: value_heads, state },
            dtype: delta.state_dtype,
            // Decay, read-out of the old value, rank-one update, read-out.
            flops: mul(&[7, rows, value_heads, state]),
            weight_bytes: 0,
            cache_bytes: mul(&[workload.batch, 1 + kept, state_bytes]),
            activation_bytes: mul(&[rows, channels + values, ACTIVATION_BYTES]),
            launches: 1,
        };
        self.push(op, &["causal_conv", "in_proj_ba"]);
        self.elementwise("gated_norm", rows, 2 * values, values, 1, &["delta_rule", "in_proj_qkvz"]);
        self.gemm(ATTENTION_OUTPUT, rows, hidden, values, delta.output_dtype, &["gated_norm"]);
        Ok(())
    }
}
