//! Texts that many objects share, such as names of nodes, zones and ports, in memory once.

use std::sync::Arc;

use crate::hash::HashSet;

use super::objects::{Endpoint, Service, Slice};

/// A pool of fewer texts is not pruned.
const LEAST: usize = 64;

/// Texts. Holds at most twice as many as are in use, or [`LEAST`].
#[derive(Debug)]
pub(super) struct Pool {
    texts: HashSet<Arc<str>>,
    prune_at: usize,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            texts: HashSet::default(),
            prune_at: LEAST,
        }
    }
}

impl Pool {
    /// Lets a Service share its texts.
    pub(super) fn share_service(&mut self, service: &mut Service) {
        service
            .ports
            .iter_mut()
            .for_each(|port| self.share(&mut port.name));
    }

    /// Lets a slice share its texts, and frees memory that it does not need.
    pub(super) fn share_slice(&mut self, slice: &mut Slice) {
        slice.ports.iter_mut().for_each(|port| self.share(&mut port.name));
        for Endpoint {
            node,
            for_nodes,
            for_zones,
            ..
        } in &mut slice.endpoints
        {
            let names = for_nodes.iter_mut().chain(for_zones.iter_mut());
            node.iter_mut().chain(names).for_each(|text| self.share(text));
        }
        slice.ports.shrink_to_fit();
        slice.endpoints.shrink_to_fit();
    }

    fn share(&mut self, text: &mut Arc<str>) {
        if let Some(known) = self.texts.get(text) {
            *text = Arc::clone(known);
            return;
        }
        if self.texts.len() >= self.prune_at {
            self.texts.retain(|text| Arc::strong_count(text) > 1);
            self.prune_at = LEAST.max(2 * self.texts.len());
        }
        self.texts.insert(Arc::clone(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_become_one() {
        let mut pool = Pool::default();
        let [mut a, mut b, mut c] = ["x", "x", "y"].map(Arc::from);
        for text in [&mut a, &mut b, &mut c] {
            pool.share(text);
        }
        assert!(Arc::ptr_eq(&a, &b));
        assert_eq!((&*b, &*c), ("x", "y"));
    }

    #[test]
    fn unused_texts_are_pruned() {
        let mut pool = Pool::default();
        let mut kept = Arc::from("kept");
        pool.share(&mut kept);
        for number in 0..10 * LEAST {
            pool.share(&mut Arc::from(number.to_string()));
            assert!(pool.texts.len() <= 2 * LEAST);
        }
        assert!(pool.texts.contains(&kept));
    }
}
