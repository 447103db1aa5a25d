//! Settings of a cluster, and kind's configuration file.

use std::fmt::Write as _;

use lab::IpFamilies;

use super::KindError;

/// Label of a cluster's containers; its value is the cluster's name.
pub(super) const CLUSTER_LABEL: &str = "io.x-k8s.kind.cluster";

/// What happens with an existing cluster of this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// The run fails.
    Refuse,
    /// The run uses it, with its own images and agent.
    Use,
}

/// Settings of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindConfig {
    /// Name of the cluster, valid for [`check_name`](lab::check_name).
    pub name: String,
    /// Number of nodes, including the control plane's.
    pub nodes: u8,
    /// Families of pods, Services and nodes.
    pub families: IpFamilies,
    /// Image of the nodes; kind's default without one.
    pub image: Option<String>,
    /// The target.
    pub target: KindTarget,
    /// CNI plugin.
    pub pod_network: PodNetwork,
    /// Number of API servers: one, or two that advertise the address of a balancer in front of both. `None`: as many
    /// as a reused cluster has.
    pub api_servers: Option<u8>,
}

/// CNI plugin of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodNetwork {
    /// kind's own.
    #[default]
    Kind,
    /// The reference agent with its option `--pod-network`; no other CNI plugin is installed.
    Agent,
}

/// Targets that run on kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindTarget {
    /// The reference agent as a DaemonSet; without kube-proxy.
    Reference,
    /// kube-proxy of the cluster, in iptables mode.
    KubeProxyIptables,
    /// kube-proxy of the cluster, in nftables mode.
    KubeProxyNftables,
}

impl KindTarget {
    /// All targets, by their names in `suites/targets`.
    pub const ALL: [(&str, Self); 3] = [
        ("reference", Self::Reference),
        ("kube-proxy-iptables", Self::KubeProxyIptables),
        ("kube-proxy-nftables", Self::KubeProxyNftables),
    ];

    /// A target by its name.
    ///
    /// # Errors
    /// The target can't be deployed on kind.
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
    /// Checks that the settings are compatible.
    ///
    /// # Errors
    /// Two API servers on one node; a target that the image's Kubernetes lacks.
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

    /// Checks that a version of Kubernetes, found in `of`, has the target.
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
            // Writing into a String does not fail.
            let _ = writeln!(text, "- role: {role}");
            if let Some(image) = &self.image {
                let _ = writeln!(text, "  image: {image}");
            }
        }
        text
    }
}

/// The first version of kube-proxy with the mode enabled (KEP-3866: beta).
const NFTABLES: (u32, u32) = (1, 31);

/// The version of Kubernetes in the tag of a node image, if it has one.
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
