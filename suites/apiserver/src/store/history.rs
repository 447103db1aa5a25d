//! The last changes, in the order of their versions: what watches and lists at an earlier version read.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::object::{Key, Object};

/// One write. A version is one change, or none where versions jumped.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) key: Key,
    /// The version it made.
    pub(crate) version: u64,
    /// When it was written.
    pub(crate) at: Instant,
    pub(crate) old: Option<Arc<Object>>,
    pub(crate) new: Option<Arc<Object>>,
    /// Of a removal: the last state, at the version of the removal.
    pub(crate) last: Option<Arc<Object>>,
}

/// How much of the history a client sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Horizon {
    /// All changes.
    Now,
    /// Changes that were written by then.
    Until(Instant),
    /// Changes that are at least this old.
    Late(Duration),
}

impl Horizon {
    /// Whether a change that was written at a moment is seen.
    pub(crate) fn shows(self, written: Instant) -> bool {
        match self {
            Self::Now => true,
            Self::Until(moment) => written <= moment,
            Self::Late(by) => written + by <= Instant::now(),
        }
    }

    /// Waits until a change is seen; forever, if the cache lags.
    pub(crate) async fn wait_for(self, written: Instant) {
        match self {
            Self::Now => {}
            Self::Until(_) => std::future::pending().await,
            Self::Late(by) => tokio::time::sleep_until(written + by).await,
        }
    }
}

/// A bounded log. Bound: entries and bytes of JSON, whichever is reached first; the oldest change goes.
#[derive(Debug)]
pub(crate) struct History {
    changes: VecDeque<Change>,
    bytes: usize,
    most_changes: usize,
    most_bytes: usize,
    /// The oldest version after which all changes are kept.
    floor: u64,
}

/// The history no longer reaches back to a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) floor: u64,
}

impl History {
    pub(crate) fn new(floor: u64, most_changes: usize, most_bytes: usize) -> Self {
        Self {
            changes: VecDeque::new(),
            bytes: 0,
            most_changes,
            most_bytes,
            floor,
        }
    }

    pub(crate) fn push(&mut self, change: Change) {
        self.bytes += cost(&change);
        self.changes.push_back(change);
        while self.changes.len() > self.most_changes || self.bytes > self.most_bytes {
            let Some(oldest) = self.changes.pop_front() else {
                break;
            };
            self.bytes -= cost(&oldest);
            self.floor = oldest.version;
        }
    }

    /// Drops all changes up to a version, as etcd's compaction does.
    pub(crate) fn compact(&mut self, version: u64) {
        while let Some(oldest) = self.changes.pop_front_if(|change| change.version <= version) {
            self.bytes -= cost(&oldest);
        }
        self.floor = self.floor.max(version);
    }

    /// The newest version within a horizon: the one before the first change that it hides.
    pub(crate) fn seen(&self, horizon: Horizon, head: u64) -> u64 {
        let shown = self.changes.partition_point(|change| horizon.shows(change.at));
        match (shown.checked_sub(1), shown == self.changes.len()) {
            (_, true) => head,
            (Some(last), false) => self.changes[last].version,
            (None, false) => self.floor,
        }
    }

    /// Changes after a version, oldest first.
    ///
    /// # Errors
    /// [`Gone`] if some of them were dropped.
    pub(crate) fn after(&self, version: u64) -> Result<impl DoubleEndedIterator<Item = &Change>, Gone> {
        if version < self.floor {
            return Err(Gone { floor: self.floor });
        }
        let start = self.changes.partition_point(|change| change.version <= version);
        Ok(self.changes.range(start..))
    }
}

fn cost(change: &Change) -> usize {
    change
        .new
        .as_ref()
        .or(change.old.as_ref())
        .map_or(0, |object| object.json.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::Kind;

    fn change(version: u64, bytes: usize) -> Change {
        let object = Object::new(json!({"metadata": {}, "data": "x".repeat(bytes)}), version);
        Change {
            key: Key::new(Kind::Pod, "a", "b"),
            version,
            at: Instant::now(),
            old: None,
            new: Some(object),
            last: None,
        }
    }

    fn versions(history: &History, after: u64) -> Result<Vec<u64>, Gone> {
        Ok(history.after(after)?.map(|change| change.version).collect())
    }

    #[test]
    fn the_oldest_changes_go_first_and_what_they_covered_is_gone() {
        let mut history = History::new(5, 3, 1 << 20);
        (6..=9).for_each(|version| history.push(change(version, 1)));
        assert_eq!(versions(&history, 6), Ok(vec![7, 8, 9]));
        assert_eq!(versions(&history, 9), Ok(vec![]));
        assert_eq!(versions(&history, 20), Ok(vec![]));
        assert_eq!(versions(&history, 5), Err(Gone { floor: 6 }));
        history.compact(8);
        assert_eq!(versions(&history, 8), Ok(vec![9]));
        assert_eq!(versions(&history, 7), Err(Gone { floor: 8 }));
    }

    #[test]
    fn a_horizon_ends_before_the_first_change_that_it_hides() {
        let mut history = History::new(5, 3, 1 << 20);
        let second = std::time::Duration::from_secs(1);
        let start = Instant::now() - 4 * second;
        for (version, seconds) in (6..=9).zip(1..) {
            history.push(Change {
                at: start + seconds * second,
                ..change(version, 1)
            });
        }
        let until = |seconds: u32| Horizon::Until(start + seconds * second);
        let rows = [
            (Horizon::Now, 12),
            (until(9), 12),
            (until(3), 8),
            (until(2), 7),
            // Changes that were dropped can't be hidden.
            (until(1), 6),
            // Written a second ago and at once: 8 and 9.
            (Horizon::Late(second / 2), 8),
            (Horizon::Late(second * 3 / 2), 7),
            (Horizon::Late(std::time::Duration::ZERO), 12),
        ];
        for (horizon, expected) in rows {
            assert_eq!(history.seen(horizon, 12), expected, "{horizon:?}");
        }
    }

    #[test]
    fn bytes_bound_it_too() {
        let mut history = History::new(0, 100, 5000);
        (1..=20).for_each(|version| history.push(change(version, 1000)));
        assert_eq!(versions(&history, 16), Ok(vec![17, 18, 19, 20]));
        assert!(
            versions(&history, 15).is_err(),
            "four changes of 1000 bytes fit in 5000"
        );
    }
}
