//! The kinds of frontends of a Service: which of them a target declares, and a Service that has one of each.

use std::{collections::BTreeSet, fmt, net::IpAddr};

use cluster::{Capability, Family};
use oracle::history::Transport;
use serde_json::{Value, json};

use crate::{context::Context, destination::Destination, frontends::Frontends, verdict::Halt};

/// A kind of frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The cluster IP.
    ClusterIp,
    /// The node port on every node.
    NodePort,
    /// The addresses of load balancers.
    Balancer,
    /// External IPs, which no node owns.
    ExternalIp,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClusterIp => "cip",
            Self::NodePort => "np",
            Self::Balancer => "lb",
            Self::ExternalIp => "eip",
        })
    }
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::ClusterIp, Self::NodePort, Self::Balancer, Self::ExternalIp];
    /// Those that clients outside dial.
    pub const OUTSIDE: [Self; 3] = [Self::NodePort, Self::Balancer, Self::ExternalIp];

    /// The feature that a target must declare.
    fn feature(self) -> Option<&'static str> {
        match self {
            Self::ClusterIp | Self::NodePort => None,
            Self::Balancer => Some("loadbalancer"),
            Self::ExternalIp => Some("external-ips"),
        }
    }

    /// Whether it is at an address of a load balancer, which alone is routed to nodes from outside.
    fn is_routed(self) -> bool {
        matches!(self, Self::Balancer | Self::ExternalIp)
    }
}

/// Those of these kinds that the target declares and the cluster can stage. Each of the others is an axis that is not
/// enabled.
pub fn offered(cx: &Context, kinds: &[Kind]) -> Vec<Kind> {
    let described = cx.cluster().describe();
    let lacks = |kind: Kind| match kind.feature() {
        Some(feature) if !described.features.contains(feature) => Some(format!(
            "{} does not declare the feature {feature}",
            described.target
        )),
        _ if kind.is_routed()
            && !described
                .capabilities
                .contains(&Capability::LoadBalancerAddresses) =>
        {
            Some("load balancers get no addresses in the cluster".to_owned())
        }
        _ => None,
    };
    let mut offered = Vec::new();
    for kind in kinds {
        match lacks(*kind) {
            Some(why) => cx.axes().not_enabled(&kind.to_string(), &why),
            None => offered.push(*kind),
        }
    }
    offered
}

/// A Service with a frontend of each of some kinds.
#[derive(Clone, Debug)]
pub struct OfKinds {
    /// The Service.
    pub made: Frontends,
    kinds: Vec<Kind>,
    port: u16,
    external: Vec<IpAddr>,
}

impl OfKinds {
    /// Creates the manifest's objects named `${service}`, with `type` and `port` among their values. Its external IPs
    /// are the addresses of a load balancer of another Service without endpoints, at the port above, so that they are
    /// routed to nodes.
    pub async fn create(
        cx: &Context,
        family: Family,
        kinds: &[Kind],
        port: u16,
        mut values: Value,
    ) -> Result<Self, Halt> {
        let is_balanced = kinds.contains(&Kind::Balancer);
        values["type"] = if is_balanced { "LoadBalancer" } else { "NodePort" }.into();
        values["port"] = port.into();
        let made = Frontends::create(cx, family, values.clone()).await?;
        let mut external = Vec::new();
        if kinds.contains(&Kind::ExternalIp) {
            values["type"] = "LoadBalancer".into();
            values["port"] = (port + 1).into();
            values["service"] = format!("routed-{}", values["service"].as_str().unwrap_or_default()).into();
            values["endpoints"] = json!([]);
            let routed = Frontends::create(cx, family, values).await?;
            let none = BTreeSet::new();
            let at = routed
                .at_balancers(cx, "", Transport::Tcp, port + 1, &none)
                .await?;
            external.extend(at.into_iter().map(|target| target.address.ip()));
            let listed = json!({ "spec": { "externalIPs": external } });
            cx.objects().patch(&made.service, listed).await?;
        }
        let kinds = kinds.to_vec();
        Ok(Self {
            made,
            kinds,
            port,
            external,
        })
    }

    /// Its frontends by a transport, each with its kind; backends of these identities must serve them. The axis of a
    /// kind is that of the Service and the kind.
    pub async fn targets(
        &self,
        cx: &Context,
        axis: &str,
        transport: Transport,
        by: &BTreeSet<String>,
    ) -> Result<Vec<(Kind, Destination)>, Halt> {
        let mut targets = Vec::new();
        for kind in &self.kinds {
            let axis = format!("{axis}, {kind}");
            let of_kind = match kind {
                Kind::ClusterIp => vec![self.made.at_cluster_ip(&axis, transport, self.port, by)],
                Kind::NodePort => self.made.at_nodes(cx, &axis, transport, by)?,
                Kind::Balancer => {
                    self.made
                        .at_balancers(cx, &axis, transport, self.port, by)
                        .await?
                }
                Kind::ExternalIp => {
                    let at = |address: &IpAddr| {
                        let address = (*address, self.port).into();
                        self.made.at(&axis, &kind.to_string(), transport, address, by)
                    };
                    self.external.iter().map(at).collect()
                }
            };
            targets.extend(of_kind.into_iter().map(|target| (*kind, target)));
        }
        Ok(targets)
    }
}

/// Targets of any kind, and those of the kinds that clients outside dial.
#[must_use]
pub fn inside_and_outside(targets: &[(Kind, Destination)]) -> [Vec<Destination>; 2] {
    let those = |kinds: &[Kind]| {
        let of_kinds = targets.iter().filter(|(kind, _)| kinds.contains(kind));
        of_kinds.map(|(_, target)| target.clone()).collect()
    };
    [those(&Kind::ALL), those(&Kind::OUTSIDE)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_outside_dial_no_cluster_ip() {
        let target = |kind: Kind| {
            let address = "10.0.0.1:80".parse().unwrap();
            (
                kind,
                Destination::none("a", &kind.to_string(), Transport::Tcp, address),
            )
        };
        let [inside, outside] = inside_and_outside(&Kind::ALL.map(target));
        let names =
            |targets: &[Destination]| -> Vec<String> { targets.iter().map(|one| one.name.clone()).collect() };
        assert_eq!(names(&inside), ["cip", "np", "lb", "eip"]);
        assert_eq!(names(&outside), ["np", "lb", "eip"]);
    }
}
