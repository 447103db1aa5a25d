//! Paths.

use super::pods::{self, PodRequest};
use crate::{discovery::Topic, kinds::Kind, store::Key};

/// The subject of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Health,
    Version,
    Discovery(Topic),
    /// The index, or the document of one group and version.
    OpenApi(Option<String>),
    Objects(Target),
    /// A request for a pod's node.
    Pod(PodRequest),
}

/// Part of an object with a path of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subresource {
    Status,
    /// Of a pod: POST assigns it to a node.
    Binding,
}

/// A collection or one object in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(crate) kind: Kind,
    /// Empty: all namespaces, or a cluster-scoped kind.
    pub(crate) namespace: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<Subresource>,
}

impl Target {
    /// The key of a named object.
    pub(super) fn key(&self) -> Key {
        Key::new(
            self.kind,
            &self.namespace,
            self.name.as_deref().unwrap_or_default(),
        )
    }
}

/// Whether a path needs no token and is never refused by a fault: health and version.
pub(crate) fn is_open(path: &str) -> bool {
    matches!(parse(path), Some(Route::Health | Route::Version))
}

/// Parses a path. `None` if this server does not have it.
pub(super) fn parse(path: &str) -> Option<Route> {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    match segments.as_slice() {
        ["healthz" | "readyz" | "livez", ..] => Some(Route::Health),
        ["version"] => Some(Route::Version),
        ["openapi", "v3"] => Some(Route::OpenApi(None)),
        ["openapi", "v3", rest @ ..] => Some(Route::OpenApi(Some(rest.join("/")))),
        ["api"] => Some(Route::Discovery(Topic::Legacy)),
        ["apis"] => Some(Route::Discovery(Topic::Groups)),
        ["apis", group] => discovery(Topic::Group, group, None),
        ["api", version] => discovery(Topic::Resources, "", Some(version)),
        ["apis", group, version] => discovery(Topic::Resources, group, Some(version)),
        [
            "api",
            "v1",
            "namespaces",
            namespace,
            "pods",
            name,
            topic @ ("log" | "exec"),
        ] => {
            let topic = if *topic == "log" {
                pods::Topic::Log
            } else {
                pods::Topic::Exec
            };
            pod(namespace, name, topic)
        }
        ["api", "v1", "namespaces", namespace, "pods", name, "proxy", ..] => {
            // Unchanged, with all slashes.
            let rest = path.splitn(9, '/').nth(8).unwrap_or_default();
            pod(namespace, name, pods::Topic::Proxy(rest.to_owned()))
        }
        ["api", version, rest @ ..] => objects("", version, rest),
        ["apis", group, version, rest @ ..] => objects(group, version, rest),
        _ => None,
    }
}

fn pod(namespace: &str, name: &str, topic: pods::Topic) -> Option<Route> {
    Some(Route::Pod(PodRequest {
        namespace: decode_segment(namespace)?,
        name: decode_segment(name)?,
        topic,
    }))
}

fn discovery(topic: fn(String) -> Topic, group: &str, version: Option<&str>) -> Option<Route> {
    let known = Kind::ALL
        .into_iter()
        .map(Kind::info)
        .find(|info| info.group == group && version.is_none_or(|version| version == info.version))?;
    Some(Route::Discovery(topic(known.group.to_owned())))
}

