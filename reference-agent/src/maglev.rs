//! Maglev's table: the backend of each slot of a service port, the same on every node.
//!
//! "Maglev: A Fast and Reliable Software Network Load Balancer", Eisenbud et al., NSDI 2016, section 3.4. Each
//! backend has a permutation of all slots, by an offset and a skip that are hashes of its name; the backends take
//! turns, each taking the first free slot of its permutation, until none is free. So the numbers of slots differ by one at
//! most, and adding or removing a backend changes few slots of the others.
//!
//! # Name
//! A backend is named by its address, port and protocol, never by a number: numbers are each node's own. Turns
//! are in the order of the names. So the table depends on the set of backends alone.
//!
//! # Hash
//! `hash`: 64 bits, folded from the name's three words by the finalizer of SplitMix64, with one seed for the
//! offset and one for the skip. It is part of what nodes agree on: a change moves connections that pass from one
//! node to another.
//!
//! # Size
//! [`Scale::size`]: a prime, so that every skip leads through all slots; at least 100 for each backend, so that shares
//! differ by at most 1 % (section 3.4). A power of four apart, because a table of another size is another table:
//! connections that change nodes move when the number of backends grows beyond 2, 10, 40 or 163, and not in between.
//! A single backend needs no choice: one slot.
//!
//! # Room
//! SLOTS has to hold the tables of all service ports, and each twice during a switch. So all tables have the first of
//! [`SCALES`] with which they fit into half of it: at least 100 slots for each backend, or 25, or 16, or one. The choice
//! follows from the API's objects alone, so that all nodes agree: [`model`](crate::model) counts them.

use std::collections::BTreeSet;

use lb_abi::capacity;

use crate::endpoint_address::TransportAddress;

/// Sizes of tables: the greatest primes below powers of four, from 2⁶ to 2¹⁶.
pub const SIZES: [usize; 6] = [61, 251, 1021, 4093, 16_381, 65_521];

/// Least slots for each backend of a table. With fewer, shares would differ by more than 6.25 %.
const LEAST: usize = 16;

/// From the largest tables to none. The largest table of a scale takes a half, an eighth, or a thirty-second of the room
/// for all.
pub const SCALES: [Scale; 4] = [
    Scale {
        slots_per_backend: 100,
        largest: 65_521,
    },
    Scale {
        slots_per_backend: 25,
        largest: 16_381,
    },
    Scale {
        slots_per_backend: LEAST,
        largest: 4093,
    },
    Scale {
        slots_per_backend: 1,
        largest: 0,
    },
];

const _: () = assert!(
    4 * SCALES[0].largest <= capacity::SLOTS as usize,
    "two of the largest tables fit twice"
);

/// The scale of all tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    slots_per_backend: usize,
    largest: usize,
}

impl Default for Scale {
    fn default() -> Self {
        SCALES[0]
    }
}

impl Scale {
    /// How many slots a table has at least for each backend, up to as many backends as its largest size has room for.
    pub const fn slots_per_backend(self) -> usize {
        self.slots_per_backend
    }

    /// How many slots a service port with this many backends has. Beyond the largest size of the scale each has fewer slots,
    /// down to 16, and then one: shares are equal, and adding or removing a backend moves many flows.
    pub fn size(self, backends: usize) -> usize {
        if backends <= 1 {
            return backends;
        }
        let each = |slots| backends.saturating_mul(slots);
        let mut sizes = SIZES.into_iter().take_while(|&size| size <= self.largest);
        let usual = sizes.find(|&size| size >= each(self.slots_per_backend));
        let fewer = (self.largest >= each(LEAST)).then_some(self.largest);
        usual.or(fewer).unwrap_or(backends)
    }

    /// How many slots a service port with at most this many backends has at most.
    pub fn most(self, backends: usize) -> usize {
        if backends > self.largest / LEAST {
            self.largest.max(backends)
        } else {
            self.size(backends)
        }
    }
}

/// The table of a set of backends, which may be unsorted and repeated. Empty without backends.
pub fn table(scale: Scale, backends: impl IntoIterator<Item = TransportAddress>) -> Vec<TransportAddress> {
    let backends: BTreeSet<_> = backends.into_iter().collect();
    let size = scale.size(backends.len());
    if size == backends.len() {
        return backends.into_iter().collect();
    }
    of_size(size, &backends)
}

/// A hash of a table, to compare those of two nodes.
pub fn digest(table: impl IntoIterator<Item = TransportAddress>) -> u64 {
    let slots = table.into_iter();
    slots.fold(0, |digest, owner| mix(digest ^ hash(&owner, OFFSET)))
}

/// The table of a given size, a prime above the number of backends.
fn of_size(size: usize, backends: &BTreeSet<TransportAddress>) -> Vec<TransportAddress> {
    let names: Vec<_> = backends.iter().copied().collect();
    let permutations = names.iter().map(|name| Permutation::of(name, size)).collect();
    let owners = populate(permutations, size);
    owners
        .into_iter()
        .filter_map(|owner| names.get(owner).copied())
        .collect()
}

/// A walk through all slots.
#[derive(Clone, Copy, Debug)]
struct Permutation {
    /// The current slot.
    at: usize,
    /// The step to the next slot; from 1 to one below the number of slots.
    skip: usize,
}

impl Permutation {
    fn of(name: &TransportAddress, size: usize) -> Self {
        let below = |seed, limit: usize| {
            // The remainder is below a limit that came from a `usize`.
            let remainder = hash(name, seed) % u64::try_from(limit.max(1)).unwrap_or(u64::MAX);
            usize::try_from(remainder).unwrap_or_default()
        };
        Self {
            at: below(OFFSET, size),
            skip: below(SKIP, size.saturating_sub(1)) + 1,
        }
    }

    /// Takes the next free slot. There must be one.
    fn take(&mut self, owners: &mut [usize], owner: usize) {
        loop {
            let slot = self.at;
            self.at = (self.at + self.skip) % owners.len();
            if owners[slot] == FREE {
                owners[slot] = owner;
                return;
            }
        }
    }
}

const FREE: usize = usize::MAX;

/// The owner of each slot: the backends take turns. Each walks through all slots at most once: `permutations × size`
/// steps at most, about `size × ln(size)`.
fn populate(mut permutations: Vec<Permutation>, size: usize) -> Vec<usize> {
    if permutations.is_empty() {
        return Vec::new();
    }
    let mut owners = vec![FREE; size];
    let count = permutations.len();
    for turn in 0..size {
        let owner = turn % count;
        permutations[owner].take(&mut owners, owner);
    }
    owners
}

/// Seeds: the fractions of √2 and √3. Any two numbers would do.
const OFFSET: u64 = 0x6a09_e667_f3bc_c908;
const SKIP: u64 = 0xbb67_ae85_84ca_a73b;

/// The hash of a backend's name.
fn hash(name: &TransportAddress, seed: u64) -> u64 {
    let address = lb_abi::Address::from(name.address).octets();
    let [a, b, c, d, e, f, g, h, rest @ ..] = address;
    let (high, low) = (
        u64::from_be_bytes([a, b, c, d, e, f, g, h]),
        u64::from_be_bytes(rest),
    );
    let port = u64::from(name.port) << 8 | u64::from(name.protocol.number());
    [high, low, port]
        .into_iter()
        .fold(seed, |hash, word| mix(hash ^ word))
}

/// One step of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a bijection, each bit of whose result depends on
/// each bit of its argument.
const fn mix(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests;
