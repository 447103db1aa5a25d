//! Names of their own: unless a row is about equal names, no two axes, cases or helpers have a Service, slice, pod or port of
//! one name, in whatever namespaces (rule 7 of the catalogue).
//!
//! There are implementations that key objects by the bare name (Cilium 1.18.5 does slices), where equal names in two namespaces
//! disturb each other, and no axis decides what it is about. A case calls its objects what it likes (`t`, `t-ext`), and ports too;
//! what these are called in the API is decided by the namespace that the case has for them:
//!
//! | namespace | is that of | in the API |
//! |---|---|---|
//! | `p5a01c2-000`, [`Context::namespace`](crate::context::Context::namespace) | an axis | `p5a01c2-000-t`, `p5a01c2-000-t-ext` |
//! | `fence-5a01c2` | the fence, clients, the control Service | `fence-5a01c2-signal` |
//! | `p5a01c2-00a-b`, [`namespace_ending`](crate::context::Context::namespace_ending) | an axis about names, beside others of its own | `t-5a01c2-00` |
//! | `default` | the cluster | as it is: the case makes it with [`named`](crate::context::Context::named) |
//!
//! Which name is the beginning of which stays as it is. Where the suite may use one namespace only, all is in that one, and what a
//! case has for namespaces are beginnings of names.
//!
//! Cases are processes that know nothing of each other, so what is held is stronger than that names differ: all that a case
//! writes passes `Names`, which refuses, before it is sent, a name without the token that the case has drawn (`5a01c2`), and one
//! that another of its axes, or a helper, has already. That is an error of the suite, and never the target's.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use k8s_openapi::api::{
    core::v1::{Namespace, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::api::ApiResource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::verdict::Halt;

/// The label by which a slice names its Service.
pub(crate) const OF_SERVICE: &str = "kubernetes.io/service-name";

/// Where objects have their ports: a Service, a slice.
const PORTS: [&str; 2] = ["/spec/ports", "/ports"];

/// Kinds that the suite writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// core/v1.
    Namespace,
    /// core/v1.
    Pod,
    /// core/v1.
    Service,
    /// discovery.k8s.io/v1.
    EndpointSlice,
}

impl Kind {
    /// Its resource.
    #[must_use]
    pub fn resource(self) -> ApiResource {
        match self {
            Self::Namespace => ApiResource::erase::<Namespace>(&()),
            Self::Pod => ApiResource::erase::<Pod>(&()),
            Self::Service => ApiResource::erase::<Service>(&()),
            Self::EndpointSlice => ApiResource::erase::<EndpointSlice>(&()),
        }
    }

    /// The kind of a manifest's object.
    pub fn of(object: &Value) -> Result<Self, Halt> {
        match object["kind"].as_str() {
            Some("Namespace") => Ok(Self::Namespace),
            Some("Pod") => Ok(Self::Pod),
            Some("Service") => Ok(Self::Service),
            Some("EndpointSlice") => Ok(Self::EndpointSlice),
            other => Err(Halt::Harness(format!(
                "a manifest has an object of kind {other:?}"
            ))),
        }
    }
}

/// Which object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// Kind.
    pub kind: Kind,
    /// Namespace as the case has it, which is another where the suite may use one only; empty for namespaces.
    pub namespace: String,
    /// Its name in the API.
    pub name: String,
}

