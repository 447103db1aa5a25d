//! Clusters that a kubeconfig names.
//!
//! `exec.rs`: a program in a pod, with this process's pipes. `rbac.rs`: the permissions that an account needs.
//! `images.rs`: the images that nodes run. `reference.rs`: a cluster that another process has started.
pub(crate) mod exec;
pub(crate) mod images;
pub(crate) mod rbac;
mod reference;

use std::{path::PathBuf, str::FromStr};

use anyhow::bail;
use cluster::{Capability, image::own_architecture};
use existing::{Connection, Options, PodOptions, Tested, Tier};
use harness::case::Case;
use kind::{Existing, KindConfig, KindTarget, PodNetwork};
use lab::IpFamilies;

use self::images::RegistryArgs;
pub(crate) use self::reference::ClusterRef;

/// Default namespace of runs.
pub(crate) const NAMESPACE: &str = "plumbline-run";

/// Where a run gets its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Provider {
    /// Labs that are made on this host
    Lab,
    /// An existing cluster, given by a kubeconfig
    Existing,
    /// A kind cluster, made of containers on this host; all cases run in it
    Kind,
}

impl Provider {
    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lab => "lab",
            Self::Existing => "existing",
            Self::Kind => "kind",
        }
    }
}

/// A kind cluster.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "A cluster of kind (--provider kind)")]
pub(crate) struct KindArgs {
    /// Version of Kubernetes, such as 1.36.1: the nodes have the image kindest/node of it. Goes before --kind-image
    #[arg(long, value_name = "VERSION")]
    kubernetes: Option<KubernetesVersion>,
    /// Image of the nodes, instead of kind's default
    #[arg(long, env = "KIND_NODE_IMAGE", value_name = "NAME:TAG")]
    kind_image: Option<String>,
    /// Use this cluster and leave it; afterwards it has the images and the agent of this run
    #[arg(long, value_name = "NAME")]
    reuse: Option<String>,
    /// Image of this host's Docker that the nodes get before the target is installed by the steps of its file;
    /// repeatable. Those that manifests of the file name are found without this option
    #[arg(long, value_name = "IMAGE")]
    load: Vec<String>,
    /// What gives pods their network: kind's default CNI, or the reference agent by its option of this name, without
    /// another CNI. With --reuse, the value that the cluster was made with
    #[arg(long, value_name = "kind|agent", value_enum, default_value_t)]
    pod_network: PodNetworkArg,
    /// Number of API servers. With two, both advertise the address of a load balancer in front of them, and one of them
    /// can be stopped. The default is the number that the selected cases need; a reused cluster keeps its number
    #[arg(long, value_name = "1|2", value_parser = clap::value_parser!(u8).range(1..=2))]
    apiservers: Option<u8>,
}

/// A version of Kubernetes that kind has an image of.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KubernetesVersion(String);

impl KubernetesVersion {
    /// The image that the kind project publishes.
    fn image(&self) -> String {
        format!("kindest/node:v{}", self.0)
    }
}

