//! Observations with what they scatter by: `decode_tps=82`, `profiled_us=150..300`.

use std::collections::BTreeMap;

use crate::error::Fault;
use crate::error::Result;

use super::kind::Kind;

/// Half of a 90 % interval in sigmas.
const SIGMAS_90: f64 = 1.645;

/// One observation.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// What.
    pub kind: Kind,
    /// The value; the geometric middle where an interval was given.
    pub value: f64,
    /// Relative scatter of the measurement, one sigma.
    pub scatter: f64,
    /// Where it comes from: `--observed`, a file's name.
    pub source: String,
}

/// Observations by kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observations(pub BTreeMap<Kind, Observed>);

impl Observations {
    /// Adds one; what is there already stays, and is said so.
    pub fn add(&mut self, observed: Observed) -> Option<String> {
        if let Some(known) = self.0.get(&observed.kind) {
            return Some(format!("{} of {} is passed over: {} gave it before", observed.kind, observed.source, known.source));
        }
        self.0.insert(observed.kind, observed);
        None
    }

    /// The value of a kind.
    pub fn value(&self, kind: Kind) -> Option<f64> {
        self.0.get(&kind).map(|observed| observed.value)
    }

    /// The kinds.
    pub fn kinds(&self) -> Vec<Kind> {
        self.0.keys().copied().collect()
    }
}

/// Reads `name=number` or `name=low..high`. `scatter` is what a number without an interval scatters by, `ranks`
/// turns bus bandwidths into times.
///
/// # Errors
/// `observed-unknown`, `observed-bad-value`.
pub fn parse(text: &str, source: &str, scatter: f64, ranks: u32) -> Result<Observed> {
    let bad = |why: &str| {
        Fault::new("observed-bad-value", format!("`{text}`: {why}")).help("write NAME=NUMBER or NAME=LOW..HIGH, for example decode_tps=82")
    };
    let (name, value) = text.split_once('=').ok_or_else(|| bad("expected name=number"))?;
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0 && *number < 1e15);
    let above_zero = "expected a number above zero";
    let (low, high) = match value.split_once("..") {
        Some((low, high)) => (number(low).ok_or_else(|| bad(above_zero))?, number(high).ok_or_else(|| bad(above_zero))?),
        None => {
            let value = number(value).ok_or_else(|| bad(above_zero))?;
            (value, value)
        }
    };
    if low > high {
        return Err(bad("the interval's ends are in the wrong order"));
    }
    let name = name.trim();
    let (kind, low, high) = match name.strip_prefix("busbw_gbps@") {
        Some(bytes) => {
            let kind: Kind = format!("allreduce_us@{bytes}").parse()?;
            let Kind::AllreduceUs(bytes) = kind else { return Err(bad("expected busbw_gbps@BYTES")) };
            let us = |gbps: f64| bus_factor(ranks) * bytes as f64 / gbps / 1e3;
            (kind, us(high), us(low))
        }
        None => (name.parse()?, low, high),
    };
    if matches!(kind, Kind::Acceptance | Kind::AllreduceShare | Kind::LeastShare) && high > 1.0 {
        return Err(bad("it is a share from 0 to 1"));
    }
    let width = libm::log(high / low) / 2.0 / SIGMAS_90;
    Ok(Observed { kind, value: libm::sqrt(low * high), scatter: width.max(scatter), source: source.to_owned() })
}

/// Bytes on the bus per byte of the message, as nccl-tests counts an all-reduce.
pub fn bus_factor(ranks: u32) -> f64 {
    2.0 * (f64::from(ranks.max(2)) - 1.0) / f64::from(ranks.max(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Observed> {
        parse(text, "test", 0.03, 8)
    }

    #[test]
    fn numbers_and_intervals() {
        let plain = read("decode_tps=82").expect("a number");
        assert_eq!((plain.kind, plain.value, plain.scatter), (Kind::DecodeTps, 82.0, 0.03));
        // sqrt(150 × 300) = 212.1; ln 2 / 2 / 1.645 = 0.2107.
        let wide = read("profiled_us=150..300").expect("an interval");
        assert!((wide.value - 212.13).abs() < 0.01 && (wide.scatter - 0.2107).abs() < 1e-4);
        // 1.75 × 64 MiB / 24 GB/s = 4893 us.
        let bus = read("busbw_gbps@67108864=24").expect("a bus bandwidth");
        assert_eq!(bus.kind, Kind::AllreduceUs(1 << 26));
        assert!((bus.value - 4893.4).abs() < 0.1, "{}", bus.value);
    }

    #[test]
    fn nonsense_is_refused() {
        for wrong in [
            "decode_tps",
            "decode_tps=",
            "decode_tps=0",
            "decode_tps=-1",
            "decode_tps=nan",
            "decode_tps=2..1",
            "acceptance=1.5",
            "busbw_gbps@x=1",
            "verify_ms=1e300",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert_eq!(read("speed=3").expect_err("unknown").code, "observed-unknown");
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in ".*") {
            let _ = read(&text);
        }
    }
}
