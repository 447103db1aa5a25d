//! What sockets see: real programs, real sockets.
//!
//! | module | decides |
//! |---|---|
//! | `translate` | TCP and UDP reach backends, and their peers are the frontends |
//! | `messages` | sendmsg, sendmmsg and their counterparts; what a UDP socket sees of several services |
//! | `refuse` | no backend, unknown port, hole: ECONNREFUSED at once |
//! | `policy` | what is left alone: other scopes, source ranges, maps of another version, other cgroups |
//! | `node_ports` | node ports at the node's addresses and at loopback |
//! | `affinity` | who is sent to the same backend, for how long |
//! | `own` | the agent's own sockets, when there are no backends |
//! | `bind` | who may bind a node port |
//! | `release` | what is noted of a socket goes with it |
//!
//! | module | holds |
//! |---|---|
//! | `world` | families, service ports |
//! | `peers` | servers that say who they are, and clients |

mod affinity;
mod bind;
mod messages;
mod node_ports;
mod own;
mod peers;
mod policy;
mod refuse;
mod release;
mod translate;
mod world;
