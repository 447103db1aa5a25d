//! The places where programs are attached: socket hooks of cgroups; network devices, and their packet hooks.

use std::fmt;

use crate::sys::{clsact, tcx};

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
    /// All of them; [`DeviceKind::hooks`] has the order in which they are attached.
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

impl DeviceHook {
    /// Which packets of its device it sees.
    pub const fn direction(self) -> Direction {
        match self {
            Self::NodeIngress | Self::PodIngress => Direction::Ingress,
            Self::NodeEgress | Self::PodEgress => Direction::Egress,
        }
    }
}

impl fmt::Display for DeviceHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How a device is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceId<'a> {
    /// By the name that it has now.
    Name(&'a str),
    /// By its index, which is its own for as long as it is there.
    Index(u32),
}

impl<'a> From<&'a str> for DeviceId<'a> {
    fn from(name: &'a str) -> Self {
        Self::Name(name)
    }
}

impl From<u32> for DeviceId<'_> {
    fn from(index: u32) -> Self {
        Self::Index(index)
    }
}

impl fmt::Display for DeviceId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Index(index) => write!(f, "with index {index}"),
        }
    }
}

/// A network device.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Device {
    /// Its index in its network namespace.
    pub index: u32,
    /// Its name when it was looked at, for people.
    pub name: String,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.index)
    }
}

/// What is behind a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DeviceKind {
    /// The network: other nodes, clients outside.
    Node,
    /// A pod of this node.
    Pod,
    /// The node itself: the loopback device, of which only what leaves by it is seen.
    Loopback,
}

impl DeviceKind {
    /// Its hooks, in the order in which they are attached: what shows the frontend to clients first, so that none
    /// sees an answer from a backend.
    pub const fn hooks(self) -> &'static [DeviceHook] {
        match self {
            Self::Node => &[DeviceHook::NodeEgress, DeviceHook::NodeIngress],
            Self::Pod => &[DeviceHook::PodEgress, DeviceHook::PodIngress],
            Self::Loopback => &[DeviceHook::NodeEgress],
        }
    }

    /// What its devices are to the kernel: `ARPHRD_ETHER`, `ARPHRD_LOOPBACK`. Both have Ethernet's header.
    pub(crate) const fn hardware(self) -> u16 {
        match self {
            Self::Node | Self::Pod => 1,
            Self::Loopback => 772,
        }
    }
}

/// Which packets of a device a program sees.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// Those that come in by it.
    Ingress,
    /// Those that leave by it.
    Egress,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Ingress, Self::Egress];

    /// In lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }

    pub(crate) const fn attach_type(self) -> u32 {
        match self {
            Self::Ingress => tcx::INGRESS,
            Self::Egress => tcx::EGRESS,
        }
    }

    pub(crate) const fn parent(self) -> u32 {
        match self {
            Self::Ingress => clsact::INGRESS,
            Self::Egress => clsact::EGRESS,
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where in a device's path of packets, in the order in which they come by on the way in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Layer {
    /// In the driver, or right after it.
    Xdp,
    /// Of a netkit device alone.
    Netkit,
    /// Programs of Linux 6.6 and later, before all filters.
    Tcx,
    /// Filters of traffic control, by priority.
    Clsact,
}

impl Layer {
    /// In lower case: `xdp`, `netkit`, `tcx`, `clsact`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::Netkit => "netkit",
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
        }
    }

    /// Layer and direction of an `enum bpf_attach_type` of TCX or netkit; `None`: it is of neither.
    pub const fn of(attach_type: u32) -> Option<(Self, Direction)> {
        match attach_type {
            tcx::INGRESS => Some((Self::Tcx, Direction::Ingress)),
            tcx::EGRESS => Some((Self::Tcx, Direction::Egress)),
            tcx::NETKIT_PEER => Some((Self::Netkit, Direction::Ingress)),
            tcx::NETKIT_PRIMARY => Some((Self::Netkit, Direction::Egress)),
            _ => None,
        }
    }
}
