//! Packets as such, without a socket of TCP or UDP: `capture` (those on a device), `echo` (an ICMP echo and one of a
//! protocol that nothing speaks).

mod capture;
mod echo;

pub use capture::capture;
pub use echo::{Sent, send};
