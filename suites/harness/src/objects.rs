//! Objects of the API, raw: what is read back is what the API keeps, nothing dropped or re-defaulted.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

pub use cluster::RUN_LABEL;
use cluster::dress::{ADMITS, has_no_account};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    dressing::Dressing,
    history::{Event, History, now_us},
    limits::Limits,
    names::{Key, Kind, Names},
    requests::{answered, answered_once, api, refused},
    verdict::Halt,
    watch::Watch,
};

/// An object with these labels besides its own.
fn with_labels(mut object: Value, labels: &Value) -> Value {
    for (name, value) in labels.as_object().into_iter().flatten() {
        object["metadata"]["labels"][name] = value.clone();
    }
    object
}

/// Name of the suite, in `managed-by` labels and as field manager.
pub const MANAGER: &str = "plumbline";
/// Label of what a case has made, beside that of its run.
pub const CASE_LABEL: &str = "plumbline-case";

/// How long a fresh namespace may be without its ServiceAccount, which a controller makes: pods are refused until then.
const ACCOUNT: Duration = Duration::from_secs(30);
/// From one try to the next.
const LOOK: Duration = Duration::from_millis(100);

/// A write that the API has acknowledged and, for Services and EndpointSlices, the suite's own watch has.
#[derive(Clone, Debug)]
pub struct Written {
    /// Of what.
    pub key: Key,
    /// The version that it made.
    pub resource_version: String,
    /// When the response came: limits run from here.
    pub at: Instant,
    /// The object as it was returned.
    pub object: Value,
}

impl Written {
    /// Whether it is a Service without a cluster IP.
    pub(crate) fn is_headless(&self) -> bool {
        self.object["spec"]["clusterIP"] == "None"
    }

    /// The cluster IP, of a Service.
    pub(crate) fn cluster_ip(&self) -> Result<IpAddr, Halt> {
        let text = self.object["spec"]["clusterIP"].as_str().unwrap_or_default();
        text.parse()
            .map_err(|_| Halt::Harness(format!("{} has no cluster IP but {text:?}", self.key)))
    }
}

/// The API as the suite uses it.
#[derive(Clone)]
pub struct Objects {
    client: Client,
    history: Arc<History>,
    watch: Arc<Watch>,
    limits: Limits,
    dressing: Dressing,
    labels: Value,
    names: Arc<Names>,
}

impl Objects {
    /// `dressing` is what pods of the cluster get; `labels` are put on all that is created.
    pub(crate) fn new(
        client: Client,
        history: Arc<History>,
        watch: Arc<Watch>,
        limits: Limits,
        dressing: Dressing,
        labels: Value,
        names: Names,
    ) -> Self {
        Self {
            client,
            history,
            watch,
            limits,
            dressing,
            labels,
            names: Arc::new(names),
        }
    }

    /// The suite's own watch.
    #[must_use]
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// The history of the case.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// The limits of the run.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What the case may call things.
    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// Labels of all that is created: by them what a case makes in a namespace that is not its own is removed, whatever becomes of
    /// the case.
    #[must_use]
    pub fn labels(&self) -> &Value {
        &self.labels
    }

    /// Creates a namespace, where the suite may use others than one, and follows what is in it.
    pub(crate) async fn create_namespace(&self, name: &str, is_privileged: bool) -> Result<(), Halt> {
        self.watch.follow_namespace(name);
        if self.names.confined().is_some() {
            return Ok(());
        }
        let mut labels = json!({});
        if is_privileged {
            labels[ADMITS] = "privileged".into();
        }
        let metadata = json!({ "name": name, "labels": labels });
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
        self.create(&object).await.map(drop)
    }

