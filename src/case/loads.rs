//! What each collective of a program takes over each link.

use std::collections::BTreeMap;

use crate::simulate::Network;
use crate::simulate::Operation;
use crate::simulate::Timed;
use crate::simulate::timed::TimedBlock;
use crate::simulate::timed::TimedStep;
use crate::trace::links::LinkLoad;

use super::assemble::Assembled;
use super::roads::CROSSING;

/// The links that anything crosses, with the bytes of one operation of each
/// name and size, all ranks together: what the simulator's flows carry.
pub fn link_loads(assembled: &Assembled) -> Vec<LinkLoad> {
    let program = &assembled.program;
    let of: Vec<Vec<u64>> = program.collectives.iter().map(|timed| by_link(timed, &program.network)).collect();
    let mut links: Vec<LinkLoad> = (assembled.links.iter().zip(&program.network.capacity))
        .map(|(name, &capacity)| LinkLoad { name: name.clone(), gbps: capacity as f64 / 1e9, loads: BTreeMap::new() })
        .collect();
    for (template, labels) in program.templates.iter().zip(&assembled.labels) {
        for (operation, label) in template.operations.iter().zip(labels) {
            let Operation::Collective { collective, .. } = operation else { continue };
            for (link, &bytes) in links.iter_mut().zip(&of[*collective as usize]) {
                if bytes > 0 {
                    link.loads.insert((label.name.to_owned(), label.bytes), bytes);
                }
            }
        }
    }
    links.retain(|link| !link.loads.is_empty() && !link.name.ends_with(CROSSING));
    links
}

/// Bytes that one instance of a collective takes over each link.
pub(super) fn by_link(timed: &Timed, network: &Network) -> Vec<u64> {
    let mut bytes = vec![0; network.capacity.len()];
    let mut carry = |route: u32, wire: u64| network.links(route).iter().for_each(|&link| bytes[link as usize] += wire);
    for (block, step) in timed.blocks.iter().flat_map(|block| steps_of(timed, block).iter().map(move |step| (block, step))) {
        let all = u64::from(block.count);
        for leg in &timed.legs[step.receive.0 as usize..step.receive.1 as usize] {
            let connection = &timed.connections[leg.connection as usize];
            match connection.fetch {
                _ if connection.pulled => carry(connection.route, leg.wire * all),
                Some(fetch) => carry(fetch.route, leg.wire * fetch.times * all),
                None => {}
            }
        }
        for leg in &timed.legs[step.send.0 as usize..step.send.1 as usize] {
            carry(timed.connections[leg.connection as usize].route, leg.wire * all);
        }
    }
    bytes
}

fn steps_of<'a>(timed: &'a Timed, block: &TimedBlock) -> &'a [TimedStep] {
    &timed.steps[block.steps.0 as usize..block.steps.1 as usize]
}
