//! The permissions that the suite needs, defined once for printing and for checking.

use super::{KubernetesError, Options, Tier, error::api, labels::LEASE, limits::ask};
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
    rbac::v1::PolicyRule,
};
use kube::{Api, Client, api::PostParams};

/// One rule: resources of a group, and their verbs.
#[derive(Clone, Copy, Debug)]
struct Rule {
    group: &'static str,
    resources: &'static [&'static str],
    /// The only object of the rule.
    name: Option<&'static str>,
    verbs: &'static [&'static str],
}

/// In the namespaces of cases and of the run. Services and slices of a case elsewhere are found by their label.
const RULES: &[Rule] = &[
    Rule {
        group: "",
        resources: &["pods"],
        name: None,
        verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
    },
    Rule {
        group: "",
        resources: &["pods/log"],
        name: None,
        verbs: &["get"],
    },
    // A WebSocket begins as a GET, and is authorized as one before Kubernetes 1.35.
    Rule {
        group: "",
        resources: &["pods/exec"],
        name: None,
        verbs: &["create", "get"],
    },
    Rule {
        group: "",
        resources: &["services"],
        name: None,
        verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
    },
    Rule {
        group: "discovery.k8s.io",
        resources: &["endpointslices"],
        name: None,
        verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
    },
    // A created object has no name yet for the authorizer.
    Rule {
        group: "coordination.k8s.io",
        resources: &["leases"],
        name: None,
        verbs: &["create"],
    },
    Rule {
        group: "coordination.k8s.io",
        resources: &["leases"],
        name: Some(LEASE),
        verbs: &["delete", "get", "update"],
    },
];

/// Besides, where namespaces are created and deleted for each case; their contents are deleted with them.
const CLUSTER_RULES: &[Rule] = &[
    Rule {
        group: "",
        resources: &["namespaces"],
        name: None,
        verbs: &["create", "delete", "get", "list", "patch"],
    },
    Rule {
        group: "",
        resources: &["nodes"],
        name: None,
        verbs: &["list"],
    },
    Rule {
        group: "",
        resources: &["services/status"],
        name: None,
        verbs: &["patch"],
    },
    // Other runs are found by the name of the Lease.
    Rule {
        group: "coordination.k8s.io",
        resources: &["leases"],
        name: Some(LEASE),
        verbs: &["list"],
    },
];

/// Besides, where agents of a target are stopped and started: the DaemonSet is kept off labelled nodes. A node that
/// was cordoned meanwhile shows that it did not recover by itself.
const NODE_RULES: &[Rule] = &[
    Rule {
        group: "",
        resources: &["nodes"],
        name: None,
        verbs: &["get", "patch"],
    },
    Rule {
        group: "apps",
        resources: &["daemonsets"],
        name: None,
        verbs: &["get", "list", "patch"],
    },
];

/// For reports, which contain the configuration of the agents: no case needs it, and without the permission the
/// report contains a note instead. ConfigMaps are read by the names in the agents' pods; others are not read.
const REPORT_RULES: &[Rule] = &[Rule {
    group: "",
    resources: &["configmaps"],
    name: None,
    verbs: &["get"],
}];

/// The rules of a tier and its reports: of a ClusterRole, or under [`Tier::Namespaced`] of a Role in its namespace.
///
/// Privileged pods need no RBAC permission but admission: the namespace's label `pod-security.kubernetes.io/enforce:
/// privileged`, which the suite sets on its own namespaces.
#[must_use]
pub fn rules(tier: Tier) -> Vec<PolicyRule> {
    let all = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    let of_reports = (tier > Tier::Namespaced).then_some(REPORT_RULES);
    of(tier)
        .chain(of_reports.into_iter().flatten())
        .map(|rule| PolicyRule {
            api_groups: Some(vec![rule.group.to_owned()]),
            resources: Some(all(rule.resources)),
            resource_names: rule.name.map(|name| vec![name.to_owned()]),
            verbs: all(rule.verbs),
            ..PolicyRule::default()
        })
        .collect()
}

fn of(tier: Tier) -> impl Iterator<Item = &'static Rule> {
    let of_cluster = (tier > Tier::Namespaced).then_some(CLUSTER_RULES);
    let of_nodes = (tier >= Tier::Node).then_some(NODE_RULES);
    let more = of_cluster.into_iter().chain(of_nodes);
    RULES.iter().chain(more.flatten())
}

/// Checks each permission of a tier with the API server, in one namespace or in all.
///
/// # Errors
/// [`KubernetesError::Rights`], with all missing permissions.
pub(super) async fn check(client: &Client, options: &Options) -> Result<(), KubernetesError> {
    let tier = options.tier;
    let mut missing = Vec::new();
    for rule in of(tier) {
        for resource in rule.resources {
            for verb in rule.verbs {
                if !may(client, options.confined(), rule, resource, verb).await? {
                    missing.push(format!("{verb} {resource}"));
                }
            }
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(KubernetesError::Rights {
        tier: tier.name(),
        missing,
    })
}

/// Whether the account has a permission, in one namespace or everywhere. An API server without access reviews (the
/// lab's own) has no authorization either: every user may do everything.
async fn may(
    client: &Client,
    namespace: Option<&str>,
    rule: &Rule,
    resource: &str,
    verb: &str,
) -> Result<bool, KubernetesError> {
    let what = "ask the API server what the account may do";
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (resource, None),
    };
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                namespace: namespace.map(str::to_owned),
                group: Some(rule.group.to_owned()),
                name: rule.name.map(str::to_owned),
                resource: Some(resource.to_owned()),
                subresource,
                verb: Some(verb.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let params = PostParams::default();
    match ask(what, reviews.create(&params, &review)).await? {
        Ok(review) => Ok(review.status.is_some_and(|status| status.allowed)),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(true),
        Err(error) => Err(api(what)(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_tier_includes_the_one_before_and_the_least_has_nothing_of_the_cluster() {
        let [least, api, node] = Tier::ALL.map(rules);
        assert!(least.iter().all(|rule| api.contains(rule)));
        assert!(api.iter().all(|rule| node.contains(rule)));
        let more: Vec<&PolicyRule> = node.iter().filter(|rule| !api.contains(rule)).collect();
        assert_eq!(
            more.len(),
            NODE_RULES.len(),
            "privileged pods are a matter of admission"
        );
        let of_cluster = ["namespaces", "nodes"];
        let resources: Vec<String> = least
            .into_iter()
            .filter_map(|rule| rule.resources)
            .flatten()
            .collect();
        assert!(
            resources.iter().all(|one| !of_cluster.contains(&one.as_str())),
            "{resources:?}"
        );
    }

    #[test]
    fn no_right_is_asked_for_twice_and_none_by_a_wildcard() {
        let mut seen = BTreeSet::new();
        for rule in rules(Tier::Node) {
            for resource in rule.resources.into_iter().flatten() {
                for verb in &rule.verbs {
                    assert!(resource != "*" && verb != "*");
                    // Leases of others are none of the suite's.
                    let is_own = rule.resource_names.as_deref() == Some(&[LEASE.to_owned()]);
                    assert!(
                        resource != "leases" || verb == "create" || is_own,
                        "{verb} {resource}"
                    );
                    assert!(seen.insert((resource.clone(), verb.clone())), "{verb} {resource}");
                }
            }
        }
    }
}