impl FromStr for KubernetesVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let version = text.strip_prefix('v').unwrap_or(text);
        // A local build may have a suffix.
        let numbers = version.split_once('-').map_or(version, |(numbers, _)| numbers);
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if numbers.split('.').count() == 3 && numbers.split('.').all(is_number) {
            return Ok(Self(version.to_owned()));
        }
        Err(format!(
            "expected MAJOR.MINOR.PATCH, such as 1.36.1, as images of kind are named so; found {text}"
        ))
    }
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
        let image = match (&self.kubernetes, &self.kind_image) {
            (Some(version), _) => Some(format!(" --kubernetes {}", version.0)),
            (None, image) => image.as_ref().map(|image| format!(" --kind-image {image}")),
        };
        let reuse = self.reuse.iter().map(|name| format!(" --reuse {name}"));
        let load = self.load.iter().map(|image| format!(" --load {image}"));
        let network = (self.pod_network == PodNetworkArg::Agent).then(|| " --pod-network agent".to_owned());
        let servers = self.apiservers.iter();
        let servers = servers.map(|number| format!(" --apiservers {number}"));
        image
            .into_iter()
            .chain(reuse)
            .chain(load)
            .chain(network)
            .chain(servers)
            .collect()
    }

    /// The first given option that only kind clusters have. `--kind-image` counts as none, as a variable may set it.
    pub(crate) fn first_option(&self) -> Option<&'static str> {
        let given = [
            (self.kubernetes.is_some(), "--kubernetes"),
            (self.reuse.is_some(), "--reuse"),
            (!self.load.is_empty(), "--load"),
            (self.pod_network != PodNetworkArg::Kind, "--pod-network"),
            (self.apiservers.is_some(), "--apiservers"),
        ];
        given
            .into_iter()
            .find_map(|(is_given, name)| is_given.then_some(name))
    }

    /// Image of the nodes; kind's default without one.
    fn image(&self) -> Option<String> {
        let of_version = self.kubernetes.as_ref().map(KubernetesVersion::image);
        of_version.or_else(|| self.kind_image.clone())
    }

    /// Image of the nodes, and images of Docker for them, for a target that is installed by the steps of its file.
    ///
    /// # Errors
    /// An option is for the targets that this program installs itself.
    pub(crate) fn of_installed(self, target: &str) -> anyhow::Result<(Option<String>, Vec<String>)> {
        if let Some(name) = &self.reuse {
            bail!(
                "--reuse is for {}; where {target} is installed: `kind export kubeconfig --name {name} --kubeconfig FILE`, then \
                 `plumbline run --kubeconfig FILE --tier node --target {target}`",
                own_targets()
            );
        }
        let given = [
            (self.pod_network != PodNetworkArg::Kind, "--pod-network"),
            (self.apiservers.is_some(), "--apiservers"),
        ];
        if let Some((_, option)) = given.iter().find(|(is_given, _)| *is_given) {
            bail!(
                "{option} is for {}, and --target {target} is given: leave one of the two out",
                own_targets()
            );
        }
        Ok((self.image(), self.load))
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
    ) -> anyhow::Result<(KindConfig, Existing)> {
        if let Some(image) = self.load.first() {
            bail!(
                "--load {image} is for targets that the steps of their file install, and the program of {target} is this \
                 program's own: leave --load out"
            );
        }
        let image = self.image();
        let existing = match self.reuse {
            Some(_) => Existing::Use,
            None => Existing::Refuse,
        };
        let (kind, pod_network) = (KindTarget::find(target)?, self.pod_network.into());
        if pod_network == PodNetwork::Agent && kind != KindTarget::Reference {
            bail!(
                "--pod-network agent is for the target {}, and --target {target} is given: leave one of the two out",
                KindTarget::Reference.name()
            );
        }
        let config = KindConfig {
            name: self
                .reuse
                .unwrap_or_else(|| format!("plumbline-{}", std::process::id())),
            nodes,
            families,
            image,
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

/// The targets that this program installs on kind itself.
fn own_targets() -> String {
    let names = KindTarget::ALL.map(|(name, _)| name);
    format!("the targets {}", names.join(", "))
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

    /// The option that names a cluster, if one does.
    pub(crate) fn connection_option(&self) -> Option<&'static str> {
        self.connection.first_option()
    }

    /// The first given option that only existing clusters have.
    pub(crate) fn first_option(&self) -> Option<&'static str> {
        let given = [
            (self.tier.is_some(), "--tier"),
            (self.registry.registry.is_some(), "--registry"),
            (self.image.is_some(), "--image"),
            (self.image_program.is_some(), "--image-program"),
            (!self.image_arch.is_empty(), "--image-arch"),
            (!self.image_pull_secret.is_empty(), "--image-pull-secret"),
            (self.namespace.is_some(), "--namespace"),
        ];
        let given = given
            .into_iter()
            .find_map(|(is_given, name)| is_given.then_some(name));
        self.connection_option().or(given)
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

    /// The cluster as a place for pods that make labs.
    ///
    /// # Errors
    /// An option is for clusters that are tested, or a Secret can't be where the pods are.
    pub(crate) fn compute(self) -> anyhow::Result<Compute> {
        if self.tier.is_some() {
            bail!(
                "--tier is for a cluster that is tested, and --job only puts pods into one: leave one of the two out"
            );
        }
        if self.namespace.is_none() && !self.image_pull_secret.is_empty() {
            bail!(
                "--image-pull-secret is of a namespace, and without --namespace a new one is made: add --namespace NAME, for the one \
                 that has the Secret"
            );
        }
        Ok(Compute {
            image: self.image.unwrap_or_else(|| self.registry.lab()),
            connection: self.connection.connection(),
            program: self
                .image_program
                .unwrap_or_else(|| cluster::image::PROBE.program.to_owned()),
            namespace: self.namespace,
            pods: pods(self.image_pull_secret, self.image_arch),
        })
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
            pods: pods(self.image_pull_secret, self.image_arch),
        }
    }
}

