//! The admission policy against writing `default/kubernetes`, and whether an API server enforces it.

use std::fmt::Debug;

use k8s_openapi::api::{core::v1::Endpoints, discovery::v1::EndpointSlice};
use kube::{Api, Client, Resource, api::PostParams, core::NamespaceResourceScope};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::unreconciled::{NAME, NAMESPACE};
use crate::{KindError, LIMITS};

/// User of every API server's reconciler: `user.APIServerUser` of `k8s.io/apiserver`.
pub(super) const RECONCILER: &str = "system:apiserver";
/// Its group: `user.SystemPrivilegedGroup` there.
pub(super) const GROUP: &str = "system:masters";
/// Label of the policies, and its value.
pub(super) const LABEL: [&str; 2] = ["plumbline-fault", "unreconciled"];
/// Message of a denial.
const MESSAGE: &str = "a fault of plumbline keeps API servers from writing default/kubernetes";

/// A value as a type of the API.
pub(super) fn typed<T: DeserializeOwned>(value: Value, what: &str) -> Result<T, KindError> {
    serde_json::from_value(value).map_err(|error| KindError::Unexpected {
        what: what.to_owned(),
        why: error.to_string(),
    })
}

/// Denies [`RECONCILER`] writes of the Endpoints and the slice of `default/kubernetes`, and of objects with the
/// policy's own name, which show whether the policy is enforced.
pub(super) fn policy(name: &str) -> Value {
    let rule = |group: &str, resource: &str| {
        json!({
            "apiGroups": [group], "apiVersions": ["v1"], "resources": [resource],
            "operations": ["CREATE", "UPDATE", "DELETE"], "resourceNames": [NAME, name],
        })
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name, "labels": {LABEL[0]: LABEL[1]}},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
                "resourceRules": [rule("", "endpoints"), rule("discovery.k8s.io", "endpointslices")],
            },
            "matchConditions": [{
                "name": "an-api-server",
                "expression": format!("request.userInfo.username == '{RECONCILER}'"),
            }],
            "validations": [{"expression": "false", "message": MESSAGE}],
        },
    })
}

/// The binding that activates the policy.
pub(super) fn binding(name: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name, "labels": {LABEL[0]: LABEL[1]}},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    })
}

/// Tries to write both objects as an API server does, by a dry run; `None` if the policy denies both, or else the
/// response.
pub(super) async fn attempts(client: &Client, name: &str) -> Option<String> {
    let endpoints = json!({"metadata": {"name": name}});
    let slice = json!({"metadata": {"name": name}, "addressType": "IPv4", "endpoints": []});
    match attempt::<Endpoints>(client, endpoints, name).await {
        None => attempt::<EndpointSlice>(client, slice, name).await,
        other => other,
    }
}

async fn attempt<K>(client: &Client, object: Value, name: &str) -> Option<String>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned,
{
    let object = match typed::<K>(object, "try to write it") {
        Ok(object) => object,
        Err(error) => return Some(error.to_string()),
    };
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let api: Api<K> = Api::namespaced(client.clone(), NAMESPACE);
    let asked = timeout(LIMITS.request, api.create(&params, &object)).await;
    match asked {
        Err(_) => Some(format!("no answer within {:?}", LIMITS.request)),
        Ok(Ok(_)) => Some(format!("{} may be written", K::kind(&()))),
        Ok(Err(kube::Error::Api(status))) if is_of(&status.message, name) => None,
        Ok(Err(error)) => Some(error.to_string()),
    }
}

/// Whether a message is that of a denial by this policy.
fn is_of(message: &str, policy: &str) -> bool {
    message.contains(&format!("'{policy}'")) && message.contains(MESSAGE)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::admissionregistration::v1::{
        ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    };

    use super::*;

    #[test]
    fn only_a_denial_by_the_policy_itself_shows_that_it_is_in_force() {
        let message = |policy: &str| {
            format!("ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {MESSAGE}")
        };
        assert!(is_of(
            &message("plumbline-unreconciled-1"),
            "plumbline-unreconciled-1"
        ));
        assert!(!is_of(
            &message("plumbline-unreconciled-11"),
            "plumbline-unreconciled-1"
        ));
        assert!(!is_of(
            "endpoints \"plumbline-unreconciled-1\" is forbidden",
            "plumbline-unreconciled-1"
        ));
    }

    #[test]
    fn a_policy_meets_api_servers_at_two_names_of_one_namespace_and_nothing_else() {
        let name = "plumbline-unreconciled-1";
        let policy: ValidatingAdmissionPolicy = typed(policy(name), "make it").expect("a policy");
        let spec = policy.spec.expect("a spec");
        assert_eq!(spec.failure_policy.as_deref(), Some("Fail"));
        let matched = spec.match_constraints.expect("what it matches");
        let rules = matched.resource_rules.expect("rules");
        assert_eq!(rules.len(), 2);
        for rule in rules {
            assert_eq!(rule.resource_names, Some(vec![NAME.to_owned(), name.to_owned()]));
        }
        assert!(matched.namespace_selector.is_some(), "no other namespace");
        let [condition] = &spec.match_conditions.expect("conditions")[..] else {
            panic!("one condition");
        };
        assert_eq!(
            condition.expression,
            "request.userInfo.username == 'system:apiserver'"
        );
        let binding: ValidatingAdmissionPolicyBinding = typed(binding(name), "make it").expect("a binding");
        let spec = binding.spec;
        assert_eq!(spec.policy_name, name);
        assert_eq!(spec.validation_actions, ["Deny"]);
    }
}
