//! Long collectives with some of their loops left out.
//!
//! The kernels of a long collective go through one loop again and again: the
//! same steps on further chunks. Once the pipeline is full each loop takes as
//! long as the one before, so that a few loops say what many take.

use super::timed::Timed;
use super::timed::TimedStep;

/// Steps that a loop may have.
const LOOP_STEPS_MAX: usize = 256;

/// How a collective's blocks loop.
pub struct Loops<'a> {
    timed: &'a Timed,
    /// Steps of one loop of each block.
    steps: Vec<usize>,
    /// Loops that every block begins with; shorter ones may follow.
    count: usize,
}

impl<'a> Loops<'a> {
    /// Of a collective whose blocks all loop; None where one does not, or where
    /// more is sent on a connection in a loop than is taken from it.
    pub fn of(timed: &'a Timed) -> Option<Loops<'a>> {
        let mut loops = Loops { timed, steps: Vec::with_capacity(timed.blocks.len()), count: usize::MAX };
        for block in &timed.blocks {
            let (steps, count) = period(timed, &timed.steps[block.steps.0 as usize..block.steps.1 as usize])?;
            loops.steps.push(steps);
            loops.count = loops.count.min(count);
        }
        (!timed.blocks.is_empty() && loops.balanced()).then_some(loops)
    }

    /// How many loops there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Steps of the longest loop.
    pub fn steps(&self) -> usize {
        self.steps.iter().copied().max().unwrap_or(1)
    }

    /// The collective with `kept` of its loops, and all that follows them.
    pub fn shortened(&self, kept: usize) -> Timed {
        let left_out = self.count.saturating_sub(kept);
        let mut short = self.timed.clone();
        for (block, steps) in short.blocks.iter_mut().zip(&self.steps) {
            // Fewer than the block's steps, which are counted in 32 bits.
            block.steps.0 += (left_out * steps) as u32;
        }
        short
    }

    /// Whether each connection is sent as much in a loop as is taken from it.
    fn balanced(&self) -> bool {
        let mut messages = vec![(0usize, 0usize); self.timed.connections.len()];
        for (block, steps) in self.timed.blocks.iter().zip(&self.steps) {
            for step in &self.timed.steps[block.steps.0 as usize..][..*steps] {
                for leg in &self.timed.legs[step.send.0 as usize..step.send.1 as usize] {
                    messages[leg.connection as usize].0 += 1;
                }
                for leg in &self.timed.legs[step.receive.0 as usize..step.receive.1 as usize] {
                    messages[leg.connection as usize].1 += 1;
                }
            }
        }
        let pulled = |connection: usize| self.timed.connections[connection].pulled;
        messages.iter().enumerate().all(|(connection, (sent, taken))| sent == taken || pulled(connection))
    }
}

/// Steps of a block's loop, and how many whole loops it begins with.
fn period(timed: &Timed, steps: &[TimedStep]) -> Option<(usize, usize)> {
    let longest = LOOP_STEPS_MAX.min(steps.len() / 2);
    let repeats = |length: usize| {
        let like = (length..steps.len()).take_while(|&place| alike(timed, &steps[place], &steps[place - length])).count();
        1 + like / length
    };
    // The shortest that goes on for most of the block.
    (1..=longest).find_map(|length| {
        let count = repeats(length);
        (2 * count * length > steps.len()).then_some((length, count))
    })
}

/// Whether two steps do the same.
fn alike(timed: &Timed, one: &TimedStep, other: &TimedStep) -> bool {
    let legs = |(first, last): (u32, u32)| &timed.legs[first as usize..last as usize];
    one.cost == other.cost && legs(one.receive) == legs(other.receive) && legs(one.send) == legs(other.send)
}
