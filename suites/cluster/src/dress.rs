//! Security context and resource requests of the suite's pods: no more rights than they use, so that strict
//! namespaces admit them, and requests, so that a scheduler counts them.

use serde_json::{Value, json};

/// Namespace label of Pod Security admission; "privileged" admits privileged pods and pods with host network.
pub const ADMITS: &str = "pod-security.kubernetes.io/enforce";

/// Whether a pod was refused because its namespace has no ServiceAccount yet (the admission plugin of that name). A
/// controller creates the account shortly after the namespace.
#[must_use]
pub fn has_no_account(refused: &kube::Error) -> bool {
    matches!(refused, kube::Error::Api(status)
        if status.code == 403 && status.message.contains("error looking up service account"))
}

/// Completes the spec of a pod. Each container without settings of its own gets no privilege escalation, no
/// capabilities, a non-root user, the runtime's seccomp profile and requests; a privileged one gets requests only. No
/// ServiceAccount token is mounted, as no pod uses the API. `pull_secrets` are names of Secrets in the pod's
/// namespace.
///
/// This is the restricted Pod Security Standard
/// (<https://kubernetes.io/docs/concepts/security/pod-security-standards/>). The image sets the user, or the cluster
/// assigns one to each namespace. A safe sysctl opens ports below 1024 in the pod's own network. With host network
/// the sysctl would be the node's, so such pods run as root with the capability to bind; only the privileged standard
/// admits them anyway.
pub fn dress(spec: &mut Value, pull_secrets: &[String]) {
    let is_on_node = spec["hostNetwork"] == true;
    let containers = spec["containers"].as_array_mut();
    let mut binds = false;
    for container in containers.into_iter().flatten() {
        if container["resources"].is_null() {
            // Far more than an idle server uses. Without limits, as clients in a loop use what is available.
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
        let expected = none.clone();
        dress(&mut none, &[]);
        assert_eq!(none, expected);
    }
}
