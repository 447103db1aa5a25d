//! Packets as such, without a socket of TCP or UDP: `ring` (those on all devices), `capture` (those on one), `echo` (an
//! ICMP echo and one of a protocol that nothing speaks).

mod capture;
mod echo;
mod ring;

pub use capture::capture;
pub use echo::{Sent, send};
pub(crate) use ring::Ring;
