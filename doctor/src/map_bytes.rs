//! Maps as bytes, by id: what layouts are read from, wherever the bytes come from.

use thiserror::Error;

/// A map that can't be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("map {map} can't be read: {why}")]
pub struct ReadError {
    /// The map's id.
    pub map: u32,
    /// What the kernel said, or what does not fit.
    pub why: String,
}

/// Read-only access to maps by id. Nothing here writes.
pub trait MapBytes {
    /// The value of a key; `None`: there is none.
    ///
    /// # Errors
    /// The map is gone, may not be read, or has keys of another size.
    fn lookup(&self, map: u32, key: &[u8]) -> Result<Option<Vec<u8>>, ReadError>;

    /// Shows entries in no order, at most `most`. `true`: those were all. What programs write meanwhile may be shown
    /// or not; no entry that stays is left out.
    ///
    /// # Errors
    /// As [`lookup`](Self::lookup).
    fn each(&self, map: u32, most: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<bool, ReadError>;
}

#[cfg(test)]
pub(crate) mod memory {
    //! Maps that tests write by hand, byte by byte.

    use std::collections::{BTreeMap, BTreeSet};

    use super::{MapBytes, ReadError};

    /// Maps by id.
    #[derive(Debug, Default)]
    pub(crate) struct MemoryBytes {
        maps: BTreeMap<u32, BTreeMap<Vec<u8>, Vec<u8>>>,
        unreadable: BTreeSet<u32>,
    }

    impl MemoryBytes {
        /// Puts an entry; the map is there from then on.
        pub(crate) fn put(&mut self, map: u32, key: &[u8], value: &[u8]) {
            self.maps
                .entry(map)
                .or_default()
                .insert(key.to_vec(), value.to_vec());
        }

        /// An empty map.
        pub(crate) fn empty(&mut self, map: u32) {
            self.maps.entry(map).or_default();
        }

        /// From now on the map can't be read.
        pub(crate) fn refuse(&mut self, map: u32) {
            self.unreadable.insert(map);
        }

        fn map(&self, map: u32) -> Result<&BTreeMap<Vec<u8>, Vec<u8>>, ReadError> {
            let error = |why: &str| ReadError {
                map,
                why: why.to_owned(),
            };
            if self.unreadable.contains(&map) {
                return Err(error("EPERM"));
            }
            self.maps.get(&map).ok_or_else(|| error("ENOENT"))
        }
    }

    impl MapBytes for MemoryBytes {
        fn lookup(&self, map: u32, key: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
            Ok(self.map(map)?.get(key).cloned())
        }

        fn each(
            &self,
            map: u32,
            most: usize,
            visit: &mut dyn FnMut(&[u8], &[u8]),
        ) -> Result<bool, ReadError> {
            let entries = self.map(map)?;
            for (key, value) in entries.iter().take(most) {
                visit(key, value);
            }
            Ok(entries.len() <= most)
        }
    }
}
