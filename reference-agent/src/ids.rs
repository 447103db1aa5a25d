//! Allocates ids for map keys.

use std::collections::{BTreeSet, VecDeque};

/// Allocates ids from 1 to a limit.
///
/// Ids never used come first, then the freed ones, longest free first, so that an id is reused as late as possible.
#[derive(Debug)]
pub struct IdAllocator {
    /// Ids from here to the limit were never allocated, except reserved ones.
    next: u32,
    last: u32,
    reserved: BTreeSet<u32>,
    free: VecDeque<u32>,
}

impl IdAllocator {
    /// Ids from 1 to `last`.
    pub fn new(last: u32) -> Self {
        Self {
            next: 1,
            last,
            reserved: BTreeSet::new(),
            free: VecDeque::new(),
        }
    }

    /// Whether an id is in the range.
    pub fn contains(&self, id: u32) -> bool {
        (1..=self.last).contains(&id)
    }

    /// Reserves an id that is in use already, before any is allocated.
    pub fn reserve(&mut self, id: u32) {
        debug_assert!(self.next == 1 && self.contains(id));
        self.reserved.insert(id);
    }

    /// An unused id; `None` if all are in use.
    pub fn allocate(&mut self) -> Option<u32> {
        while self.next <= self.last {
            let id = self.next;
            self.next += 1;
            if !self.reserved.remove(&id) {
                return Some(id);
            }
        }
        self.free.pop_front()
    }

    /// Frees an id. No map entry may have it any more.
    pub fn free(&mut self, id: u32) {
        // A reserved id is at or after `next`, which still comes to it.
        if !self.reserved.remove(&id) {
            self.free.push_back(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_never_allocated_and_the_limit_is_kept() {
        let mut ids = IdAllocator::new(2);
        assert_eq!(
            [ids.allocate(), ids.allocate(), ids.allocate()],
            [Some(1), Some(2), None]
        );
    }

    #[test]
    fn a_freed_id_is_reused_after_all_others() {
        let mut ids = IdAllocator::new(3);
        let [first, second] = [ids.allocate(), ids.allocate()].map(Option::unwrap);
        ids.free(second);
        ids.free(first);
        assert_eq!(
            [ids.allocate(), ids.allocate(), ids.allocate()],
            [Some(3), Some(second), Some(first)]
        );
    }

    #[test]
    fn reserved_ids_are_skipped_until_freed() {
        let mut ids = IdAllocator::new(4);
        ids.reserve(1);
        ids.reserve(3);
        assert_eq!(ids.allocate(), Some(2));
        ids.free(3);
        ids.free(1);
        assert_eq!(
            [ids.allocate(), ids.allocate(), ids.allocate(), ids.allocate()],
            [Some(3), Some(4), Some(1), None]
        );
    }
}
