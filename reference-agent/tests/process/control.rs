//! An API server that says what a [`World`] is.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::Arc,
};

use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use lab_apiserver::{Auth, Config, Pki, Store, kubeconfig, new_token, serve};
use reference_agent::api_access::ApiServers;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::world::World;

/// An API server on loopback, and a client of it.
pub(crate) struct Control {
    /// For the agent.
    pub(crate) kubeconfig: PathBuf,
    client: Client,
    /// What the API says now.
    said: Mutex<World>,
}

impl Control {
    /// It runs as long as the runtime.
    pub(crate) async fn start(folder: &Path) -> Self {
        let ranges = ["10.96.0.0/16", "fd00:96::/108"].map(|range| range.parse().expect("a range"));
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let config = Config::new(ranges.into(), vec![Ipv4Addr::new(10, 0, 0, 250).into()], 6443);
        let store = Store::new(config).expect("a store");
        let pki = Pki::new().expect("an authority");
        let token = new_token();
        let tls = pki.server_tls(&["127.0.0.1".into()]).expect("a certificate");
        let auth = Arc::new(Auth::new().with_user(token.clone(), "agent"));
        tokio::spawn(serve(store, listener, tls, auth, CancellationToken::new()));

        let text = kubeconfig(&format!("https://{address}"), pki.ca_pem(), &token);
        let file = folder.join("kubeconfig");
        fs::write(&file, &text).expect("written");
        let config = Kubeconfig::from_yaml(&text).expect("a kubeconfig");
        let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
        let config = config.expect("a config");
        let servers = ApiServers::new(&config, &[], None).await.expect("a server");
        let client = servers.client(&config).expect("a client");
        Self {
            kubeconfig: file,
            client,
            said: Mutex::new(World::new(&[])),
        }
    }

    /// Makes the API say this, and nothing else: what is gone first, then what is there.
    pub(crate) async fn become_(&self, world: &World) {
        let services: Api<Service> = Api::namespaced(self.client.clone(), "default");
        let slices: Api<EndpointSlice> = Api::namespaced(self.client.clone(), "default");
        let mut said = self.said.lock().await;
        let [gone, gone_slices] = [
            missing(&world.services(), &said.services(), true),
            missing(&world.slices(), &said.slices(), true),
        ];
        let [new, new_slices] = [
            missing(&said.services(), &world.services(), false),
            missing(&said.slices(), &world.slices(), false),
        ];
        remove(&slices, &gone_slices).await;
        remove(&services, &gone).await;
        put(&services, &new, &said.services()).await;
        put(&slices, &new_slices, &said.slices()).await;
        *said = world.clone();
    }
}

impl Control {
    /// A client that may do everything.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Makes an object that is of no world.
    pub(crate) async fn create(&self, object: Value) {
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let types = object.types.as_ref().expect("a type");
        let kind = GroupVersionKind::try_from(types).expect("a kind");
        let resource = ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = match object.metadata.namespace.as_deref() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        api.create(&PostParams::default(), &object)
            .await
            .expect("created");
    }
}

type Objects = BTreeMap<String, Value>;

/// What of `to` is not in `from`: at all, or as it is.
fn missing(from: &Objects, to: &Objects, at_all: bool) -> Objects {
    let there = |name: &String, object: &Value| from.get(name).is_some_and(|found| at_all || found == object);
    let missing = to.iter().filter(|(name, object)| !there(name, object));
    missing
        .map(|(name, object)| (name.clone(), object.clone()))
        .collect()
}

async fn remove<K>(api: &Api<K>, objects: &Objects)
where
    K: Clone + Debug + serde::de::DeserializeOwned,
{
    for name in objects.keys() {
        api.delete(name, &DeleteParams::default()).await.expect("deleted");
    }
}

async fn put<K>(api: &Api<K>, objects: &Objects, there: &Objects)
where
    K: Clone + Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    for (name, object) in objects {
        if there.contains_key(name) {
            let patch = Patch::Merge(object);
            api.patch(name, &PatchParams::default(), &patch)
                .await
                .expect("patched");
        } else {
            let object = serde_json::from_value(object.clone()).expect("an object");
            api.create(&PostParams::default(), &object)
                .await
                .expect("created");
        }
    }
}
