//! Clusters by a kubeconfig.
//!
//! `exec.rs`: a program in a pod, with this process's pipes. `rbac.rs`: what an account must be allowed to do.
//! `images.rs`: what nodes run. `reference.rs`: a cluster that another process has brought up.
pub(crate) mod exec;
pub(crate) mod images;
pub(crate) mod rbac;
mod reference;

use std::path::PathBuf;

use cluster::{Capability, image::own_architecture};
use existing::{Connection, Options, PodOptions, Tested, Tier};
use harness::case::Case;
use kind::{Existing, KindConfig, KindError, KindTarget, PodNetwork};
use lab::IpFamilies;

use self::images::RegistryArgs;
pub(crate) use self::reference::ClusterRef;

/// The namespace of runs, if no other is named.
pub(crate) const NAMESPACE: &str = "plumbline-run";

/// Where a run is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Provider {
    /// Labs that are made on this host
    #[default]
    Lab,
    /// A cluster that is there, by a kubeconfig
    Existing,
    /// A cluster of kind, made of this host's containers: all cases run in it
    Kind,
}

/// A cluster of kind.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "A cluster of kind (--provider kind)")]
pub(crate) struct KindArgs {
    /// Image of the nodes, in place of kind's own choice
    #[arg(long, env = "KIND_NODE_IMAGE", value_name = "NAME:TAG")]
    kind_image: Option<String>,
    /// Use this cluster, and leave it: its images and its agent are those of this run afterwards
    #[arg(long, value_name = "NAME")]
    reuse: Option<String>,
    /// Who gives pods their network: kind's own choice, or the reference agent by its option of this name, without any
    /// other CNI. With --reuse as it was said when the cluster was made
    #[arg(long, value_name = "kind|agent", value_enum, default_value_t)]
    pod_network: PodNetworkArg,
    /// API servers: two advertise the address of a balancer in front of both, and one of them can be stopped. The default is as
    /// many as the cases need that are selected; a cluster that is used again has as many as it had
    #[arg(long, value_name = "1|2", value_parser = clap::value_parser!(u8).range(1..=2))]
    apiservers: Option<u8>,
}

/// Who gives pods their network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum PodNetworkArg {
    #[default]
    Kind,
    Agent,
}

impl From<PodNetworkArg> for PodNetwork {
    fn from(said: PodNetworkArg) -> Self {
        match said {
            PodNetworkArg::Kind => Self::Kind,
            PodNetworkArg::Agent => Self::Agent,
        }
    }
}

impl KindArgs {
    /// As options of the command line.
    pub(crate) fn options(&self) -> String {
        let image = self
            .kind_image
            .iter()
            .map(|image| format!(" --kind-image {image}"));
        let reuse = self.reuse.iter().map(|name| format!(" --reuse {name}"));
        let network = (self.pod_network == PodNetworkArg::Agent).then(|| " --pod-network agent".to_owned());
        let servers = self.apiservers.iter();
        let servers = servers.map(|number| format!(" --apiservers {number}"));
        image.chain(reuse).chain(network).chain(servers).collect()
    }

    /// The option that was given which only these clusters have.
    pub(crate) fn told(&self) -> Option<&'static str> {
        let reuse = self.reuse.as_ref().map(|_| "--reuse");
        let network = (self.pod_network != PodNetworkArg::Kind).then_some("--pod-network");
        reuse.or(network).or(self.apiservers.map(|_| "--apiservers"))
    }

    /// The cluster of a run of these cases.
    ///
    /// # Errors
    /// There is no such target on kind.
    pub(crate) fn cluster(
        self,
        target: &str,
        nodes: u8,
        families: IpFamilies,
        cases: &[Case],
    ) -> Result<(KindConfig, Existing), KindError> {
        let existing = match self.reuse {
            Some(_) => Existing::Use,
            None => Existing::Refuse,
        };
        let (kind, pod_network) = (KindTarget::find(target)?, self.pod_network.into());
        if pod_network == PodNetwork::Agent && kind != KindTarget::Reference {
            return Err(KindError::Target {
                target: format!("{target} with --pod-network agent"),
                expected: KindTarget::Reference.name().to_owned(),
            });
        }
        let config = KindConfig {
            name: self
                .reuse
                .unwrap_or_else(|| format!("plumbline-{}", std::process::id())),
            nodes,
            families,
            image: self.kind_image,
            target: kind,
            pod_network,
            api_servers: match existing {
                Existing::Use => self.apiservers,
                Existing::Refuse => self.apiservers.or_else(|| Some(api_servers(nodes, cases))),
            },
        };
        Ok((config, existing))
    }
}

/// As many as cases ask for, where there are nodes for them.
fn api_servers(nodes: u8, cases: &[Case]) -> u8 {
    let several = |case: &Case| {
        let all = case.needs.also.iter();
        all.copied()
            .any(|one| matches!(one, Capability::ApiFaults | Capability::SharedAddress))
    };
    if nodes > 1 && cases.iter().any(several) {
        2
    } else {
        1
    }
}