impl Key {
    /// That of what a case calls `name`: in a namespace of one axis, its name in the API begins with the namespace's.
    pub fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        Self {
            kind,
            namespace: namespace.to_owned(),
            name: own(namespace, name),
        }
    }

    /// What the case calls it.
    #[must_use]
    pub fn plain(&self) -> &str {
        plain(&self.namespace, &self.name)
    }

    /// As the case has it: that of an object in the API.
    pub(crate) fn seen(kind: Kind, namespace: &str, name: &str) -> Self {
        Self::new(kind, namespace_of(namespace, name), name)
    }

    /// A Service.
    #[must_use]
    pub fn service(namespace: &str, name: &str) -> Self {
        Self::new(Kind::Service, namespace, name)
    }

    /// An EndpointSlice.
    #[must_use]
    pub fn slice(namespace: &str, name: &str) -> Self {
        Self::new(Kind::EndpointSlice, namespace, name)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// What a case may call things, and what it has called them.
#[derive(Debug)]
pub(crate) struct Names {
    case: &'static str,
    token: String,
    confined: Option<String>,
    /// How many namespaces it has so far.
    namespaces: AtomicU32,
    /// Of each name, the axis or helper that has it.
    owners: Mutex<BTreeMap<String, String>>,
}

impl Names {
    /// Of a case that has drawn this token, and the only namespace that it may use, if there is one.
    pub(crate) fn new(case: &'static str, token: &str, confined: Option<&str>) -> Self {
        Self {
            case,
            token: token.to_owned(),
            confined: confined.map(str::to_owned),
            namespaces: AtomicU32::new(0),
            owners: Mutex::default(),
        }
    }

    /// The namespace of the fence, the clients and control Services.
    pub(crate) fn helpers(&self) -> String {
        format!("fence-{}", self.token)
    }

    /// A fresh namespace of one axis. All of a case have one length: none is a prefix of another.
    pub(crate) fn namespace(&self) -> String {
        let number = self.namespaces.fetch_add(1, Ordering::Relaxed);
        format!("p{}-{number:03}", self.token)
    }

    /// A namespace of one axis that ends so.
    pub(crate) fn namespace_ending(&self, axis: usize, ending: &str) -> String {
        format!("p{}-{axis:02}{ending}", self.token)
    }

    /// A name of the case's own that begins so.
    pub(crate) fn named(&self, name: &str) -> String {
        format!("{name}-{}", self.token)
    }

    /// The only namespace that the case may use, if there is one.
    pub(crate) fn confined(&self) -> Option<&str> {
        self.confined.as_deref()
    }

    /// The namespace in which an object is.
    pub(crate) fn real<'a>(&'a self, namespace: &'a str) -> &'a str {
        match &self.confined {
            Some(only) if !namespace.is_empty() => only,
            _ => namespace,
        }
    }

    /// Gives an object that is to be created the names that it has in the API, and keeps them for the axis or helper that it is of.
    ///
    /// # Errors
    /// The harness's, if one is not the case's own, or that of another axis or helper.
    pub(crate) fn put_on_new(&self, key: &Key, object: &mut Value) -> Result<(), Halt> {
        put_on(&key.namespace, object);
        if key.kind == Kind::Namespace {
            return Ok(());
        }
        self.take("the name", &key.name, key)?;
        for port in ports(object) {
            self.take("the name of a port", port, key)?;
        }
        Ok(())
    }

    /// As [`Names::put_on_new`], of a change. What others have made (`default/kubernetes`) keeps its names.
    pub(crate) fn put_on_change(&self, key: &Key, change: &mut Value) -> Result<(), Halt> {
        if self.is_own(&key.name) {
            return self.put_on_new(key, change);
        }
        Ok(())
    }

    /// Whether it can be no other case's.
    fn is_own(&self, name: &str) -> bool {
        let mut parts = name.split('-');
        parts.any(|part| part == self.token || part.strip_prefix('p') == Some(&self.token))
    }

    fn take(&self, what: &str, name: &str, key: &Key) -> Result<(), Halt> {
        let Self { case, token, .. } = self;
        if !self.is_own(name) {
            return Err(Halt::Harness(format!(
                "{what} {name:?}, of {key} of {case}, may be another case's too, as it lacks {token:?}: make the object in a \
                 namespace of `Context::namespace`, or call it as `Context::named` says"
            )));
        }
        let owner = owner(&key.namespace);
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        let first = owners.entry(name.to_owned()).or_insert_with(|| owner.to_owned());
        if first != owner {
            return Err(Halt::Harness(format!(
                "{what} {name:?}, of {key} of {case}, is one of {first:?} already, and no two axes or helpers share names: make \
                 the object in a namespace of `Context::namespace` or, where the row is about equal names, make both in \
                 namespaces that `Context::namespace_ending` gives to one axis"
            )));
        }
        Ok(())
    }
}

/// What an object that a case calls `name` is called in the API. Of what is called so already, the same.
pub(crate) fn own(namespace: &str, name: &str) -> String {
    if name.is_empty() || plain(namespace, name) != name {
        return name.to_owned();
    }
    match part(namespace) {
        Some(Part::Before(start)) => format!("{start}-{name}"),
        Some(Part::After(end)) => format!("{name}-{end}"),
        None => name.to_owned(),
    }
}

/// What a case calls an object.
pub(crate) fn plain<'a>(namespace: &str, name: &'a str) -> &'a str {
    let rest = match part(namespace) {
        Some(Part::Before(start)) => name.strip_prefix(start).and_then(|rest| rest.strip_prefix('-')),
        Some(Part::After(end)) => name.strip_suffix(end).and_then(|rest| rest.strip_suffix('-')),
        None => None,
    };
    rest.unwrap_or(name)
}

