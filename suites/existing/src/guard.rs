//! A run's hold of a cluster: its namespace, its Lease, and a pod on each node.
//!
//! Runs disturb each other: one stops agents, the other measures the effect. So each run holds a Lease; a second run
//! is refused with the holder's name, also in another namespace ([`holders`](super::holders())). The Lease is in a
//! namespace of the suite, which is deleted with the run.
//!
//! The pods prove before the first case that every node can pull the image. Under [`Tier::Node`] they are privileged,
//! with host network and host PIDs, and processes on hosts are started through them. Under [`Tier::Namespaced`] the
//! namespace belongs to the user and stays, nodes are found later ([`KubernetesCluster::find_nodes`]), and the hold
//! is the Lease alone.
//!
//! A hold ends with [`Guard::release`], or with [`Guard::leave`] where nodes are not healed: then the Lease keeps the
//! note about them. An error or interruption while taking hold ends it in the same manner.

use std::collections::BTreeSet;

use cluster::{Description, RUN_LABEL, dress::ADMITS};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::json;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{
    KubernetesCluster, KubernetesError, LIMITS, LeaseWatch, Options, Tier,
    error::{Hidden, api},
    holders::expect_alone,
    labels::{CONTAINER, MANAGED_BY, MANAGER},
    lease::{Lease, LeaseOwner, settle},
    limits::ask,
    options::host_pod,
    pods::{dressed, replace, until_ready},
};

/// The hold. Its objects stay until [`Guard::release`]; after a SIGKILL, until `plumbline cleanup`.
#[derive(Debug)]
#[must_use = "a hold that is not released leaves its namespace"]
pub struct Guard {
    client: Hidden<Client>,
    options: Options,
    /// `None`, if the namespace belongs to the user.
    namespace: Option<OwnNamespace>,
    lease: Lease,
    /// An earlier run may have left faults on nodes, which are not healed yet.
    inherits: bool,
    /// Such nodes without a pod of this run.
    beyond: BTreeSet<String>,
}

impl Guard {
    /// Takes hold of a cluster, and returns when a pod runs on every node. After an error or an interruption, new
    /// objects are removed; the note of an earlier run about nodes stays.
    ///
    /// Other runs report `who`: user and host, for example. Await this to its end, which follows soon after
    /// `interrupted` is cancelled.
    ///
    /// # Errors
    /// [`KubernetesError::UnderTest`]; the namespace is not the suite's; the image can't be pulled;
    /// [`KubernetesError::Interrupted`].
    pub async fn take(
        cluster: &KubernetesCluster,
        who: &str,
        interrupted: &CancellationToken,
    ) -> Result<Self, KubernetesError> {
        let about = cluster.about();
        let options = &about.options;
        let client = cluster.client();
        let nodes = about.description.nodes.iter().map(|node| node.name.clone());
        let nodes: BTreeSet<String> = nodes.collect();
        let begun = async {
            let namespace = match options.confined() {
                None => Some(OwnNamespace::make(&client, options).await?),
                Some(_) => None,
            };
            let taken = Lease::take(&client, options, &nodes, who, interrupted).await?;
            Ok::<_, KubernetesError>((namespace, taken))
        };
        let (namespace, (lease, left)) = match begun.await {
            Ok(begun) => begun,
            Err(error) => {
                // Namespace and Lease of another run are not removed.
                undo(&client, options).await?;
                return Err(error);
            }
        };
        let mut guard = Self {
            client: Hidden(client.clone()),
            options: options.clone(),
            namespace,
            lease,
            inherits: left.is_some(),
            beyond: BTreeSet::new(),
        };
        let held = async {
            expect_alone(&client, options).await?;
            super::secrets::expect(&client, options).await?;
            if let Some(left) = &left {
                guard.beyond = left.beyond(&client, &nodes).await?;
            }
            let Some(own) = &guard.namespace else {
                return Ok(());
            };
            own.mark(&options.run, options.tier).await?;
            pods(&client, options, &about.description).await
        };
        let held = tokio::select! {
            held = held => held,
            () = interrupted.cancelled() => Err(KubernetesError::Interrupted),
        };
        match held {
            Ok(()) => Ok(guard),
            Err(error) => {
                guard.end().await?;
                Err(error)
            }
        }
    }