    /// Creates an object of a manifest, with the labels of the run and its case; a pod, as the cluster takes it.
    ///
    /// # Errors
    /// The API says no; or a name of it is not of its own, and nothing was sent.
    pub async fn create(&self, object: &Value) -> Result<Written, Halt> {
        let kind = Kind::of(object)?;
        let mut object = with_labels(self.dressing.put_on(object), &self.labels);
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let key = Key::new(kind, text("namespace"), text("name"));
        self.names.put_on_new(&key, &mut object)?;
        if !key.namespace.is_empty() {
            object["metadata"]["namespace"] = self.names.real(&key.namespace).into();
        }
        let typed: DynamicObject = serde_json::from_value(object.clone())
            .map_err(|error| Halt::Harness(format!("{key} in the manifest is no object: {error}")))?;
        let mut sent_us = now_us();
        let params = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        let began = Instant::now();
        let api = self.api(&key);
        let is_there =
            |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.is_already_exists());
        // Names are of one case and one use each: what has this one was made by a request before, whose answer broke off.
        let create = async || {
            let get = async || api.get(&key.name).await;
            answered_once(async || api.create(&params, &typed).await, is_there, get).await
        };
        let mut done = create().await;
        while began.elapsed() < ACCOUNT && done.as_ref().is_err_and(has_no_account) {
            tokio::time::sleep(LOOK).await;
            sent_us = now_us();
            done = create().await;
        }
        self.acknowledged("create", key, sent_us, object.clone(), done)
            .await
    }

    /// Changes an object by a merge patch (RFC 7386), which is the same if it comes twice; so it may name no
    /// resourceVersion, which the first would have changed.
    pub async fn patch(&self, key: &Key, mut patch: Value) -> Result<Written, Halt> {
        if !patch["metadata"]["resourceVersion"].is_null() {
            return Err(Halt::Harness(format!(
                "a patch of {key} names a resourceVersion, and could not be sent again"
            )));
        }
        self.names.put_on_change(key, &mut patch)?;
        let sent_us = now_us();
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let (api, changes) = (self.api(key), Patch::Merge(&patch));
        let done = answered(|| api.patch(&key.name, &params, &changes)).await;
        self.acknowledged("patch", key.clone(), sent_us, patch, done)
            .await
    }

    /// Changes the status of an object by a merge patch of it.
    pub async fn patch_status(&self, key: &Key, status: Value) -> Result<Written, Halt> {
        let sent_us = now_us();
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = json!({ "status": status });
        let (api, changes) = (self.api(key), Patch::Merge(&patch));
        let done = answered(|| api.patch_status(&key.name, &params, &changes)).await;
        self.acknowledged("patch status", key.clone(), sent_us, patch, done)
            .await
    }

    /// Changes an object by reading it, setting top-level fields as they are (a `null` stays a `null`), and
    /// putting it back.
    pub async fn replace_fields(&self, key: &Key, fields: &Value) -> Result<Written, Halt> {
        let mut object = self.get(key).await?;
        for (name, value) in fields.as_object().into_iter().flatten() {
            object[name] = value.clone();
        }
        self.names.put_on_change(key, &mut object)?;
        let typed: DynamicObject = serde_json::from_value(object)
            .map_err(|error| Halt::Harness(format!("{key} can't be put back: {error}")))?;
        let sent_us = now_us();
        let params = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        let api = self.api(key);
        // What was read has another version then. Others write nothing to what is a case's own.
        let is_changed =
            |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.is_conflict());
        let replace = async || api.replace(&key.name, &params, &typed).await;
        let done = answered_once(replace, is_changed, async || api.get(&key.name).await).await;
        self.acknowledged("replace", key.clone(), sent_us, fields.clone(), done)
            .await
    }

    /// Deletes an object.
    pub async fn delete(&self, key: &Key) -> Result<Written, Halt> {
        let (sent_us, since) = (now_us(), self.watch.count(key));
        let (api, params) = (self.api(key), DeleteParams::default());
        let is_gone =
            |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.is_not_found());
        let delete = async || api.delete(&key.name, &params).await.map(drop);
        answered_once(delete, is_gone, async || Ok(()))
            .await
            .map_err(|error| refused(&format!("delete {key}"), error))?;
        let at = Instant::now();
        self.history.add(&Event::Write {
            verb: "delete",
            key: key.clone(),
            sent_us,
            resource_version: String::new(),
            body: Value::Null,
        });
        if is_watched(key.kind) {
            self.watch.deleted(key, since, self.limits.own_watch).await?;
        }
        Ok(Written {
            key: key.clone(),
            resource_version: String::new(),
            at,
            object: Value::Null,
        })
    }

    /// Reads an object.
    pub async fn get(&self, key: &Key) -> Result<Value, Halt> {
        let api = self.api(key);
        let object = answered(|| api.get(&key.name))
            .await
            .map_err(|error| refused(&format!("get {key}"), error))?;
        serde_json::to_value(object).map_err(|error| Halt::Harness(format!("{key}: {error}")))
    }

    /// A typed-by-name interface to a key's resource.
    pub(crate) fn api(&self, key: &Key) -> Api<DynamicObject> {
        api(&self.client, key.kind, self.names.real(&key.namespace))
    }

    /// The namespace in which an object is.
    pub(crate) fn namespace(&self, key: &Key) -> String {
        self.names.real(&key.namespace).to_owned()
    }

    async fn acknowledged(
        &self,
        verb: &'static str,
        key: Key,
        sent_us: u64,
        body: Value,
        done: Result<DynamicObject, kube::Error>,
    ) -> Result<Written, Halt> {
        let object = done.map_err(|error| refused(&format!("{verb} {key}"), error))?;
        let at = Instant::now();
        let resource_version = object.metadata.resource_version.clone().unwrap_or_default();
        self.history.add(&Event::Write {
            verb,
            key: key.clone(),
            sent_us,
            resource_version: resource_version.clone(),
            body,
        });
        if is_watched(key.kind) {
            self.watch
                .has(&key, &resource_version, self.limits.own_watch)
                .await?;
        }
        let object =
            serde_json::to_value(object).map_err(|error| Halt::Harness(format!("{key}: {error}")))?;
        Ok(Written {
            key,
            resource_version,
            at,
            object,
        })
    }
}

/// The merge patch that sets an annotation.
#[must_use]
pub fn annotation(name: &str, value: &str) -> Value {
    json!({ "metadata": { "annotations": { name: value } } })
}

fn is_watched(kind: Kind) -> bool {
    matches!(kind, Kind::Service | Kind::EndpointSlice)
}
