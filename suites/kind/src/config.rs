//! What a cluster is made from, and the configuration that kind is given for it.

use std::fmt::Write as _;

use lab::IpFamilies;

use super::KindError;

/// The label by which kind finds the containers of a cluster; its value is the cluster's name.
pub(super) const CLUSTER_LABEL: &str = "io.x-k8s.kind.cluster";

/// What is done with a cluster of this name that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It is an error.
    Refuse,
    /// It is used: its images and its agent become those of this run.
    Use,
}

/// Settings of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindConfig {
    /// Its name, as [`check_name`](lab::check_name) has it.
    pub name: String,
    /// Nodes, the control plane's among them.
    pub nodes: u8,
    /// Families of pods, Services and nodes.
    pub families: IpFamilies,
    /// Image of the nodes; kind's own choice without one.
    pub image: Option<String>,
    /// What is under test.
    pub target: KindTarget,
    /// Who gives pods their network.
    pub pod_network: PodNetwork,
    /// API servers: one, or two that advertise the address of a balancer in front of both; `None`: as many as a cluster has
    /// that is used again.
    pub api_servers: Option<u8>,
}

/// Who gives pods their network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodNetwork {
    /// What kind installs.
    #[default]
    Kind,
    /// The reference agent, by its option `--pod-network`: there is no other CNI.
    Agent,
}

/// What can be under test on kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindTarget {
    /// The reference agent, by its DaemonSet; there is no kube-proxy.
    Reference,
    /// The cluster's own kube-proxy, in its iptables mode.
    KubeProxyIptables,
    /// The same, in its nftables mode.
    KubeProxyNftables,
}

impl KindTarget {
    /// All of them, by the names of `suites/targets`.
    pub const ALL: [(&str, Self); 3] = [
        ("reference", Self::Reference),
        ("kube-proxy-iptables", Self::KubeProxyIptables),
        ("kube-proxy-nftables", Self::KubeProxyNftables),
    ];

    /// One by its name.
    ///
    /// # Errors
    /// It is none that can be deployed on kind.
    pub fn find(name: &str) -> Result<Self, KindError> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, target)| *target).ok_or_else(|| KindError::Target {
            target: name.to_owned(),
            expected: Self::ALL.map(|(name, _)| name).join(", "),
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(_, target)| *target == self);
        found.map_or("", |(name, _)| name)
    }

    /// `networking.kubeProxyMode` of kind's configuration.
    pub(super) fn proxy_mode(self) -> &'static str {
        match self {
            Self::Reference => "none",
            Self::KubeProxyIptables => "iptables",
            Self::KubeProxyNftables => "nftables",
        }
    }
}

impl KindConfig {
    /// Whether what is told can be had together.
    ///
    /// # Errors
    /// Two API servers on one node; a target that the image's Kubernetes does not have.
    pub(super) fn check(&self, existing: Existing) -> Result<(), KindError> {
        let image = self.image.as_deref().filter(|_| existing == Existing::Refuse);
        if let Some((image, found)) = image.and_then(|image| Some((image, minor(image)?))) {
            self.expect_known(image, found)?;
        }
        match self.api_servers {
            Some(2..) if self.nodes < 2 && existing == Existing::Refuse => Err(KindError::Alone {
                name: self.name.clone(),
                nodes: self.nodes.into(),
            }),
            _ => Ok(()),
        }
    }

    /// Whether a version of Kubernetes, which something has, knows the target.
    pub(super) fn expect_known(&self, of: &str, found: (u32, u32)) -> Result<(), KindError> {
        if self.target != KindTarget::KubeProxyNftables || found >= NFTABLES {
            return Ok(());
        }
        Err(KindError::TooOld {
            target: self.target.name(),
            needs: "1.31",
            of: of.to_owned(),
            found: format!("{}.{}", found.0, found.1),
        })
    }

    /// The configuration file (<https://kind.sigs.k8s.io/docs/user/configuration/>).
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let family = match self.families {
            IpFamilies::Ipv4 => "ipv4",
            IpFamilies::Ipv6 => "ipv6",
            IpFamilies::Dual => "dual",
        };
        let mut text = format!(
            "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nname: {}\nnetworking:\n  ipFamily: {family}\n  \
             kubeProxyMode: {}\n",
            self.name,
            self.target.proxy_mode()
        );
        if self.pod_network == PodNetwork::Agent {
            text += "  disableDefaultCNI: true\n";
        }
        text += "nodes:\n";
        for number in 0..self.nodes {
            let role = if number == 0 { "control-plane" } else { "worker" };
            // Writing into a text does not fail.
            let _ = writeln!(text, "- role: {role}");
            if let Some(image) = &self.image {
                let _ = writeln!(text, "  image: {image}");
            }
        }
        text
    }
}

