//! Names of their own: unless a row is about equal names, no two axes, cases or helpers have a Service, slice, pod or port of
//! one name, in whatever namespaces (rule 7 of the catalogue).
//!
//! There are implementations that key objects by the bare name (Cilium 1.18.5 does slices), where equal names in two namespaces
//! disturb each other, and no axis decides what it is about. A case calls its objects what it likes (`t`, `t-ext`); in a namespace
//! that was made for one axis ([`Context::namespace`](crate::context::Context::namespace)), or for the fence, they are created
//! with that namespace's name before theirs (`p5a01c2-000-t`, `p5a01c2-000-t-ext`). Which name is the beginning of which stays as it
//! is. Other namespaces (`default`, those of [`namespace_ending`](crate::context::Context::namespace_ending), the only one that a
//! suite may use) keep names as they are.

use serde_json::Value;

/// The label by which a slice names its Service.
const OF_SERVICE: &str = "kubernetes.io/service-name";

/// What an object that a case calls `name` is called in the API. Of what is called so already, the same.
pub(crate) fn own(namespace: &str, name: &str) -> String {
    if name.is_empty() || !names_its_objects(namespace) || plain(namespace, name) != name {
        return name.to_owned();
    }
    format!("{namespace}-{name}")
}

/// What a case calls an object.
pub(crate) fn plain<'a>(namespace: &str, name: &'a str) -> &'a str {
    let rest = name
        .strip_prefix(namespace)
        .filter(|_| names_its_objects(namespace));
    rest.and_then(|rest| rest.strip_prefix('-')).unwrap_or(name)
}

/// A Service, slice or pod, or a patch of one, of a case: with the names of its namespace.
pub(crate) fn put_on(namespace: &str, object: &mut Value) {
    let name = |at: Option<&mut Value>| {
        if let Some(Value::String(text)) = at {
            *text = own(namespace, text);
        }
    };
    name(object.pointer_mut("/metadata/name"));
    let labels = object.pointer_mut("/metadata/labels");
    name(labels.and_then(|labels| labels.get_mut(OF_SERVICE)));
    for ports in ["/spec/ports", "/ports"] {
        let ports = object.pointer_mut(ports).and_then(Value::as_array_mut);
        for port in ports.into_iter().flatten() {
            name(port.get_mut("name"));
        }
    }
}

/// Whether it is one that the suite has numbered, or the fence's: `p`, six hexadecimal digits of the case, and three; `fence-` and
/// six.
fn names_its_objects(namespace: &str) -> bool {
    let is_token = |text: &str| text.len() == 6 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if let Some(token) = namespace.strip_prefix("fence-") {
        return is_token(token);
    }
    namespace
        .strip_prefix('p')
        .and_then(|rest| rest.split_once('-'))
        .is_some_and(|(token, number)| {
            is_token(token) && number.len() >= 3 && number.bytes().all(|byte| byte.is_ascii_digit())
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_numbered_namespace_and_a_fence_name_their_objects_once_and_others_do_not() {
        for namespace in ["p5a01c2-000", "p5a01c2-1000", "fence-5a01c2"] {
            let name = own(namespace, "t");
            assert_eq!(name, format!("{namespace}-t"));
            assert_eq!(own(namespace, &name), name);
            assert_eq!(plain(namespace, &name), "t");
            assert_eq!(plain(namespace, "t"), "t");
            assert!(own(namespace, "t-ext").starts_with(&name));
        }
        for namespace in [
            "default",
            "p5a01c2-401a-b",
            "p5a01c2-ns1",
            "fence-guard",
            "shop",
            "",
        ] {
            assert_eq!(own(namespace, "t"), "t");
            assert_eq!(
                plain(namespace, &format!("{namespace}-t")),
                format!("{namespace}-t")
            );
        }
        assert_eq!(own("p5a01c2-000", ""), "", "all of a kind");
    }

    #[test]
    fn two_namespaces_share_no_name_of_an_object_its_service_or_its_ports() {
        let object = json!({
            "kind": "EndpointSlice",
            "metadata": { "name": "t", "labels": { OF_SERVICE: "t", "other": "t" } },
            "ports": [{ "name": "p1", "port": 80 }, { "port": 81 }],
            "spec": { "ports": [{ "name": "p1" }] },
        });
        let [one, two] = ["p5a01c2-000", "p5a01c2-001"].map(|namespace| {
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
            assert_ne!(one.pointer(at), two.pointer(at), "{at}");
            assert_ne!(one.pointer(at), object.pointer(at), "{at}");
        }
        assert_eq!(
            one.pointer("/metadata/labels/other"),
            object.pointer("/metadata/labels/other")
        );
        assert_eq!(one.pointer("/ports/1"), object.pointer("/ports/1"));
    }
}
