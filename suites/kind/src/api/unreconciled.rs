//! Keeps API servers from writing `default/kubernetes`, by an admission policy.
//!
//! An API server reconciles it like any other client, by a connection to itself that passes admission, as the user
//! [`RECONCILER`]. Other users are not affected. The policy also applies to servers that start later: they admit
//! nothing before they have read all policies. Each fault has a policy of its own, so faults can overlap: the correct
//! contents return when the last one is over.
//!
//! A policy is in force when every running server has denied this user a request by it, for a name that only this
//! policy contains. These requests are dry runs.

use std::{
    fs, io,
    net::SocketAddr,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use existing::Connection;
use k8s_openapi::{
    api::{
        admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
        discovery::v1::EndpointSlice,
    },
    apimachinery::pkg::apis::meta::v1::APIResourceList,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use lab::kube_client_as;
use tokio::time::{sleep, timeout};

use super::{
    ApiServers, Server,
    policy::{GROUP, LABEL, RECONCILER, attempts, binding, policy, typed},
};
use crate::{
    KindError, LIMITS,
    error::{api_error, io_error, listed},
    state::Lock,
};

/// Namespace and name of `default/kubernetes`.
pub(super) const NAMESPACE: &str = "default";
pub(super) const NAME: &str = "kubernetes";

/// API servers may not write it as long as this lives; no other process may end that meanwhile.
#[derive(Debug)]
pub(super) struct Denied {
    name: String,
    _lock: Lock,
}

/// Whether a cluster supports such policies: Kubernetes 1.30 or later.
pub(crate) async fn is_known(client: &Client) -> Result<bool, KindError> {
    let group = "admissionregistration.k8s.io/v1";
    let list = answered(
        client.list_api_group_resources(group),
        format!("ask what {group} has"),
    )
    .await?;
    Ok(has_policies(&list))
}

fn has_policies(group: &APIResourceList) -> bool {
    let mut names = group.resources.iter().map(|resource| resource.name.as_str());
    names.any(|name| name == "validatingadmissionpolicies")
}

impl ApiServers {
    /// Denies all servers to write it; none does any more when this returns.
    pub(super) async fn deny(&self) -> Result<Denied, KindError> {
        let what = "keep API servers from writing default/kubernetes";
        let name = self.fresh_name();
        let lock = self.folder.hold(&lock_of(&name))?;
        let lock = lock.ok_or_else(|| KindError::Unexpected {
            what: what.to_owned(),
            why: format!("another process has just begun {name:?}"),
        })?;
        let denied = Denied { name, _lock: lock };
        if let Err(error) = self.make(&denied.name).await {
            return Err(match self.remove(&denied.name).await {
                Ok(()) => error,
                Err(left) => KindError::Unexpected {
                    what: what.to_owned(),
                    why: format!(
                        "{error}; and {} stays, until `plumbline heal`: {left}",
                        denied.name
                    ),
                },
            });
        }
        Ok(denied)
    }

    /// Allows writing again. The correct contents are restored when this returns, unless another fault denies that.
    /// Servers may be starting at the same time, so failures are tried again.
    pub(super) async fn allow(&self, denied: Denied) -> Result<(), KindError> {
        let begin = Instant::now();
        while let Err(error) = self.remove(&denied.name).await {
            if begin.elapsed() > LIMITS.api_server {
                return Err(error);
            }
            sleep(LIMITS.look).await;
        }
        loop {
            let found = match self.lists_the_truth().await {
                Ok(None) => return Ok(()),
                Ok(Some(found)) => found,
                Err(error) => error.to_string(),
            };
            if begin.elapsed() > LIMITS.reconciled {
                return Err(KindError::Unexpected {
                    what: "see default/kubernetes reconciled".to_owned(),
                    why: format!(
                        "expected {} in its slice within {:?}, found: {found}",
                        self.advertised, LIMITS.reconciled
                    ),
                });
            }
            sleep(LIMITS.look).await;
        }
    }

    /// Removes the policies of dead processes; returns what was done.
    pub(super) async fn allow_left(&self) -> Result<Vec<String>, KindError> {
        let mut undone = Vec::new();
        for name in self.policies().await? {
            if let Some(lock) = self.folder.hold(&lock_of(&name))? {
                self.allow(Denied { name, _lock: lock }).await?;
                undone.push("no API server wrote default/kubernetes, and all do again".to_owned());
            }
        }
        Ok(undone)
    }

    /// Waits until no policy is left; removes those without a keeper, and returns what was done.
    pub(super) async fn none_denied(&self) -> Result<Vec<String>, KindError> {
        let begin = Instant::now();
        let mut undone = self.allow_left().await?;
        while !self.policies().await?.is_empty() {
            if begin.elapsed() > LIMITS.reconciled {
                return Err(KindError::Unexpected {
                    what: "let API servers write default/kubernetes again".to_owned(),
                    why: format!(
                        "a process that lives has kept them from it for {:?}: end it first",
                        LIMITS.reconciled
                    ),
                });
            }
            sleep(LIMITS.look).await;
            undone.extend(self.allow_left().await?);
        }
        Ok(undone)
    }

    async fn make(&self, name: &str) -> Result<(), KindError> {
        let client = self.client().await?;
        let what = || format!("create the policy {name}");
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
        let policy = typed(policy(name), &what())?;
        answered(policies.create(&PostParams::default(), &policy), what()).await?;
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client);
        let binding = typed(binding(name), &what())?;
        answered(bindings.create(&PostParams::default(), &binding), what()).await?;
        for server in &self.servers {
            self.is_denied(server, name).await?;
        }
        Ok(())
    }

    /// Removes a policy and its binding; missing ones are no error. The policy goes last, as it is what repairs look
    /// for.
    async fn remove(&self, name: &str) -> Result<(), KindError> {
        let client = self.client().await?;
        let params = DeleteParams::default();
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
        gone(bindings.delete(name, &params), name).await?;
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(client);
        gone(policies.delete(name, &params), name).await?;
        let path = self.folder.path().join(lock_of(name));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(io_error(format!("remove {}", path.display()))(error))
            }
            _ => Ok(()),
        }
    }

    /// Names of all policies of such faults.
    async fn policies(&self) -> Result<Vec<String>, KindError> {
        let client = self.client().await?;
        if !is_known(&client).await? {
            return Ok(Vec::new());
        }
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(client);
        let of_faults = ListParams::default().labels(&LABEL.join("="));
        let listed = answered(policies.list(&of_faults), "list policies").await?;
        Ok(listed.items.iter().map(ResourceExt::name_any).collect())
    }

    /// Waits until a running server denies every write of `default/kubernetes` by this policy.
    async fn is_denied(&self, server: &Server, name: &str) -> Result<(), KindError> {
        let what = || format!("see the policy {name} in force in API server {}", server.number);
        let begin = Instant::now();
        let unexpected = |why: String| KindError::Unexpected { what: what(), why };
        let client = kube_client_as(&self.folder.kubeconfig(), server.address, RECONCILER, GROUP)
            .await
            .map_err(|error| unexpected(error.to_string()))?;
        let mut answer = "it was not asked".to_owned();
        // A server that starts meanwhile admits nothing before it has read the policies.
        while !server.processes().is_empty() {
            if begin.elapsed() > LIMITS.policy {
                return Err(unexpected(format!(
                    "expected that it denies {RECONCILER} to write within {:?}, found: {answer}",
                    LIMITS.policy
                )));
            }
            match attempts(&client, name).await {
                None => return Ok(()),
                Some(other) => answer = other,
            }
            sleep(LIMITS.look).await;
        }
        Ok(())
    }

    /// Whether `default/kubernetes` lists the advertised address, or a policy denies that: then `None`; else its
    /// contents.
    async fn lists_the_truth(&self) -> Result<Option<String>, KindError> {
        if !self.policies().await?.is_empty() {
            return Ok(None);
        }
        let slices: Api<EndpointSlice> = Api::namespaced(self.client().await?, NAMESPACE);
        let found = answered(slices.get_opt(NAME), "read the slice of default/kubernetes").await?;
        Ok(match found {
            None => Some("no slice".to_owned()),
            Some(slice) if lists(&slice, self.advertised) => None,
            Some(slice) => Some(what_it_lists(&slice)),
        })
    }

    async fn client(&self) -> Result<Client, KindError> {
        let connection = Connection {
            kubeconfig: Some(self.folder.kubeconfig()),
            context: None,
        };
        Ok(connection.client().await?)
    }

    /// A new name for a policy.
    fn fresh_name(&self) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_nanos());
        format!("plumbline-unreconciled-{now:x}-{}", std::process::id())
    }
}

