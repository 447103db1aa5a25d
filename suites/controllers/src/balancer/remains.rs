//! Load balancers of a cluster where no such controller runs any more, or another one does.

use k8s_openapi::api::core::v1::Service;
use kube::{Api, Client, api::ListParams};

use super::{is_served, is_wanted, let_go, no_address, shown, write};
use crate::cache::{Key, key};

/// Takes back what a [`Balancer`](super::Balancer) that is gone has given in a namespace, or everywhere: addresses, and the
/// finalizer that would keep each of these services forever. Returns whose.
///
/// # Errors
/// What the API server refuses; what was taken back until then stays so.
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
        write(&api, &name, &let_go(service), false).await?;
        taken.push((namespace, name));
    }
    Ok(taken)
}

/// A service that would be a [`Balancer`](super::Balancer)'s and has addresses that none has given, with these: another
/// controller runs there.
///
/// # Errors
/// What the API server refuses.
pub async fn others(client: &Client) -> kube::Result<Option<(Key, Vec<String>)>> {
    let services: Api<Service> = Api::all(client.clone());
    let services = services.list(&ListParams::default()).await?.items;
    let of_another =
        |service: &&Service| is_wanted(service) && !is_served(service) && !shown(service).is_empty();
    let found = services.iter().find(of_another);
    Ok(found.map(|service| (key(service), shown(service))))
}