/// What a case has for the namespace of an object of this name, which is in `namespace`.
pub(crate) fn namespace_of<'a>(namespace: &'a str, name: &'a str) -> &'a str {
    let mut starts = name.match_indices('-').map(|(at, _)| &name[..at]);
    let names_it = starts.find(|start| matches!(part(start), Some(Part::Before(_))));
    names_it.unwrap_or(namespace)
}

fn put_on(namespace: &str, object: &mut Value) {
    let name = |at: Option<&mut Value>| {
        if let Some(Value::String(text)) = at {
            *text = own(namespace, text);
        }
    };
    name(object.pointer_mut("/metadata/name"));
    let labels = object.pointer_mut("/metadata/labels");
    name(labels.and_then(|labels| labels.get_mut(OF_SERVICE)));
    for ports in PORTS {
        let ports = object.pointer_mut(ports).and_then(Value::as_array_mut);
        for port in ports.into_iter().flatten() {
            name(port.get_mut("name"));
        }
    }
}

/// Names of its ports; a port without one shares none.
fn ports(object: &Value) -> impl Iterator<Item = &str> {
    let ports = PORTS.into_iter().filter_map(|at| object.pointer(at)?.as_array());
    let names = ports.flatten().filter_map(|port| port["name"].as_str());
    names.filter(|name| !name.is_empty())
}

/// Whose names those in a namespace are: an axis's, a helper's.
fn owner(namespace: &str) -> &str {
    match part(namespace) {
        Some(Part::Before(owner) | Part::After(owner)) => owner,
        None => namespace,
    }
}

/// What a namespace gives to the names in it.
#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    Before(&'a str),
    After(&'a str),
}

