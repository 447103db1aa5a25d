//! Watches read the history at their own pace. A slow one holds only its position, and ends with 410 when the history no longer
//! has it.

use std::sync::Arc;

use tokio::{sync::watch, time::Instant};

use super::{Horizon, Scope, Store, history::Change, object::Object};
use crate::status::Status;

/// The type of an event, by the selectors of its watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventType {
    Added,
    Modified,
    Deleted,
}

impl EventType {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One event of a watch.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) kind: EventType,
    pub(crate) object: Arc<Object>,
}

/// Most events that a watch holds.
const BATCH: usize = 64;

/// A position in the history.
pub(crate) struct Watch {
    store: Store,
    scope: Scope,
    position: u64,
    head: watch::Receiver<u64>,
}

impl Watch {
    /// Starts after a version.
    pub(crate) fn new(store: Store, scope: Scope, position: u64) -> Self {
        let head = store.head();
        Self {
            store,
            scope,
            position,
            head,
        }
    }

    /// The version up to which this watch has reported everything, for bookmarks.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Waits for the next events within a horizon; at most a batch. Nothing is lost if this is dropped.
    ///
    /// # Errors
    /// 410 once the history no longer reaches back to this watch's position.
    pub(crate) async fn next(&mut self, horizon: Horizon) -> Result<Vec<Event>, Status> {
        loop {
            self.head.mark_unchanged();
            let advanced = self.advance(horizon)?;
            if !advanced.events.is_empty() {
                return Ok(advanced.events);
            }
            let hidden = async {
                match advanced.hidden {
                    Some(written) => horizon.wait_for(written).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = hidden => {}
                changed = self.head.changed() => {
                    changed.map_err(|_| Status::internal("the store is gone"))?;
                }
            }
        }
    }

    fn advance(&mut self, horizon: Horizon) -> Result<Advanced, Status> {
        let state = self.store.lock();
        let asked = self.position;
        let changes = state
            .history
            .after(asked)
            .map_err(|gone| Status::expired(asked, gone.floor))?;
        let mut advanced = Advanced {
            events: Vec::new(),
            hidden: None,
        };
        for change in changes {
            if !horizon.shows(change.at) {
                advanced.hidden = Some(change.at);
                return Ok(advanced);
            }
            self.position = change.version;
            advanced.events.extend(event(&self.scope, change));
            if advanced.events.len() == BATCH {
                return Ok(advanced);
            }
        }
        // No change stands for a jump of versions.
        if horizon == Horizon::Now {
            self.position = self.position.max(state.version);
        }
        Ok(advanced)
    }
}

/// What a watch found in the history.
struct Advanced {
    events: Vec<Event>,
    /// When the first change beyond the horizon was written.
    hidden: Option<Instant>,
}

/// The event of a change: an object that no longer matches is deleted, one that now matches is added.
fn event(scope: &Scope, change: &Change) -> Option<Event> {
    if !scope.holds(&change.key) {
        return None;
    }
    let matches = |object: &&Arc<Object>| scope.selects(object);
    let old = change.old.as_ref().filter(matches);
    let new = change.new.as_ref().filter(matches);
    let (kind, object) = match (old, new) {
        (None, Some(new)) => (EventType::Added, Arc::clone(new)),
        (Some(_), Some(new)) => (EventType::Modified, Arc::clone(new)),
        (Some(old), None) => {
            let last = change
                .last
                .clone()
                .unwrap_or_else(|| old.restamped(change.version));
            (EventType::Deleted, last)
        }
        (None, None) => return None,
    };
    Some(Event { kind, object })
}
