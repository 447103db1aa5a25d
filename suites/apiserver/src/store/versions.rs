//! Jumps of the resourceVersion, and a store that is put back to an earlier state.

use super::{Scope, State, Store, addresses::Addresses};
use crate::{kinds::Kind, selector::Selector, status::Status};

impl Store {
    /// The newest resourceVersion.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.lock().version
    }

    /// Lets the resourceVersion jump ahead, as it does when others write much to the same etcd. Nobody loses an
    /// event; bookmarks follow.
    pub fn jump_versions(&self, by: u32) {
        let mut state = self.lock();
        state.version += u64::from(by);
        self.publish(&state);
    }

    /// Puts the cluster back to what it was at a version, as `etcdutl snapshot restore --bump-revision
    /// --mark-compacted` does: objects are as they were then, the newest resourceVersion is `bump` beyond the last,
    /// and whoever asks for an earlier one is told 410.
    ///
    /// # Errors
    /// 410 if the history does not reach back to that version.
    pub fn restore(&self, version: u64, bump: u32) -> Result<(), Status> {
        let mut state = self.lock();
        let undone = state
            .history
            .after(version)
            .map_err(|gone| Status::expired(version, gone.floor))?;
        // The oldest change of an object holds what it was before all of them.
        let undone: Vec<_> = undone
            .map(|change| (change.key.clone(), change.old.clone()))
            .collect();
        for (key, old) in undone.into_iter().rev() {
            let now = state.objects.get(&key).map(std::sync::Arc::clone);
            let values = (
                now.as_ref().map(|now| &now.value),
                old.as_ref().map(|old| &old.value),
            );
            state.dependents.follow(&key, values.0, values.1);
            match old {
                Some(old) => drop(state.objects.insert(key, old)),
                None => drop(state.objects.remove(&key)),
            }
        }
        state.addresses = held(&state, Addresses::new(self.config()));
        // At least one further, so that no watch is at the newest version and misses what was undone.
        state.version += u64::from(bump.max(1));
        let head = state.version;
        state.history.compact(head);
        self.publish(&state);
        Ok(())
    }
}

/// The addresses and ports that the services hold.
fn held(state: &State, mut addresses: Addresses) -> Addresses {
    let services = Scope {
        kind: Kind::Service,
        namespace: None,
        selector: Selector::default(),
    };
    for service in state.select(&services) {
        addresses.hold_again(&service.value);
    }
    addresses
}
