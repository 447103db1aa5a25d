//! What pods of the suite ask for, besides what their manifests say: no more rights than they use, so that namespaces admit
//! them whose policies are strict, and so much that a scheduler counts them.

use serde_json::{Value, json};

/// Label by which a namespace says what it admits (Pod Security Standards): "privileged" pods, and those of nodes' networks.
pub const ADMITS: &str = "pod-security.kubernetes.io/enforce";

/// Whether a pod was refused because its namespace has no ServiceAccount yet (the admission plugin of that name): a controller makes
/// it, a moment after the namespace.
#[must_use]
pub fn has_no_account(refused: &kube::Error) -> bool {
    matches!(refused, kube::Error::Api(status)
        if status.code == 403 && status.message.contains("error looking up service account"))
}

/// Completes the spec of a pod: each container that says nothing of it may not gain rights, has no capability, a user that is not
/// root, the runtime's seccomp profile, and requests; one that is privileged has requests only. Nothing in a pod asks the API, so it
/// has no token of the account that it runs as, which is the namespace's own. `pull_secrets` are names of Secrets in the pod's
/// namespace.
///
/// That is the restricted Pod Security Standard (<https://kubernetes.io/docs/concepts/security/pod-security-standards/>). Which user
/// it is says the image, or a cluster that gives its own to each namespace. Ports below 1024 are for everybody in the pod's own
/// network, by a sysctl that kubelets take for safe; in a node's network that would be the node's, so that pods there are root with
/// the capability for it. No standard but the privileged one admits them anyway.
pub fn dress(spec: &mut Value, pull_secrets: &[String]) {
    let is_on_node = spec["hostNetwork"] == true;
    let containers = spec["containers"].as_array_mut();
    let mut binds = false;
    for container in containers.into_iter().flatten() {
        if container["resources"].is_null() {
            // What a server takes that is idle, by far; none is limited, as clients in a loop take what there is.
            container["resources"] = json!({ "requests": { "cpu": "10m", "memory": "16Mi" } });
        }
        let context = &mut container["securityContext"];
        if context.is_null() {
            binds |= !is_on_node;
            *context = rights(is_on_node);
        }
    }
    if binds && spec["securityContext"].is_null() {
        spec["securityContext"] = json!({ "sysctls": [
            { "name": "net.ipv4.ip_unprivileged_port_start", "value": "0" },
        ] });
    }
    if spec["automountServiceAccountToken"].is_null() {
        spec["automountServiceAccountToken"] = false.into();
    }
    if !pull_secrets.is_empty() && spec["imagePullSecrets"].is_null() {
        let names = pull_secrets.iter().map(|name| json!({ "name": name }));
        spec["imagePullSecrets"] = names.collect();
    }
}

fn rights(is_on_node: bool) -> Value {
    let mut rights = json!({
        "allowPrivilegeEscalation": false,
        "capabilities": { "drop": ["ALL"] },
        "seccompProfile": { "type": "RuntimeDefault" },
    });
    if is_on_node {
        rights["runAsUser"] = 0.into();
        rights["capabilities"]["add"] = json!(["NET_BIND_SERVICE"]);
    } else {
        rights["runAsNonRoot"] = true.into();
    }
    rights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_meets_the_restricted_standard() {
        let mut spec = json!({"containers": [{"name": "plain"}]});
        dress(&mut spec, &["one".to_owned(), "two".to_owned()]);
        let plain = &spec["containers"][0];
        assert_eq!(
            plain["securityContext"],
            json!({
                "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"]},
                "runAsNonRoot": true,
                "seccompProfile": {"type": "RuntimeDefault"},
            })
        );
        assert_eq!(
            spec["securityContext"],
            json!({"sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]})
        );
        assert!(plain["resources"]["requests"]["memory"].is_string(), "{plain}");
        assert_eq!(
            spec["imagePullSecrets"],
            json!([{"name": "one"}, {"name": "two"}])
        );
        assert_eq!(spec["automountServiceAccountToken"], false);
    }

    #[test]
    fn a_pod_in_the_nodes_network_leaves_its_sysctls_alone() {
        let mut spec = json!({"hostNetwork": true, "containers": [{"name": "plain"}]});
        dress(&mut spec, &[]);
        assert_eq!(
            spec["containers"][0]["securityContext"],
            json!({
                "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
                "runAsUser": 0,
                "seccompProfile": {"type": "RuntimeDefault"},
            })
        );
        assert!(spec["securityContext"].is_null(), "{spec}");
    }

    #[test]
    fn what_a_pod_says_stays() {
        let mut spec = json!({"containers": [
            {"name": "privileged", "securityContext": {"privileged": true}, "resources": {"limits": {"cpu": "1"}}},
        ]});
        dress(&mut spec, &[]);
        let privileged = &spec["containers"][0];
        assert_eq!(privileged["securityContext"], json!({"privileged": true}));
        assert_eq!(privileged["resources"], json!({"limits": {"cpu": "1"}}));
        assert!(spec["securityContext"].is_null(), "{spec}");
        let mut none = json!({"containers": [], "automountServiceAccountToken": true});
        let said = none.clone();
        dress(&mut none, &[]);
        assert_eq!(none, said);
    }
}
