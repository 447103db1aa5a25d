//! What shows the hooks of a socket's reply direction: the peer address of sockets (recvmsg, getpeername), and whether
//! a host process can bind a port (bind).
pub(super) mod node_port_binding;
pub(super) mod two_vips;

use cluster::Family;

/// The hooks under test by what shows them, each for IPv4 and IPv6.
pub(super) const RECVMSG: [&str; 2] = ["recvmsg4", "recvmsg6"];
pub(super) const GETPEERNAME: [&str; 2] = ["getpeername4", "getpeername6"];
pub(super) const POST_BIND: [&str; 2] = ["post_bind4", "post_bind6"];

/// What shows a hook; each is an axis.
pub(super) fn of_family(hooks: [&'static str; 2], family: Family) -> &'static str {
    match family {
        Family::IPv4 => hooks[0],
        Family::IPv6 => hooks[1],
    }
}
