//! The EndpointSlice of `default/kubernetes`, written by a case: the API servers do not write it meanwhile, and do
//! again when the case has ended, however that happens.
//!
//! Its endpoints are then pods of the suite, which answer with their identity. Agents do not need it: they have
//! connections, and the addresses of their configuration.

use std::{net::SocketAddr, time::Duration};

use cluster::{ApiFault, Family, LONGEST};
use harness::{
    api_faults::{self, LeasedFault},
    context::Context,
    destination::Destination,
    fence,
    limits::Limits,
    names::Key,
    objects::Written,
    pods::{Backend, serve},
    probing::identities,
    verdict::Halt,
    waiting::{Within, eventually},
};
use oracle::history::Transport;
use serde_json::{Value, json};

use crate::null_slice::null_slice;

/// Port of the pods behind it.
pub(super) const TARGET: u16 = 6443;
/// Name of its port, in its twins too.
pub(super) const PORT_NAME: &str = "https";

/// Name in certificates of API servers.
pub(super) const VALID_FOR: &str = "kubernetes.default.svc";

/// Interval of a client's handshakes, which are expensive, for API servers too.
const HANDSHAKE: Duration = Duration::from_millis(100);

/// Duration of N handshakes of a client.
pub(super) fn handshakes(limits: &Limits) -> Duration {
    HANDSHAKE.mul_f64(limits.probes as f64)
}

/// The Service and its EndpointSlice.
pub(super) struct Kubernetes {
    /// Its only family.
    pub(super) family: Family,
    /// Its ClusterIP and port.
    pub(super) address: SocketAddr,
    slice: Key,
    /// Last endpoints of the API servers.
    endpoints: Value,
    alone: LeasedFault,
}

impl Kubernetes {
    /// Takes the EndpointSlice over, for [`LONGEST`] at most. Families that the Service does not have are no axes.
    pub(super) async fn take(cx: &Context) -> Result<Self, Halt> {
        let (family, address) = frontend(cx).await?;
        cx.objects().watch().follow_namespace("default");
        let alone = api_faults::begin(cx, &ApiFault::Unreconciled, LONGEST).await?;
        let slice = Key::slice("default", "kubernetes");
        let mut object = cx.objects().get(&slice).await?;
        Ok(Self {
            family,
            address,
            slice,
            endpoints: object["endpoints"].take(),
            alone,
        })
    }

    /// Makes its EndpointSlice list these, in the form that kube-apiserver writes.
    pub(super) async fn list(&self, cx: &Context, backends: &[&Backend]) -> Result<Written, Halt> {
        let endpoint = |backend: &&Backend| {
            let address = backend.address(self.family)?.to_string();
            Ok(json!({ "addresses": [address], "conditions": { "ready": true } }))
        };
        let endpoints = backends.iter().map(endpoint).collect::<Result<Vec<_>, Halt>>()?;
        self.write(cx, &json!(endpoints)).await
    }

    /// Makes its EndpointSlice list the API servers that it listed when it was taken over.
    pub(super) async fn list_again(&self, cx: &Context) -> Result<Written, Halt> {
        self.write(cx, &self.endpoints).await
    }

    /// Makes its EndpointSlice list these API servers.
    pub(super) async fn list_servers(&self, cx: &Context, servers: &[SocketAddr]) -> Result<Written, Halt> {
        let endpoint = |server: &SocketAddr| json!({ "addresses": [server.ip().to_string()], "conditions": { "ready": true } });
        self.write(cx, &servers.iter().map(endpoint).collect()).await
    }

    async fn write(&self, cx: &Context, endpoints: &Value) -> Result<Written, Halt> {
        let ports = json!([{ "name": PORT_NAME, "port": TARGET, "protocol": "TCP" }]);
        let fields = json!({ "endpoints": endpoints, "ports": ports });
        cx.objects().replace_fields(&self.slice, &fields).await
    }

