//! The element types of the all-reduces.

use half::bf16;
use half::f16;

/// A 16-bit floating-point type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    /// 8 bits of exponent, 7 of fraction.
    Bf16,
    /// IEEE half precision. Called `fp16` in observations.
    #[serde(rename = "fp16")]
    F16,
}

impl Element {
    /// As observations name it.
    pub fn name(self) -> &'static str {
        match self {
            Element::Bf16 => "bf16",
            Element::F16 => "fp16",
        }
    }

    /// The bits of `x`, rounded to nearest even.
    pub fn from_f32(self, x: f32) -> u16 {
        match self {
            Element::Bf16 => bf16::from_f32(x).to_bits(),
            Element::F16 => f16::from_f32(x).to_bits(),
        }
    }

    /// The value of `bits`.
    pub fn to_f64(self, bits: u16) -> f64 {
        match self {
            Element::Bf16 => bf16::from_bits(bits).to_f64(),
            Element::F16 => f16::from_bits(bits).to_f64(),
        }
    }

    /// The largest relative error of one rounding: half a unit in the last
    /// place, 2^-8 / 2 for bf16 (8 significant bits) and 2^-11 / 2 ... so 2^-9
    /// and 2^-12 of the value's power of two, at most 2^-8 and 2^-11 of the value.
    pub fn rounding(self) -> f64 {
        match self {
            Element::Bf16 => 1.0 / 256.0,
            Element::F16 => 1.0 / 2048.0,
        }
    }
}
