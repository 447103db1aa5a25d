//! Hash maps and sets of the control plane.
//!
//! Some keys are chosen by users of the cluster: names, and addresses of Services without a selector. So the hash is
//! keyed, at random for each process and each map: whoever doesn't see it can't choose keys that collide. It is
//! foldhash, the default of `hashbrown`, not the slower SipHash of the standard library, which also withstands those
//! who can measure single look-ups: nobody who talks to an API server can.

/// A hash map.
pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;

/// A hash set.
pub(crate) type HashSet<T> = std::collections::HashSet<T, foldhash::fast::RandomState>;