/// The settings of pods; an image without named architectures has this program's.
fn pods(pull_secrets: Vec<String>, architectures: Vec<String>) -> PodOptions {
    let own = || vec![own_architecture().to_owned()];
    PodOptions {
        pull_secrets,
        architectures: Some(architectures)
            .filter(|all| !all.is_empty())
            .unwrap_or_else(own),
    }
}

/// A cluster that is not tested: it has room for pods.
#[derive(Clone, Debug)]
pub(crate) struct Compute {
    pub(crate) connection: Connection,
    /// A namespace that is there.
    pub(crate) namespace: Option<String>,
    pub(crate) image: String,
    /// Path of plumbline in the image.
    pub(crate) program: String,
    pub(crate) pods: PodOptions,
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
            kubernetes: None,
            kind_image: None,
            reuse: reuse.map(str::to_owned),
            load: Vec::new(),
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

    #[test]
    fn options_of_targets_that_this_program_installs_are_refused_for_others_and_the_reverse() {
        let args = |reuse: Option<&str>, load: &[&str], apiservers| KindArgs {
            kubernetes: None,
            kind_image: None,
            reuse: reuse.map(str::to_owned),
            load: load.iter().map(|image| (*image).to_owned()).collect(),
            pod_network: PodNetworkArg::Kind,
            apiservers,
        };
        let reused = args(Some("k"), &[], None)
            .of_installed("cilium")
            .unwrap_err()
            .to_string();
        assert!(
            reused.contains("plumbline run --kubeconfig FILE --tier node --target cilium"),
            "{reused}"
        );
        let servers = args(None, &[], Some(2))
            .of_installed("cilium")
            .unwrap_err()
            .to_string();
        assert!(
            servers.starts_with("--apiservers is for the targets reference, "),
            "{servers}"
        );
        let (image, load) = args(None, &["a:1"], None).of_installed("cilium").unwrap();
        assert_eq!((image, load), (None, vec!["a:1".to_owned()]));
        let refused = args(None, &["a:1"], None).cluster("reference", 2, IpFamilies::Ipv4, cases::ALL);
        assert!(refused.unwrap_err().to_string().contains("leave --load out"));
    }

    #[test]
    fn a_version_of_kubernetes_is_an_image_of_kind_and_goes_before_that_of_the_variable() {
        let mut args = KindArgs {
            kubernetes: Some("v1.36.1".parse().unwrap()),
            kind_image: Some("kindest/node:v1.30.0".to_owned()),
            reuse: None,
            load: Vec::new(),
            pod_network: PodNetworkArg::Kind,
            apiservers: None,
        };
        assert_eq!(args.options(), " --kubernetes 1.36.1");
        assert_eq!(args.image().as_deref(), Some("kindest/node:v1.36.1"));
        args.kubernetes = None;
        assert_eq!(args.image().as_deref(), Some("kindest/node:v1.30.0"));
        assert!("1.36.3-local".parse::<KubernetesVersion>().is_ok());
        for wrong in ["", "1", "1.36", "1.36.x", "latest", "1.36.1.2"] {
            let error = wrong.parse::<KubernetesVersion>().unwrap_err();
            assert!(error.contains("such as 1.36.1"), "{error}");
        }
    }
}
