//! An indexed Job (`batch/v1`, `completionMode: Indexed`): one program in a pod for each index, in any cluster, as compute.
//!
//! ```text
//!  IndexedJob::start ─▶ namespace (its own, unless one is named) ─▶ Job ─▶ a pod for each index, `at_once` at a time
//!             look   ─▶ pods that have ended: their log, which holds the result; they are deleted then
//!             remove ─▶ the Job with its pods, and its own namespace
//! ```
//!
//! Results come by the logs of ended pods. Reading a log needs only `get pods/log`. The log is there until the pod is deleted, and can be
//! read again after a failure. A pod that waited for an `exec` would keep its processor and memory from the next index, and would lose
//! its result with the connection. The cost: kubelets rotate logs (`containerLogMaxSize`, 10 MiB by default) and return the newest file
//! alone, so a result has to fit into one file, and its lines must be shorter than the 16 KiB at which runtimes split them.
//!
//! An index is played once: a pod that fails is not made again (`backoffLimitPerIndex: 0`; servers before 1.29 drop the field), so what
//! one shows is never the best of several tries. An index without a result is reported as such, whatever became of its pod.
//!
//! What a killed process leaves ends by itself: pods and the Job have deadlines, and a Job that has ended is deleted an hour later.
//! [`left_jobs`] finds it by its label.
//!
//! Files: `manifest` (the objects), `pod` (what the status of a pod says), `removal` (also of what killed processes have left).

mod manifest;
mod pod;
mod removal;

pub use removal::{LeftJob, left_jobs};

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Event, Namespace, Pod},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, LogParams, PostParams},
};
use tokio::time::Instant;

use self::{
    pod::{Standing, index, standing},
    removal::remove,
};
use super::{
    Connection, KubernetesError, LIMITS, PodOptions,
    error::{Hidden, api, words},
    labels::CONTAINER,
    limits::{ask, ask_again},
};

/// What is to be played.
#[derive(Clone, Debug)]
pub struct IndexedJobOptions {
    /// The API endpoint.
    pub connection: Connection,
    /// A namespace that exists, and stays. Without one, the Job gets a namespace of its own, of its name.
    pub namespace: Option<String>,
    /// Name of the Job.
    pub name: String,
    /// The image of the pods.
    pub image: String,
    /// Further settings of the pods.
    pub pods: PodOptions,
    /// The program in a pod and its arguments. `$JOB_COMPLETION_INDEX` is the index.
    pub argv: Vec<String>,
    /// Number of indexes.
    pub completions: u32,
    /// Limit of pods at once.
    pub at_once: u32,
    /// Limit of a pod, from its start.
    pub pod_limit: Duration,
    /// What a pod usually takes at most, for the limit of all of them.
    pub pod_takes: Duration,
}

/// A Job that has been made. Its objects stay until [`IndexedJob::remove`].
#[derive(Debug)]
#[must_use = "a Job that is not removed goes on"]
pub struct IndexedJob {
    client: Hidden<Client>,
    options: IndexedJobOptions,
    namespace: String,
    began: Instant,
    /// Indexes that have been handed out.
    done: BTreeSet<u32>,
    /// Whether a container has run.
    has_run: bool,
}

/// A pod that has ended, or has to be given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEnd {
    /// Its index.
    pub index: u32,
    /// What is wrong with the end of the pod, if something is: `evicted: …`, `ended with code 2`.
    pub why: Option<String>,
    /// Its log; or why there is none.
    pub log: Result<String, String>,
}

/// What a look has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Pods that have ended since the last look.
    pub ended: Vec<PodEnd>,
    /// Indexes whose containers run.
    pub running: Vec<u32>,
    /// Number of pods that don't run yet.
    pub waiting: usize,
    /// Why one of them does not.
    pub because: Option<String>,
    /// The Job makes no pods any more: why.
    pub over: Option<String>,
}

