//! Places where programs are attached, as reports have them.

use std::{fmt, path::PathBuf};

use serde::{Deserialize, Serialize};

/// Where a program is attached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "at", rename_all = "snake_case")]
pub enum Place {
    /// A hook of a cgroup: runs for the processes of it and of all cgroups below it, after what is attached there.
    Cgroup {
        /// The cgroup's id.
        id: u64,
        /// Where the mount shows it.
        path: Option<PathBuf>,
        /// Whether it does.
        state: CgroupState,
        /// The hook, as `connect4`.
        hook: String,
    },
    /// A network device.
    Device {
        /// Its index in its network namespace.
        index: u32,
        /// Its name; absent: it is in another network namespace than the one that was looked at.
        name: Option<String>,
        /// Which of the ways to attach to a device, in the order in which they run at ingress.
        layer: Layer,
        /// Which packets.
        direction: Direction,
    },
    /// A network namespace.
    Namespace {
        /// The number of its file, as `readlink /proc/PID/ns/net` shows it.
        inode: u32,
        /// The hook, as `sk_lookup`.
        hook: String,
    },
}

impl Place {
    /// What is told apart at a place: `connect4`, `tcx ingress`. Programs do the same work only at equal hooks.
    pub fn hook(&self) -> String {
        match self {
            Self::Cgroup { hook, .. } | Self::Namespace { hook, .. } => hook.clone(),
            Self::Device { layer, direction, .. } => format!("{layer} {direction}"),
        }
    }
}

/// Hooks at which programs can rewrite addresses, in the order in which a connection meets them: those of its socket as
/// it is opened, then what shows it addresses.
const SOCKET_HOOKS: [&str; 12] = [
    "bind4",
    "bind6",
    "connect4",
    "connect6",
    "sendmsg4",
    "sendmsg6",
    "recvmsg4",
    "recvmsg6",
    "getpeername4",
    "getpeername6",
    "getsockname4",
    "getsockname6",
];

impl Place {
    /// The place's turn among those at which a connection's addresses can be rewritten: sockets, then packets that come in
    /// by a device, in the order of its layers, and those that leave by one, then the choice of a socket. `None`: programs
    /// there can let things pass or not, and rewrite no address.
    pub fn rewrites(&self) -> Option<usize> {
        let after = SOCKET_HOOKS.len();
        match self {
            Self::Cgroup { hook, .. } => SOCKET_HOOKS.iter().position(|known| known == hook),
            Self::Device { layer, direction, .. } => {
                Some(after + usize::from(*direction == Direction::Egress) * 4 + layer.turn())
            }
            Self::Namespace { hook, .. } => (hook == "sk_lookup").then_some(after + 8),
        }
    }

    /// Where it is without the hook: what programs at all hooks of one cgroup or device have in common.
    pub fn whole(&self) -> String {
        match self {
            Self::Cgroup { path: Some(path), .. } => format!("cgroup {}", path.display()),
            Self::Cgroup {
                id,
                path: None,
                state: CgroupState::Dying,
                ..
            } => format!("removed cgroup (id {id})"),
            Self::Cgroup { id, path: None, .. } => format!("cgroup that no mount shows (id {id})"),
            Self::Device {
                name: Some(name),
                index,
                ..
            } => format!("device {name} ({index})"),
            Self::Device {
                name: None, index, ..
            } => format!("device {index} of another network namespace"),
            Self::Namespace { inode, .. } => format!("network namespace {inode}"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cgroup {
                path: Some(path),
                hook,
                state,
                ..
            } => {
                write!(f, "{hook} of {}", path.display())?;
                match state {
                    CgroupState::Visible => Ok(()),
                    CgroupState::Hidden => f.write_str(" (hidden)"),
                    CgroupState::Dying => f.write_str(" (removed)"),
                }
            }
            Self::Cgroup {
                id,
                path: None,
                state,
                hook,
            } => {
                let state = match state {
                    CgroupState::Visible => "a",
                    CgroupState::Hidden => "a hidden",
                    CgroupState::Dying => "a removed",
                };
                write!(f, "{hook} of {state} cgroup (id {id})")
            }
            Self::Device {
                name: Some(name),
                layer,
                direction,
                ..
            } => write!(f, "{layer} {direction} of {name}"),
            Self::Device {
                name: None,
                index,
                layer,
                direction,
            } => write!(
                f,
                "{layer} {direction} of device {index} of another network namespace"
            ),
            Self::Namespace { inode, hook } => write!(f, "{hook} of network namespace {inode}"),
        }
    }
}

/// Whether a cgroup can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupState {
    /// The mount shows it.
    Visible,
    /// It lives, and the mount does not show it: it is of another cgroup namespace, or mounted over.
    Hidden,
    /// It was removed, and something still holds it.
    Dying,
}

/// The ways to attach to a network device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// In the driver, before the kernel has made anything of the packet.
    Xdp,
    /// Of a netkit device alone.
    Netkit,
    /// TCX, since Linux 6.6.
    Tcx,
    /// Filters of clsact.
    Clsact,
}

impl Layer {
    const fn turn(self) -> usize {
        match self {
            Self::Xdp => 0,
            Self::Netkit => 1,
            Self::Tcx => 2,
            Self::Clsact => 3,
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Xdp => "xdp",
            Self::Netkit => "netkit",
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
        })
    }
}

/// Which packets of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Those that come in.
    Ingress,
    /// Those that leave.
    Egress,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        })
    }
}
