//! Load balancer services of a cluster whose controller is gone, or is another one.

use k8s_openapi::api::core::v1::Service;
use kube::{Api, Client, api::ListParams};

use super::{is_served, is_wanted, no_address, shown, without_finalizer, write};
use crate::cache::{Key, key};

/// Removes the addresses and finalizers that a [`Balancer`](super::Balancer) has left in a namespace, or in all. The finalizer
/// would keep these services forever. Returns the services.
///
/// # Errors
/// The first refusal of the API server. Services before it are done.
pub async fn take_back(client: &Client, namespace: Option<&str>) -> kube::Result<Vec<Key>> {
    let api: Api<Service> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let services = api.list(&ListParams::default()).await?.items;
    let mut taken = Vec::new();
    for service in services.iter().filter(|service| is_served(service)) {
        let (namespace, name) = key(service);
        let api: Api<Service> = Api::namespaced(client.clone(), &namespace);
        if !shown(service).is_empty() {
            write(&api, &name, &no_address(), true).await?;
        }
        write(&api, &name, &without_finalizer(service), false).await?;
        taken.push((namespace, name));
    }
    Ok(taken)
}

/// A service of type LoadBalancer with addresses from another controller than [`Balancer`](super::Balancer), and these
/// addresses.
///
/// # Errors
/// The API server's refusal.
pub async fn others(client: &Client) -> kube::Result<Option<(Key, Vec<String>)>> {
    let services: Api<Service> = Api::all(client.clone());
    let services = services.list(&ListParams::default()).await?.items;
    let has_another =
        |service: &&Service| is_wanted(service) && !is_served(service) && !shown(service).is_empty();
    let found = services.iter().find(has_another);
    Ok(found.map(|service| (key(service), shown(service))))
}
