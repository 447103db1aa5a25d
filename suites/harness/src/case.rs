//! A case as data, and what a cluster must have for it.

use std::{collections::BTreeSet, fmt, time::Duration};

use cluster::{Capability, Description, Family};
use faults::Found;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::{
    context::{About, Context},
    target_needs::OfTarget,
    verdict::{Halt, Verdict},
};

/// One case. Its file reads like the row of the catalogue that it decides.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Name, unique; equal to the name of its file.
    pub id: &'static str,
    /// Folder: the letter and name of the catalogue's area.
    pub area: &'static str,
    /// Rows of the catalogue that it decides.
    pub claims: &'static [&'static str],
    /// The claim as one sentence.
    pub sentence: &'static str,
    /// Who must meet it.
    pub tier: Tier,
    /// Features that the vendor must have declared; otherwise the case is not supported. Empty: every implementation must meet it.
    pub features: &'static [&'static str],
    /// What the cluster must have, otherwise the case is skipped; and the target, otherwise it is not supported.
    pub needs: Needs,
    /// Disturbs other cases (stops agents …), so it runs alone.
    pub disruptive: bool,
    /// The objects, as YAML.
    pub manifest: &'static str,
    /// Longer than any run of it, limits unscaled: then it hangs.
    pub longest: Duration,
    /// What its claim asks for by itself, whichever axis and whatever the limits: times and repetitions that it names.
    pub takes_at_least: Duration,
    /// The case.
    pub run: for<'a> fn(&'a Context) -> BoxFuture<'a, Result<(), Halt>>,
}

/// Who must meet a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Every conformant Service implementation.
    Core,
    /// Holds through restart, fault, leftover state or API loss, and recovers without a human.
    Robustness,
    /// Nothing left behind, nothing of others touched; reads the state of nodes for its verdict.
    Hygiene,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Core => "core",
            Self::Robustness => "robustness",
            Self::Hygiene => "hygiene",
        })
    }
}

/// What a case needs of a cluster and of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Needs {
    /// Nodes.
    pub nodes: usize,
    /// Families.
    pub families: Families,
    /// Rights.
    pub rights: Rights,
    /// What else it must be able to do.
    pub also: &'static [Capability],
    /// What the target must have; otherwise the case is not supported.
    pub target: &'static [OfTarget],
}

/// The field by which a pod of a manifest asks for its node's network: a namespace has to admit that.
const HOST_NETWORK: &str = "hostNetwork:";

/// Which address families a case needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Families {
    /// Each family that the cluster has, by itself.
    Any,
    /// IPv4, alone or beside IPv6.
    Ipv4,
    /// Services with both.
    DualStack,
}

/// What a case must be allowed to do; each includes the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rights {
    /// Write pods, Services and EndpointSlices in one namespace.
    Namespaced,
    /// Make namespaces.
    Api,
    /// Be privileged on nodes, stop the agent.
    Node,
}

/// Axes of every case that the cluster can't enable: they are reported, and no part of the verdict.
#[must_use]
pub fn axes_not_enabled(cluster: &Description) -> Vec<String> {
    let enabled = cluster.families();
    let mut axes: Vec<String> = [Family::IPv4, Family::IPv6]
        .into_iter()
        .filter(|family| !enabled.contains(family))
        .map(|family| format!("{family}: the cluster does not declare it"))
        .collect();
    if cluster.nodes.len() == 1 {
        axes.push(match cluster.nodes_of_others {
            0 => "clients on another node: the cluster has one node".to_owned(),
            others => format!(
                "clients on another node: the case has {} for itself, and leaves {others} to cases beside it",
                cluster.nodes[0].name
            ),
        });
    }
    if !cluster.capabilities.contains(&Capability::HostNetwork) {
        axes.push("clients on hosts: the cluster does not allow processes on its hosts".to_owned());
    }
    if !cluster.capabilities.contains(&Capability::Outside) {
        axes.push("clients outside: the cluster has none".to_owned());
    }
    axes
}

