//! A run's hold of a cluster: its namespace, its Lease, and a pod on each node.
//!
//! Runs disturb each other: agents are stopped, and what one measures another has caused. So each holds a Lease for its
//! length; a second one is told who holds it, also in another namespace ([`holders`](super::holders())). The Lease is in a namespace
//! of the suite, which goes with the run.
//!
//! The pods show before the first case that the image can be had on every node; under [`Tier::Node`] they are privileged, in
//! the networks and among the processes of their nodes, and what is started on hosts enters these through them. Under [`Tier::Namespaced`] the namespace is somebody else's and
//! stays, nodes are found later ([`KubernetesCluster::find_nodes`]), and all that is held is the Lease.
//!
//! The end has two ways, also where taking hold fails or is interrupted: [`Guard::release`], and [`Guard::leave`] where nodes are
//! not healed, whose note stays in the Lease.

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
    lease::{Lease, Whose, settle},
    limits::ask,
    options::host_pod,
    pods::{dressed, replace, until_ready},
};

/// The hold. What it has made stays until [`Guard::release`]; after a SIGKILL, until `plumbline cleanup`.
#[derive(Debug)]
#[must_use = "a hold that is not released leaves its namespace"]
pub struct Guard {
    client: Hidden<Client>,
    options: Options,
    /// None, where it is somebody else's.
    namespace: Option<OwnNamespace>,
    lease: Lease,
    /// An earlier run may have left nodes in disorder, and nobody has healed them yet.
    inherits: bool,
    /// Such nodes that this run has no pod on.
    beyond: BTreeSet<String>,
}

impl Guard {
    /// Takes hold of a cluster, and returns when a pod runs on every node. What was made before an error or an interruption is
    /// removed; a note of an earlier run on nodes stays.
    ///
    /// `who` is said to others: user and host, say. To be awaited to its end, which comes soon after `interrupted` is cancelled.
    ///
    /// # Errors
    /// [`KubernetesError::UnderTest`]; the namespace is somebody else's; the image can't be had;
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
                // Another's namespace and Lease are not this run's to remove.
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

    /// Whether another run may have the cluster by now.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lease.watch().lost().is_some()
    }

    /// The state of the Lease, for what works under it.
    #[must_use]
    pub fn lease(&self) -> LeaseWatch {
        self.lease.watch().clone()
    }

    /// Nodes that an earlier run may have left in disorder, and that can't be reached now: not Ready, say.
    #[must_use]
    pub fn beyond(&self) -> &BTreeSet<String> {
        &self.beyond
    }

    /// Whether an earlier run may have left nodes in disorder that are not healed yet.
    #[must_use]
    pub fn inherits(&self) -> bool {
        self.inherits
    }

    /// Whoever holds it has healed the nodes that have its pods.
    pub fn healed(&mut self) {
        self.inherits = !self.beyond.is_empty();
    }

    /// Lets go: [`Guard::leave`], if an earlier run may have left nodes in disorder that are not [`Guard::healed`];
    /// [`Guard::release`] otherwise.
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

    /// Removes what it has made, and returns when that is gone.
    ///
    /// # Errors
    /// What is left.
    pub async fn release(self) -> Result<(), KubernetesError> {
        // It may be the next one's.
        if self.is_lost() {
            return undo(&self.client.0, &self.options).await;
        }
        match self.namespace {
            Some(namespace) => {
                drop(self.lease);
                namespace.remove().await
            }
            None => self.lease.remove().await,
        }
    }

    /// Removes its pods, and leaves what says how nodes are reached that are not healed: the Lease, in its namespace. It is not
    /// renewed any more; `plumbline heal`, `plumbline cleanup` and the next run with [`Tier::Node`] take it over.
    ///
    /// # Errors
    /// Pods are left, too.
    pub async fn leave(self) -> Result<(), KubernetesError> {
        if self.is_lost() && settle(&self.client.0, &self.options, false).await? != Whose::Own {
            return Ok(());
        }
        let Self {
            client: Hidden(client),
            options,
            namespace,
            lease,
            ..
        } = self;
        drop(lease);
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
            // What has the run's own label goes with the run.
            Some(namespace) => {
                namespace
                    .mark(&format!("left-{}", options.run), options.tier)
                    .await
            }
            None => Ok(()),
        }
    }
}

/// Removes what a run of this name has made, as far as it is still its own.
async fn undo(client: &Client, options: &Options) -> Result<(), KubernetesError> {
    let is_confined = options.confined().is_some();
    let whose = settle(client, options, is_confined).await?;
    if is_confined || whose == Whose::Others {
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
    let is_own = whose == Whose::Own || there.labels().get(RUN_LABEL) == Some(&options.run);
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
    /// Makes it, or takes one that an earlier run has left.
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

    /// Names the run that has it, in one that an earlier run has left.
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
            // One of the name that is another's by now is not this.
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

/// Makes one on each node, and returns when all run.
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

/// Who refuses a privileged pod is not RBAC, which was asked before.
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

/// A server on loopback, at a port that nobody else has: what it runs is nobody's concern, as long as it runs.
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
