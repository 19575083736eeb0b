//! GPUs in one order: tools number them differently (nvidia-smi by bus, CUDA
//! the fastest first), and bus addresses tell which is which.

use crate::import::facts::Facts;
use crate::import::facts::Gpu;
use crate::import::facts::Matrix;

impl Facts {
    /// Puts `self` into the order of `first`, if both name the buses of the same GPUs.
    pub(super) fn reorder_as(&mut self, first: &[Gpu]) {
        let place = |gpu: &Gpu| self.gpus.iter().position(|mine| !mine.bus.is_empty() && mine.bus == gpu.bus);
        let Some(order) = first.iter().map(place).collect::<Option<Vec<usize>>>() else { return };
        let mut sorted = order.clone();
        sorted.sort_unstable();
        if order.len() != self.gpus.len() || !sorted.iter().copied().eq(0..order.len()) || order == sorted {
            return;
        }
        self.gpus = order.iter().map(|from| self.gpus[*from].clone()).collect();
        let matrices = self.bandwidth.iter_mut().chain(&mut self.latency);
        matrices.filter(|m| m.cells.len() == order.len()).for_each(|matrix: &mut Matrix| permute(&mut matrix.cells, &order));
        if let Some(labels) = &mut self.labels {
            permute(&mut labels.cells, &order);
        }
    }
}

fn permute<T: Clone>(cells: &mut Vec<Vec<T>>, order: &[usize]) {
    if cells.len() != order.len() || cells.iter().any(|row| row.len() != order.len()) {
        return;
    }
    *cells = order.iter().map(|row| order.iter().map(|column| cells[*row][*column].clone()).collect()).collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_follow_their_gpus() {
        let gpu = |bus: &str| Gpu { bus: bus.to_owned(), ..Gpu::default() };
        let cells = vec![vec![None, Some(1.0)], vec![Some(2.0), None]];
        let matrix = Matrix { title: String::new(), peer_access: true, bidirectional: false, reads: false, cells };
        let mut facts = Facts { gpus: vec![gpu("b"), gpu("a")], bandwidth: vec![matrix], ..Facts::default() };
        facts.reorder_as(&[gpu("a"), gpu("b")]);
        assert_eq!(facts.gpus, [gpu("a"), gpu("b")]);
        assert_eq!(facts.bandwidth[0].cells, [[None, Some(2.0)], [Some(1.0), None]]);
        let before = facts.clone();
        facts.reorder_as(&[gpu("b"), gpu("c")]);
        facts.reorder_as(&[gpu("b")]);
        facts.reorder_as(&[gpu("b"), gpu("b")]);
        assert_eq!(facts, before);
    }
}
