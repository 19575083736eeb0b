//! What follows from a machine's cabling, shared by the contexts of one
//! machine: its routes, and NCCL's graph searches, as most strategies differ in
//! variables that a search does not look at.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::OnceLock;

use crate::error::Result;
use crate::machine::Machine;
use crate::machine::Routes;
use crate::nccl;

/// Variables that matter, version, graph file, device of each rank.
pub(super) type Key = (BTreeMap<String, String>, nccl::Version, Option<String>, Vec<u32>);

/// Each with a lock of its own: who asks for one that is being searched waits for it alone.
type Communicators = BTreeMap<Key, Arc<Mutex<Option<Arc<nccl::Communicator>>>>>;

/// Searches made so far. Clones share them; use one for one machine only, or
/// for machines that differ in numbers and not in cabling, kinds and versions.
#[derive(Clone, Default)]
pub struct Searches {
    communicators: Arc<Mutex<Communicators>>,
    routes: Arc<OnceLock<Arc<Routes>>>,
}

impl Searches {
    /// The routes of the machine.
    pub fn routes(&self, machine: &Machine) -> Arc<Routes> {
        Arc::clone(self.routes.get_or_init(|| Arc::new(Routes::of(machine))))
    }

    /// What is known for `key`, or what `search` makes of it.
    pub(super) fn find(&self, key: Key, search: impl FnOnce(&Key) -> Result<nccl::Communicator>) -> Result<Arc<nccl::Communicator>> {
        let place = Arc::clone(locked(&self.communicators).entry(key.clone()).or_default());
        let mut place = locked(&place);
        if let Some(communicator) = &*place {
            return Ok(Arc::clone(communicator));
        }
        let communicator = Arc::new(search(&key)?);
        *place = Some(Arc::clone(&communicator));
        Ok(communicator)
    }
}

/// A panic of another thread leaves what is locked whole: entries are added complete.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