fn lock_of(name: &str) -> String {
    format!("{name}.lock")
}

/// Response of an API server, with a time limit.
async fn answered<T>(
    asked: impl Future<Output = kube::Result<T>>,
    what: impl Into<String>,
) -> Result<T, KindError> {
    let what = what.into();
    match timeout(LIMITS.request, asked).await {
        Ok(answer) => answer.map_err(api_error(what)),
        Err(_) => Err(KindError::Unexpected {
            what,
            why: format!("no answer within {:?}", LIMITS.request),
        }),
    }
}

/// As [`answered`], for a deletion; a missing object is no error.
async fn gone<T>(asked: impl Future<Output = kube::Result<T>>, name: &str) -> Result<(), KindError> {
    let done = async {
        match asked.await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            done => done.map(drop),
        }
    };
    answered(done, format!("remove the policy {name}")).await
}

/// Whether a slice lists exactly this address, in the form that API servers write.
fn lists(slice: &EndpointSlice, server: SocketAddr) -> bool {
    let mut ports = slice.ports.iter().flatten().filter_map(|port| port.port);
    let expected = server.ip().to_string();
    let [endpoint] = slice.endpoints.as_deref().unwrap_or_default() else {
        return false;
    };
    let is_ready = endpoint
        .conditions
        .as_ref()
        .and_then(|conditions| conditions.ready);
    slice.metadata.deletion_timestamp.is_none()
        && endpoint.addresses == [expected]
        && is_ready == Some(true)
        && ports.any(|port| port == i32::from(server.port()))
}