/// A cluster that is there.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "A cluster that is there (--provider existing)")]
pub(crate) struct ExistingArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// What the suite may do: namespaced (objects in --namespace, which has to be there), api (the default; in namespaces of
    /// its own), or node (a privileged pod on each node, too, through which processes run there; agents of --target are stopped
    /// and started). What an account needs for it: `plumbline rbac`
    #[arg(long, value_name = "namespaced|api|node", value_parser = rbac::tier)]
    tier: Option<Tier>,
    #[command(flatten)]
    registry: RegistryArgs,
    /// The image of clients and backends, which nodes have or can pull, in place of that of `plumbline images list`; its
    /// entry point is `plumbline probe`
    #[arg(long, value_name = "IMAGE", conflicts_with = "registry")]
    image: Option<String>,
    /// Where plumbline is in that image, if not at /plumbline
    #[arg(long, value_name = "PATH")]
    image_program: Option<String>,
    /// Architectures that the image is for; nodes of others are left out. The default is that of this program, as `plumbline images
    /// save` makes it
    #[arg(long, value_name = "amd64|arm64", value_delimiter = ',')]
    image_arch: Vec<String>,
    /// Name of a Secret (kubernetes.io/dockerconfigjson) by which nodes pull the image; may be said several times. Pods name it, the
    /// suite does not make it: with --tier namespaced it is in that namespace; otherwise something has to put it into each
    /// namespace with the label plumbline-run, such as a policy that copies it. Where it is not, the run ends before its first
    /// pod, if the account may get Secrets
    #[arg(long, value_name = "NAME")]
    image_pull_secret: Vec<String>,
    /// Namespace of what belongs to the whole run, made and removed by it; with --tier namespaced that of everything, which
    /// stays
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
}

impl ExistingArgs {
    /// Whether all is in one namespace.
    pub(crate) fn is_confined(&self) -> bool {
        self.tier == Some(Tier::Namespaced)
    }

    /// Whether the run may look at nodes.
    pub(crate) fn asks_nodes(&self) -> bool {
        self.tier == Some(Tier::Node)
    }

    /// As options of the command line.
    pub(crate) fn options(&self) -> String {
        let option = |name: &str, value: &Option<String>| {
            let value = value.as_ref();
            value.map_or_else(String::new, |value| format!(" --{name} {value}"))
        };
        let several = |name: &str, values: &[String]| -> String {
            values.iter().map(|value| format!(" --{name} {value}")).collect()
        };
        let tier = self.tier.map(|tier| tier.name().to_owned());
        let connection = self.connection.clone().connection().options();
        let connection: String = connection.iter().map(|word| format!(" {word}")).collect();
        [
            connection,
            option("tier", &tier),
            option("registry", &self.registry.registry),
            option("image", &self.image),
            option("image-program", &self.image_program),
            several("image-arch", &self.image_arch),
            several("image-pull-secret", &self.image_pull_secret),
            option("namespace", &self.namespace),
        ]
        .concat()
    }

    /// Everything that is told of the cluster.
    pub(crate) fn cluster(self, mut tested: Tested, run: &str, plumbline: PathBuf) -> Options {
        // Pods of others are not shown to an account that has one namespace.
        if self.is_confined() {
            tested.agents = None;
        }
        let image = self.image.unwrap_or_else(|| self.registry.probe());
        Options {
            provider: "existing".to_owned(),
            tested,
            connection: self.connection.connection(),
            tier: self.tier.unwrap_or_default(),
            image,
            program: self
                .image_program
                .unwrap_or_else(|| cluster::image::PROBE.program.to_owned()),
            namespace: self.namespace.unwrap_or_else(|| NAMESPACE.to_owned()),
            run: run.to_owned(),
            plumbline,
            pods: PodOptions {
                pull_secrets: self.image_pull_secret,
                architectures: if self.image_arch.is_empty() {
                    vec![own_architecture().to_owned()]
                } else {
                    self.image_arch
                },
            },
        }
    }
}

/// The way to the API, on the command line.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ConnectionArgs {
    /// Instead of $KUBECONFIG, ~/.kube/config, or the account of the pod that it runs in
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl ConnectionArgs {
    /// Whether a cluster is named at all.
    pub(crate) fn is_told(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }

    /// The same for the library.
    pub(crate) fn connection(self) -> Connection {
        Connection {
            kubeconfig: self.kubeconfig,
            context: self.context,
        }
        .absolute()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_two_api_servers_where_a_case_asks_for_several_and_a_node_is_left_for_the_second() {
        let case = |id| cases::find(id).unwrap();
        let several = [case("clusterip-from-pod"), case("kubesvc-shared-address-restart")];
        assert_eq!(api_servers(2, &several), 2);
        assert_eq!(api_servers(1, &several), 1);
        assert_eq!(api_servers(2, &several[..1]), 1);
        let stops_one = [case("agent-own-vip-clusterip")];
        assert_eq!(api_servers(2, &stops_one), 2, "somebody else is asked meanwhile");
    }

    #[test]
    fn a_cluster_that_is_used_again_keeps_its_api_servers() {
        let args = |reuse: Option<&str>, apiservers| KindArgs {
            kind_image: None,
            reuse: reuse.map(str::to_owned),
            pod_network: PodNetworkArg::Kind,
            apiservers,
        };
        let all = cases::ALL;
        let servers = |args: KindArgs| {
            let told = args.cluster("reference", 2, IpFamilies::Ipv4, all).unwrap();
            told.0.api_servers
        };
        assert_eq!(servers(args(None, None)), Some(2));
        assert_eq!(servers(args(None, Some(1))), Some(1));
        assert_eq!(servers(args(Some("k"), None)), None);
        assert_eq!(args(Some("k"), Some(2)).options(), " --reuse k --apiservers 2");
    }
}
