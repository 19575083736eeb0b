//! Two halves of a batch that take turns: while one's collective is under way
//! the other computes. One compute stream, one communication stream, a rank.
//!
//! A block of segments `S0 C0 S1 C1 …` (computations, then a collective) becomes
//! `C0.a ∥ S0.b, C0.b ∥ S1.a, C1.a ∥ S1.b, C1.b ∥ S0'.a, …`, where `S0'` opens the
//! next block; the first block's `S0.a` goes ahead of everything.

use crate::simulate::Operation;
use crate::simulate::Template;
use crate::simulate::program::Run;

use super::assemble::Assembled;
use super::assemble::Label;

/// Which half of the batch an operation works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// The one that goes ahead.
    First,
    /// The other one.
    Second,
}

/// An operation and what it is.
type Piece = (Operation, Label);

/// Computations and the collective that follows them.
#[derive(Clone, Default)]
struct Segment {
    computes: Vec<Piece>,
    collective: Option<Piece>,
}

/// Lets two halves take turns in what was assembled for one.
pub fn take_turns(assembled: &mut Assembled) {
    let blocks: Vec<(Run, Vec<Segment>)> =
        (assembled.program.sequence.iter()).map(|run| (*run, segments(assembled, run.template as usize))).collect();
    let places = std::mem::take(&mut assembled.places);
    assembled.program.sequence.clear();
    assembled.program.templates.clear();
    assembled.labels.clear();
    let Some((first, opening)) = blocks.first().map(|(run, segments)| (*run, opening_of(segments))) else { return };
    let mut turns = Turns { assembled };
    turns.push(Run { repeats: 1, ..first }, places[0], opening.into_iter().map(|piece| of(piece, Half::First, true)).collect());
    for (index, (run, segments)) in blocks.iter().enumerate() {
        let next = blocks.get(index + 1).map(|(_, segments)| opening_of(segments)).unwrap_or_default();
        if run.repeats > 1 {
            turns.push(Run { repeats: run.repeats - 1, ..*run }, places[index], interleaved(segments, &opening_of(segments)));
        }
        turns.push(Run { repeats: 1, ..*run }, places[index].plus(run.repeats - 1), interleaved(segments, &next));
    }
}

struct Turns<'a> {
    assembled: &'a mut Assembled,
}

impl Turns<'_> {
    fn push(&mut self, run: Run, place: crate::plan::Place, pieces: Vec<Piece>) {
        let template = self.assembled.program.templates.len() as u32;
        let (operations, labels) = pieces.into_iter().unzip();
        self.assembled.program.templates.push(Template { operations });
        self.assembled.labels.push(labels);
        self.assembled.program.sequence.push(Run { template, ..run });
        self.assembled.places.push(place);
    }
}

fn segments(assembled: &Assembled, template: usize) -> Vec<Segment> {
    let mut segments = vec![Segment::default()];
    for piece in assembled.program.templates[template].operations.iter().cloned().zip(assembled.labels[template].iter().copied()) {
        let open = segments.last_mut();
        match (&piece.0, open) {
            (Operation::Compute { .. }, Some(segment)) => segment.computes.push(piece),
            (Operation::Collective { .. }, Some(segment)) => {
                segment.collective = Some(piece);
                segments.push(Segment::default());
            }
            (_, None) => {}
        }
    }
    if segments.len() > 1 && segments.last().is_some_and(|last| last.computes.is_empty()) {
        segments.pop();
    }
    segments
}

fn opening_of(segments: &[Segment]) -> Vec<Piece> {
    segments.first().map(|segment| segment.computes.clone()).unwrap_or_default()
}

fn of((operation, label): Piece, half: Half, ahead: bool) -> Piece {
    (operation, Label { half: Some(half), ahead, ..label })
}

/// A block's operations for both halves, the first half's opening of the next block included.
fn interleaved(segments: &[Segment], next: &[Piece]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (index, segment) in segments.iter().enumerate() {
        let (coming, ahead) = match segments.get(index + 1) {
            Some(later) => (later.computes.as_slice(), false),
            None => (next, true),
        };
        for (half, computes, other, is_ahead) in
            [(Half::First, segment.computes.as_slice(), Half::Second, false), (Half::Second, coming, Half::First, ahead)]
        {
            if let Some((Operation::Collective { collective, .. }, label)) = &segment.collective {
                let beside = computes.len() as u32;
                pieces.push(of((Operation::Collective { collective: *collective, beside }, *label), half, false));
            }
            pieces.extend(computes.iter().map(|piece| of(piece.clone(), other, is_ahead)));
        }
    }
    pieces
}