    /// Empties its EndpointSlice, as after the end of the last API server; the suite's own watch has shown it.
    pub(super) async fn empty(&self, cx: &Context) -> Result<Written, Halt> {
        null_slice(cx, &self.slice).await
    }

    /// It is served by exactly these.
    pub(super) fn serves(&self, axis: &str, backends: &[&Backend]) -> Destination {
        let expected = identities(backends.iter().copied(), Transport::Tcp, TARGET);
        Destination::serves(axis, "kubernetes", Transport::Tcp, self.address, expected)
    }

    /// It is served by one of these.
    pub(super) fn serves_one_of(&self, axis: &str, backends: &[&Backend]) -> Destination {
        let expected = identities(backends.iter().copied(), Transport::Tcp, TARGET);
        Destination::serves_one_of(axis, "kubernetes", Transport::Tcp, self.address, expected)
    }

    /// It is refused, or served by one of these.
    pub(super) fn serves_or_refuses(&self, axis: &str, backends: &[&Backend]) -> Destination {
        let expected = identities(backends.iter().copied(), Transport::Tcp, TARGET);
        Destination::serves_or_refuses(axis, "kubernetes", Transport::Tcp, self.address, expected)
    }

    /// Gives it back; on return every node has handled what the API servers have written.
    ///
    /// # Errors
    /// Inconclusive if they do not write what they wrote before within the recovery limit, or it was taken back before.
    pub(super) async fn give_back(self, cx: &Context) -> Result<(), Halt> {
        cx.phase("default/kubernetes is given back");
        let within = Within::from(self.alone.heal().await?, cx.limits().heal);
        eventually(
            "the API servers write default/kubernetes again",
            within,
            async || {
                let versions = cx.objects().watch().versions(&self.slice);
                let last = versions.last().map(|version| &version.object["endpoints"]);
                Ok((last == Some(&self.endpoints)).then_some(()))
            },
        )
        .await?;
        fence::pass(cx).await
    }
}

/// The frontend of `default/kubernetes`, of its only family; other families of a cluster are no axes.
pub(super) async fn frontend(cx: &Context) -> Result<(Family, SocketAddr), Halt> {
    let service = cx.objects().get(&Key::service("default", "kubernetes")).await?;
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let mut ports = ports.filter(|port| port["name"] == PORT_NAME);
    let port = ports.next().and_then(|port| port["port"].as_u64());
    let port = port.and_then(|port| u16::try_from(port).ok());
    let address = service["spec"]["clusterIP"].as_str().unwrap_or_default();
    let (Ok(address), Some(port)) = (address.parse::<std::net::IpAddr>(), port) else {
        return Err(Halt::Harness(format!(
            "default/kubernetes should have a cluster IP and a port {PORT_NAME}, found {}",
            service["spec"]
        )));
    };
    let family = if address.is_ipv6() {
        Family::IPv6
    } else {
        Family::IPv4
    };
    let others = cx.cluster().describe().families().into_iter();
    for other in others.filter(|other| *other != family) {
        let why = format!("default/kubernetes has one address, of {family}");
        cx.axes().not_enabled(&other.to_string(), &why);
    }
    Ok((family, SocketAddr::new(address, port)))
}

/// Pods that can be its endpoints, on the nodes in turn.
pub(super) async fn backends<const N: usize>(cx: &Context, namespace: &str) -> Result<[Backend; N], Halt> {
    let nodes = cx.nodes();
    let values: Vec<Value> = (1..=N)
        .zip(nodes.iter().cycle())
        .map(|(number, node)| {
            let name = format!("b{number}");
            let args = serve(&name, namespace, &[TARGET], &[]);
            json!({ "name": name, "namespace": namespace, "node": node, "args": args })
        })
        .collect();
    let made = cx.backends(&values).await?;
    made.try_into()
        .map_err(|made: Vec<Backend>| Halt::Harness(format!("{} of {N} backends were made", made.len())))
}
