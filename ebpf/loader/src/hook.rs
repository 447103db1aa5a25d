//! The places where the programs are attached.

use std::fmt;

/// A socket hook of a cgroup.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Hook {
    /// `connect` on IPv4 sockets.
    Connect4,
    /// `connect` on IPv6 sockets.
    Connect6,
    /// `sendto` and `sendmsg` with an IPv4 destination.
    Sendmsg4,
    /// `sendto` and `sendmsg` with an IPv6 destination.
    Sendmsg6,
    /// `recvfrom` and `recvmsg` on IPv4 sockets, which show a source.
    Recvmsg4,
    /// `recvfrom` and `recvmsg` on IPv6 sockets.
    Recvmsg6,
    /// `getpeername` on IPv4 sockets.
    Getpeername4,
    /// `getpeername` on IPv6 sockets.
    Getpeername6,
    /// After `bind` on IPv4 sockets.
    PostBind4,
    /// After `bind` on IPv6 sockets.
    PostBind6,
    /// The end of a socket.
    SockRelease,
}

impl Hook {
    /// All of them, in the order in which they are attached: what shows addresses to clients first, so that no
    /// client is sent to a backend whose answers it would not recognise; what sends clients to backends last.
    pub const ALL: [Self; 11] = [
        Self::Recvmsg4,
        Self::Recvmsg6,
        Self::Getpeername4,
        Self::Getpeername6,
        Self::PostBind4,
        Self::PostBind6,
        Self::SockRelease,
        Self::Sendmsg4,
        Self::Sendmsg6,
        Self::Connect4,
        Self::Connect6,
    ];

    /// Name of the program in the object, of its pinned link, and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect4 => "connect4",
            Self::Connect6 => "connect6",
            Self::Sendmsg4 => "sendmsg4",
            Self::Sendmsg6 => "sendmsg6",
            Self::Recvmsg4 => "recvmsg4",
            Self::Recvmsg6 => "recvmsg6",
            Self::Getpeername4 => "getpeername4",
            Self::Getpeername6 => "getpeername6",
            Self::PostBind4 => "post_bind4",
            Self::PostBind6 => "post_bind6",
            Self::SockRelease => "sock_release",
        }
    }

    /// `enum bpf_attach_type` of `linux/bpf.h`.
    pub const fn attach_type(self) -> u32 {
        match self {
            Self::Connect4 => 10,
            Self::Connect6 => 11,
            Self::PostBind4 => 12,
            Self::PostBind6 => 13,
            Self::Sendmsg4 => 14,
            Self::Sendmsg6 => 15,
            Self::Recvmsg4 => 19,
            Self::Recvmsg6 => 20,
            Self::Getpeername4 => 29,
            Self::Getpeername6 => 30,
            Self::SockRelease => 34,
        }
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A packet hook of a network device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DeviceHook {
    /// What comes from the network.
    NodeIngress,
    /// What leaves to the network.
    NodeEgress,
    /// What comes from a pod.
    PodIngress,
    /// What goes to a pod.
    PodEgress,
}

impl DeviceHook {
    /// All of them; [`DeviceKind::hooks`](crate::DeviceKind::hooks) has the order in which they are attached.
    pub const ALL: [Self; 4] = [
        Self::NodeIngress,
        Self::NodeEgress,
        Self::PodIngress,
        Self::PodEgress,
    ];

    /// Name of the program in the object, and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NodeIngress => "node_ingress",
            Self::NodeEgress => "node_egress",
            Self::PodIngress => "pod_ingress",
            Self::PodEgress => "pod_egress",
        }
    }
}

impl fmt::Display for DeviceHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