    /// Whether another run may hold the cluster by now.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lease.watch().lost().is_some()
    }

    /// Follows the state of the Lease.
    #[must_use]
    pub fn lease(&self) -> LeaseWatch {
        self.lease.watch().clone()
    }

    /// Nodes with possible faults of an earlier run that can't be reached now: not Ready, for example.
    #[must_use]
    pub fn beyond(&self) -> &BTreeSet<String> {
        &self.beyond
    }

    /// Whether an earlier run may have left faults on nodes that are not healed yet.
    #[must_use]
    pub fn inherits(&self) -> bool {
        self.inherits
    }

    /// Records that the caller has healed the nodes with pods of this run.
    pub fn healed(&mut self) {
        self.inherits = !self.beyond.is_empty();
    }

    /// Ends the hold: by [`Guard::leave`] if an earlier run may have left faults on nodes that are not
    /// [`Guard::healed`]; by [`Guard::release`] otherwise.
    ///
    /// # Errors
    /// What is left.
    pub async fn end(self) -> Result<(), KubernetesError> {
        if self.inherits {
            self.leave().await
        } else {
            self.release().await
        }
    }

    /// Removes the objects of the hold, and returns when they are gone.
    ///
    /// # Errors
    /// What is left.
    pub async fn release(self) -> Result<(), KubernetesError> {
        // The namespace may belong to the next run.
        if self.is_lost() {
            return undo(&self.client.0, &self.options).await;
        }
        match self.namespace {
            Some(namespace) => {
                self.lease.leave().await;
                namespace.remove().await
            }
            None => self.lease.remove().await,
        }
    }

    /// Removes the pods, and leaves the Lease with the note about unhealed nodes in its namespace. It is not renewed
    /// any more; `plumbline heal`, `plumbline cleanup` and the next run with [`Tier::Node`] take it over.
    ///
    /// # Errors
    /// Pods are left, too.
    pub async fn leave(self) -> Result<(), KubernetesError> {
        if self.is_lost() && settle(&self.client.0, &self.options, false).await? != LeaseOwner::ThisRun {
            return Ok(());
        }
        let Self {
            client: Hidden(client),
            options,
            namespace,
            lease,
            ..
        } = self;
        lease.leave().await;
        let what = "remove the run's pods";
        let pods: Api<Pod> = Api::namespaced(client, &options.namespace);
        let own = ListParams::default().labels(&format!("{RUN_LABEL}={}", options.run));
        for pod in ask(what, pods.list(&own)).await?.map_err(api(what))? {
            let now = DeleteParams::default().grace_period(0);
            match ask(what, pods.delete(&pod.name_any(), &now)).await? {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                done => drop(done.map_err(api(what))?),
            }
        }
        match namespace {
            // Objects with the run's label are removed with the run.
            Some(namespace) => {
                namespace
                    .mark(&format!("left-{}", options.run), options.tier)
                    .await
            }
            None => Ok(()),
        }
    }
}

/// Removes the objects of a run of this name that it still owns.
async fn undo(client: &Client, options: &Options) -> Result<(), KubernetesError> {
    let is_confined = options.confined().is_some();
    let owner = settle(client, options, is_confined).await?;
    if is_confined || owner == LeaseOwner::OtherRun {
        return Ok(());
    }
    let name = options.namespace.clone();
    let what = format!("look for the namespace {name}");
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let there = ask(&what, namespaces.get_opt(&name)).await?.map_err(api(&what))?;
    let Some(there) = there else {
        return Ok(());
    };
    let is_ours = there.labels().get(MANAGED_BY).map(String::as_str) == Some(MANAGER);
    let is_own = owner == LeaseOwner::ThisRun || there.labels().get(RUN_LABEL) == Some(&options.run);
    if !is_ours || !is_own {
        return Ok(());
    }
    let namespace = OwnNamespace {
        api: Hidden(namespaces),
        name,
        uid: there.metadata.uid,
    };
    namespace.remove().await
}

/// The namespace of the suite.
#[derive(Debug)]
struct OwnNamespace {
    api: Hidden<Api<Namespace>>,
    name: String,
    uid: Option<String>,
}

