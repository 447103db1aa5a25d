//! What the agent has to know of the machine that the API does not say: its addresses, and its network devices.
//!
//! ```text
//! rtnetlink ─▶ watch ─▶ Snapshot ─▶ View ─▶ addresses: Event::Host, and what programs send from (CONFIG)
//!                                    └────▶ devices: attached by hooks as they come and go
//! ```
//!
//! | file | what |
//! |---|---|
//! | `snapshot` | what the kernel says of links, addresses and default routes |
//! | `view` | pure: what follows from a snapshot and the options |
//! | `watch` | multicast groups of rtnetlink → snapshots, without gaps |
//! | `feed` | snapshots → events and devices, as they change |
//! | `flags` | the command line |
//!
//! # From which address packets to remote backends are sent
//!
//! The given one; otherwise the first of the Node object that a device here has; otherwise the default route's. Until the
//! Node object is known, the last is a guess, and what an earlier start has told the programs stays, if the host still has
//! it: connections come back to it.
//!
//! # Which devices are served
//!
//! A device is asked in this order; the first rule that fits counts.
//!
//! 1. Loopback: what the node sends to its own addresses, as it leaves there. At 127.0.0.1 and ::1 socket programs serve alone.
//! 2. It matches `--pod-devices`: a pod's. It matches `--node-devices`: the node's. Where a kind of device is given so,
//!    no other device is of that kind.
//! 3. A default route of the main table leads by it, or it has the node's own address (`--node-ip`, or one of the Node
//!    object): the node's, whatever device it is; the uplink of a node that is itself a container is a veth.
//! 4. It is one end of a pair (veth, netkit) whose other end is in another network namespace: a pod's. So ptp, kindnet,
//!    Calico and Cilium wire pods; and bridge CNIs, where it is a port. Unless it leads to another network, as the second
//!    network of a node that is itself a container does, which is known by any of these:
//!    - It has an address with a subnet, of either family. Where CNIs give pods' devices an address, it is their gateway's,
//!      alone (/32, /128), or of the link (fe80::/10).
//!    - It is a port of a bond or team.
//!    - Another device of this network namespace lies on it: a VLAN, a macvlan, an ipvlan.
//!
//!    To take a pod's device for the node's is the smaller mistake: the pod is a client from outside then. Packets of
//!    another network that are taken for a pod's keep their own address on the way to other nodes, and are not answered.
//! 5. It is a port of a bridge, bond or team: not by itself; what it is a port of is asked.
//! 6. It is a bridge with pods' devices as ports: not by itself; its ports are served.
//! 7. It is a dummy or an intermediate functional block: never. No packet comes in there.
//! 8. It has an address of the host: the node's. So are second uplinks, VLANs, and overlays such as `flannel.1`.
//!
//! Devices without Ethernet header (`tun`, `wg`, `ipip`) that rule 2, 3 or 8 would serve can't be; they are named once.

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
