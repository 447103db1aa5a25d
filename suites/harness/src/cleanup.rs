//! What a run has made, and its removal.
//!
//! Kubernetes takes ten seconds and more to end a namespace: kubelets end its pods, and the namespace controller looks again after
//! a while. Where cases share a cluster, a case only begins this ([`Made::remove`]); the run sees to it that namespaces of a few
//! cases end at once, and at its end that none is left ([`Made::until_few_end`], [`Made::cleanup`]).

use std::{collections::BTreeSet, time::Duration};

use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ListParams},
};
use tokio::time::{sleep, timeout};

use crate::{
    names::{Key, Kind},
    objects::{CASE_LABEL, RUN_LABEL},
    requests::{all, api, refused},
    verdict::Halt,
};

/// From one look at what ends to the next.
const LOOK: Duration = Duration::from_millis(100);

/// Grace period of pods that nothing waits for any more, in seconds: their kubelet still ends them in order.
const SOON: u32 = 1;

/// Everything that a run has made, or one of its cases: it has their labels.
#[derive(Clone, Copy, Debug)]
pub struct Made<'a> {
    /// The run.
    pub run: &'a str,
    /// The case; all of them, if there is none.
    pub case: Option<&'a str>,
    /// The only namespace that the run may use; it stays.
    pub confined: Option<&'a str>,
}

impl Made<'_> {
    /// Removes it, and waits until it is gone.
    ///
    /// # Errors
    /// What the API refuses; inconclusive, if it is not gone in time.
    pub async fn cleanup(&self, client: &Client, limit: Duration) -> Result<(), Halt> {
        let gone = async {
            match self.confined {
                Some(namespace) => self.objects(client, namespace).await,
                None => self.namespaces(client).await,
            }
        };
        timeout(limit, gone).await.map_err(|_| self.late(limit))?
    }

    /// Removes it, and waits only where it may use one namespace: elsewhere the run waits until few are ending
    /// ([`Made::until_few_end`]).
    ///
    /// # Errors
    /// What the API refuses; inconclusive, if it takes longer than the limit.
    pub async fn remove(&self, client: &Client, limit: Duration) -> Result<(), Halt> {
        if self.confined.is_some() {
            return self.cleanup(client, limit).await;
        }
        let begun = timeout(limit, self.begin(client)).await;
        begun.map_err(|_| self.late(limit))?
    }

    /// Waits until namespaces of no more than so many cases are ending.
    ///
    /// # Errors
    /// What the API refuses; inconclusive, if that takes longer than the limit.
    pub async fn until_few_end(&self, client: &Client, most: usize, limit: Duration) -> Result<(), Halt> {
        let namespaces: Api<DynamicObject> = all(client, Kind::Namespace, None);
        let few = async {
            loop {
                let list = namespaces.list(&self.list()).await.map_err(wrong)?;
                let ending = list.items.into_iter().map(|one| one.metadata);
                let ending = ending.filter(|one| one.deletion_timestamp.is_some());
                let cases = ending.map(|one| one.labels.and_then(|mut labels| labels.remove(CASE_LABEL)));
                if cases.collect::<BTreeSet<_>>().len() <= most {
                    return Ok(());
                }
                sleep(LOOK).await;
            }
        };
        timeout(limit, few).await.map_err(|_| self.late(limit))?
    }

    fn late(&self, limit: Duration) -> Halt {
        Halt::Inconclusive(format!(
            "what {} has made is not gone within {limit:?}",
            self.selector()
        ))
    }

    fn selector(&self) -> String {
        let case = self.case.map(|case| format!(",{CASE_LABEL}={case}"));
        format!("{RUN_LABEL}={}{}", self.run, case.unwrap_or_default())
    }

    fn list(&self) -> ListParams {
        ListParams::default().labels(&self.selector())
    }

    /// Namespaces, with what is in them, and what a case or the run has made in those of others.
    async fn namespaces(&self, client: &Client) -> Result<(), Halt> {
        self.begin(client).await?;
        while !self.names(client).await?.is_empty() {
            sleep(LOOK).await;
        }
        Ok(())
    }

    /// The same, without the wait.
    async fn begin(&self, client: &Client) -> Result<(), Halt> {
        self.hasten(client).await?;
        let own = self.names(client).await?;
        for kind in [Kind::Service, Kind::EndpointSlice, Kind::Pod] {
            for key in self.keys(client, kind, None).await? {
                if !own.contains(&key.namespace) {
                    delete(client, &key).await?;
                }
            }
        }
        for name in own {
            delete(client, &Key::new(Kind::Namespace, "", &name)).await?;
        }
        Ok(())
    }

    /// Ends pods whose grace periods no case waits for any more.
    async fn hasten(&self, client: &Client) -> Result<(), Halt> {
        let pods: Api<DynamicObject> = all(client, Kind::Pod, self.confined);
        let list = pods.list(&self.list()).await.map_err(wrong)?;
        for pod in list.items.iter().filter(|pod| has_grace(pod)) {
            let text = |field: &Option<String>| field.clone().unwrap_or_default();
            let (namespace, name) = (text(&pod.metadata.namespace), text(&pod.metadata.name));
            let soon = DeleteParams::default().grace_period(SOON);
            let done = api(client, Kind::Pod, &namespace).delete(&name, &soon).await;
            unless_gone(done)?;
        }
        Ok(())
    }

    async fn names(&self, client: &Client) -> Result<Vec<String>, Halt> {
        let namespaces: Api<DynamicObject> = all(client, Kind::Namespace, None);
        let list = namespaces.list(&self.list()).await.map_err(wrong)?;
        let names = list.items.into_iter().filter_map(|one| one.metadata.name);
        Ok(names.collect())
    }

    /// Objects in a namespace that stays. Controllers make slices with a Service's labels until they see that it is gone.
    async fn objects(&self, client: &Client, namespace: &str) -> Result<(), Halt> {
        self.hasten(client).await?;
        loop {
            let mut is_left = false;
            for kind in [Kind::Service, Kind::EndpointSlice, Kind::Pod] {
                for key in self.keys(client, kind, Some(namespace)).await? {
                    is_left = true;
                    delete(client, &key).await?;
                }
            }
            if !is_left {
                return Ok(());
            }
            sleep(LOOK).await;
        }
    }

    async fn keys(&self, client: &Client, kind: Kind, namespace: Option<&str>) -> Result<Vec<Key>, Halt> {
        let list = all(client, kind, namespace)
            .list(&self.list())
            .await
            .map_err(wrong)?;
        let text = |field: Option<String>| field.unwrap_or_default();
        let keys = list.items.into_iter().map(|object| {
            let (namespace, name) = (text(object.metadata.namespace), text(object.metadata.name));
            Key::new(kind, &namespace, &name)
        });
        Ok(keys.collect())
    }
}

