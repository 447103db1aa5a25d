//! What pods of the suite ask for, besides what their manifests say: no more rights than they use, so that namespaces admit
//! them whose policies are strict, and so much that a scheduler counts them.

use serde_json::{Value, json};

/// Whether a pod was refused because its namespace has no ServiceAccount yet (the admission plugin of that name): a controller makes
/// it, a moment after the namespace.
#[must_use]
pub fn has_no_account(refused: &kube::Error) -> bool {
    matches!(refused, kube::Error::Api(status)
        if status.code == 403 && status.message.contains("error looking up service account"))
}

/// Completes the spec of a pod: each container that says nothing of it may not gain rights, has no capability but that of ports
/// below 1024, the runtime's seccomp profile, and requests; one that is privileged has requests only. Nothing in a pod asks the
/// API, so it has no token of the account that it runs as, which is the namespace's own. `pull_secrets` are names of Secrets in the
/// pod's namespace.
///
/// Not the restricted Pod Security Standard: the image's only user is root.
pub fn dress(spec: &mut Value, pull_secrets: &[String]) {
    let containers = spec["containers"].as_array_mut();
    for container in containers.into_iter().flatten() {
        if container["resources"].is_null() {
            // What a server takes that is idle, by far; none is limited, as clients in a loop take what there is.
            container["resources"] = json!({ "requests": { "cpu": "10m", "memory": "16Mi" } });
        }
        let context = &mut container["securityContext"];
        if context.is_null() {
            *context = json!({
                "allowPrivilegeEscalation": false,
                "capabilities": { "drop": ["ALL"], "add": ["NET_BIND_SERVICE"] },
                "seccompProfile": { "type": "RuntimeDefault" },
            });
        }
    }
    if spec["automountServiceAccountToken"].is_null() {
        spec["automountServiceAccountToken"] = false.into();
    }
    if !pull_secrets.is_empty() && spec["imagePullSecrets"].is_null() {
        let names = pull_secrets.iter().map(|name| json!({ "name": name }));
        spec["imagePullSecrets"] = names.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_has_no_rights_that_it_does_not_name() {
        let mut spec = json!({"containers": [
            {"name": "plain"},
            {"name": "privileged", "securityContext": {"privileged": true}, "resources": {"limits": {"cpu": "1"}}},
        ]});
        dress(&mut spec, &["one".to_owned(), "two".to_owned()]);
        let plain = &spec["containers"][0];
        assert_eq!(
            plain["securityContext"],
            json!({
                "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
                "seccompProfile": {"type": "RuntimeDefault"},
            })
        );
        assert!(plain["resources"]["requests"]["memory"].is_string(), "{plain}");
        let privileged = &spec["containers"][1];
        assert_eq!(privileged["securityContext"], json!({"privileged": true}));
        assert_eq!(privileged["resources"], json!({"limits": {"cpu": "1"}}));
        assert_eq!(
            spec["imagePullSecrets"],
            json!([{"name": "one"}, {"name": "two"}])
        );
        assert_eq!(spec["automountServiceAccountToken"], false);
        let mut none = json!({"containers": [], "automountServiceAccountToken": true});
        let said = none.clone();
        dress(&mut none, &[]);
        assert_eq!(none, said);
    }
}
