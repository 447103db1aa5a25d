//! Options of a run on a cluster by a kubeconfig.

use std::{
    collections::BTreeSet,
    env, fmt,
    num::NonZeroU32,
    path::{Path, PathBuf},
};

use cluster::{
    ApiEndpoints, Deviation, Variant,
    target::{Agent, Installation},
};
use kube::{Client, Config};
use serde::{Deserialize, Serialize};

use super::{KubernetesError, LIMITS, http_proxy::corrected, kubeconfig::KubeconfigFiles};

/// All options.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Options {
    /// Name of the provider, for reports: `kind`, `existing`.
    pub provider: String,
    /// The target.
    pub tested: Tested,
    /// The API endpoint.
    pub connection: Connection,
    /// What the suite may change.
    pub tier: Tier,
    /// The image of clients and backends: its entry point is the probe.
    pub image: String,
    /// Path of the program `plumbline` in that image.
    pub program: String,
    /// Namespace of the run's own objects: its Lease, its pods with host network. Under [`Tier::Namespaced`], of all
    /// objects.
    pub namespace: String,
    /// Name of the run, the value of its label.
    pub run: String,
    /// The program `plumbline` on this machine, which bridges pipes to pods.
    pub plumbline: PathBuf,
    /// Further settings of its pods.
    #[serde(default)]
    pub pods: PodOptions,
}

/// Settings of the suite's pods, besides their image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodOptions {
    /// Names of image pull Secrets, in each namespace with pods: the suite creates none.
    pub pull_secrets: Vec<String>,
    /// Architectures of the image, as nodes name theirs (`amd64`). Empty: any.
    pub architectures: Vec<String>,
}

/// The target, as its file describes it: see [`Description`](cluster::Description).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tested {
    /// `installed`: any installed implementation; `reference` …
    pub label: String,
    /// Names of the optional features that the target claims.
    pub features: BTreeSet<String>,
    /// Claims that the target is known to break.
    pub deviations: Vec<Deviation>,
    /// The most endpoints that a node of the target can hold.
    #[serde(default)]
    pub most_endpoints: Option<NonZeroU32>,
    /// API endpoints that the target documents.
    pub ways: ApiEndpoints,
    /// Variants of the target.
    pub variants: BTreeSet<Variant>,
    /// Its agents, if they may be observed.
    #[serde(default)]
    pub agents: Option<Agents>,
}

/// The agents of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agents {
    /// Their DaemonSet and pods.
    pub agent: Agent,
    /// Command that prints what an agent has programmed.
    pub dump: Option<Vec<String>>,
    /// Command that prints how that differs from what the API lists.
    #[serde(default)]
    pub differences: Option<Vec<String>>,
    /// Command that removes what an agent keeps on its node.
    #[serde(default)]
    pub clean: Option<Vec<String>>,
    /// Their pins, from the target file.
    #[serde(default)]
    pub pins: Vec<String>,
    /// Whether the agents are the CNI plugin, from the target file.
    #[serde(default)]
    pub pod_network: bool,
}

impl From<Installation> for Agents {
    fn from(installed: Installation) -> Self {
        Self {
            agent: installed.agent,
            dump: installed.dump,
            differences: installed.differences,
            clean: installed.clean,
            pins: installed.pins,
            pod_network: installed.pod_network,
        }
    }
}

/// What the suite may change in a cluster; each tier includes the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Pods, Services and EndpointSlices in one namespace that the user has created. No cluster-wide objects.
    Namespaced,
    /// Objects in namespaces of its own. Nothing on nodes.
    #[default]
    Api,
    /// Besides, a privileged pod on each node, which starts processes there; the target's agents are stopped and
    /// started.
    Node,
}

impl Options {
    /// The only namespace that the suite may use, if it may create none.
    pub(super) fn confined(&self) -> Option<&str> {
        (self.tier == Tier::Namespaced).then_some(&*self.namespace)
    }

    /// Options of a run that changes nodes.
    #[cfg(test)]
    pub(super) fn of_a_test() -> Self {
        Self {
            provider: "existing".to_owned(),
            tested: Tested::default(),
            connection: Connection::default(),
            tier: Tier::Node,
            image: "probe".to_owned(),
            program: "plumbline".to_owned(),
            namespace: super::labels::LEASE.to_owned(),
            run: "run-1-one".to_owned(),
            plumbline: "plumbline".into(),
            pods: PodOptions::default(),
        }
    }
}

