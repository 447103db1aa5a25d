//! The API server, the objects of a run there, and its clients.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use anyhow::Context as _;
use cluster::Family;
use http::{
    HeaderValue, Method, Request,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use kube::client::{Body, Client};
use lab_apiserver::{
    Auth, Config, Faults, InMemory, Store,
    faults::{Clients, Fault, FaultGuard},
};
use scenarios::chaos::{
    schedule::{BACKENDS, HOMES, NODE_PORTS, Namespace},
    shapes::Shapes,
    world::{BALANCED, Call, World},
};
use serde_json::{Value, json};
use tower::{BoxError, service_fn};

/// Users, who are their own tokens.
const AGENT: &str = "agent";
const WRITER: &str = "writer";
const CLUSTER_IPS: &str = "10.96.0.0/16";
/// The API server's own address.
const SERVER: [u8; 4] = [192, 0, 2, 1];
/// The address of the load balancer: of no network that a node is in.
const BALANCER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 10);
const FIRST_NODE_PORT: u16 = 30_080;
/// The agent's node, and the other one.
pub(crate) const NODES: [(&str, [u8; 4]); 2] = [("node1", [192, 0, 2, 11]), ("node2", [192, 0, 2, 12])];

/// The API.
pub(crate) struct Api {
    store: Store,
    faults: Faults,
    /// The agent's.
    server: Arc<InMemory>,
    writer: Client,
    pub(crate) shapes: Shapes,
    pub(crate) world: World,
    /// What the server has answered to the last write of each object, by its path.
    objects: BTreeMap<String, Value>,
    writes: u32,
}

impl Api {
    /// With the first objects of a schedule.
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let config = Config::new(vec![CLUSTER_IPS.parse()?], vec![SERVER.into()], 6443);
        let (store, faults) = (Store::new(config)?, Faults::new());
        let auth = Auth::new().with_user(AGENT, AGENT).with_user(WRITER, WRITER);
        let server = Arc::new(InMemory::new(store.clone(), auth.clone(), faults.clone()));
        // Another server of the same API, which stays.
        let writers = Arc::new(InMemory::new(store.clone(), auth, faults.clone()));
        let mut api = Self {
            writer: client(&writers, WRITER),
            store,
            faults,
            server,
            shapes: shapes(),
            world: World::default(),
            objects: BTreeMap::new(),
            writes: 0,
        };
        for name in api.shapes.namespaces.values().cloned().collect::<Vec<_>>() {
            let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            api.send(Method::POST, "/api/v1/namespaces", Some(&namespace))
                .await?;
        }
        for (name, address) in NODES {
            let address = Ipv4Addr::from(address).to_string();
            let node = json!({
                "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
                "status": { "addresses": [{ "type": "InternalIP", "address": address }] },
            });
            api.write(Method::POST, "/api/v1/nodes", name, Some(&node))
                .await?;
        }
        // The server's own. A list does not name the kind of each item.
        for (path, kind) in [
            ("/api/v1/services", "Service"),
            ("/apis/discovery.k8s.io/v1/endpointslices", "EndpointSlice"),
        ] {
            let list = api.send(Method::GET, path, None).await?;
            for (at, item) in list["items"].as_array().into_iter().flatten().enumerate() {
                let mut item = item.clone();
                item["kind"] = kind.into();
                api.objects.insert(format!("{path}/{at}"), item);
            }
        }
        for call in World::first().creations() {
            api.call(&call).await?;
        }
        Ok(api)
    }

    /// A client for the agent.
    pub(crate) fn agents_client(&self) -> Client {
        client(&self.server, AGENT)
    }

    /// All objects, as they are in the API.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Value> {
        self.objects.values()
    }

    /// Begins a fault of answers to the agent, until the guard is dropped.
    pub(crate) fn begin(&self, fault: Fault) -> anyhow::Result<FaultGuard> {
        Ok(self.faults.begin(Clients::User(AGENT.to_owned()), fault)?)
    }

    pub(crate) fn jump_versions(&self, by: u32) {
        self.store.jump_versions(by);
    }

    /// The agent's server ends with all connections.
    pub(crate) fn kill(&self) {
        self.server.kill();
    }

    pub(crate) fn restart(&self) {
        self.server.start();
    }

    /// Makes a call. It returns when the server has answered.
    pub(crate) async fn call(&mut self, call: &Call) -> anyhow::Result<()> {
        let (method, collection, name, object) = match call {
            Call::Service {
                service,
                to,
                is_new: true,
            } => {
                let (collection, name) = self.service_path(*service);
                (
                    Method::POST,
                    collection,
                    name,
                    Some(self.shapes.service(*service, to)),
                )
            }
            Call::Service { service, to, .. } => {
                let (collection, name) = self.service_path(*service);
                let object = self.shapes.service(*service, to);
                (
                    Method::PATCH,
                    collection,
                    name,
                    Some(json!({ "spec": object["spec"] })),
                )
            }
            Call::Annotate(service) => {
                let (collection, name) = self.service_path(*service);
                let annotations = json!({ "plumbline/chaos": self.writes.to_string() });
                let patch = json!({ "metadata": { "annotations": annotations } });
                (Method::PATCH, collection, name, Some(patch))
            }
            Call::DeleteService(service) => {
                let (collection, name) = self.service_path(*service);
                (Method::DELETE, collection, name, None)
            }
            Call::Slice { slice, to, is_new } => {
                let object = self.shapes.slice(*slice, to);
                let (collection, name) = self.slice_path(*slice);
                let method = if *is_new { Method::POST } else { Method::PUT };
                (method, collection, name, Some(object))
            }
            Call::DeleteSlice(slice) => {
                let (collection, name) = self.slice_path(*slice);
                (Method::DELETE, collection, name, None)
            }
        };
        self.write(method, &collection, &name, object.as_ref())
            .await
            .with_context(|| format!("failed to write: {call}"))?;
        if let Call::Service {
            service: BALANCED,
            is_new: true,
            ..
        } = call
        {
            self.balance().await?;
        }
        self.world = self.world.after(call);
        Ok(())
    }

    /// Gives the address of a load balancer, as its controller does.
    async fn balance(&mut self) -> anyhow::Result<()> {
        let (collection, name) = self.service_path(BALANCED);
        let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": self.shapes.balancer }] } } });
        let path = format!("{collection}/{name}");
        let answer = self
            .send(Method::PATCH, &format!("{path}/status"), Some(&status))
            .await
            .with_context(|| format!("failed to write the status of Service {name}"))?;
        self.objects.insert(path, answer);
        Ok(())
    }

    fn service_path(&self, service: u8) -> (String, String) {
        let key = self.shapes.service_key(service);
        (format!("/api/v1/namespaces/{}/services", key.namespace), key.name)
    }

    fn slice_path(&self, slice: u8) -> (String, String) {
        let key = self.shapes.slice_key(slice);
        let namespace = key.namespace;
        (
            format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"),
            key.name,
        )
    }

    async fn write(
        &mut self,
        method: Method,
        collection: &str,
        name: &str,
        object: Option<&Value>,
    ) -> anyhow::Result<()> {
        self.writes += 1;
        let path = format!("{collection}/{name}");
        let to = if method == Method::POST { collection } else { &path };
        let answer = self.send(method.clone(), to, object).await?;
        if method == Method::DELETE {
            self.objects.remove(&path);
        } else {
            self.objects.insert(path, answer);
        }
        Ok(())
    }

    async fn send(&self, method: Method, path: &str, object: Option<&Value>) -> anyhow::Result<Value> {
        let body = object.map(serde_json::to_vec).transpose()?.unwrap_or_default();
        let form = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(CONTENT_TYPE, form)
            .body(body)?;
        Ok(self.writer.request(request).await?)
    }
}

