//! Hash maps and sets of the control plane.
//!
//! Users of the cluster choose some keys: names, and addresses of Services without a selector. So the hash has a random
//! key for each process and map, and colliding keys can't be chosen. foldhash, the default of `hashbrown`, is faster than
//! the standard library's SipHash, which also resists attackers that time single look-ups; users of an API server can't.

/// A hash map.
pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;

/// A hash set.
pub(crate) type HashSet<T> = std::collections::HashSet<T, foldhash::fast::RandomState>;
