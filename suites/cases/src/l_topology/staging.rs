//! Services whose endpoints have hints, and what clients of each node may meet at their ClusterIPs
//! ([`hints::serving`]).

use std::collections::{BTreeMap, BTreeSet};

use cluster::{Capability, Family};
use harness::{
    case::{Families, Needs, Rights},
    client::Client,
    context::Context,
    destination::Destination,
    frontends::{self, Frontends},
    hints::{self, Hinted},
    names::Key,
    own_targets::OwnTargets,
    pods::Backend,
    policies::Policies,
    probing::identities,
    verdict::Halt,
};
use oracle::{check::Permitted, history::Transport};
use serde_json::json;

/// Zones are the nodes' own, by their labels.
pub(super) const NEEDS: Needs = Needs {
    nodes: 2,
    families: Families::Any,
    rights: Rights::Api,
    also: &[Capability::Zones],
    target: &[],
};
/// No node's zone.
pub(super) const ELSEWHERE: &str = "plumbline-elsewhere";

const PORT: u16 = 7480;
const TARGET: u16 = 8080;
const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Udp];

/// Nodes, their zones, and backends.
pub(super) struct Topology {
    namespace: String,
    zones: BTreeMap<String, String>,
    nodes: [String; 2],
    backends: Vec<Backend>,
}

/// A Service of one family, and its endpoints, slice by slice.
pub(super) struct Staged {
    made: Frontends,
    slices: Vec<Key>,
    endpoints: Vec<Vec<Hinted>>,
    policies: Policies,
}

impl Topology {
    /// Backends of these names, on all nodes in turn.
    pub(super) async fn create(cx: &Context, names: &[&str]) -> Result<Self, Halt> {
        let namespace = cx.namespace().await?;
        let zones = hints::zones(cx).await?;
        let nodes = cx.nodes();
        let [first, second, ..] = nodes.as_slice() else {
            return Err(Halt::Harness("needs two nodes".to_owned()));
        };
        Ok(Self {
            zones,
            nodes: [first.clone(), second.clone()],
            backends: frontends::serving(cx, &namespace, names, &[TARGET], &[TARGET]).await?,
            namespace,
        })
    }

    /// The first two nodes.
    pub(super) fn nodes(&self) -> &[String; 2] {
        &self.nodes
    }

    /// A zone for each of these nodes, which are different: where the nodes' zone is one, the second is no node's.
    pub(super) fn zones(&self) -> [&str; 2] {
        let [first, second] = [&self.nodes[0], &self.nodes[1]].map(|node| &*self.zones[node]);
        [first, if first == second { ELSEWHERE } else { second }]
    }

    /// The backends, as endpoints without hints.
    pub(super) fn endpoints<const N: usize>(&self) -> Result<[Hinted; N], Halt> {
        let all: Vec<Hinted> = self.backends.iter().map(Hinted::new).collect();
        let count = all.len();
        all.try_into()
            .map_err(|_| Halt::Harness(format!("expected {N} backends, found {count}")))
    }

    /// A Service of each family with these slices.
    pub(super) async fn service(
        &self,
        cx: &Context,
        name: &str,
        (distribution, policies): (&str, Policies),
        slices: &[&[Hinted]],
    ) -> Result<Vec<Staged>, Halt> {
        let mut services = Vec::new();
        for family in cx.families() {
            let service = format!("{name}-{family}").to_lowercase();
            let mut values = json!({
                "namespace": self.namespace, "service": service, "distribution": distribution,
                "internal": policies.fields()["internalTrafficPolicy"],
            });
            let made = Frontends::create(cx, family, values.clone()).await?;
            let mut keys = Vec::new();
            for (number, endpoints) in slices.iter().enumerate() {
                let slice = format!("{service}-{number}");
                values["family"] = json!(family.to_string());
                values["slice"] = json!(slice);
                values["endpoints"] = hints::entries(endpoints, family)?;
                cx.apply("${slice}", &values).await?;
                keys.push(Key::slice(&self.namespace, &slice));
            }
            services.push(Staged {
                made,
                slices: keys,
                endpoints: slices.iter().map(|slice| slice.to_vec()).collect(),
                policies,
            });
        }
        Ok(services)
    }

    /// What clients inside dial, each with the backends that serve its node.
    pub(super) fn dialled<'a>(
        &self,
        cx: &Context,
        services: impl IntoIterator<Item = &'a Staged>,
    ) -> OwnTargets {
        let mut targets = OwnTargets::default();
        for service in services {
            let endpoints = service.endpoints.concat();
            for client in cx.clients().iter() {
                let zone = self.zones.get(&client.node).map(String::as_str);
                let serving = if service.policies == Policies::INTERNAL {
                    self.of_node(client)
                } else {
                    hints::serving(&endpoints, &client.node, zone)
                };
                for target in service.targets(&serving) {
                    targets.add(client, target);
                }
            }
        }
        targets
    }

    /// What clients inside dial, whichever backend of all serves.
    pub(super) fn any<'a>(&self, services: impl IntoIterator<Item = &'a Staged>) -> Vec<Destination> {
        let all: Vec<&Backend> = self.backends.iter().collect();
        let targets = services.into_iter().flat_map(|service| service.targets(&all));
        let any = |target: Destination| Destination {
            permitted: match target.permitted {
                Permitted::Serves(identities) => Permitted::ServesOneOf(identities),
                other => other,
            },
            ..target
        };
        targets.map(any).collect()
    }

    fn of_node(&self, client: &Client) -> Vec<&Backend> {
        let backends = self.backends.iter();
        backends.filter(|backend| backend.node == client.node).collect()
    }
}

impl Staged {
    /// Replaces the endpoints of its first slice.
    pub(super) async fn list(&mut self, cx: &Context, endpoints: &[Hinted]) -> Result<(), Halt> {
        let listed = json!({ "endpoints": hints::entries(endpoints, self.family())? });
        cx.objects().patch(&self.slices[0], listed).await?;
        self.endpoints[0] = endpoints.to_vec();
        Ok(())
    }

    fn family(&self) -> Family {
        self.made.family
    }

    /// Its cluster IP, which these backends serve; without any it reaches none.
    fn targets(&self, serving: &[&Backend]) -> Vec<Destination> {
        let axis = format!("{}, cip", self.family());
        let at = |transport: Transport| {
            let by: BTreeSet<String> = identities(serving.iter().copied(), transport, TARGET);
            let target = self.made.at_cluster_ip(&axis, transport, PORT, &by);
            let is_served = !by.is_empty();
            Destination {
                permitted: if is_served {
                    target.permitted
                } else {
                    Permitted::None
                },
                ..target
            }
        };
        TRANSPORTS.map(at).to_vec()
    }
}