fn objects(group: &str, version: &str, rest: &[&str]) -> Option<Route> {
    let (namespace, rest) = match rest {
        // `namespaces/a/status` is the namespace's; `namespaces/a/pods` are objects in it.
        ["namespaces", _, "status"] | ["namespaces"] | ["namespaces", _] => ("", rest),
        ["namespaces", namespace, rest @ ..] => (*namespace, rest),
        _ => ("", rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (plural, None, None),
        [plural, name] => (plural, Some(*name), None),
        [plural, name, subresource] => (plural, Some(*name), Some(*subresource)),
        _ => return None,
    };
    let kind = Kind::find(group, version, plural)?;
    let info = kind.info();
    let subresource = match subresource {
        None => None,
        Some("status") if info.status => Some(Subresource::Status),
        Some("binding") if kind == Kind::Pod => Some(Subresource::Binding),
        Some(_) => return None,
    };
    if info.namespaced == namespace.is_empty() && (!info.namespaced || name.is_some()) {
        return None;
    }
    let name = match name {
        Some(name) => Some(decode_segment(name)?),
        None => None,
    };
    Some(Route::Objects(Target {
        kind,
        namespace: decode_segment(namespace)?,
        name,
        subresource,
    }))
}

/// Undoes percent-encoding; names with a slash are no names.
fn decode_segment(segment: &str) -> Option<String> {
    let text = percent_encoding::percent_decode_str(segment)
        .decode_utf8()
        .ok()?
        .into_owned();
    (!text.contains('/')).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(kind: Kind, namespace: &str, name: Option<&str>, status: bool) -> Option<Route> {
        let subresource = status.then_some(Subresource::Status);
        let name = name.map(str::to_owned);
        Some(Route::Objects(Target {
            kind,
            namespace: namespace.to_owned(),
            name,
            subresource,
        }))
    }

    #[test]
    fn a_binding_is_of_a_pod_alone() {
        let found = |path| match parse(path) {
            Some(Route::Objects(target)) => target.subresource,
            _ => None,
        };
        assert_eq!(
            found("/api/v1/namespaces/a/pods/b/binding"),
            Some(Subresource::Binding)
        );
        assert_eq!(parse("/api/v1/namespaces/a/services/b/binding"), None);
    }

    #[test]
    fn paths_lead_to_their_objects() {
        let slices = "/apis/discovery.k8s.io/v1";
        let rows = [
            ("/api/v1/pods".to_owned(), target(Kind::Pod, "", None, false)),
            (
                "/api/v1/namespaces/a/pods".to_owned(),
                target(Kind::Pod, "a", None, false),
            ),
            (
                "/api/v1/namespaces/a/pods/b".to_owned(),
                target(Kind::Pod, "a", Some("b"), false),
            ),
            (
                "/api/v1/namespaces/a/pods/b/status".to_owned(),
                target(Kind::Pod, "a", Some("b"), true),
            ),
            (
                "/api/v1/namespaces/a".to_owned(),
                target(Kind::Namespace, "", Some("a"), false),
            ),
            (
                "/api/v1/namespaces/a/status".to_owned(),
                target(Kind::Namespace, "", Some("a"), true),
            ),
            (
                "/api/v1/nodes/n/".to_owned(),
                target(Kind::Node, "", Some("n"), false),
            ),
            (
                format!("{slices}/namespaces/a/endpointslices"),
                target(Kind::EndpointSlice, "a", None, false),
            ),
            ("/api/v1/endpointslices".to_owned(), None),
            ("/api/v1/pods/b".to_owned(), None),
            ("/api/v1/namespaces/a/nodes".to_owned(), None),
            (
                "/api/v1/namespaces/a/pods/b/log".to_owned(),
                pod("a", "b", pods::Topic::Log),
            ),
            (
                "/api/v1/namespaces/a/pods/b%3A80/proxy//c/?d".to_owned(),
                pod("a", "b:80", pods::Topic::Proxy("/c/?d".to_owned())),
            ),
            ("/api/v1/namespaces/a/services/b/log".to_owned(), None),
            (format!("{slices}/namespaces/a/endpointslices/b/status"), None),
            ("/api/v2/pods".to_owned(), None),
            ("/apis/apps/v1/deployments".to_owned(), None),
            ("/".to_owned(), None),
        ];
        for (path, expected) in rows {
            assert_eq!(parse(&path), expected, "{path}");
        }
        assert_eq!(
            parse("/api/v1"),
            Some(Route::Discovery(Topic::Resources(String::new())))
        );
        assert_eq!(parse("/apis/apps/v1"), None);
    }
}