/// Deletes an object; one that is gone is no error.
async fn delete(client: &Client, key: &Key) -> Result<(), Halt> {
    let done = api(client, key.kind, &key.namespace)
        .delete(&key.name, &DeleteParams::default())
        .await;
    unless_gone(done)
}

fn unless_gone<T>(done: Result<T, kube::Error>) -> Result<(), Halt> {
    match done {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        done => done.map(drop).map_err(wrong),
    }
}

/// Whether a pod takes longer to end than it has to.
fn has_grace(pod: &DynamicObject) -> bool {
    let seconds = pod.data["spec"]["terminationGracePeriodSeconds"].as_u64();
    seconds.is_some_and(|seconds| seconds > u64::from(SOON))
}

fn wrong(error: kube::Error) -> Halt {
    refused("clean up", error)
}

/// Runs that have something in a namespace.
///
/// # Errors
/// What the API refuses.
pub async fn runs_in(client: &Client, namespace: &str) -> Result<Vec<String>, Halt> {
    let mut runs = Vec::new();
    for kind in [Kind::Service, Kind::EndpointSlice, Kind::Pod] {
        let of_runs = ListParams::default().labels(RUN_LABEL);
        let list = all(client, kind, Some(namespace))
            .list(&of_runs)
            .await
            .map_err(wrong)?;
        let labels = list.items.into_iter().filter_map(|object| object.metadata.labels);
        runs.extend(labels.filter_map(|mut labels| labels.remove(RUN_LABEL)));
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_pods_with_a_grace_period_are_hastened() {
        let pod = |spec| -> DynamicObject {
            serde_json::from_value(json!({ "metadata": { "name": "p" }, "spec": spec })).unwrap()
        };
        assert!(has_grace(&pod(json!({ "terminationGracePeriodSeconds": 38 }))));
        assert!(!has_grace(&pod(json!({ "terminationGracePeriodSeconds": 0 }))));
        assert!(!has_grace(&pod(json!({}))));
    }
}
