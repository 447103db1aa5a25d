//! The Service through which the agent under test reaches the API.

use std::net::{IpAddr, SocketAddr};

use cluster::Family;
use harness::{
    context::Context,
    destination::Destination,
    names::Key,
    objects::{MANAGER, Written},
    verdict::Halt,
    waiting::{Within, eventually},
};
use oracle::{check::Permitted, history::Transport};
use serde_json::{Value, json};

/// Start of its name, of which that of `default/kubernetes` is a prefix.
const NAME: &str = "kubernetes-x";
const PORT: u16 = 7443;

/// Which of its frontends the agent dials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::b_apiserver) enum Frontend {
    ClusterIp,
    LoadBalancer,
    NodePort,
}

/// A Service whose EndpointSlice lists an API server.
pub(in crate::b_apiserver) struct ApiService {
    pub(in crate::b_apiserver) family: Family,
    pub(in crate::b_apiserver) service: Key,
    pub(in crate::b_apiserver) slice: Key,
    /// The dialled frontend.
    pub(in crate::b_apiserver) address: SocketAddr,
    /// The API server behind it.
    pub(in crate::b_apiserver) server: SocketAddr,
}

impl ApiService {
    /// Creates one for the first API server. A node port is dialled at the node `of`.
    pub(in crate::b_apiserver) async fn stage(
        cx: &Context,
        namespace: &str,
        frontend: Frontend,
        of: &str,
    ) -> Result<Self, Halt> {
        let server = server(cx).await?;
        let family = match server {
            SocketAddr::V4(_) => Family::IPv4,
            SocketAddr::V6(_) => Family::IPv6,
        };
        let kind = match frontend {
            Frontend::ClusterIp => "ClusterIP",
            Frontend::LoadBalancer => "LoadBalancer",
            Frontend::NodePort => "NodePort",
        };
        // In the namespace `default` only its name makes it the case's own.
        let (name, port_name) = (cx.named(NAME), cx.named("https"));
        let labels = cx.objects().labels();
        let mut of_slice = labels.clone();
        of_slice["kubernetes.io/service-name"] = json!(name);
        of_slice["endpointslice.kubernetes.io/managed-by"] = MANAGER.into();
        let values = json!({
            "labels": labels, "slice-labels": of_slice, "api-service": name, "port-name": port_name, "namespace": namespace, "type": kind, "family": family.to_string(),
            "target": server.port(), "endpoints": endpoints(&[server]),
        });
        cx.apply("${api-service}", &values).await?;
        let service = Key::service(namespace, &name);
        let within = Within::from_now(cx.limits().service);
        let what = format!("{service} has the address that the agent is to dial");
        let address = eventually(&what, within, async || {
            let object = cx.objects().get(&service).await?;
            Ok(match frontend {
                Frontend::ClusterIp => pointed(&object, "/spec/clusterIP").map(|ip| (ip, PORT).into()),
                Frontend::LoadBalancer => {
                    pointed(&object, "/status/loadBalancer/ingress/0/ip").map(|ip| (ip, PORT).into())
                }
                Frontend::NodePort => {
                    let port = object.pointer("/spec/ports/0/nodePort").and_then(Value::as_u64);
                    let port = port.and_then(|port| u16::try_from(port).ok());
                    internal(cx, of, family).zip(port).map(SocketAddr::from)
                }
            })
        })
        .await?;
        Ok(Self {
            family,
            service,
            slice: Key::slice(namespace, &name),
            address,
            server,
        })
    }

    /// Empties its EndpointSlice.
    pub(in crate::b_apiserver) async fn empty(&self, cx: &Context) -> Result<Written, Halt> {
        cx.objects().patch(&self.slice, json!({ "endpoints": [] })).await
    }

    /// Makes its EndpointSlice list an API server.
    pub(in crate::b_apiserver) async fn list(
        &self,
        cx: &Context,
        server: SocketAddr,
    ) -> Result<Written, Halt> {
        let patch = json!({ "endpoints": endpoints(&[server]) });
        cx.objects().patch(&self.slice, patch).await
    }

    /// Other clients are refused.
    pub(in crate::b_apiserver) fn refuses(&self, axis: &str) -> Destination {
        Destination::refuses(axis, NAME, Transport::Tcp, self.address)
    }

    /// Other clients reach no backend.
    pub(in crate::b_apiserver) fn is_dead(&self, axis: &str) -> Destination {
        Destination {
            permitted: Permitted::None,
            ..self.refuses(axis)
        }
    }
}

/// The first API server.
async fn server(cx: &Context) -> Result<SocketAddr, Halt> {
    let all = cx.cluster().control_plane()?.servers().await?;
    let first = all.first().map(|server| server.address);
    first.ok_or_else(|| Halt::Harness("the cluster shows no API server".to_owned()))
}

/// Endpoints of an EndpointSlice.
fn endpoints(servers: &[SocketAddr]) -> Value {
    let endpoint = |server: &SocketAddr| json!({ "addresses": [server.ip().to_string()], "conditions": { "ready": true } });
    servers.iter().map(endpoint).collect()
}

fn pointed(object: &Value, pointer: &str) -> Option<IpAddr> {
    object.pointer(pointer)?.as_str()?.parse().ok()
}

/// A node's address of a family.
fn internal(cx: &Context, name: &str, family: Family) -> Option<IpAddr> {
    let nodes = &cx.cluster().describe().nodes;
    let node = nodes.iter().find(|node| node.name == name)?;
    let is_wanted = |address: &&IpAddr| address.is_ipv6() == (family == Family::IPv6);
    node.addresses.iter().find(is_wanted).copied()
}
