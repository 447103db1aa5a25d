//! Numbers for map keys: handed out once, and again only after they were given back.

use std::collections::{BTreeSet, VecDeque};

/// Hands out numbers from 1 to a limit.
///
/// Numbers never used come first, then those given back, longest free first: a number rests for as long as
/// possible.
#[derive(Debug)]
pub struct IdAllocator {
    /// Everything from here to the limit was never handed out, except what is reserved.
    next: u32,
    last: u32,
    reserved: BTreeSet<u32>,
    free: VecDeque<u32>,
}

impl IdAllocator {
    /// Numbers from 1 to `last`.
    pub fn new(last: u32) -> Self {
        Self {
            next: 1,
            last,
            reserved: BTreeSet::new(),
            free: VecDeque::new(),
        }
    }

    /// Whether a number can have been handed out.
    pub fn contains(&self, id: u32) -> bool {
        (1..=self.last).contains(&id)
    }

    /// Takes a number that is in use already, before any was handed out.
    pub fn reserve(&mut self, id: u32) {
        debug_assert!(self.next == 1 && self.contains(id));
        self.reserved.insert(id);
    }

    /// A number that nobody has; `None` if all are in use.
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

    /// Gives a number back. Nothing may carry it any more.
    pub fn free(&mut self, id: u32) {
        // Reserved, and the counter hasn't come to it: it will.
        if !self.reserved.remove(&id) {
            self.free.push_back(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_never_handed_out_and_the_limit_is_kept() {
        let mut ids = IdAllocator::new(2);
        assert_eq!(
            [ids.allocate(), ids.allocate(), ids.allocate()],
            [Some(1), Some(2), None]
        );
    }

    #[test]
    fn a_number_given_back_rests_until_the_others_are_used() {
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
    fn reserved_numbers_are_skipped_until_given_back() {
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