/// Names, addresses and ports of every run.
fn shapes() -> Shapes {
    let namespaces = [
        (Namespace::Prefixes, "prefixes"),
        (Namespace::First, "first"),
        (Namespace::Second, "second"),
    ];
    let endpoint = |number: u8| {
        let (node, _) = NODES[usize::from(number) % NODES.len()];
        json!({
            "addresses": [backend(number).to_string()],
            "conditions": { "ready": true, "serving": true, "terminating": false },
            "nodeName": node,
        })
    };
    Shapes {
        family: Family::IPv4,
        namespaces: namespaces
            .map(|(namespace, name)| (namespace, name.to_owned()))
            .into(),
        cluster_ips: (0..)
            .zip(HOMES)
            .map(|(service, _)| (service, Ipv4Addr::new(10, 96, 1, service + 1).into()))
            .collect(),
        node_ports: (FIRST_NODE_PORT..).take(NODE_PORTS.into()).collect(),
        is_balanced: true,
        balancer: Some(BALANCER.into()),
        endpoints: (0..BACKENDS).map(endpoint).collect(),
    }
}

/// Address of a backend.
pub(crate) fn backend(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 244, number % 2, 10 + number).into()
}

/// A client, as this user.
fn client(server: &Arc<InMemory>, user: &'static str) -> Client {
    let server = Arc::clone(server);
    let service = service_fn(move |mut request: Request<Body>| {
        let server = Arc::clone(&server);
        async move {
            let token = HeaderValue::from_str(&format!("Bearer {user}"))?;
            request.headers_mut().insert(AUTHORIZATION, token);
            Ok::<_, BoxError>(server.answer(request, Ipv4Addr::LOCALHOST.into()).await?)
        }
    });
    Client::new(service, "default")
}
