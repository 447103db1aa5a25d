//! Borrows the DaemonSet of a target's agents: keeps it off labelled nodes, and restores it.
//!
//! The DaemonSet gets an affinity that avoids nodes with the label [`RUN_LABEL`], and the update strategy `OnDelete`,
//! so that no pod is replaced for it: its controller compares nodes with the template alone. The same request writes
//! the previous fields into an annotation, so every later run can restore them. Then only the pods of nodes whose
//! agent was stopped meanwhile are replaced.

use cluster::{RUN_LABEL, target::Agent};
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Affinity, Node, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::custom;
use crate::{
    KubernetesError, LIMITS,
    error::{api, if_any},
    limits::{ask, ask_again},
};

/// Annotation of a borrowed DaemonSet: its previous fields.
const BEFORE: &str = "plumbline-run/before";

/// Checks that the DaemonSet exists.
///
/// # Errors
/// [`KubernetesError::NoDaemonSet`]: it does not exist.
pub(super) async fn expect(client: &Client, agent: &Agent) -> Result<(), KubernetesError> {
    let what = format!(
        "look for the DaemonSet {}",
        words(&agent.namespace, &agent.daemon_set)
    );
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), &agent.namespace);
    match ask(&what, sets.get_opt(&agent.daemon_set))
        .await?
        .map_err(api(&what))?
    {
        Some(_) => Ok(()),
        None => Err(KubernetesError::NoDaemonSet {
            namespace: agent.namespace.clone(),
            name: agent.daemon_set.clone(),
        }),
    }
}

/// Borrows the DaemonSet, if it is not borrowed yet.
///
/// # Errors
/// The DaemonSet does not exist, or another client keeps writing it.
pub(super) async fn borrow(client: &Client, agent: &Agent, run: &str) -> Result<(), KubernetesError> {
    let what = format!(
        "keep the DaemonSet {} off nodes",
        words(&agent.namespace, &agent.daemon_set)
    );
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), &agent.namespace);
    let mut tries = LIMITS.conflicts;
    loop {
        let set = ask_again(&what, || sets.get(&agent.daemon_set)).await?;
        let set = set.map_err(api(&what))?;
        if set.annotations().contains_key(BEFORE) && set.labels().contains_key(RUN_LABEL) {
            return Ok(());
        }
        let patch = Patch::Merge(borrow_patch(&set, run));
        let params = PatchParams::default();
        match ask_again(&what, || sets.patch(&agent.daemon_set, &params, &patch)).await? {
            Err(kube::Error::Api(status)) if status.is_conflict() && tries > 0 => tries -= 1,
            done => return done.map(drop).map_err(api(&what)),
        }
    }
}

/// Restores all DaemonSets that one run has borrowed, or all runs, after it has removed agents in other configurations,
/// and removes the labels of nodes. Returns what was done, as text, when the DaemonSets' pods are complete again.
///
/// # Errors
/// The API refuses it; the pods are not complete in time.
pub async fn give_back(client: &Client, run: Option<&str>) -> Result<Vec<String>, KubernetesError> {
    let selector = run.map_or_else(|| RUN_LABEL.to_owned(), |run| format!("{RUN_LABEL}={run}"));
    let of_run = ListParams::default().labels(&selector);
    // Two agents of a node would disturb each other, so the node's own comes after the other has ended.
    let mut done = custom::remove_all(client, &selector).await?;
    let all: Api<DaemonSet> = Api::all(client.clone());
    let what = "list DaemonSets that runs have borrowed";
    // The lab's API server has no DaemonSets.
    let sets = if_any(ask(what, all.list(&of_run)).await?).map_err(api(what))?;
    for set in &sets {
        let (namespace, name) = (set.namespace().unwrap_or_default(), set.name_any());
        let what = format!("give the DaemonSet {} back", words(&namespace, &name));
        let own: Api<DaemonSet> = Api::namespaced(client.clone(), &namespace);
        let patch = Patch::Merge(restore_patch(set));
        ask(&what, own.patch(&name, &PatchParams::default(), &patch))
            .await?
            .map_err(api(&what))?;
        done.push(format!("the DaemonSet {} is as it was", words(&namespace, &name)));
    }
    let nodes: Api<Node> = Api::all(client.clone());
    let what = "list nodes whose agent a run has stopped";
    for node in if_any(ask(what, nodes.list(&of_run)).await?).map_err(api(what))? {
        let name = node.name_any();
        label(client, &name, None).await?;
        done.push(format!("the node {name} may have its agent again"));
    }
    for set in &sets {
        rolled_out(client, set).await?;
    }
    Ok(done)
}

