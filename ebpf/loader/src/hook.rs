//! The places where the programs are attached.

use std::fmt;

/// A socket hook of a cgroup.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Hook {
    /// `connect` on IPv4 sockets.
    Connect4,
    /// `sendto` and `sendmsg` with an IPv4 destination.
    Sendmsg4,
    /// `recvfrom` and `recvmsg`, which show an IPv4 source.
    Recvmsg4,
    /// `getpeername` on IPv4 sockets.
    Getpeername4,
}

impl Hook {
    /// All of them, in the order in which they are attached: what shows addresses to clients first, so that no
    /// client is sent to a backend whose answers it would not recognise.
    pub const ALL: [Self; 4] = [Self::Recvmsg4, Self::Getpeername4, Self::Sendmsg4, Self::Connect4];

    /// Name of the program in the object, of its pinned link, and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect4 => "connect4",
            Self::Sendmsg4 => "sendmsg4",
            Self::Recvmsg4 => "recvmsg4",
            Self::Getpeername4 => "getpeername4",
        }
    }

    /// `enum bpf_attach_type` of `linux/bpf.h`.
    pub const fn attach_type(self) -> u32 {
        match self {
            Self::Connect4 => 10,
            Self::Sendmsg4 => 14,
            Self::Recvmsg4 => 19,
            Self::Getpeername4 => 29,
        }
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