impl Tier {
    /// All tiers, the smallest first.
    pub const ALL: [Self; 3] = [Self::Namespaced, Self::Api, Self::Node];

    /// Name of the tier in options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Namespaced => "namespaced",
            Self::Api => "api",
            Self::Node => "node",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Environment variable of every pod.
const IN_A_POD: &str = "KUBERNETES_SERVICE_HOST";

/// The API endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// The kubeconfig; without it, `$KUBECONFIG`, `~/.kube/config` or the ServiceAccount of the pod of this process.
    pub kubeconfig: Option<PathBuf>,
    /// The context; by default, the current one.
    pub context: Option<String>,
}

impl Connection {
    /// The client configuration.
    ///
    /// # Errors
    /// No kubeconfig exists, or it is invalid.
    pub async fn config(&self) -> Result<Config, KubernetesError> {
        let found = self.files().config(self.context.as_deref()).await;
        let mut config = match found {
            Ok(mut config) => {
                config.proxy_url = corrected(config.proxy_url.take(), &config.cluster_url);
                config
            }
            Err(error) if self.kubeconfig.is_some() || self.context.is_some() => return Err(error),
            Err(error) if env::var_os(IN_A_POD).is_none() => return Err(error),
            // The ServiceAccount of a pod needs no kubeconfig.
            Err(error) => {
                Config::incluster().map_err(|of_pod| without_account(error, &of_pod.to_string()))?
            }
        };
        config.connect_timeout = Some(LIMITS.request);
        Ok(config)
    }

    /// A client.
    ///
    /// # Errors
    /// As for [`Connection::config`].
    pub async fn client(&self) -> Result<Client, KubernetesError> {
        let config = self.config().await?;
        Client::try_from(config).map_err(|error| self.files().wrong(error.to_string()))
    }

    fn files(&self) -> KubeconfigFiles {
        KubeconfigFiles::of(self.kubeconfig.as_deref())
    }

    /// The connection as options of `plumbline`.
    #[must_use]
    pub fn options(&self) -> Vec<String> {
        let file = self.kubeconfig.iter().map(|path| path.display().to_string());
        let file = file.flat_map(|path| ["--kubeconfig".to_owned(), path]);
        let context = self.context.iter().cloned();
        let context = context.flat_map(|name| ["--context".to_owned(), name]);
        file.chain(context).collect()
    }

    /// A copy with an absolute path.
    #[must_use]
    pub fn absolute(mut self) -> Self {
        let absolute = |path: &Path| std::path::absolute(path).ok();
        if let Some(path) = self.kubeconfig.as_deref().and_then(absolute) {
            self.kubeconfig = Some(path);
        }
        self
    }
}

/// The error when neither a kubeconfig nor the ServiceAccount of the pod can be used.
fn without_account(error: KubernetesError, of_pod: &str) -> KubernetesError {
    match error {
        KubernetesError::Kubeconfig { files, why } => KubernetesError::Kubeconfig {
            files,
            why: format!("{why}, and the account of this pod can't be used: {of_pod}"),
        },
        other => other,
    }
}

/// A command line with which the run's own pod starts a program on its node, under [`Tier::Node`].
pub(super) fn on_host(program: &str, argv: &[String]) -> Vec<String> {
    let own = [program, "on-node", "--"].map(str::to_owned);
    own.iter().chain(argv).cloned().collect()
}

/// Name of the run's own pod on a node.
#[must_use]
pub(super) fn host_pod(node: &str) -> String {
    format!("host-{node}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_pod_without_an_account_both_ways_to_the_api_are_named() {
        let missing = KubernetesError::Kubeconfig {
            files: "/root/.kube/config".to_owned(),
            why: "No such file".to_owned(),
        };
        let words = without_account(missing, "no token").to_string();
        assert!(
            words.starts_with(
                "failed to use the kubeconfig /root/.kube/config: No such file, and the account of this pod can't be used: \
                 no token; name another"
            ),
            "{words}"
        );
    }
}
