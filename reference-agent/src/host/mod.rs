//! The machine's addresses and network devices.
//!
//! ```text
//! rtnetlink ─▶ watch ─▶ Snapshot ─▶ View ─▶ addresses: Event::Host, and source addresses of SNAT (CONFIG)
//!                                    └────▶ devices: attached by hooks as they come and go
//! ```
//!
//! | file | what |
//! |---|---|
//! | `snapshot` | links, addresses and default routes of the kernel |
//! | `view` | pure: snapshot and options → addresses and devices to be served |
//! | `watch` | multicast groups of rtnetlink → snapshots, without gaps |
//! | `feed` | snapshots → events and views |
//! | `flags` | the command line |
//!
//! # Source address of packets to remote backends
//!
//! The given one; otherwise the first address of the Node object that a device here has; otherwise the default route's.
//! Until the Node object is known the last is a guess, and an address that an earlier start has configured stays, if the
//! host still has it: packets of connections come back to it.
//!
//! # Devices that are served
//!
//! The first rule that fits a device counts.
//!
//! 1. Loopback is served for packets of the node to its own addresses. At 127.0.0.1 and ::1 only socket programs serve.
//! 2. A device that matches `--pod-devices` is a pod's; one that matches `--node-devices` is the node's. If devices of a
//!    kind are given so, no other device is of that kind.
//! 3. A device of a default route of the main table, or with the node's own address (`--node-ip`, or one of the Node
//!    object), is the node's. It may be a veth, if the node itself is a container.
//! 4. One end of a pair (veth, netkit) whose other end is in another network namespace is a pod's. So ptp, kindnet, Calico
//!    and Cilium connect pods; and bridge CNIs, where it is a port. It is not a pod's if it leads to another network, as the
//!    second network of a node that is itself a container. Any of these shows that:
//!    - It has an address with a subnet, of either family. CNIs give pods' devices at most the gateway's address, alone
//!      (/32, /128), or a link-local one (fe80::/10).
//!    - It is a port of a bond or team.
//!    - It is the lower device of a VLAN, macvlan or ipvlan of this network namespace.
//!
//!    To take a pod's device for the node's is the smaller mistake: the pod is a client from outside then. Packets from
//!    another network that are taken for a pod's would keep their own address on the way to other nodes, and get no answer.
//! 5. A port of a bridge, bond or team is not served; its controller may be.
//! 6. A bridge with pods' devices as ports is not served; its ports are.
//! 7. A dummy or an intermediate functional block is not served. No packet comes in there.
//! 8. A device with an address of the host is the node's: second uplinks, VLANs, and overlays such as `flannel.1`.
//!
//! Devices without Ethernet header (`tun`, `wg`, `ipip`) can't be served; those that rule 2, 3 or 8 fits are logged once.

mod feed;
mod flags;
mod snapshot;
mod view;
mod watch;

pub(crate) use self::watch::NetlinkError;
pub use self::{
    feed::{HostWatch, feed},
    flags::HostFlags,
    snapshot::{HostAddress, Link, LinkKind, Snapshot},
    view::{HostOptions, View},
    watch::{RETRY_FIRST, RETRY_LIMIT, SETTLE, watch},
};
