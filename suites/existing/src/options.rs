//! What a cluster by a kubeconfig is told.

use std::{
    collections::BTreeSet,
    env, fmt,
    path::{Path, PathBuf},
};

use cluster::{
    ApiEndpoints, Deviation, Variant,
    target::{Agent, Installation},
};
use kube::{Client, Config};
use serde::{Deserialize, Serialize};

use super::{KubernetesError, LIMITS, kubeconfig::KubeconfigFiles, proxy::corrected};

/// Everything that is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Options {
    /// Name of the provider, for reports: `kind`, `existing`.
    pub provider: String,
    /// What is under test.
    pub tested: Tested,
    /// The way to the API.
    pub connection: Connection,
    /// What the suite may do there.
    pub tier: Tier,
    /// The image whose pods are clients and backends: its entry point is the probe.
    pub image: String,
    /// Where the program `plumbline` is in that image.
    pub program: String,
    /// Namespace of what belongs to the run and to none of its cases: its Lease, its pods in hosts' networks. Under
    /// [`Tier::Namespaced`], of everything.
    pub namespace: String,
    /// Name of the run: value of its label.
    pub run: String,
    /// The program `plumbline` on this machine, which bridges pipes to pods.
    pub plumbline: PathBuf,
    /// What its pods are made with, besides their image.
    #[serde(default)]
    pub pods: PodOptions,
}

/// What pods of the suite are made with, besides their image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodOptions {
    /// Names of the Secrets by which nodes pull the image, in each namespace of pods: the suite makes none.
    pub pull_secrets: Vec<String>,
    /// Architectures that the image is for, as nodes call theirs (`amd64`). None: whatever they have.
    pub architectures: Vec<String>,
}

/// What is under test, as its target says: see [`Description`](cluster::Description).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tested {
    /// `installed`: whatever is there; `reference` …
    pub label: String,
    /// Optional features of the catalogue that it claims to have.
    pub features: BTreeSet<String>,
    /// Claims that it is known not to keep.
    pub deviations: Vec<Deviation>,
    /// ApiEndpoints to the API that it documents.
    pub ways: ApiEndpoints,
    /// Other configurations that it has.
    pub variants: BTreeSet<Variant>,
    /// Where its agents are, in a cluster in which they may be looked at.
    #[serde(default)]
    pub agents: Option<Agents>,
}

/// The agents of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agents {
    /// Where they are.
    pub agent: Agent,
    /// What prints what one of them has programmed.
    pub dump: Option<Vec<String>>,
    /// What removes what one of them keeps on its node.
    #[serde(default)]
    pub clean: Option<Vec<String>>,
    /// What they pin, as the target names it.
    #[serde(default)]
    pub pins: Vec<String>,
    /// Whether they are the network of pods, as the target says.
    #[serde(default)]
    pub pod_network: bool,
}

impl From<Installation> for Agents {
    fn from(installed: Installation) -> Self {
        Self {
            agent: installed.agent,
            dump: installed.dump,
            clean: installed.clean,
            pins: installed.pins,
            pod_network: installed.pod_network,
        }
    }
}

/// What the suite may do in a cluster; each includes the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Pods, Services and EndpointSlices in one namespace, which somebody else has made and keeps. Nothing of the cluster.
    Namespaced,
    /// Objects in namespaces of its own. Nothing on nodes.
    #[default]
    Api,
    /// Besides, a privileged pod on each node, through which processes run there; agents of the target are stopped and started.
    Node,
}

impl Options {
    /// The only namespace that the suite may use, if it may make none.
    pub(super) fn confined(&self) -> Option<&str> {
        (self.tier == Tier::Namespaced).then_some(&*self.namespace)
    }

    /// Those of a run that disturbs nodes.
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
    /// All of them, the least first.
    pub const ALL: [Self; 3] = [Self::Namespaced, Self::Api, Self::Node];

    /// As it is written.
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

/// The variable that every pod has.
const IN_A_POD: &str = "KUBERNETES_SERVICE_HOST";

/// The way to the API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// The kubeconfig; without it, `$KUBECONFIG`, `~/.kube/config` or the account of the pod that this runs in.
    pub kubeconfig: Option<PathBuf>,
    /// Its context; without it, its current one.
    pub context: Option<String>,
}

impl Connection {
    /// The configuration of clients.
    ///
    /// # Errors
    /// There is no kubeconfig, or it is wrong.
    pub async fn config(&self) -> Result<Config, KubernetesError> {
        let found = self.files().config(self.context.as_deref()).await;
        let mut config = match found {
            Ok(mut config) => {
                config.proxy_url = corrected(config.proxy_url.take(), &config.cluster_url);
                config
            }
            Err(error) if self.kubeconfig.is_some() || self.context.is_some() => return Err(error),
            Err(error) if env::var_os(IN_A_POD).is_none() => return Err(error),
            // The account of a pod, which is beside its API server.
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
    /// As of [`Connection::config`].
    pub async fn client(&self) -> Result<Client, KubernetesError> {
        let config = self.config().await?;
        Client::try_from(config).map_err(|error| self.files().wrong(error.to_string()))
    }

    fn files(&self) -> KubeconfigFiles {
        KubeconfigFiles::of(self.kubeconfig.as_deref())
    }

    /// As options of `plumbline`.
    #[must_use]
    pub fn options(&self) -> Vec<String> {
        let file = self.kubeconfig.iter().map(|path| path.display().to_string());
        let file = file.flat_map(|path| ["--kubeconfig".to_owned(), path]);
        let context = self.context.iter().cloned();
        let context = context.flat_map(|name| ["--context".to_owned(), name]);
        file.chain(context).collect()
    }

    /// The same, with a path that holds from everywhere.
    #[must_use]
    pub fn absolute(mut self) -> Self {
        let absolute = |path: &Path| std::path::absolute(path).ok();
        if let Some(path) = self.kubeconfig.as_deref().and_then(absolute) {
            self.kubeconfig = Some(path);
        }
        self
    }
}

/// That neither a kubeconfig nor the account of the pod can be used.
fn without_account(error: KubernetesError, of_pod: &str) -> KubernetesError {
    match error {
        KubernetesError::Kubeconfig { files, why } => KubernetesError::Kubeconfig {
            files,
            why: format!("{why}, and the account of this pod can't be used: {of_pod}"),
        },
        other => other,
    }
}

/// A command line as the run's own pod on a node runs it there, under [`Tier::Node`].
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
