//! A node in a network namespace of the calling thread's own: what `BPF_PROG_TEST_RUN` and the route look-ups of the
//! programs need of one.
//!
//! ```text
//!                       ┌───────────────── node ─────────────────┐
//!  client, stranger     │                                        │
//!        └── gateway ─┬─ UPLINK                             POD_A ── pod_a
//!  remote, narrow     │ │ node, node_also     (forwarding)  POD_B ── pod_b
//!        └─ next_node ┘ │                                  CLOSED   (does not forward)
//!                       └────────────────────────────────────────┘
//! ```
//!
//! Nothing is ever sent on the devices: test runs end with a program's verdict.

mod addresses;
mod netlink;
pub mod sockets;

use std::{
    fs::{self, File},
    io,
    marker::PhantomData,
    net::IpAddr,
    path::PathBuf,
};

use nix::sched::{CloneFlags, setns, unshare};

pub use self::addresses::{Addresses, V4, V6};

/// The device to the outside: its index.
pub const UPLINK: u32 = 101;
/// The device of [`Addresses::pod_a`]: its index.
pub const POD_A: u32 = 102;
/// The device of [`Addresses::pod_b`]: its index.
pub const POD_B: u32 = 103;
/// A device that does not forward: its index. No address is behind it.
pub const CLOSED: u32 = 104;

/// What devices take in one piece, in bytes from the IP header on.
pub const MTU: u32 = 1500;
/// What the way to [`Addresses::narrow`] takes.
pub const SMALL_MTU: u32 = 1300;

/// The link address of this node's end of every device.
pub const NODE_LINK: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];
/// The link address of whatever is at the other end.
pub const PEER_LINK: [u8; 6] = [0x02, 0, 0, 0, 0, 0x02];

/// For the whole namespace, before there are devices in it: written below /proc/sys/net, in this order. A new namespace
/// takes some over from the machine's (`net.core.devconf_inherit_init_net`), so what matters is written.
const SETTINGS: [(&str, &str); 9] = [
    ("ipv4/ip_forward", "1"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv6/conf/default/disable_ipv6", "0"),
    ("ipv6/conf/all/forwarding", "1"),
    // Addresses are usable at once, and there are no others.
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
    ("ipv6/conf/default/addr_gen_mode", "1"),
    ("ipv4/ip_local_port_range", "32768 60999"),
];
/// When the devices are there.
const CLOSED_SETTINGS: [(&str, &str); 2] = [
    ("ipv4/conf/closed/forwarding", "0"),
    ("ipv6/conf/closed/forwarding", "0"),
];

/// Why there is no [`World`].
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// The kernel did not give a namespace.
    #[error("failed to enter a network namespace of its own (run as root; in a container: privileged)")]
    Namespace(#[source] io::Error),
    /// A setting could not be written.
    #[error(
        "failed to set {path} to {value} (in a container: run it privileged, so that /proc/sys is writable)"
    )]
    Setting {
        /// Which.
        path: PathBuf,
        /// To what.
        value: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No way to ask for devices and routes.
    #[error("failed to open a netlink socket")]
    Netlink(#[source] io::Error),
    /// A device, address, route or neighbour was refused.
    #[error("failed to add {what} (veth needs CONFIG_VETH)")]
    Add {
        /// What.
        what: String,
        /// Why.
        #[source]
        source: rtnetlink::Error,
    },
}

/// The node, for as long as this value lives: the calling thread is in its network namespace, and goes back to where it
/// was when this is dropped. The namespace then ends, with everything in it.
#[derive(Debug)]
pub struct World {
    back: File,
    /// A thread's namespace is its own.
    _thread: PhantomData<*const ()>,
}

impl World {
    /// Makes the namespace and all that is in it, and enters it.
    ///
    /// # Errors
    /// [`WorldError`]; the thread is then where it was.
    pub fn enter() -> Result<Self, WorldError> {
        let world = Self::empty()?;
        netlink::furnish()?;
        set(&CLOSED_SETTINGS)?;
        Ok(world)
    }

    /// Makes the link address of [`Addresses::next_node`] known, so that packets are sent to it and not kept until it has answered.
    ///
    /// # Errors
    /// [`WorldError`]
    pub fn introduce_next_node(&self) -> Result<(), WorldError> {
        netlink::introduce()
    }

    /// Enters one with nothing but a loopback device that has these addresses, too: for sockets that talk to each other.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    pub fn of_loopback(addresses: &[IpAddr]) -> Result<Self, WorldError> {
        let world = Self::empty()?;
        netlink::loopback(addresses)?;
        Ok(world)
    }

    fn empty() -> Result<Self, WorldError> {
        let back = namespace()?;
        unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| WorldError::Namespace(errno.into()))?;
        let world = Self {
            back,
            _thread: PhantomData,
        };
        set(&SETTINGS)?;
        Ok(world)
    }
}

/// The calling thread's network namespace.
///
/// # Errors
/// [`WorldError::Namespace`]
pub fn namespace() -> Result<File, WorldError> {
    File::open("/proc/thread-self/ns/net").map_err(WorldError::Namespace)
}

impl Drop for World {
    fn drop(&mut self) {
        if let Err(errno) = setns(&self.back, CloneFlags::CLONE_NEWNET) {
            eprintln!("failed to leave a test's network namespace: {errno}");
        }
    }
}

/// Writes settings of the thread's namespace, which is what /proc/sys/net shows.
fn set(settings: &[(&str, &'static str)]) -> Result<(), WorldError> {
    for &(name, value) in settings {
        let path = PathBuf::from("/proc/sys/net").join(name);
        fs::write(&path, value).map_err(|source| WorldError::Setting { path, value, source })?;
    }
    Ok(())
}
