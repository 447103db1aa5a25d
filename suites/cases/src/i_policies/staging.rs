//! Services with traffic policies, whose backends are on the first node or on every node; and what each client may meet
//! at which of their frontends ([`Policies::permit`]).

use std::{collections::BTreeSet, net::IpAddr};

use cluster::{Family, Place};
use harness::{
    client::Client,
    commands,
    context::Context,
    destination::Destination,
    frontends::{self, Frontends, Range},
    own_targets::OwnTargets,
    pods::{Backend, endpoints},
    policies::{At, Policies},
    verdict::Halt,
};
use oracle::history::Transport;
use serde_json::{Value, json};

const PORT: u16 = 7480;
const TARGET: u16 = 8080;
const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Udp];
/// A load balancer class without a controller.
const BY_HAND: &str = "plumbline.example/written-by-hand";
/// Begins the name of a Service whose policies leave every backend to every client: the control.
pub(super) const TWIN: &str = "twin";

/// Where the backends of a Service are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    FirstNode,
    EveryNode,
}

/// Frontends that are dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    ClusterIp,
    /// Of every node.
    NodePorts,
    /// Two addresses, of which the first is routed to the first node, the other to the second.
    LoadBalancer,
}

impl Kind {
    /// The axis of these frontends in a family.
    pub(super) fn axis(self, family: Family) -> String {
        let words = match self {
            Self::ClusterIp => "cip",
            Self::NodePorts => "np",
            Self::LoadBalancer => "lb",
        };
        format!("{family}, {words}")
    }
}

/// A Service of one family.
pub(super) struct Staged {
    made: Frontends,
    backends: Vec<Backend>,
    policies: Policies,
}

/// A Service for each row and family: its name, policies, and where its backends are. Load balancers have their
/// addresses where they are dialled.
pub(super) async fn services(
    cx: &Context,
    kind: Kind,
    rows: &[(&str, Policies, On)],
) -> Result<Vec<Staged>, Halt> {
    let namespace = cx.namespace().await?;
    let names: Vec<String> = (1..=cx.nodes().len())
        .map(|number| format!("b{number}"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let all = frontends::serving(cx, &namespace, &names, &[TARGET], &[TARGET]).await?;
    let (type_, class) = match kind {
        Kind::LoadBalancer => ("LoadBalancer", json!(BY_HAND)),
        Kind::ClusterIp | Kind::NodePorts => ("NodePort", Value::Null),
    };
    let mut services = Vec::new();
    for family in cx.families() {
        for (name, policies, on) in rows {
            let backends = if *on == On::FirstNode { &all[..1] } else { &all[..] };
            let fields = policies.fields();
            let values = json!({
                "namespace": namespace, "service": format!("{name}-{family}").to_lowercase(), "type": type_, "class": class,
                "internal": fields["internalTrafficPolicy"], "external": fields["externalTrafficPolicy"],
                "endpoints": endpoints(backends, family)?,
            });
            let made = Frontends::create(cx, family, values).await?;
            if kind == Kind::LoadBalancer {
                let ingress: Vec<Value> = balancer_addresses(cx, &made)
                    .iter()
                    .map(|(_, address)| json!({ "ip": address, "ipMode": "VIP" }))
                    .collect();
                let status = json!({ "loadBalancer": { "ingress": ingress } });
                cx.objects().patch_status(&made.service, status).await?;
            }
            services.push(Staged {
                made,
                backends: backends.to_vec(),
                policies: *policies,
            });
        }
    }
    Ok(services)
}

/// What these clients may meet at these frontends of the Services. What implementations may choose is not dialled.
pub(super) fn dialled(
    cx: &Context,
    services: &[Staged],
    kind: Kind,
    clients: &[Client],
) -> Result<OwnTargets, Halt> {
    let mut targets = OwnTargets::default();
    for service in services {
        for transport in TRANSPORTS {
            for (at, target) in service.targets(cx, kind, transport)? {
                for client in clients {
                    let of = (transport, TARGET);
                    if let Some(permitted) = service.policies.permit(&at, client, &service.backends, of) {
                        let target = Destination {
                            permitted,
                            ..target.clone()
                        };
                        targets.add(client, target);
                    }
                }
            }
        }
    }
    Ok(targets)
}

/// The two addresses of a load balancer, each with the node that it is routed to.
fn balancer_addresses(cx: &Context, made: &Frontends) -> Vec<(String, IpAddr)> {
    let addresses = [Range::First, Range::Second].map(|range| made.balancer_address(range));
    cx.nodes().into_iter().zip(addresses).collect()
}

/// Routes of the client outside, each to the address of a load balancer by one node.
pub(super) async fn route(cx: &Context, services: &[Staged]) -> Result<(), Halt> {
    let mut routes = Vec::new();
    for Staged { made, .. } in services {
        let nodes = frontends::node_addresses(cx, made.family);
        for (node, address) in balancer_addresses(cx, made) {
            let by = nodes.iter().find(|(name, _)| *name == node).map(|(_, by)| by);
            let by = by.ok_or_else(|| Halt::Harness(format!("{node} has no {} address", made.family)))?;
            routes.push(format!("ip route replace {address} via {by}"));
        }
    }
    commands::change(cx, &Place::Outside, &routes.join("; ")).await
}

impl Staged {
    /// Its Service, by the name of its row.
    pub(super) fn is(&self, name: &str) -> bool {
        self.made.service.plain().starts_with(name)
    }

    /// Its namespace.
    pub(super) fn namespace(&self) -> &str {
        &self.made.service.namespace
    }

    /// Changes its policies.
    pub(super) async fn flip(&mut self, cx: &Context, policies: Policies) -> Result<(), Halt> {
        let spec = json!({ "spec": policies.fields() });
        cx.objects().patch(&self.made.service, spec).await?;
        self.policies = policies;
        Ok(())
    }

    fn targets(
        &self,
        cx: &Context,
        kind: Kind,
        transport: Transport,
    ) -> Result<Vec<(At, Destination)>, Halt> {
        let made = &self.made;
        let axis = kind.axis(made.family);
        let at = |place: &str, address: IpAddr, port: u16| {
            made.at(&axis, place, transport, (address, port).into(), &BTreeSet::new())
        };
        Ok(match kind {
            Kind::ClusterIp => vec![(At::ClusterIp, at("cip", made.cluster_ip, PORT))],
            Kind::NodePorts => {
                let port = made.node_port(transport)?;
                frontends::node_addresses(cx, made.family)
                    .into_iter()
                    .map(|(node, address)| (At::NodePort(node.clone()), at(&node, address, port)))
                    .collect()
            }
            Kind::LoadBalancer => balancer_addresses(cx, made)
                .into_iter()
                .map(|(node, address)| (At::LoadBalancer(node), at("lb", address, PORT)))
                .collect(),
        })
    }
}