/// By what the suite calls its namespaces: `fence-` and six hexadecimal digits of the case; `p`, six, and the number of an axis,
/// which has three digits or, with the ending of one about names, two.
fn part(namespace: &str) -> Option<Part<'_>> {
    let is_token = |text: &str| text.len() == 6 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if let Some(token) = namespace.strip_prefix("fence-") {
        return is_token(token).then_some(Part::Before(namespace));
    }
    let axis = namespace.strip_prefix('p')?;
    let (token, rest) = axis.split_once('-').filter(|(token, _)| is_token(token))?;
    let ending = rest.trim_start_matches(|char: char| char.is_ascii_digit());
    let digits = rest.len() - ending.len();
    match (digits, ending) {
        (3.., "") => Some(Part::Before(namespace)),
        (_, "") => None,
        (2.., _) => Some(Part::After(&axis[..token.len() + 1 + digits])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TOKEN: &str = "5a01c2";

    #[test]
    fn a_namespace_of_the_suite_names_its_objects_once_and_others_do_not() {
        for namespace in ["p5a01c2-000", "p5a01c2-1000", "fence-5a01c2"] {
            let name = own(namespace, "t");
            assert_eq!(name, format!("{namespace}-t"));
            assert_eq!(own(namespace, &name), name);
            assert_eq!(plain(namespace, &name), "t");
            assert_eq!(plain(namespace, "t"), "t");
            assert!(own(namespace, "t-ext").starts_with(&name));
            assert_eq!(namespace_of("shop", &name), namespace);
        }
        for namespace in ["p5a01c2-00a", "p5a01c2-00a-b", "p5a01c2-00-first"] {
            let name = own(namespace, "t");
            assert_eq!(name, "t-5a01c2-00");
            assert_eq!(own(namespace, &name), name);
            assert_eq!(plain(namespace, &name), "t");
            assert_eq!(namespace_of(namespace, &name), namespace);
        }
        for namespace in ["default", "p5a01c2-ns1", "p5a01c2-00", "fence-guard", "shop", ""] {
            assert_eq!(own(namespace, "t"), "t");
            assert_eq!(
                plain(namespace, &format!("{namespace}-t")),
                format!("{namespace}-t")
            );
        }
        assert_eq!(own("p5a01c2-000", ""), "", "all of a kind");
    }

    #[test]
    fn what_joins_to_one_text_with_its_namespace_still_does() {
        let joined = |namespace: &str, name| format!("{namespace}-{}", own(namespace, name));
        assert_eq!(joined("p5a01c2-00a-b", "c"), joined("p5a01c2-00a", "b-c"));
    }

    fn slice(namespace: &str) -> Value {
        json!({
            "kind": "EndpointSlice",
            "metadata": { "name": "t", "namespace": namespace, "labels": { OF_SERVICE: "t", "other": "t" } },
            "ports": [{ "name": "p1", "port": 80 }, { "port": 81 }],
            "spec": { "ports": [{ "name": "p1" }] },
        })
    }

    #[test]
    fn two_axes_share_no_name_of_an_object_its_service_or_its_ports() {
        let object = slice("");
        let [one, two, third] = ["p5a01c2-000", "p5a01c2-001", "p5a01c2-00a"].map(|namespace| {
            let mut object = object.clone();
            put_on(namespace, &mut object);
            object
        });
        for at in [
            "/metadata/name",
            "/metadata/labels/kubernetes.io~1service-name",
            "/ports/0/name",
            "/spec/ports/0/name",
        ] {
            let names = [&one, &two, &third, &object].map(|object| object.pointer(at).unwrap().to_string());
            let distinct: std::collections::BTreeSet<_> = names.iter().collect();
            assert_eq!(distinct.len(), names.len(), "{at}: {names:?}");
        }
        assert_eq!(
            one.pointer("/metadata/labels/other"),
            object.pointer("/metadata/labels/other")
        );
        assert_eq!(one.pointer("/ports/1"), object.pointer("/ports/1"));
    }

    fn taken(names: &Names, namespace: &str, name: &str, port: &str) -> Result<(), String> {
        let mut object = json!({ "metadata": { "name": name }, "ports": [{ "name": port }] });
        let done = names.put_on_new(&Key::slice(namespace, name), &mut object);
        done.map_err(|halt| match halt {
            Halt::Harness(why) => why,
            other => panic!("no error of the harness: {other}"),
        })
    }

    #[test]
    fn a_name_that_another_case_may_have_is_an_error_that_says_which_and_what_to_do() {
        let names = Names::new("some-case", TOKEN, None);
        for (name, port) in [("kubernetes-x", "https-5a01c2"), ("kubernetes-5a01c2", "https")] {
            let why = taken(&names, "default", name, port).unwrap_err();
            for word in [name, "some-case", "may be another case's", "Context::named"] {
                assert!(why.contains(word), "{why}");
            }
        }
        assert_eq!(
            taken(&names, "default", "kubernetes-x-5a01c2", "https-5a01c2"),
            Ok(())
        );
        assert_eq!(taken(&names, "p5a01c2-000", "t", "p1"), Ok(()));
    }

    #[test]
    fn a_name_that_another_axis_has_is_an_error_that_says_whose_unless_the_axis_has_both_namespaces() {
        let names = Names::new("some-case", TOKEN, None);
        for namespace in ["p5a01c2-000", "p5a01c2-001", "fence-5a01c2"] {
            assert_eq!(taken(&names, namespace, "t", "p1"), Ok(()));
            assert_eq!(taken(&names, namespace, "t-ext", "p1"), Ok(()));
        }
        for namespace in ["p5a01c2-00-first", "p5a01c2-00-second", "p5a01c2-01-first"] {
            assert_eq!(taken(&names, namespace, "equal", "p1"), Ok(()));
        }
        for (name, port) in [("p5a01c2-001-t", "p-5a01c2"), ("q-5a01c2", "p5a01c2-001-p1")] {
            let why = taken(&names, "default", name, port).unwrap_err();
            for word in [
                name,
                "default",
                "\"p5a01c2-001\"",
                "no two axes",
                "namespace_ending",
            ] {
                assert!(why.contains(word), "{why}");
            }
        }
    }

    #[test]
    fn what_a_case_has_not_made_keeps_its_names_when_it_is_written() {
        let names = Names::new("some-case", TOKEN, None);
        let kubernetes = Key::slice("default", "kubernetes");
        let as_it_is = json!({ "metadata": { "name": "kubernetes" }, "ports": [{ "name": "https" }] });
        let mut change = as_it_is.clone();
        names.put_on_change(&kubernetes, &mut change).unwrap();
        assert_eq!(change, as_it_is);
        let own = Key::slice("default", "kubernetes-5a01c2");
        let mut change = json!({ "ports": [{ "name": "https" }] });
        assert!(names.put_on_change(&own, &mut change).is_err());
    }

    #[test]
    fn in_the_only_namespace_axes_have_names_as_in_their_own() {
        let names = Names::new("some-case", TOKEN, Some("shop"));
        assert_eq!(names.real("p5a01c2-000"), "shop");
        assert_eq!(names.real(""), "");
        let key = Key::slice("p5a01c2-000", "t");
        assert_eq!(key.name, "p5a01c2-000-t");
        assert_eq!(key.plain(), "t");
    }
}
