//! Clusters that a kubeconfig names.
//!
//! `exec.rs`: a program in a pod, with this process's pipes. `rbac.rs`: the permissions that an account needs.
//! `images.rs`: the images that nodes run. `reference.rs`: a cluster that another process has started.
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

/// Default namespace of runs.
pub(crate) const NAMESPACE: &str = "plumbline-run";

/// Where a run gets its cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Provider {
    /// Labs that are made on this host
    #[default]
    Lab,
    /// An existing cluster, given by a kubeconfig
    Existing,
    /// A kind cluster, made of containers on this host; all cases run in it
    Kind,
}

/// A kind cluster.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "A cluster of kind (--provider kind)")]
pub(crate) struct KindArgs {
    /// Image of the nodes, instead of kind's default
    #[arg(long, env = "KIND_NODE_IMAGE", value_name = "NAME:TAG")]
    kind_image: Option<String>,
    /// Use this cluster and leave it; afterwards it has the images and the agent of this run
    #[arg(long, value_name = "NAME")]
    reuse: Option<String>,
    /// What gives pods their network: kind's default CNI, or the reference agent by its option of this name, without
    /// another CNI. With --reuse, the value that the cluster was made with
    #[arg(long, value_name = "kind|agent", value_enum, default_value_t)]
    pod_network: PodNetworkArg,
    /// Number of API servers. With two, both advertise the address of a load balancer in front of them, and one of them
    /// can be stopped. The default is the number that the selected cases need; a reused cluster keeps its number
    #[arg(long, value_name = "1|2", value_parser = clap::value_parser!(u8).range(1..=2))]
    apiservers: Option<u8>,
}

/// What gives pods their network.
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
    /// The options as text for the command line.
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

    /// The first given option that only kind clusters have.
    pub(crate) fn first_option(&self) -> Option<&'static str> {
        let reuse = self.reuse.as_ref().map(|_| "--reuse");
        let network = (self.pod_network != PodNetworkArg::Kind).then_some("--pod-network");
        reuse.or(network).or(self.apiservers.map(|_| "--apiservers"))
    }

    /// The kind cluster for a run of these cases.
    ///
    /// # Errors
    /// The target cannot run on kind.
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

/// The largest number that a case needs, if the cluster has the nodes for it.
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

/// An existing cluster.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "A cluster that is there (--provider existing)")]
pub(crate) struct ExistingArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Permissions of the suite: namespaced (objects in --namespace, which must exist), api (the default; namespaces of
    /// its own), or node (also a privileged pod on each node, through which processes run there; agents of --target are
    /// stopped and started). `plumbline rbac` prints the permissions that the account needs
    #[arg(long, value_name = "namespaced|api|node", value_parser = rbac::tier)]
    tier: Option<Tier>,
    #[command(flatten)]
    registry: RegistryArgs,
    /// Image of clients and backends, which nodes have or can pull, instead of the one that `plumbline images list`
    /// prints; its entry point is `plumbline probe`
    #[arg(long, value_name = "IMAGE", conflicts_with = "registry")]
    image: Option<String>,
    /// Path of plumbline in that image, if it is not /plumbline
    #[arg(long, value_name = "PATH")]
    image_program: Option<String>,
    /// Architectures of the image; nodes of other architectures are left out. The default is the architecture of this
    /// program, as in the archive of `plumbline images save`
    #[arg(long, value_name = "amd64|arm64", value_delimiter = ',')]
    image_arch: Vec<String>,
    /// Name of a Secret (kubernetes.io/dockerconfigjson) with which nodes pull the image; repeatable. Pods name it; the
    /// suite does not create it. With --tier namespaced the Secret is in --namespace; otherwise something must copy it
    /// to each namespace with the label plumbline-run, such as a policy. If it is missing and the account may get
    /// Secrets, the run ends before its first pod
    #[arg(long, value_name = "NAME")]
    image_pull_secret: Vec<String>,
    /// Namespace of the objects of the whole run; the run creates and removes it. With --tier namespaced it holds all
    /// objects and stays
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
}

impl ExistingArgs {
    /// Whether all objects are in one namespace.
    pub(crate) fn is_confined(&self) -> bool {
        self.tier == Some(Tier::Namespaced)
    }

    /// Whether the run may read nodes.
    pub(crate) fn may_read_nodes(&self) -> bool {
        self.tier == Some(Tier::Node)
    }

    /// The options as text for the command line.
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

    /// The settings of the cluster, with the target and the run.
    pub(crate) fn cluster(self, mut tested: Tested, run: &str, plumbline: PathBuf) -> Options {
        // An account with one namespace can't see pods of other namespaces.
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

/// How to reach the API, on the command line.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ConnectionArgs {
    /// The kubeconfig, instead of $KUBECONFIG, ~/.kube/config, or the account of the pod that plumbline runs in
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl ConnectionArgs {
    /// The option that names a cluster, if one does.
    pub(crate) fn first_option(&self) -> Option<&'static str> {
        let kubeconfig = self.kubeconfig.as_ref().map(|_| "--kubeconfig");
        kubeconfig.or(self.context.as_ref().map(|_| "--context"))
    }

    /// The options as the type of the library.
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
