//! The API servers of a cluster that shows only its API: the endpoints of `default/kubernetes`.
//!
//! Each kube-apiserver lists itself there while it runs (its endpoint reconciler). Providers that hide the servers
//! behind another address write that one.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use async_trait::async_trait;
use cluster::{ApiFault, ApiServer, Capability, ClusterError, ControlPlaneFaults, FaultLease};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client, api::ListParams};
use tokio::time::timeout;

use super::{LIMITS, error::words};

/// Name of their port in EndpointSlices.
const PORT: &str = "https";

/// Ready endpoints, sorted by address; at least one.
///
/// # Errors
/// Why none is known, as text: the account may not list slices, or none is listed.
pub(super) async fn listed(client: &Client) -> Result<Vec<ApiServer>, String> {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let of_kubernetes = ListParams::default().labels("kubernetes.io/service-name=kubernetes");
    let found = timeout(LIMITS.request, slices.list(&of_kubernetes))
        .await
        .map_err(|_| format!("no answer within {:?}", LIMITS.request))?
        .map_err(|error| {
            format!(
                "the EndpointSlices of default/kubernetes can't be listed: {}",
                words(&error)
            )
        })?;
    let all = in_slices(&found.items);
    if all.is_empty() {
        return Err("the EndpointSlices of default/kubernetes list none".to_owned());
    }
    Ok(all)
}

/// The listed API servers. No fault can be made.
pub(super) struct ListedServers(pub(super) Client);

#[async_trait]
impl ControlPlaneFaults for ListedServers {
    fn capabilities(&self) -> BTreeSet<Capability> {
        BTreeSet::new()
    }

    async fn servers(&self) -> Result<Vec<ApiServer>, ClusterError> {
        listed(&self.0).await.map_err(|why| ClusterError::Failed {
            what: "see the API servers".to_owned(),
            why,
        })
    }

    async fn begin(&self, _: &ApiFault, _: Duration) -> Result<FaultLease, ClusterError> {
        Err(ClusterError::unsupported("make faults of its API servers"))
    }

    async fn jump_versions(&self, _: u32) -> Result<(), ClusterError> {
        Err(ClusterError::unsupported("let the resourceVersion jump"))
    }
}

fn in_slices(slices: &[EndpointSlice]) -> Vec<ApiServer> {
    let mut addresses = BTreeSet::new();
    for slice in slices {
        let ports = slice.ports.iter().flatten();
        let ports: Vec<u16> = ports
            .filter(|port| port.name.as_deref() == Some(PORT))
            .filter_map(|port| port.port?.try_into().ok())
            .collect();
        // Without a condition, an endpoint is ready.
        let ready = slice.endpoints.iter().flatten().filter(|endpoint| {
            let conditions = endpoint.conditions.as_ref();
            conditions.and_then(|conditions| conditions.ready) != Some(false)
        });
        for address in ready.flat_map(|endpoint| &endpoint.addresses) {
            let Ok(address) = address.parse() else { continue };
            addresses.extend(ports.iter().map(|port| SocketAddr::new(address, *port)));
        }
    }
    (1..=u8::MAX)
        .zip(addresses)
        .map(|(number, address)| ApiServer {
            number,
            address,
            running: true,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn seen(slices: &Value) -> Vec<(u8, String)> {
        let slices: Vec<EndpointSlice> = serde_json::from_value(slices.clone()).unwrap();
        let all = in_slices(&slices).into_iter();
        all.map(|one| (one.number, one.address.to_string())).collect()
    }

    fn slice(family: &str, endpoints: &Value) -> Value {
        json!({
            "metadata": {"name": "kubernetes"}, "addressType": family, "endpoints": endpoints,
            "ports": [{"name": "https", "port": 6443}, {"name": "other", "port": 1}],
        })
    }

    #[test]
    fn api_servers_are_the_endpoints_of_every_slice_that_take_requests() {
        let found = seen(&json!([
            slice("IPv6", &json!([{"addresses": ["fd00::1"]}])),
            slice(
                "IPv4",
                &json!([
                    {"addresses": ["10.0.0.2"], "conditions": {"ready": true}},
                    {"addresses": ["10.0.0.1"]},
                    {"addresses": ["10.0.0.3"], "conditions": {"ready": false}},
                ])
            ),
            slice("IPv4", &json!([{"addresses": ["10.0.0.1"]}])),
        ]));
        let expected = ["10.0.0.1:6443", "10.0.0.2:6443", "[fd00::1]:6443"];
        let expected: Vec<(u8, String)> = (1..).zip(expected.map(str::to_owned)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn slices_that_are_emptied_show_none() {
        // As kube-apiserver writes it when the last lease is gone.
        let emptied = json!({"metadata": {"name": "kubernetes"}, "addressType": "IPv4", "endpoints": null, "ports": null});
        assert!(seen(&json!([emptied, slice("IPv4", &json!([]))])).is_empty());
    }
}