/// A capability as something that a case needs.
#[must_use]
pub fn in_words(capability: Capability) -> &'static str {
    match capability {
        Capability::Ipv4 => "IPv4",
        Capability::Ipv6 => "IPv6",
        Capability::ApiWrite => "the right to write EndpointSlices",
        Capability::Node => "rights on nodes",
        Capability::Outside => "a client outside",
        Capability::HostNetwork => "processes on its hosts",
        Capability::LoadBalancerAddresses => "addresses of load balancers",
        Capability::ApiServers => "API servers that can be seen",
        Capability::ApiFaults => "API servers that can be stopped",
        Capability::Unreconciled => "API servers that can be kept from writing default/kubernetes",
        Capability::WrongAnswers => "API servers that can be made to answer wrongly",
        Capability::SharedAddress => "several API servers that advertise one address or can be made to",
        Capability::Baseline => "nodes of which is known what they had before the implementation",
        Capability::CgroupAbove => "a cgroup of its own above the agent's",
        Capability::AgentPins => "nodes of its own, or a target that names what it pins",
        Capability::AgentCleanup => {
            "a target that says how what its agent keeps on a node is removed (`clean`)"
        }
        Capability::PodsWithoutAgents => "a network of pods that is not the agents'",
        Capability::SecondNetwork => "nodes that can get a device of another network",
        Capability::NarrowHop => "hops of a small MTU",
        Capability::Sctp => "kernels that have SCTP",
        Capability::WriteFailures => "agents whose writes to the kernel can be made to fail",
        Capability::PowerLoss => "nodes that can lose their power",
        Capability::StartsWithoutApi => "agents that can be started without an API server",
        Capability::ThousandsOfServices => "a cluster of the run's own, for thousands of Services",
        Capability::CgroupNamespaces => "processes in pods with a cgroup namespace of their own",
        Capability::Zones => "nodes that name their zones (the label topology.kubernetes.io/zone)",
        Capability::RawSockets => "raw sockets in pods",
    }
}

impl Case {
    /// What its session has to know of it.
    #[must_use]
    pub fn about(&self) -> About {
        About {
            id: self.id,
            manifest: self.manifest,
            longest: self.longest,
            is_privileged: self.needs.rights == Rights::Node || self.manifest.contains(HOST_NETWORK),
            removes_agents: self.needs.also.contains(&Capability::AgentCleanup),
        }
    }