/// Endpoints and ports, for messages.
fn what_it_lists(slice: &EndpointSlice) -> String {
    let endpoints = slice.endpoints.iter().flatten().map(|endpoint| {
        let conditions = endpoint.conditions.as_ref();
        let is_ready = conditions.and_then(|conditions| conditions.ready) == Some(true);
        let end = if is_ready { "" } else { " (not ready)" };
        endpoint.addresses.join(" ") + end
    });
    let ports = slice.ports.iter().flatten().filter_map(|port| port.port);
    let (endpoints, ports): (Vec<String>, Vec<i32>) = (endpoints.collect(), ports.collect());
    format!("endpoints {}, ports {}", listed(&endpoints), listed(&ports))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn slice(endpoints: &Value, port: u16) -> EndpointSlice {
        let slice = json!({
            "metadata": {"name": NAME}, "addressType": "IPv4", "endpoints": endpoints,
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        });
        typed(slice, "make a slice").expect("a slice")
    }

    #[test]
    fn a_cluster_before_kubernetes_1_30_knows_no_policies() {
        let group = |names: &[&str]| {
            let resource = |name: &&str| json!({"name": name, "singularName": "", "namespaced": false, "kind": "K", "verbs": []});
            let resources: Vec<Value> = names.iter().map(resource).collect();
            let group = json!({"groupVersion": "admissionregistration.k8s.io/v1", "resources": resources});
            typed::<APIResourceList>(group, "make a group").expect("a group")
        };
        let webhooks = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
        assert!(!has_policies(&group(&webhooks)));
        assert!(has_policies(&group(&[
            "validatingadmissionpolicies",
            "validatingadmissionpolicies/status"
        ])));
        assert!(!has_policies(&group(&["validatingadmissionpolicies/status"])));
    }

    #[test]
    fn what_is_true_is_one_ready_endpoint_at_the_advertised_address() {
        let server = "172.18.0.3:6443".parse().expect("an address");
        let endpoint =
            |address: &str, ready: bool| json!({"addresses": [address], "conditions": {"ready": ready}});
        let own = endpoint("172.18.0.3", true);
        assert!(lists(&slice(&json!([own]), 6443), server));
        for (endpoints, port) in [
            (Value::Null, 6443),
            (json!([]), 6443),
            (json!([endpoint("10.244.0.7", true)]), 6443),
            (json!([own, endpoint("10.244.0.7", true)]), 6443),
            (json!([endpoint("172.18.0.3", false)]), 6443),
            (json!([own]), 443),
        ] {
            assert!(!lists(&slice(&endpoints, port), server), "{endpoints} {port}");
        }
        let two = slice(&json!([own, endpoint("10.244.0.7", false)]), 443);
        assert_eq!(
            what_it_lists(&two),
            "endpoints 172.18.0.3, 10.244.0.7 (not ready), ports 443"
        );
        assert_eq!(
            what_it_lists(&slice(&Value::Null, 6443)),
            "endpoints none, ports 6443"
        );
    }
}
