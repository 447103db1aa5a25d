//! The agent on a node with a network: the unmodified program, its devices, and the hosts behind them.
//!
//! ```text
//! outside 192.0.2.2 ─┐
//!   other 192.0.2.9 ─┼─ eth0 192.0.2.1 ─ node ─┬─ veth1-2 ── pod 10.244.1.2
//! remote pod         │                         └─ veth1-3 ── pod 10.244.1.3
//!   10.244.2.2 ──────┘
//! ```
//!
//! The same with 2001:db8:1::/64, fd00:1:: and fd00:2::. The test's process is the node.
//!
//! | file | what is shown |
//! |---|---|
//! | `outside` | node ports, load balancers, external IPs, policies, ranges and affinity, from outside and from pods |
//! | `own_way` | the agent sees on when the Service that leads to its API server has no backends |
//! | `pod_network` | pods' network without another CNI: routes, sources, the conflist, and what is left of them |
//! | `masquerade` | the rules for what pods send out of the cluster, while they are written |
//! | `probing` | the agent's own probe sees what others do to connections |
//! | `udp` | clients of UDP whose backend stops serving, or whose frontend passes to another Service |
//! | `leftovers` | programs of an earlier load are gone when the next agent is ready |
//! | `left_everywhere` | above, beside, hidden, removed, at devices, held by others; another owner's stays |
//! | `comes_and_goes` | devices and addresses that come and go while the agent runs |
//! | `crowd` | a Service with 100,000 endpoints is clipped, with a finding, without an effect on others |
//! | `from_files` | an agent without any API server; `plan --diff` and `dump` beside it and after it |

#[path = "../process/place.rs"]
mod place;

mod agent;
mod comes_and_goes;
mod crowd;
mod from_files;
mod left_everywhere;
mod leftovers;
mod masquerade;
mod network;
mod objects;
mod outside;
mod own_way;
mod pod_network;
mod probing;
mod sockets;
mod udp;
