//! The packet programs once more, in plain Rust and from the document alone: what a packet may become.
//!
//! Nothing here is shared with the programs but the types of the maps, and nothing is meant to be fast: packets are byte
//! vectors, maps are `BTreeMap`s, and checksums are summed up anew from every byte that changed. A difference between
//! the two is a defect of one of them, or of the document.
//!
//! ```text
//! State, Input ─▶ read ─▶ decide ─┬─▶ related (ICMP errors) ──┐
//!                                 ├─▶ known (section 4) ──────┼─▶ translate ─▶ rewrite, routes ─▶ Outcome
//!                                 └─▶ open (section 5) ───────┘       └──────▶ answer ──────────▶ Outcome
//!                                       └ choose
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `state` | [`State`], [`Input`], [`Observed`], [`Outcome`] |
//! | `read` | section 1: where the parts of a frame are, and what is wrong with it |
//! | `decide` | sections 2 and 3: which packets matter |
//! | `related` | section 3: ICMP errors and what they quote |
//! | `known` | section 4: packets of flows |
//! | `open` | section 5: packets that open flows |
//! | `choose` | the choice of a frontend and of a backend |
//! | `ports` | the choice of a port |
//! | `rewrite` | section 6 |
//! | `translate` | sections 6 and 7 in their order: what is stored, written, and where it goes |
//! | `routes` | what `bpf_fib_lookup` returns |
//! | `answer` | section 8 |
//! | `checksum` | the Internet checksum and CRC32c |
//!
//! **Choices.** A program may choose a slot or a port at random. The model computes what is permitted, and of that takes
//! what was observed; if nothing of it was, it takes any, and the comparison fails.

mod answer;
mod checksum;
mod choose;
mod decide;
mod known;
mod open;
mod ports;
mod read;
mod related;
mod rewrite;
mod routes;
mod state;
mod translate;

#[cfg(test)]
mod tests;

pub use self::{
    choose::maglev_slot,
    decide::expected,
    read::{Frame, Read, Transport, read, transport},
    routes::{Route, Routes},
    state::{Device, Input, NodeSockets, Observed, Outcome, Rejects, State, Translated, Verdict},
};