impl IndexedJob {
    /// Makes the objects. After an error, what was made is removed.
    ///
    /// # Errors
    /// The API can't be reached, or the account may not make them.
    pub async fn start(options: IndexedJobOptions) -> Result<Self, KubernetesError> {
        let client = options.connection.client().await?;
        let namespace = options.namespace.clone().unwrap_or_else(|| options.name.clone());
        let made = Self {
            client: Hidden(client),
            namespace,
            options,
            began: Instant::now(),
            done: BTreeSet::new(),
            has_run: false,
        };
        match made.make().await {
            Ok(()) => Ok(made),
            Err(error) => {
                // Without the right to create objects there is nothing to remove.
                let is_refused = matches!(error, KubernetesError::MayNotPlay { .. });
                if let (Err(left), false) = (made.remove().await, is_refused) {
                    tracing::warn!("not all was removed: {left}");
                }
                Err(error)
            }
        }
    }

    /// Namespace and name, for people.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.namespace, self.options.name)
    }

    async fn make(&self) -> Result<(), KubernetesError> {
        let client = &self.client.0;
        let params = PostParams::default();
        let refused = |what: String, error: kube::Error| match error {
            kube::Error::Api(status) if status.is_forbidden() => KubernetesError::MayNotPlay {
                what,
                why: status.message,
            },
            error => api(what)(error),
        };
        let broken = |error: serde_json::Error| KubernetesError::Api {
            what: "make the objects of a Job".to_owned(),
            why: error.to_string(),
        };
        if self.options.namespace.is_none() {
            let what = format!("make the namespace {}", self.namespace);
            let namespace: Namespace =
                serde_json::from_value(manifest::namespace(&self.namespace)).map_err(broken)?;
            let namespaces: Api<Namespace> = Api::all(client.clone());
            let made = ask(&what, namespaces.create(&params, &namespace)).await?;
            made.map_err(|error| refused(what, error))?;
        }
        let what = format!("make the Job {}", self.name());
        let job: Job =
            serde_json::from_value(manifest::job(&self.options, &self.namespace)).map_err(broken)?;
        let made = ask(&what, self.jobs().create(&params, &job)).await?;
        made.map_err(|error| refused(what, error)).map(drop)
    }

    /// Looks at the Job and its pods. Pods whose logs it returns are deleted.
    ///
    /// # Errors
    /// Nothing has run, and nothing will: no pod is admitted, the image can't be had, no node has room. Or the API does not answer.
    pub async fn look(&mut self) -> Result<Look, KubernetesError> {
        let pods = self.pods();
        let what = format!("list the pods of {}", self.name());
        let own = ListParams::default().labels(&manifest::selector(&self.options.name));
        // Before its pods: one that ends in between is found by the next look.
        let over = self.over().await?;
        let list = ask_again(&what, || pods.list(&own)).await?.map_err(api(&what))?;
        let mut found = Look::default();
        for pod in &list {
            let Some(index) = index(pod).filter(|index| !self.done.contains(index)) else {
                continue;
            };
            match standing(pod) {
                Standing::Waiting(because) => {
                    found.waiting += 1;
                    found.because = found.because.or(because);
                }
                Standing::Running => {
                    self.has_run = true;
                    found.running.push(index);
                }
                Standing::Hopeless(why) if !self.has_run => {
                    let spec = pod.spec.as_ref();
                    return Err(KubernetesError::Image {
                        image: self.options.image.clone(),
                        node: spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
                        why,
                    });
                }
                Standing::Hopeless(why) => {
                    let log = Err("its container did not start".to_owned());
                    found.ended.push(self.end(pod, index, Some(why), log).await);
                }
                Standing::Ended(why) => {
                    self.has_run = true;
                    let log = self.log(&pod.name_any()).await;
                    found.ended.push(self.end(pod, index, why, log).await);
                }
            }
        }
        if !self.has_run {
            self.expect_to_run(&found, list.items.is_empty()).await?;
        }
        if found.ended.is_empty() && found.running.is_empty() && found.waiting == 0 {
            found.over = over;
        }
        Ok(found)
    }

    async fn end(
        &mut self,
        pod: &Pod,
        index: u32,
        why: Option<String>,
        log: Result<String, String>,
    ) -> PodEnd {
        self.done.insert(index);
        // Only to spare the cluster: all pods go with the Job.
        let name = pod.name_any();
        let deleted = ask(
            "delete a pod",
            self.pods().delete(&name, &DeleteParams::default()),
        )
        .await;
        if let Err(error) | Ok(Err(error)) = deleted.map(|done| done.map_err(api("delete a pod"))) {
            tracing::debug!(name, %error, "it goes with the Job");
        }
        PodEnd { index, why, log }
    }

    /// # Errors
    /// Nothing will run.
    async fn expect_to_run(&self, found: &Look, has_no_pods: bool) -> Result<(), KubernetesError> {
        if has_no_pods && self.began.elapsed() >= LIMITS.first_pod {
            let Some(why) = self.refusals().await? else {
                return Ok(());
            };
            return Err(KubernetesError::NoPods {
                job: self.name(),
                namespace: self.namespace.clone(),
                why,
            });
        }
        if !has_no_pods && self.began.elapsed() >= LIMITS.pods {
            return Err(KubernetesError::NoRoom {
                job: self.name(),
                limit: LIMITS.pods,
                why: found
                    .because
                    .clone()
                    .unwrap_or_else(|| "no node has started one".to_owned()),
            });
        }
        Ok(())
    }

    /// What the Job controller says about pods that it could not make. A ServiceAccount that is not there yet is no refusal.
    async fn refusals(&self) -> Result<Option<String>, KubernetesError> {
        let is_late = self.began.elapsed() >= LIMITS.pods;
        let what = format!("list the events of {}", self.name());
        let events: Api<Event> = Api::namespaced(self.client.0.clone(), &self.namespace);
        let own = format!(
            "involvedObject.kind=Job,involvedObject.name={},reason=FailedCreate",
            self.options.name
        );
        let own = ListParams::default().fields(&own);
        let counts = |said: &String| is_late || !said.contains("service account");
        let said = match ask_again(&what, || events.list(&own)).await? {
            Ok(list) => list
                .items
                .into_iter()
                .filter_map(|event| event.message)
                .rfind(counts),
            // Without the right to events, time decides.
            Err(kube::Error::Api(status)) if status.is_forbidden() => Some(format!(
                "no pod after {} s, and its events may not be read",
                LIMITS.pods.as_secs()
            ))
            .filter(|_| is_late),
            Err(error) => return Err(api(what)(error)),
        };
        let silent = is_late.then(|| {
            format!(
                "no pod, and no event that says why, after {} s",
                LIMITS.pods.as_secs()
            )
        });
        Ok(said.or(silent))
    }

    /// Why the Job makes no pods any more, if it does not.
    async fn over(&self) -> Result<Option<String>, KubernetesError> {
        let what = format!("look at the Job {}", self.name());
        let jobs = self.jobs();
        let job = ask_again(&what, || jobs.get_opt(&self.options.name)).await?;
        let Some(job) = job.map_err(api(&what))? else {
            return Ok(Some("the Job was deleted".to_owned()));
        };
        let conditions = job
            .status
            .and_then(|status| status.conditions)
            .unwrap_or_default();
        let mut ends = conditions.into_iter().filter(|one| one.status == "True");
        let end = ends.find(|one| one.type_ == "Failed" || one.type_ == "Complete");
        Ok(end.map(|end| {
            let words = [end.reason, end.message].into_iter().flatten();
            let words: Vec<String> = words.filter(|text| !text.is_empty()).collect();
            match (&*end.type_, words.is_empty()) {
                ("Failed", false) => format!("the Job failed: {}", words.join(": ")),
                ("Failed", true) => "the Job failed".to_owned(),
                _ => "the Job is complete".to_owned(),
            }
        }))
    }

    async fn log(&self, pod: &str) -> Result<String, String> {
        let what = format!("read the log of the pod {pod}");
        let params = LogParams {
            container: Some(CONTAINER.to_owned()),
            limit_bytes: Some(LIMITS.job_log_bytes),
            ..LogParams::default()
        };
        let pods = self.pods();
        let answer = ask_again(&what, || pods.logs(pod, &params)).await;
        answer
            .map_err(|error| error.to_string())?
            .map_err(|error| format!("failed to {what}: {}", words(&error)))
    }

    /// Removes the Job with its pods, and its own namespace, and returns when they are gone. What is not there is no error.
    ///
    /// # Errors
    /// Something stays: `plumbline cleanup` removes it.
    pub async fn remove(self) -> Result<(), KubernetesError> {
        let is_own = self.options.namespace.is_none();
        remove(&self.client.0, &self.namespace, &self.options.name, is_own).await
    }

    fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.client.0.clone(), &self.namespace)
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.0.clone(), &self.namespace)
    }
}

#[cfg(test)]
mod tests;