impl OwnNamespace {
    /// Creates it, or takes one that an earlier run has left.
    async fn make(client: &Client, options: &Options) -> Result<Self, KubernetesError> {
        let name = options.namespace.clone();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let what = format!("make the namespace {name}");
        let mut labels = json!({ MANAGED_BY: MANAGER, RUN_LABEL: options.run });
        if options.tier >= Tier::Node {
            labels[ADMITS] = json!("privileged");
        }
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels },
        });
        let object: Namespace = serde_json::from_value(object).map_err(|error| KubernetesError::Api {
            what: what.clone(),
            why: error.to_string(),
        })?;
        let params = PostParams::default();
        let made = match ask(&what, namespaces.create(&params, &object)).await? {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let there = ask(&what, namespaces.get(&name)).await?.map_err(api(&what))?;
                if there.labels().get(MANAGED_BY).map(String::as_str) != Some(MANAGER) {
                    return Err(KubernetesError::Foreign { namespace: name });
                }
                if there.metadata.deletion_timestamp.is_some() {
                    return Err(KubernetesError::Ending { namespace: name });
                }
                there
            }
            made => made.map_err(api(&what))?,
        };
        Ok(Self {
            api: Hidden(namespaces),
            name,
            uid: made.metadata.uid,
        })
    }

    /// Labels a namespace of an earlier run with the new run.
    async fn mark(&self, run: &str, tier: Tier) -> Result<(), KubernetesError> {
        let what = format!("label the namespace {}", self.name);
        let mut labels = json!({ RUN_LABEL: run });
        if tier >= Tier::Node {
            labels[ADMITS] = json!("privileged");
        }
        let patch = Patch::Merge(json!({ "metadata": { "labels": labels } }));
        let params = PatchParams::default();
        let patched = ask(&what, self.api.0.patch(&self.name, &params, &patch)).await?;
        patched.map(drop).map_err(api(&what))
    }

    async fn remove(self) -> Result<(), KubernetesError> {
        let what = format!("remove the namespace {}", self.name);
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: self.uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match ask(&what, self.api.0.delete(&self.name, &params)).await? {
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
            done => drop(done.map_err(api(&what))?),
        }
        let began = Instant::now();
        loop {
            let there = ask(&what, self.api.0.get_opt(&self.name))
                .await?
                .map_err(api(&what))?;
            // A namespace of this name with another uid belongs to another run.
            if there.is_none_or(|there| there.metadata.uid != self.uid) {
                return Ok(());
            }
            if began.elapsed() >= LIMITS.namespace_ends {
                return Err(KubernetesError::Late {
                    what,
                    limit: LIMITS.namespace_ends,
                });
            }
            sleep(LIMITS.look).await;
        }
    }
}

/// Creates a pod on each node, and returns when all run.
async fn pods(client: &Client, options: &Options, description: &Description) -> Result<(), KubernetesError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &options.namespace);
    for node in &description.nodes {
        let pod = pod(options, &node.name).map_err(|error| KubernetesError::Api {
            what: format!("make a pod on the node {}", node.name),
            why: error.to_string(),
        })?;
        let made = replace(&pods, &host_pod(&node.name), &pod).await;
        made.map_err(|error| not_admitted(error, options, &node.name))?;
    }
    for node in &description.nodes {
        until_ready(&pods, &host_pod(&node.name), &node.name, options).await?;
    }
    Ok(())
}

/// A refusal of a privileged pod comes from admission, as RBAC was checked before.
fn not_admitted(error: KubernetesError, options: &Options, node: &str) -> KubernetesError {
    match error {
        KubernetesError::Refused { why, .. } if options.tier >= Tier::Node => KubernetesError::NotAdmitted {
            namespace: options.namespace.clone(),
            node: node.to_owned(),
            why,
        },
        other => other,
    }
}

/// A server on loopback, at a port of its own: the pod only has to run.
fn pod(options: &Options, node: &str) -> serde_json::Result<Pod> {
    let args = ["serve", "--name", "host", "--address", "127.0.0.1", "--tcp", "0"];
    let is_privileged = options.tier >= Tier::Node;
    let mut container = json!({ "name": CONTAINER, "image": options.image, "args": args });
    if is_privileged {
        container["securityContext"] = json!({ "privileged": true, "runAsUser": 0 });
    }
    dressed(
        options,
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": host_pod(node), "namespace": options.namespace,
                "labels": { RUN_LABEL: options.run, MANAGED_BY: MANAGER },
            },
            "spec": {
                "nodeName": node,
                "hostNetwork": is_privileged,
                "hostPID": is_privileged,
                "terminationGracePeriodSeconds": 0,
                "containers": [container],
            },
        }),
    )
}
