//! `plumbline rbac`: the permissions that a cluster's administrator grants to the suite.

use std::process::ExitCode;

use existing::{Tier, rules};
use serde_json::{Value, json};

use super::NAMESPACE;

/// Print the ClusterRole that a run needs, for `kubectl apply -f -`; with --tier namespaced, a Role.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
  plumbline rbac --tier node | kubectl apply -f -
  plumbline rbac --service-account ci/plumbline | kubectl apply -f -     the role and its binding
  plumbline rbac --tier namespaced --namespace team | kubectl apply -f -     nothing outside of an existing namespace

Everything that a run makes has the label plumbline-run, and is in namespaces of its own (or in --namespace). The run reads
Services, EndpointSlices and pods of other owners, and changes none. For reports it reads the ConfigMaps that pods of the
--target name; without that permission (get configmaps) the report lists what was not read. With --tier node and a --target,
cases stop and start its agents: their DaemonSet gets the label, another update strategy and an affinity, and nodes with a
stopped agent get the label; the end of the run or `plumbline heal` restores both. RBAC does not cover privileged pods: the
run's namespace has the label pod-security.kubernetes.io/enforce=privileged, and other policies of the cluster have to exempt
it.")]
pub(crate) struct Arguments {
    /// Permissions of the suite: namespaced (objects in one namespace), api (namespaces of its own), or node (also
    /// privileged pods on nodes)
    #[arg(long, value_name = "namespaced|api|node", default_value = "api", value_parser = tier)]
    tier: Tier,
    /// Namespace of the tier namespaced
    #[arg(long, value_name = "NAME", default_value = NAMESPACE)]
    namespace: String,
    /// Also print the account and a binding to it
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = account)]
    service_account: Option<Account>,
}

/// The API group of roles.
const GROUP: &str = "rbac.authorization.k8s.io";

/// A ServiceAccount.
#[derive(Clone, Debug)]
struct Account {
    namespace: String,
    name: String,
}

fn account(text: &str) -> Result<Account, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(Account {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            })
        }
        _ => Err("expected NAMESPACE/NAME, such as ci/plumbline".to_owned()),
    }
}

/// Parses [`Tier::name`].
pub(crate) fn tier(text: &str) -> Result<Tier, String> {
    Tier::ALL
        .into_iter()
        .find(|tier| tier.name() == text)
        .ok_or_else(|| format!("expected {}", Tier::ALL.map(Tier::name).join(", ")))
}

pub(crate) fn rbac(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let documents = documents(arguments);
    let texts: Result<Vec<String>, _> = documents.iter().map(serde_saphyr::to_string).collect();
    print!("{}", texts?.join("---\n"));
    Ok(ExitCode::SUCCESS)
}

fn documents(arguments: &Arguments) -> Vec<Value> {
    let tier = arguments.tier;
    let mut metadata = json!({ "name": format!("plumbline-{tier}") });
    let (role, binding) = if tier == Tier::Namespaced {
        metadata["namespace"] = arguments.namespace.as_str().into();
        ("Role", "RoleBinding")
    } else {
        ("ClusterRole", "ClusterRoleBinding")
    };
    let mut documents = vec![json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": role, "metadata": metadata, "rules": rules(tier),
    })];
    if let Some(Account { namespace, name }) = &arguments.service_account {
        documents.push(json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": name, "namespace": namespace },
        }));
        documents.push(json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": binding, "metadata": metadata,
            "roleRef": { "apiGroup": GROUP, "kind": role, "name": metadata["name"] },
            "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": namespace }],
        }));
    }
    documents
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(tier: Tier) -> Vec<Value> {
        documents(&Arguments {
            tier,
            namespace: "team".to_owned(),
            service_account: Some(account("ci/plumbline").unwrap()),
        })
    }

    fn kinds(documents: &[Value]) -> Vec<&str> {
        documents
            .iter()
            .map(|one| one["kind"].as_str().unwrap())
            .collect()
    }

    #[test]
    fn a_role_comes_with_whom_it_is_for() {
        let documents = printed(Tier::Node);
        assert_eq!(
            kinds(&documents),
            ["ClusterRole", "ServiceAccount", "ClusterRoleBinding"]
        );
        assert_eq!(documents[2]["roleRef"]["name"], documents[0]["metadata"]["name"]);
        assert_eq!(documents[0]["metadata"], json!({ "name": "plumbline-node" }));
    }

    #[test]
    fn the_least_role_is_of_one_namespace() {
        let documents = printed(Tier::Namespaced);
        assert_eq!(kinds(&documents), ["Role", "ServiceAccount", "RoleBinding"]);
        for at in [0, 2] {
            assert_eq!(documents[at]["metadata"]["namespace"], "team");
        }
    }

    #[test]
    fn accounts_are_named_with_their_namespaces() {
        assert!(account("ci/plumbline").is_ok());
        for wrong in ["plumbline", "/p", "n/", "a/b/c"] {
            assert!(account(wrong).is_err(), "{wrong}");
        }
        assert_eq!(tier("node"), Ok(Tier::Node));
        assert!(tier("root").is_err());
    }
}
