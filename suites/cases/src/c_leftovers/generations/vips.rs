//! What the generations serve: the VIP, that of a Service that is deleted between them, and their backends.

use std::net::IpAddr;

use harness::{
    context::Context,
    destination::Destination,
    pods::{Backend, serve},
    probing::identities,
    verdict::Halt,
};
use oracle::history::Transport;
use serde_json::{Value, json};

/// Every transport that a socket hook sees.
pub(in super::super) const ALL: &[Transport] = &[Transport::Tcp, Transport::UdpConnected, Transport::Udp];
const PORT: u16 = 7480;
/// Port of the backends.
pub(in super::super) const TARGET: u16 = 8080;

/// The addresses under test.
pub(in super::super) struct Vips {
    pub(in super::super) axis: String,
    pub(in super::super) shop: IpAddr,
    /// VIP of the Service that is deleted while no agent runs, where the case needs it.
    pub(in super::super) gone: Option<IpAddr>,
}

impl Vips {
    /// All VIPs are served by these.
    pub(in super::super) fn serve(&self, backends: &[Backend], transports: &[Transport]) -> Vec<Destination> {
        let mut targets = self.serve_shop(backends, transports);
        if let Some(gone) = self.gone {
            targets.extend(self.served("gone", gone, backends, transports));
        }
        targets
    }

    pub(in super::super) fn serve_shop(
        &self,
        backends: &[Backend],
        transports: &[Transport],
    ) -> Vec<Destination> {
        self.served("shop", self.shop, backends, transports)
    }

    /// What is permitted while generation 2 runs.
    pub(in super::super) fn after(&self, current: &[Backend]) -> Vec<Destination> {
        let mut targets = self.serve_shop(current, ALL);
        if let Some(gone) = self.gone {
            let none = |&transport: &Transport| {
                Destination::none(&self.axis, "gone", transport, (gone, PORT).into())
            };
            targets.extend(ALL.iter().map(none));
        }
        targets
    }

    fn served(
        &self,
        name: &str,
        address: IpAddr,
        backends: &[Backend],
        transports: &[Transport],
    ) -> Vec<Destination> {
        let served = |&transport: &Transport| {
            let expected = identities(backends, transport, TARGET);
            Destination::serves(&self.axis, name, transport, (address, PORT).into(), expected)
        };
        transports.iter().map(served).collect()
    }
}

/// `b_old` on the node, and the current ones on it and on the last node.
pub(in super::super) async fn backends(
    cx: &Context,
    namespace: &str,
    node: &str,
) -> Result<(Backend, Vec<Backend>), Halt> {
    let nodes = cx.nodes();
    let last = nodes.last().map_or(node, String::as_str);
    let values: Vec<Value> = [("old", node), ("new1", node), ("new2", last)]
        .into_iter()
        .map(|(name, node)| {
            let args = serve(name, namespace, &[TARGET], &[TARGET]);
            json!({ "name": name, "namespace": namespace, "node": node, "args": args })
        })
        .collect();
    let mut backends = cx.backends(&values).await?;
    let old = backends.remove(0);
    Ok((old, backends))
}
