//! Every number of a machine by its dotted path.
//!
//! Paths: `fabric.NAME`, `links.CLASS.NAME`, `kinds.KIND.chip.NAME` (also
//! `launch`, `kernels`, `protocol`), `collapses.AT.write_gbps`. Links of one
//! class change together.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use crate::error::Fault;
use crate::error::Result;
use crate::knob::Constants;
use crate::knob::Quantity;
use crate::knob::Spec;
use crate::machine::*;

/// The numbers of a [`Collapse`].
pub(crate) static COLLAPSE_SPECS: [Spec; 1] = [Spec {
    name: "write_gbps",
    unit: "GBps",
    bounds: RangeInclusive::new(0.01, 2000.0),
    meaning: "What all posted writes of the collapse together are left with.",
}];

static LINK_SPECS: LazyLock<&'static [Spec]> = LazyLock::new(LinkConstants::specs);

impl Link {
    /// The number of that name; see [`LinkConstants`].
    pub fn quantity(&self, name: &str) -> Option<&Quantity> {
        match name {
            "forward_gbps" => Some(&self.forward_gbps),
            "backward_gbps" => Some(&self.backward_gbps),
            "latency_ns" => Some(&self.latency_ns),
            "read_factor" => Some(&self.read_factor),
            _ => None,
        }
    }

    fn quantity_mut(&mut self, name: &str) -> Option<&mut Quantity> {
        match name {
            "forward_gbps" => Some(&mut self.forward_gbps),
            "backward_gbps" => Some(&mut self.backward_gbps),
            "latency_ns" => Some(&mut self.latency_ns),
            "read_factor" => Some(&mut self.read_factor),
            _ => None,
        }
    }
}

/// Path, what is known about the number, and the number.
pub type Knob<'a> = (String, &'static Spec, &'a Quantity);

impl Machine {
    /// Every number of the machine: fabric, links by class, kinds, collapses.
    pub fn knobs(&self) -> Vec<Knob<'_>> {
        let mut knobs = Vec::new();
        list(&mut knobs, "fabric", &self.fabric);
        let mut classes: BTreeMap<&str, &Link> = BTreeMap::new();
        for link in &self.links {
            classes.entry(&link.class).or_insert(link);
        }
        for (class, link) in classes {
            for spec in LINK_SPECS.iter() {
                knobs.extend(link.quantity(spec.name).map(|q| (format!("links.{class}.{}", spec.name), spec, q)));
            }
        }
        for (id, kind) in &self.kinds {
            list(&mut knobs, &format!("kinds.{id}.chip"), &kind.chip);
            list(&mut knobs, &format!("kinds.{id}.launch"), &kind.launch);
            list(&mut knobs, &format!("kinds.{id}.kernels"), &kind.kernels);
            list(&mut knobs, &format!("kinds.{id}.protocol"), &kind.protocol);
        }
        for collapse in &self.collapses {
            knobs.push((format!("collapses.{}.write_gbps", collapse.at), &COLLAPSE_SPECS[0], &collapse.write_gbps));
        }
        knobs
    }

    /// Sets a number exactly: its interval shrinks to the value.
    ///
    /// # Errors
    /// `knob-unknown` and `knob-bounds`.
    pub fn set(&mut self, path: &str, value: f64) -> Result<()> {
        self.set_quantity(path, &Quantity::exact(value, "set"))
    }

    /// Sets a number with its interval and source, e.g. after a fit.
    ///
    /// # Errors
    /// `knob-unknown` and `knob-bounds`.
    pub fn set_quantity(&mut self, path: &str, quantity: &Quantity) -> Result<()> {
        let Some(spec) = self.spec(path) else { return Err(self.unknown(path)) };
        let inside = |number: f64| spec.bounds.contains(&number);
        if !(inside(quantity.value) && inside(quantity.low) && inside(quantity.high)) {
            let (low, high) = (spec.bounds.start(), spec.bounds.end());
            return Err(Fault::new("knob-bounds", format!("{path} = {} is out of bounds", quantity.value)).help(format!(
                "expected {low} to {high} {}: {}",
                spec.unit,
                spec.meaning.trim()
            )));
        }
        for field in self.fields_mut(path) {
            field.clone_from(quantity);
        }
        Ok(())
    }

    /// What is known about the number at `path`, if there is one.
    pub fn spec(&self, path: &str) -> Option<&'static Spec> {
        let find = |specs: &'static [Spec], name: &str| specs.iter().find(|spec| spec.name == name);
        match *path.split('.').collect::<Vec<_>>() {
            ["fabric", name] => find(FabricConstants::specs(), name),
            ["links", class, name] if self.links.iter().any(|l| l.class == class) => find(&LINK_SPECS, name),
            ["collapses", at, name] if self.collapses.iter().any(|c| c.at == at) => find(&COLLAPSE_SPECS, name),
            ["kinds", kind, part, name] if self.kinds.contains_key(kind) => match part {
                "chip" => find(ChipConstants::specs(), name),
                "launch" => find(LaunchConstants::specs(), name),
                "kernels" => find(KernelConstants::specs(), name),
                "protocol" => find(ProtocolConstants::specs(), name),
                _ => None,
            },
            _ => None,
        }
    }

    fn fields_mut(&mut self, path: &str) -> Vec<&mut Quantity> {
        match *path.split('.').collect::<Vec<_>>() {
            ["fabric", name] => self.fabric.quantity_mut(name).into_iter().collect(),
            ["links", class, name] => self.links.iter_mut().filter(|l| l.class == class).filter_map(|l| l.quantity_mut(name)).collect(),
            ["collapses", at, "write_gbps"] => self.collapses.iter_mut().filter(|c| c.at == at).map(|c| &mut c.write_gbps).collect(),
            ["kinds", kind, part, name] => {
                let Some(kind) = self.kinds.get_mut(kind) else { return Vec::new() };
                let field = match part {
                    "chip" => kind.chip.quantity_mut(name),
                    "launch" => kind.launch.quantity_mut(name),
                    "kernels" => kind.kernels.quantity_mut(name),
                    "protocol" => kind.protocol.quantity_mut(name),
                    _ => None,
                };
                field.into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    fn unknown(&self, path: &str) -> Box<Fault> {
        // The same last name elsewhere is what is most often meant.
        let last = path.rsplit('.').next().unwrap_or(path);
        let knobs = self.knobs();
        let near: Vec<&str> = knobs.iter().map(|k| k.0.as_str()).filter(|known| known.rsplit('.').next() == Some(last)).collect();
        let fault = Fault::new("knob-unknown", format!("{} has no number called `{path}`", self.id));
        if near.is_empty() {
            let groups = "fabric.NAME, links.CLASS.NAME, kinds.KIND.chip.NAME (launch, kernels, protocol), collapses.AT.write_gbps";
            return fault.help(format!("paths are {groups}"));
        }
        fault.help(format!("known: {}", near.join(", ")))
    }
}

fn list<'a, C: Constants>(knobs: &mut Vec<Knob<'a>>, prefix: &str, constants: &'a C) {
    for spec in C::specs() {
        knobs.extend(constants.quantity(spec.name).map(|q| (format!("{prefix}.{}", spec.name), spec, q)));
    }
}
