//! NCCL's graph searches, shared by the contexts of one machine: most
//! strategies differ in variables that a search does not look at.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;

use crate::error::Result;
use crate::nccl;

/// Variables that matter, version, graph file, device of each rank.
pub(super) type Key = (BTreeMap<String, String>, nccl::Version, Option<String>, Vec<u32>);

/// Searches made so far. Clones share them; use one for one machine only.
#[derive(Clone, Default)]
pub struct Searches(Arc<Mutex<BTreeMap<Key, nccl::Communicator>>>);

impl Searches {
    /// What is known for `key`, or what `search` makes of it. Others that ask
    /// meanwhile wait, so that no search is made twice.
    pub(super) fn find(&self, key: Key, search: impl FnOnce(&Key) -> Result<nccl::Communicator>) -> Result<nccl::Communicator> {
        // A panic of another thread leaves the map whole: entries are added complete.
        let mut known = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(communicator) = known.get(&key) {
            return Ok(communicator.clone());
        }
        let communicator = search(&key)?;
        known.insert(key, communicator.clone());
        Ok(communicator)
    }
}