/// The first version whose kube-proxy knows the mode by itself (KEP-3866: beta).
const NFTABLES: (u32, u32) = (1, 31);

/// The version of Kubernetes that the tag of a node image tells, if it tells one.
fn minor(image: &str) -> Option<(u32, u32)> {
    let tag = image.split('@').next()?.rsplit_once(":v")?.1;
    let mut numbers = tag.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(families: IpFamilies, target: KindTarget) -> KindConfig {
        KindConfig {
            name: "plumbline-1".to_owned(),
            nodes: 3,
            families,
            image: Some("kindest/node:v1.36.3".to_owned()),
            target,
            pod_network: PodNetwork::Kind,
            api_servers: None,
        }
    }

    #[test]
    fn the_configuration_is_that_of_the_golden_files() {
        for (families, target, golden) in [
            (
                IpFamilies::Ipv4,
                KindTarget::Reference,
                include_str!("golden/reference-ipv4.yaml"),
            ),
            (
                IpFamilies::Ipv6,
                KindTarget::KubeProxyIptables,
                include_str!("golden/iptables-ipv6.yaml"),
            ),
            (
                IpFamilies::Dual,
                KindTarget::KubeProxyNftables,
                include_str!("golden/nftables-dual.yaml"),
            ),
        ] {
            assert_eq!(config(families, target).to_yaml(), golden);
        }
    }

    #[test]
    fn where_the_agent_gives_pods_their_network_no_other_cni_is_installed() {
        let config = KindConfig {
            pod_network: PodNetwork::Agent,
            ..config(IpFamilies::Dual, KindTarget::Reference)
        };
        assert_eq!(
            config.to_yaml(),
            include_str!("golden/reference-dual-pod-network.yaml")
        );
    }

    #[test]
    fn two_api_servers_need_two_nodes() {
        let config = KindConfig {
            nodes: 1,
            api_servers: Some(2),
            ..config(IpFamilies::Ipv4, KindTarget::Reference)
        };
        let error = config.check(Existing::Refuse).expect_err("refused").to_string();
        assert!(
            error.contains("has 1 nodes") && error.contains("--nodes 2"),
            "{error}"
        );
        assert!(config.check(Existing::Use).is_ok(), "its nodes are those it has");
        assert!(KindConfig { nodes: 2, ..config }.check(Existing::Refuse).is_ok());
    }

    #[test]
    fn a_mode_that_a_kubernetes_does_not_have_is_refused_before_anything_is_made() {
        let of = |image: &str, target| KindConfig {
            image: Some(image.to_owned()),
            ..config(IpFamilies::Ipv4, target)
        };
        let old = of(
            "kindest/node:v1.30.13@sha256:397209",
            KindTarget::KubeProxyNftables,
        );
        let error = old.check(Existing::Refuse).expect_err("refused").to_string();
        assert!(
            error.contains("kube-proxy-nftables needs Kubernetes 1.31") && error.contains("is of 1.30"),
            "{error}"
        );
        assert!(
            old.check(Existing::Use).is_ok(),
            "its image is the one that it has"
        );
        let error = old
            .expect_known("the kind cluster \"c\"", (1, 30))
            .expect_err("refused");
        assert!(
            error.to_string().contains("the kind cluster \"c\" is of 1.30"),
            "{error}"
        );
        assert!(old.expect_known("the kind cluster \"c\"", (1, 31)).is_ok());
        for (image, target) in [
            ("kindest/node:v1.30.13", KindTarget::KubeProxyIptables),
            ("kindest/node:v1.31.0", KindTarget::KubeProxyNftables),
            ("kindest/node:v2.0.0", KindTarget::KubeProxyNftables),
            ("mine:latest", KindTarget::KubeProxyNftables),
        ] {
            assert!(of(image, target).check(Existing::Refuse).is_ok(), "{image}");
        }
    }

    #[test]
    fn without_an_image_kind_chooses_it() {
        let config = KindConfig {
            nodes: 1,
            image: None,
            ..config(IpFamilies::Ipv4, KindTarget::Reference)
        };
        assert!(config.to_yaml().ends_with("nodes:\n- role: control-plane\n"));
    }

    #[test]
    fn what_can_not_be_deployed_is_named_with_what_can() {
        for (name, target) in KindTarget::ALL {
            assert_eq!(KindTarget::find(name).expect("a target").name(), target.name());
        }
        let error = KindTarget::find("./mine.yaml").expect_err("refused").to_string();
        assert!(
            error.contains("./mine.yaml") && error.contains("kube-proxy-nftables"),
            "{error}"
        );
    }
}
