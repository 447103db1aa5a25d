//! Options of plans.

use clap::Args;

use crate::plan::Selection;

/// The node that plans are made for.
#[derive(Debug, Args)]
pub(super) struct NodeFlags {
    /// Name of this node in the API: endpoints that name it are local
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub(super) node: String,
    /// How a backend is chosen for a new connection
    ///
    /// random is right where the packets of a connection always come in by the same node. It costs one slot of a map
    /// for each backend of each service port.
    ///
    /// maglev is for clusters where they may not (ECMP, or load balancers in front of the nodes): all nodes choose
    /// the same backend for the same connection, and few connections change backends when others come or go. It
    /// costs 251 slots for a service port of 2 backends, 1021 for up to 10, 4093 for up to 40, 16381 for up to 163,
    /// and 65521 beyond; of 262144 in all; twice while one set of backends is switched to the next; and as many writes
    /// for each change. Where so many don't fit, all service ports have fewer, at last one for each backend, which the
    /// log says: then all nodes still choose the same backend, but many connections change backends when others come
    /// or go. All nodes must have the same. Sockets of the node itself, whose source is not known yet when they connect,
    /// take any slot.
    ///
    /// Connections go on when it is changed.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Selection::Random)]
    pub(super) backend_selection: Selection,
}
