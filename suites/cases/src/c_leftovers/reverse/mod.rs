//! What the hooks of a socket's way back are seen by: whom sockets show as the one they talk to (recvmsg, getpeername), and
//! whether a process of the host gets the port it asks for (bind).
pub(super) mod gate;
pub(super) mod twins;

use harness::family::Family;

/// The hooks under test, by what shows them, and of IPv4 and of IPv6.
pub(super) const RECVMSG: [&str; 2] = ["recvmsg4", "recvmsg6"];
pub(super) const GETPEERNAME: [&str; 2] = ["getpeername4", "getpeername6"];
pub(super) const POST_BIND: [&str; 2] = ["post_bind4", "post_bind6"];

/// Which of the two it is; each is an axis.
pub(super) fn of_family(hooks: [&'static str; 2], family: Family) -> &'static str {
    match family {
        Family::IPv4 => hooks[0],
        Family::IPv6 => hooks[1],
    }
}