/// Labels a node with the run that keeps its agent stopped, or removes the label.
pub(super) async fn label(client: &Client, node: &str, run: Option<&str>) -> Result<(), KubernetesError> {
    let patch = Patch::Merge(json!({ "metadata": { "labels": { RUN_LABEL: run } } }));
    let nodes: Api<Node> = Api::all(client.clone());
    let what = format!("label the node {node}");
    let params = PatchParams::default();
    let done = ask_again(&what, || nodes.patch(node, &params, &patch)).await?;
    done.map(drop).map_err(api(&what))
}

/// Why the pods of a DaemonSet are not complete; `None` if they are. Until then, Ready pods may be old ones.
pub(super) async fn rollout(client: &Client, agent: &Agent) -> Result<Option<String>, KubernetesError> {
    let what = format!(
        "read the DaemonSet {}",
        words(&agent.namespace, &agent.daemon_set)
    );
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), &agent.namespace);
    let set = ask_again(&what, || sets.get(&agent.daemon_set)).await?;
    Ok(unfinished(&set.map_err(api(&what))?))
}

/// Waits until its pods match its template, where its strategy replaces them.
async fn rolled_out(client: &Client, set: &DaemonSet) -> Result<(), KubernetesError> {
    let (namespace, name) = (set.namespace().unwrap_or_default(), set.name_any());
    let what = format!("replace the pods of the DaemonSet {}", words(&namespace, &name));
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), &namespace);
    let began = Instant::now();
    loop {
        let Some(set) = ask(&what, sets.get_opt(&name)).await?.map_err(api(&what))? else {
            return Ok(());
        };
        let Some(why) = unfinished(&set) else {
            return Ok(());
        };
        if began.elapsed() >= LIMITS.agents {
            return Err(KubernetesError::Api {
                what,
                why: format!("{why}, {:?} after it was given back", LIMITS.agents),
            });
        }
        sleep(LIMITS.look).await;
    }
}

/// As kubectl's `rollout status` decides it, but with at least one pod: a run has borrowed the DaemonSet for its
/// pods, and its controller has not counted yet in a status without any.
fn unfinished(set: &DaemonSet) -> Option<String> {
    let status = set.status.clone().unwrap_or_default();
    if status.observed_generation < set.metadata.generation {
        return Some("its controller has not seen what was written yet".to_owned());
    }
    let replaces = strategy(set)["type"] != "OnDelete";
    let (wanted, ready) = (status.desired_number_scheduled, status.number_ready);
    let updated = status.updated_number_scheduled.unwrap_or_default();
    let is_finished = wanted > 0 && ready >= wanted && (updated == wanted || !replaces);
    (!is_finished).then(|| format!("of {wanted} pods {updated} are as they should be, {ready} are ready"))
}

fn strategy(set: &DaemonSet) -> Value {
    let spec = set.spec.as_ref();
    json!(spec.and_then(|spec| spec.update_strategy.as_ref()))
}

fn affinity(set: &DaemonSet) -> Option<Affinity> {
    set.spec.as_ref()?.template.spec.as_ref()?.affinity.clone()
}

/// The patch that borrows it, unless it was written meanwhile.
fn borrow_patch(set: &DaemonSet, run: &str) -> Value {
    let before = json!({ "updateStrategy": strategy(set), "affinity": affinity(set) });
    json!({
        "metadata": {
            "resourceVersion": set.resource_version(),
            "labels": { RUN_LABEL: run },
            "annotations": { BEFORE: before.to_string() },
        },
        "spec": {
            "updateStrategy": { "type": "OnDelete", "rollingUpdate": null },
            "template": { "spec": { "affinity": kept_off(affinity(set).unwrap_or_default()) } },
        },
    })
}

/// The patch that restores it. Without the annotation, only the label is removed.
fn restore_patch(set: &DaemonSet) -> Value {
    let mut patch = json!({
        "metadata": { "labels": { RUN_LABEL: null }, "annotations": { BEFORE: null } },
    });
    let note = set.annotations().get(BEFORE);
    let before: Option<Value> = note.and_then(|text| serde_json::from_str(text).ok());
    if let Some(before) = before {
        patch["spec"] = json!({
            "updateStrategy": before["updateStrategy"],
            "template": { "spec": { "affinity": with_nulls(&before["affinity"]) } },
        });
    }
    patch
}

/// A merge patch keeps fields that it omits, so removed fields are null.
fn with_nulls(affinity: &Value) -> Value {
    let Value::Object(fields) = affinity else {
        return Value::Null;
    };
    let mut all = json!({ "nodeAffinity": null, "podAffinity": null, "podAntiAffinity": null });
    for (name, value) in fields {
        all[name] = value.clone();
    }
    if let Some(node) = all["nodeAffinity"].as_object_mut() {
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        node.entry(required).or_insert(Value::Null);
    }
    all
}

