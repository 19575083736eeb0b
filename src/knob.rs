//! Numbers with a source, and the registry through which cases change them.
//!
//! A [`Quantity`] is what a machine file states: a value, an interval and where
//! it comes from. Structs of quantities are declared with [`constants!`], which
//! also lists each field's unit, physical bounds and meaning; fit, sampling,
//! sweeps and sensitivity reach every number through that list and nothing else.

use std::fmt;
use std::ops::RangeInclusive;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeStruct, Serializer};

/// One number of a machine, model or workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantity {
    /// The best estimate, in the unit that the field's name ends with.
    pub value: f64,
    /// The lower end of a 90 % interval.
    pub low: f64,
    /// The upper end of a 90 % interval.
    pub high: f64,
    /// Where the number comes from; empty when the file does not say.
    pub source: String,
}

impl Quantity {
    /// A number known exactly.
    pub fn exact(value: f64, source: &str) -> Quantity {
        Quantity { value, low: value, high: value, source: source.to_owned() }
    }

    /// A number with an interval.
    pub fn between(low: f64, value: f64, high: f64, source: &str) -> Quantity {
        Quantity { value, low, high, source: source.to_owned() }
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.low == self.value && self.high == self.value && self.source.is_empty() {
            return serializer.serialize_f64(self.value);
        }
        let mut fields = serializer.serialize_struct("Quantity", 4)?;
        fields.serialize_field("value", &self.value)?;
        fields.serialize_field("low", &self.low)?;
        fields.serialize_field("high", &self.high)?;
        fields.serialize_field("source", &self.source)?;
        fields.end()
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Quantity, D::Error> {
        deserializer.deserialize_any(QuantityVisitor)
    }
}

struct QuantityVisitor;

impl<'de> Visitor<'de> for QuantityVisitor {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or { value = …, low = …, high = …, source = \"…\" }")
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Quantity, E> {
        if !value.is_finite() {
            return Err(E::custom("expected a finite number"));
        }
        Ok(Quantity::exact(value, ""))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Quantity, E> {
        self.visit_f64(value as f64)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Quantity, E> {
        self.visit_f64(value as f64)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Quantity, A::Error> {
        let (mut value, mut low, mut high, mut source) = (None, None, None, None);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "value" => value = Some(map.next_value::<f64>()?),
                "low" => low = Some(map.next_value::<f64>()?),
                "high" => high = Some(map.next_value::<f64>()?),
                "source" => source = Some(map.next_value::<String>()?),
                other => return Err(de::Error::unknown_field(other, &["value", "low", "high", "source"])),
            }
        }
        let value = value.ok_or_else(|| de::Error::missing_field("value"))?;
        let quantity = Quantity { value, low: low.unwrap_or(value), high: high.unwrap_or(value), source: source.unwrap_or_default() };
        let finite = [quantity.value, quantity.low, quantity.high].iter().all(|n| n.is_finite());
        if !finite || quantity.low > quantity.value || quantity.high < quantity.value {
            return Err(de::Error::custom("expected finite numbers with low ≤ value ≤ high"));
        }
        Ok(quantity)
    }
}

/// What is known about one field of a struct of constants.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The field's name, unit last.
    pub name: &'static str,
    /// The unit, as the name's ending has it: `ns`, `GBps`, `bytes`, `1`.
    pub unit: &'static str,
    /// What physics allows; readers refuse values outside, fits stay inside.
    pub bounds: RangeInclusive<f64>,
    /// One sentence on what the number means.
    pub meaning: &'static str,
}

/// A struct whose fields are all [`Quantity`], reachable by name.
pub trait Constants {
    /// All fields in the order of declaration.
    fn specs() -> &'static [Spec]
    where
        Self: Sized;
    /// The field of that name.
    fn quantity(&self, name: &str) -> Option<&Quantity>;
    /// The field of that name, to change.
    fn quantity_mut(&mut self, name: &str) -> Option<&mut Quantity>;
}

/// Declares a struct of [`Quantity`] fields together with its [`Spec`]s.
///
/// Each field gives unit, bounds and the default with its interval that a
/// machine file may leave out. Reading refuses unknown names and values out of
/// bounds.
///
/// ```
/// lanecast::constants! {
///     /// What a launch costs.
///     pub struct Launch {
///         /// One launch from the host.
///         eager_ns: "ns", 0.0..=1e6, default 3000.0 in 1500.0..=6000.0, "assumed: typical of current drivers";
///     }
/// }
/// assert_eq!(Launch::default().eager_ns.value, 3000.0);
/// ```
#[macro_export]
macro_rules! constants {
    (
        $(#[doc = $struct_doc:literal])+
        pub struct $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $field:ident: $unit:literal, $bounds:expr, default $value:literal in $low:literal..=$high:literal, $source:literal;
            )+
        }
    ) => {
        $(#[doc = $struct_doc])+
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $( $(#[doc = $doc])+ pub $field: $crate::knob::Quantity, )+
        }

        impl Default for $name {
            fn default() -> $name {
                $name { $( $field: $crate::knob::Quantity::between($low, $value, $high, $source), )+ }
            }
        }

        impl $crate::knob::Constants for $name {
            fn specs() -> &'static [$crate::knob::Spec] {
                static SPECS: std::sync::LazyLock<Vec<$crate::knob::Spec>> = std::sync::LazyLock::new(|| vec![
                    $( $crate::knob::Spec {
                        name: stringify!($field),
                        unit: $unit,
                        bounds: $bounds,
                        meaning: concat!($($doc),+),
                    }, )+
                ]);
                &SPECS
            }

            fn quantity(&self, name: &str) -> Option<&$crate::knob::Quantity> {
                match name {
                    $( stringify!($field) => Some(&self.$field), )+
                    _ => None,
                }
            }

            fn quantity_mut(&mut self, name: &str) -> Option<&mut $crate::knob::Quantity> {
                match name {
                    $( stringify!($field) => Some(&mut self.$field), )+
                    _ => None,
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    constants! {
        /// For the tests.
        pub struct Sample {
            /// A latency.
            hop_ns: "ns", 0.0..=1000.0, default 600.0 in 500.0..=700.0, "assumed";
        }
    }

    #[test]
    fn a_quantity_is_a_number_or_a_table() {
        let plain: Sample = toml::from_str("hop_ns = 5").expect("a number");
        assert_eq!(plain.hop_ns, Quantity::exact(5.0, ""));
        let full: Sample = toml::from_str(r#"hop_ns = { value = 5, low = 4.0, source = "s" }"#).expect("a table");
        assert_eq!(full.hop_ns, Quantity::between(4.0, 5.0, 5.0, "s"));
        let empty: Sample = toml::from_str("").expect("defaults");
        assert_eq!(empty.hop_ns.value, 600.0);
    }

    #[test]
    fn a_quantity_refuses_nonsense() {
        for text in ["hop_ns = nan", "hop_ns = inf", "hop_ns = { value = 5, low = 6 }", "hop_ns = { low = 1 }", "hop = 1", "hop_ns = \"x\""]
        {
            assert!(toml::from_str::<Sample>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn fields_are_reached_by_name() {
        let mut sample = Sample::default();
        sample.quantity_mut("hop_ns").expect("known").value = 1.0;
        assert_eq!(sample.quantity("hop_ns").map(|q| q.value), Some(1.0));
        assert_eq!(Sample::specs()[0].unit, "ns");
        assert!(sample.quantity("nope").is_none());
    }
}