    /// Decides before the run whether the case can: `None`, or the verdict without it. What its target has on nodes decides, if
    /// they were looked at.
    #[must_use]
    pub fn excluded(
        &self,
        cluster: &Description,
        declared: &BTreeSet<String>,
        found: Option<&Found>,
    ) -> Option<Verdict> {
        if let Some(feature) = self.features.iter().find(|feature| !declared.contains(**feature)) {
            let why = format!("{} does not declare the feature {feature}", cluster.target);
            return Some(Verdict::NotSupported { why });
        }
        if let Some(why) = self
            .needs
            .target
            .iter()
            .find_map(|need| need.lacks(cluster, found))
        {
            return Some(Verdict::NotSupported { why });
        }
        let lacks = |what: &str| {
            Some(Verdict::Skipped {
                why: format!("needs {what}, which {} does not have", cluster.provider),
            })
        };
        let without = |capability| {
            let why = cluster.lacking.get(&capability);
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            let needs = in_words(capability);
            Some(Verdict::Skipped {
                why: format!("needs {needs}, which {} does not have{why}", cluster.provider),
            })
        };
        if cluster.nodes.len() < self.needs.nodes {
            return lacks(&format!(
                "{} nodes (there are {})",
                self.needs.nodes,
                cluster.nodes.len()
            ));
        }
        let families = cluster.families();
        match self.needs.families {
            Families::Any if families.is_empty() => return lacks("IPv4 or IPv6"),
            Families::Ipv4 if !families.contains(&Family::IPv4) => return lacks("IPv4"),
            Families::DualStack if families.len() < 2 => return lacks("IPv4 and IPv6"),
            Families::Any | Families::Ipv4 | Families::DualStack => {}
        }
        let has = |capability| cluster.capabilities.contains(&capability);
        if !has(Capability::ApiWrite) {
            return lacks(in_words(Capability::ApiWrite));
        }
        if let Some(only) = &cluster.confined
            && self.needs.rights > Rights::Namespaced
        {
            let why = format!("needs namespaces of its own, and may use none but {only}");
            return Some(Verdict::Skipped { why });
        }
        if self.needs.rights >= Rights::Node && !has(Capability::Node) {
            return lacks(in_words(Capability::Node));
        }
        if let Some(capability) = self.needs.also.iter().find(|capability| !has(**capability)) {
            return without(*capability);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use cluster::{ApiEndpoints, Node, Variant};

    use super::*;

    const CASE: Case = Case {
        id: "case",
        area: "area",
        claims: &[],
        sentence: "",
        tier: Tier::Core,
        features: &[],
        needs: Needs {
            nodes: 1,
            families: Families::Any,
            rights: Rights::Api,
            also: &[],
            target: &[],
        },
        disruptive: false,
        manifest: "",
        longest: Duration::ZERO,
        takes_at_least: Duration::ZERO,
        run: |_| Box::pin(async { Ok(()) }),
    };

    fn cluster() -> Description {
        Description {
            provider: "existing".to_owned(),
            target: "installed".to_owned(),
            kernel: String::new(),
            nodes: vec![Node {
                name: "n1".to_owned(),
                addresses: Vec::new(),
            }],
            capabilities: [Capability::Ipv4, Capability::ApiWrite].into(),
            lacking: Default::default(),
            features: BTreeSet::new(),
            deviations: Vec::new(),
            most_endpoints: None,
            ways: ApiEndpoints::default(),
            variants: BTreeSet::new(),
            image: cluster::PROBE.to_owned(),
            pull_secrets: Vec::new(),
            confined: None,
            software: Default::default(),
            nodes_of_others: 0,
        }
    }

    fn of(needs: Needs) -> Case {
        Case { needs, ..CASE }
    }

    fn excluded(case: &Case, cluster: &Description) -> Option<String> {
        let verdict = case.excluded(cluster, &BTreeSet::new(), None);
        verdict.map(|verdict| verdict.to_string())
    }

    #[test]
    fn what_a_target_does_not_have_is_not_supported_whatever_the_cluster_lacks() {
        let rows: [(&'static [OfTarget], &str); 3] = [
            (
                &[OfTarget::ServiceWay],
                "not-supported: installed does not document that it can reach the API by an address of a Service that it \
                 serves itself",
            ),
            (
                &[OfTarget::FurtherAddresses],
                "not-supported: installed documents no second way to the API",
            ),
            (
                &[OfTarget::Variant(Variant::SocketLbOff)],
                "not-supported: installed names no variant socket-lb-off: it has no switch for translation at sockets",
            ),
        ];
        for (needs, expected) in rows {
            let case = of(Needs {
                nodes: 9,
                target: needs,
                ..CASE.needs
            });
            assert_eq!(excluded(&case, &cluster()).as_deref(), Some(expected));
        }
        let mut all = cluster();
        all.ways = ApiEndpoints {
            service: true,
            further: true,
            shared: false,
        };
        all.variants = [Variant::SocketLbOff, Variant::OtherMode].into();
        all.most_endpoints = NonZeroU32::new(65_535);
        let case = of(Needs {
            target: &[
                OfTarget::ServiceWay,
                OfTarget::FurtherAddresses,
                OfTarget::Variant(Variant::SocketLbOff),
                OfTarget::MostEndpoints,
            ],
            ..CASE.needs
        });
        assert_eq!(excluded(&case, &all), None);
    }

    #[test]
    fn families_that_a_cluster_lacks_are_named() {
        let of = |families| {
            of(Needs {
                families,
                ..CASE.needs
            })
        };
        let all = [Families::Any, Families::Ipv4, Families::DualStack].map(of);
        let lacks = |capabilities: &[Capability]| {
            let mut cluster = cluster();
            cluster.capabilities = [Capability::ApiWrite].into();
            cluster.capabilities.extend(capabilities);
            let skipped = |family: &str| format!("skipped: needs {family}, which existing does not have");
            let named = ["IPv4 or IPv6", "IPv4", "IPv4 and IPv6"].map(skipped);
            let each = all.iter().zip(named);
            each.map(|(case, why)| {
                excluded(case, &cluster)
                    .map(|found| assert_eq!(found, why))
                    .is_some()
            })
            .collect::<Vec<_>>()
        };
        assert_eq!(lacks(&[]), [true, true, true]);
        assert_eq!(lacks(&[Capability::Ipv4]), [false, false, true]);
        assert_eq!(lacks(&[Capability::Ipv6]), [false, true, true]);
        assert_eq!(lacks(&[Capability::Ipv4, Capability::Ipv6]), [false; 3]);
    }

    #[test]
    fn pods_with_their_nodes_network_are_admitted_by_their_namespace() {
        assert!(!CASE.about().is_privileged);
        let case = Case {
            manifest: "spec:\n  hostNetwork: true\n",
            ..CASE
        };
        assert!(case.about().is_privileged);
    }

    #[test]
    fn what_a_cluster_was_looked_at_for_is_skipped_with_what_was_seen() {
        let case = of(Needs {
            also: &[Capability::ApiServers],
            ..CASE.needs
        });
        let mut cluster = cluster();
        let skipped = "skipped: needs API servers that can be seen, which existing does not have";
        assert_eq!(excluded(&case, &cluster).as_deref(), Some(skipped));
        let seen = "the EndpointSlices of default/kubernetes list none";
        cluster.lacking.insert(Capability::ApiServers, seen.to_owned());
        assert_eq!(excluded(&case, &cluster), Some(format!("{skipped}: {seen}")));
        cluster.capabilities.insert(Capability::ApiServers);
        assert_eq!(excluded(&case, &cluster), None);
    }
}
