//! Discovery: `/api`, `/apis`, `/version`; plain and aggregated.

use hyper::{
    Response,
    header::{CONTENT_TYPE, HeaderValue},
};
use serde_json::{Value, json};

use crate::{
    kinds::{Kind, KindInfo},
    respond::{self, Body},
};

/// The subject of a discovery path. Groups exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    /// `/api`.
    Legacy,
    /// `/apis`.
    Groups,
    /// `/apis/GROUP`.
    Group(String),
    /// `/api/v1`, `/apis/GROUP/v1`.
    Resources(String),
}

/// The groups with a name, each in its version v1.
const GROUPS: [&str; 3] = ["coordination.k8s.io", "discovery.k8s.io", "networking.k8s.io"];

/// The Kubernetes version that this server imitates.
pub(crate) fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.0+plumbline", "gitCommit": "", "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc", "platform": "linux",
    })
}

/// Answers a discovery request.
pub(crate) fn answer(topic: &Topic, aggregated: bool) -> Response<Body> {
    let list = match topic {
        Topic::Legacy if aggregated => aggregate(&[""]),
        Topic::Groups if aggregated => aggregate(&GROUPS),
        Topic::Legacy => {
            return respond::json(200, &json!({"kind": "APIVersions", "versions": ["v1"]}));
        }
        Topic::Groups => {
            let groups = GROUPS.map(|name| group(name, false));
            return respond::json(
                200,
                &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}),
            );
        }
        Topic::Group(name) => return respond::json(200, &group(name, true)),
        Topic::Resources(name) => return respond::json(200, &resources(name)),
    };
    let mut response = respond::json(200, &list);
    let media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

fn group(name: &str, alone: bool) -> Value {
    let version = json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
    let mut group = json!({"name": name, "versions": [version], "preferredVersion": version});
    if alone {
        group["kind"] = "APIGroup".into();
        group["apiVersion"] = "v1".into();
    }
    group
}

fn of_group(group: &str) -> impl Iterator<Item = &'static KindInfo> {
    Kind::ALL
        .into_iter()
        .map(Kind::info)
        .filter(move |info| info.group == group)
}

fn verbs() -> Value {
    json!([
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch"
    ])
}

/// Name, kind and verbs of a part of an object with a path of its own.
type Subresource = (&'static str, &'static str, &'static [&'static str]);

/// Subresources of pods besides their status.
const OF_PODS: [Subresource; 4] = [
    ("binding", "Binding", &["create"]),
    ("exec", "PodExecOptions", &["create", "get"]),
    ("log", "Pod", &["get"]),
    (
        "proxy",
        "PodProxyOptions",
        &["create", "delete", "get", "patch", "update"],
    ),
];

fn subresources(info: &KindInfo) -> impl Iterator<Item = Subresource> {
    let status: Subresource = ("status", info.kind, &["get", "patch", "update"]);
    let of_pods = OF_PODS.into_iter().filter(|_| info.kind == "Pod");
    of_pods.chain(info.status.then_some(status))
}

fn resources(group: &str) -> Value {
    let mut all = Vec::new();
    for info in of_group(group) {
        let mut resource = json!({
            "name": info.plural, "singularName": info.singular, "namespaced": info.namespaced,
            "kind": info.kind, "verbs": verbs(),
        });
        for (field, names) in [("shortNames", info.short), ("categories", info.categories)] {
            if !names.is_empty() {
                resource[field] = json!(names);
            }
        }
        all.push(resource);
        for (name, kind, verbs) in subresources(info) {
            all.push(json!({
                "name": format!("{}/{name}", info.plural), "singularName": "",
                "namespaced": info.namespaced, "kind": kind, "verbs": verbs,
            }));
        }
    }
    let version = if group.is_empty() {
        "v1".to_owned()
    } else {
        format!("{group}/v1")
    };
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": all})
}

fn aggregate(groups: &[&str]) -> Value {
    let item = |group: &&str| {
        let resources: Vec<Value> = of_group(group).map(aggregated_resource).collect();
        let mut metadata = json!({});
        if !group.is_empty() {
            metadata["name"] = (*group).into();
        }
        let version = json!({"version": "v1", "freshness": "Current", "resources": resources});
        json!({"metadata": metadata, "versions": [version]})
    };
    let items: Vec<Value> = groups.iter().map(item).collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    })
}

fn aggregated_resource(info: &KindInfo) -> Value {
    let kind = json!({"group": info.group, "version": info.version, "kind": info.kind});
    let mut resource = json!({
        "resource": info.plural, "responseKind": kind, "singularResource": info.singular,
        "scope": if info.namespaced { "Namespaced" } else { "Cluster" }, "verbs": verbs(),
    });
    for (field, names) in [("shortNames", info.short), ("categories", info.categories)] {
        if !names.is_empty() {
            resource[field] = json!(names);
        }
    }
    let parts: Vec<Value> = subresources(info)
        .map(|(name, kind, verbs)| {
            let kind = json!({"group": info.group, "version": info.version, "kind": kind});
            json!({"subresource": name, "responseKind": kind, "verbs": verbs})
        })
        .collect();
    if !parts.is_empty() {
        resource["subresources"] = parts.into();
    }
    resource
}
