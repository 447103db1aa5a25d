//! A node for a test: namespaces, bpffs, cgroup; servers and clients in it.

pub(crate) mod bytecode;
mod foreign;
mod isolation;
mod kernel;
mod left_behind;
mod node;
mod sockets;

pub(crate) use self::{
    foreign::{ForeignProgram, overwrite_meta, pin_array},
    isolation::isolated,
    kernel::{has_tcx, release},
    left_behind::{attached, hold, leave_behind},
    node::{Node, Protocol, frontend, switch},
    sockets::{TcpServer, UdpServer, dial, receive, udp_client},
};