/// Adds to an affinity that labelled nodes are avoided: to each term, as a single one is enough to match.
fn kept_off(mut affinity: Affinity) -> Affinity {
    let off = || NodeSelectorRequirement {
        key: RUN_LABEL.to_owned(),
        operator: "DoesNotExist".to_owned(),
        values: None,
    };
    let node = affinity.node_affinity.get_or_insert_with(NodeAffinity::default);
    let required = node
        .required_during_scheduling_ignored_during_execution
        .get_or_insert_with(NodeSelector::default);
    if required.node_selector_terms.is_empty() {
        required.node_selector_terms.push(NodeSelectorTerm::default());
    }
    for term in &mut required.node_selector_terms {
        term.match_expressions.get_or_insert_with(Vec::new).push(off());
    }
    affinity
}

fn words(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(spec: &Value) -> DaemonSet {
        serde_json::from_value(json!({
            "metadata": {"name": "agent", "resourceVersion": "7", "annotations": {"own": "x"}},
            "spec": {
                "selector": {}, "updateStrategy": spec["strategy"],
                "template": {"spec": {"containers": [], "affinity": spec["affinity"]}},
            },
        }))
        .unwrap()
    }

    /// Applies a merge patch as an API server does (RFC 7386).
    fn merged(object: &mut Value, patch: &Value) {
        let Value::Object(fields) = patch else {
            *object = patch.clone();
            return;
        };
        if !object.is_object() {
            *object = json!({});
        }
        for (name, value) in fields {
            if value.is_null() {
                object.as_object_mut().unwrap().remove(name);
            } else {
                merged(&mut object[name], value);
            }
        }
    }

    fn patched(set: &DaemonSet, patch: &Value) -> DaemonSet {
        let mut object = serde_json::to_value(set).unwrap();
        merged(&mut object, patch);
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn what_was_borrowed_is_given_back_as_it_was() {
        let rolling =
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "10%"}});
        let zone = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]});
        let host = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]});
        let required =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [zone, host]}});
        let preferred =
            json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": zone}]});
        for (strategy, affinity) in [
            (rolling.clone(), Value::Null),
            (rolling.clone(), json!({ "nodeAffinity": required })),
            (rolling, json!({ "nodeAffinity": preferred })),
            (json!({"type": "OnDelete"}), json!({"podAntiAffinity": {}})),
        ] {
            let before = set(&json!({ "strategy": strategy, "affinity": affinity }));
            let during = patched(&before, &borrow_patch(&before, "run-1"));
            assert_eq!(during.labels()[RUN_LABEL], "run-1");
            assert_eq!(super::strategy(&during), json!({"type": "OnDelete"}));
            let node = super::affinity(&during).unwrap().node_affinity.unwrap();
            let required = node.required_during_scheduling_ignored_during_execution.unwrap();
            for term in &required.node_selector_terms {
                let last = term.match_expressions.as_ref().unwrap().last().unwrap();
                assert_eq!(
                    (last.key.as_str(), last.operator.as_str()),
                    (RUN_LABEL, "DoesNotExist")
                );
            }
            let mut after = patched(&during, &restore_patch(&during));
            // An empty map is none.
            after.metadata.labels = after.metadata.labels.filter(|labels| !labels.is_empty());
            assert_eq!(after, before);
        }
    }

    #[test]
    fn its_pods_are_as_they_were_when_all_are_new_where_they_are_replaced_and_ready() {
        let of = |strategy: &str, observed: i64, updated: i32, ready: i32, wanted: i32| {
            let mut set = set(&json!({"strategy": {"type": strategy}}));
            set.metadata.generation = Some(2);
            set.status = serde_json::from_value(json!({
                "observedGeneration": observed, "updatedNumberScheduled": updated, "numberReady": ready,
                "desiredNumberScheduled": wanted, "currentNumberScheduled": wanted, "numberMisscheduled": 0,
            }))
            .unwrap();
            unfinished(&set)
        };
        assert_eq!(of("RollingUpdate", 2, 2, 2, 2), None);
        assert_eq!(of("OnDelete", 2, 1, 2, 2), None, "no controller replaces them");
        for (strategy, observed, updated, ready, wanted) in [
            ("RollingUpdate", 1, 2, 2, 2),
            ("RollingUpdate", 2, 1, 2, 2),
            // Of nodes that were removed meanwhile.
            ("RollingUpdate", 2, 3, 3, 2),
            ("OnDelete", 2, 2, 1, 2),
            // Not counted yet.
            ("RollingUpdate", 2, 0, 0, 0),
            ("OnDelete", 2, 0, 0, 0),
        ] {
            let why = of(strategy, observed, updated, ready, wanted);
            assert_ne!(why, None, "{strategy} {observed} {updated} {ready} {wanted}");
        }
    }
}
