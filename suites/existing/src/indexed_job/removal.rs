//! Removes Jobs with their pods and namespaces, and finds those that killed processes have left.

use std::collections::BTreeSet;

use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Namespace, Pod},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams},
};
use tokio::time::{Instant, sleep};

use super::manifest::selector;
use crate::{
    KubernetesError, LIMITS,
    error::{api, if_any},
    labels::JOB,
    limits::ask_again,
};

/// A Job, or the namespace of one that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftJob {
    /// Name of the Job.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Whether it has not ended yet: its sweep may still be running, on this host or another. It ends by itself.
    pub is_under_way: bool,
    /// Whether the namespace is its own.
    is_own: bool,
}

impl LeftJob {
    /// Removes it.
    ///
    /// # Errors
    /// Something stays.
    pub async fn remove(&self, client: &Client) -> Result<(), KubernetesError> {
        remove(client, &self.namespace, &self.name, self.is_own).await
    }
}

/// All that is there: in the whole cluster, or in one namespace if the account may see no more.
///
/// # Errors
/// The API does not answer.
pub async fn left_jobs(client: &Client, namespace: &str) -> Result<Vec<LeftJob>, KubernetesError> {
    let own = ListParams::default().labels(JOB);
    let what = "list Jobs";
    let (all, one): (Api<Job>, Api<Job>) = (
        Api::all(client.clone()),
        Api::namespaced(client.clone(), namespace),
    );
    let jobs = match ask_again(what, || all.list(&own)).await? {
        Err(kube::Error::Api(status)) if status.is_forbidden() => ask_again(what, || one.list(&own)).await?,
        list => list,
    };
    let jobs = if_any(jobs).map_err(api(what))?;
    let what = "list the namespaces of Jobs";
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespaces = if_any(ask_again(what, || namespaces.list(&own)).await?).map_err(api(what))?;
    Ok(standing(&jobs, &namespaces))
}

fn standing(jobs: &[Job], namespaces: &[Namespace]) -> Vec<LeftJob> {
    let mut own: BTreeSet<String> = namespaces.iter().map(ResourceExt::name_any).collect();
    let mut all: Vec<LeftJob> = jobs
        .iter()
        .map(|job| {
            let (name, namespace) = (job.name_any(), job.namespace().unwrap_or_default());
            let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
            let mut conditions = conditions.into_iter().flatten();
            LeftJob {
                is_under_way: !conditions
                    .any(|one| one.status == "True" && matches!(&*one.type_, "Complete" | "Failed")),
                is_own: own.remove(&namespace),
                name,
                namespace,
            }
        })
        .collect();
    all.extend(own.into_iter().map(|name| LeftJob {
        namespace: name.clone(),
        name,
        is_under_way: false,
        is_own: true,
    }));
    all
}

/// Removes a Job with its pods, or its own namespace with all of that.
pub(super) async fn remove(
    client: &Client,
    namespace: &str,
    name: &str,
    is_own: bool,
) -> Result<(), KubernetesError> {
    let now = DeleteParams::background();
    if is_own {
        let what = format!("remove the namespace {namespace}");
        let namespaces: Api<Namespace> = Api::all(client.clone());
        is_gone(ask_again(&what, || namespaces.delete(namespace, &now)).await?).map_err(api(&what))?;
        return until_gone(&what, async || {
            let there = ask_again(&what, || namespaces.get_opt(namespace)).await?;
            Ok(there.map_err(api(&what))?.is_none())
        })
        .await;
    }
    let what = format!("remove the Job {namespace}/{name}");
    let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    is_gone(ask_again(&what, || jobs.delete(name, &now)).await?).map_err(api(&what))?;
    let own = ListParams::default().labels(&selector(name));
    until_gone(&what, async || {
        let list = ask_again(&what, || pods.list(&own)).await?;
        Ok(list.map_err(api(&what))?.items.is_empty())
    })
    .await
}

/// What is not there has been removed.
fn is_gone<T>(deleted: kube::Result<T>) -> kube::Result<()> {
    match deleted {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        deleted => deleted.map(drop),
    }
}

async fn until_gone(
    what: &str,
    gone: impl AsyncFn() -> Result<bool, KubernetesError>,
) -> Result<(), KubernetesError> {
    let began = Instant::now();
    while !gone().await? {
        if began.elapsed() >= LIMITS.namespace_ends {
            return Err(KubernetesError::Late {
                what: what.to_owned(),
                limit: LIMITS.namespace_ends,
            });
        }
        sleep(LIMITS.look).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn jobs_that_go_on_are_told_from_what_is_left() {
        let job = |name: &str, namespace: &str, ends: Option<&str>| {
            let conditions: Vec<_> = ends
                .into_iter()
                .map(|kind| json!({ "type": kind, "status": "True" }))
                .collect();
            serde_json::from_value::<Job>(json!({
                "metadata": { "name": name, "namespace": namespace }, "status": { "conditions": conditions },
            }))
            .expect("a Job")
        };
        let namespace = |name: &str| {
            serde_json::from_value::<Namespace>(json!({ "metadata": { "name": name } })).expect("a namespace")
        };
        let jobs = [
            job("a", "a", Some("Complete")),
            job("b", "team", None),
            job("c", "team", Some("Failed")),
            job("d", "d", Some("Suspended")),
        ];
        let left = standing(&jobs, &["a", "d", "gone"].map(namespace));
        let of = |name: &str, namespace: &str, is_under_way, is_own| LeftJob {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            is_under_way,
            is_own,
        };
        assert_eq!(
            left,
            [
                of("a", "a", false, true),
                of("b", "team", true, false),
                of("c", "team", false, false),
                of("d", "d", true, true),
                of("gone", "gone", false, true),
            ]
        );
    }
}
