//! Repairs after killed runs: removes objects and labs (`cleanup`), and undoes faults (`heal`).
//!
//! Both are idempotent. `clusters`: existing clusters and kind; `nodes`: nodes of existing clusters; `dry_run`: what
//! both would do.
mod cleanup;
mod clusters;
mod dry_run;
mod heal;
mod nodes;

pub(crate) use {cleanup::cleanup, heal::heal, nodes::nodes};

use std::{collections::BTreeSet, path::Path};

use anyhow::Context as _;
use existing::Connection;
use harness::objects::RUN_LABEL;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use lab::LabCluster;

use crate::cluster::{ConnectionArgs, NAMESPACE};

/// Which labs.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only this lab; the default is every lab and every kind cluster of this host
    #[arg(long, value_name = "NAME", conflicts_with_all = ["kubeconfig", "context"])]
    lab: Option<String>,
}

/// Labs and kind clusters, or a cluster of a kubeconfig.
#[derive(Debug, clap::Args)]
pub(crate) struct Where {
    #[command(flatten)]
    labs: Arguments,
    /// Only this kind cluster
    #[arg(long, value_name = "NAME", conflicts_with_all = ["lab", "kubeconfig", "context"])]
    kind: Option<String>,
    /// The cluster of $KUBECONFIG, ~/.kube/config, or the account of the pod that plumbline runs in, as for `plumbline
    /// run`. --kubeconfig, --context and --namespace imply it
    #[arg(long, value_name = "existing", value_parser = ["existing"], conflicts_with_all = ["lab", "kind"])]
    provider: Option<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Namespace of runs in a cluster of a kubeconfig (`plumbline run --namespace`) [default: plumbline-run]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["lab", "kind"])]
    namespace: Option<String>,
    /// Only show what would be done; change nothing
    #[arg(long)]
    dry_run: bool,
}

impl Where {
    /// How to reach an existing cluster, and its namespace of runs, if the options name one. $KUBECONFIG alone does
    /// not: the default is labs.
    fn existing(&self) -> Option<(Connection, String)> {
        let is_meant =
            self.provider.is_some() || self.connection.first_option().is_some() || self.namespace.is_some();
        let namespace = self.namespace.clone().unwrap_or_else(|| NAMESPACE.to_owned());
        is_meant.then(|| (self.connection.clone().connection(), namespace))
    }
}

impl Arguments {
    fn names(&self) -> anyhow::Result<Vec<String>> {
        match &self.lab {
            Some(name) => Ok(vec![name.clone()]),
            None => Ok(lab::labs()?),
        }
    }
}

/// Runs that have namespaces in a lab: those with a live process, and those with nothing but objects.
#[derive(Debug, Default, PartialEq, Eq)]
struct Runs {
    living: BTreeSet<String>,
    dead: BTreeSet<String>,
}

async fn runs(client: &Client) -> anyhow::Result<Runs> {
    let (living, dead) = names(client).await?.into_iter().partition(|run| lives(run));
    Ok(Runs { living, dead })
}

/// Runs that have namespaces.
async fn names(client: &Client) -> anyhow::Result<BTreeSet<String>> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let of_runs = ListParams::default().labels(RUN_LABEL);
    let list = namespaces
        .list(&of_runs)
        .await
        .context("failed to list namespaces of runs")?;
    let name = |namespace: &Namespace| namespace.labels().get(RUN_LABEL).cloned();
    Ok(list.items.iter().filter_map(name).collect())
}

/// Whether the process is alive that a run is named after: `run-PID-…`, `test-PID`. If its PID was reused, the run
/// counts as alive, and its objects stay until that process ends too.
fn lives(run: &str) -> bool {
    let pid = run.split('-').nth(1).filter(|pid| pid.parse::<u32>().is_ok());
    pid.is_none_or(|pid| Path::new("/proc").join(pid).exists())
}

/// Connects to a running lab; `None` if it does not answer.
async fn attach(name: &str) -> Option<LabCluster> {
    LabCluster::attach(name).await.ok()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        of: Where,
    }

    #[test]
    fn a_cluster_is_meant_by_any_option_of_it_and_labs_by_none() {
        let of = |line: &str| {
            let words = ["heal"].into_iter().chain(line.split_whitespace());
            Line::try_parse_from(words).map(|line| line.of.existing())
        };
        assert_eq!(of("").unwrap(), None);
        assert_eq!(of("--lab l").unwrap(), None);
        let by_default = (Connection::default(), NAMESPACE.to_owned());
        assert_eq!(of("--provider existing").unwrap(), Some(by_default));
        let (connection, namespace) = of("--namespace team").unwrap().unwrap();
        assert_eq!((connection, &*namespace), (Connection::default(), "team"));
        let (connection, namespace) = of("--kubeconfig /k --context c").unwrap().unwrap();
        assert_eq!(connection.options(), ["--kubeconfig", "/k", "--context", "c"]);
        assert_eq!(namespace, NAMESPACE);
        for wrong in [
            "--provider lab",
            "--lab l --namespace n",
            "--kind k --provider existing",
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_run_lives_as_long_as_the_process_that_it_is_named_after() {
        let own = std::process::id();
        assert!(lives(&format!("run-{own}-00ff00")) && lives(&format!("test-{own}")));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let gone = child.id();
        child.wait().unwrap();
        assert!(!lives(&format!("run-{gone}-00ff00")));
        assert!(
            lives("somebody-elses") && lives("by-hand"),
            "what is not known is left alone"
        );
    }
}
