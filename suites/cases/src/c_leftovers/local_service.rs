//! A Service of each family, with one backend on the node under test.

use cluster::Family;
use harness::{
    context::Context,
    destination::Destination,
    fence,
    pods::{Backend, endpoints, serve},
    probing::identities,
    verdict::Halt,
};
use oracle::history::Transport;
use serde_json::json;

const TRANSPORTS: [Transport; 3] = [Transport::Tcp, Transport::UdpConnected, Transport::Udp];
const PORT: u16 = 7480;
const TARGET: u16 = 8080;

/// The Service's ClusterIPs, and their backend.
pub(super) struct Served {
    pub(super) targets: Vec<Destination>,
    backends: Vec<Backend>,
    /// Port of the backends.
    port: u16,
}

impl Served {
    pub(super) async fn stage(cx: &Context, axis: &str, node: &str) -> Result<Self, Halt> {
        let namespace = cx.namespace().await?;
        let port = cx.port(TARGET);
        let args = serve("b", &namespace, &[port], &[port]);
        let values =
            json!({ "name": "b", "namespace": namespace, "node": node, "args": args, "host-network": false });
        let backends = cx.backends(&[values]).await?;
        let mut targets = Vec::new();
        for family in cx.families() {
            let name = format!("shop-{}", family.to_string().to_lowercase());
            let values = json!({
                "namespace": namespace, "service": name, "family": family.to_string(),
                "endpoints": endpoints(&backends, family)?, "target": port,
            });
            let address = cx.apply_service("${service}", &values).await?;
            let serves = |&transport: &Transport| {
                let expected = identities(&backends, transport, port);
                Destination::serves(axis, &name, transport, (address, PORT).into(), expected)
            };
            targets.extend(TRANSPORTS.iter().map(serves));
        }
        fence::pass(cx).await?;
        Ok(Self {
            targets,
            backends,
            port,
        })
    }

    /// The backend at its own address, where it answers with and without translation.
    pub(super) fn directly(&self, axis: &str, families: &[Family]) -> Result<Vec<Destination>, Halt> {
        let mut targets = Vec::new();
        for backend in &self.backends {
            for &family in families {
                let address = (backend.address(family)?, self.port).into();
                let serves = |&transport: &Transport| {
                    let itself = [backend.identity(transport, self.port)];
                    Destination::serves(axis, backend.plain(), transport, address, itself)
                };
                targets.extend(TRANSPORTS.iter().map(serves));
            }
        }
        Ok(targets)
    }

    /// The same addresses, which must reach no backend.
    pub(super) fn reaching_no_backend(&self) -> Vec<Destination> {
        let none = |target: &Destination| {
            Destination::none(&target.axis, &target.name, target.transport, target.address)
        };
        self.targets.iter().map(none).collect()
    }
}
