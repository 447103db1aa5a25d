//! Why a network could not be made.

use std::{io, net::IpAddr, path::PathBuf, time::Duration};

/// Why a namespace, or something in one, could not be made.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The kernel did not give a namespace.
    #[error("failed to enter a network namespace of its own (run as root; in a container: privileged)")]
    Namespace(#[source] io::Error),
    /// A setting could not be written.
    #[error(
        "failed to set {path} to {value} (in a container: run it privileged, so that /proc/sys is writable)"
    )]
    Setting {
        /// File below /proc/sys/net.
        path: PathBuf,
        /// What was to be written.
        value: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// There is no connection to rtnetlink.
    #[error("failed to open a netlink socket")]
    Netlink(#[source] io::Error),
    /// The kernel refused a veth pair.
    #[error("failed to add the veth pair {name} (veth needs CONFIG_VETH)")]
    Veth {
        /// Name of the first end.
        name: String,
        /// The kernel's error.
        #[source]
        source: rtnetlink::Error,
    },
    /// The kernel refused another change or a query.
    #[error("failed to {what}")]
    Request {
        /// Completes "failed to".
        what: String,
        /// The kernel's error.
        #[source]
        source: rtnetlink::Error,
    },
    /// The kernel took an address, but does not receive packets for it.
    #[error("the address {address} is not usable {limit:?} after it was added: is its device up?")]
    NotLocal {
        /// The address.
        address: IpAddr,
        /// How long it was waited for.
        limit: Duration,
    },
}
