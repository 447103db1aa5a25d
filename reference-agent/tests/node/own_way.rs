//! The agent reaches its API server through a Service that it programs itself, and sees on when that has no backends.
//!
//! ```text
//! agent ─▶ a frontend of the Service kubernetes-intranet ─▶ 10.77.0.1:6443 API server, later at 10.77.0.2:6443
//! test  ─▶ 127.0.0.1 another replica over the same objects, which the agent does not know
//! ```
//!
//! The frontend is the Service's cluster IP, its load balancer's address, or its node port at an address of this node.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};

use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{
    Api as KubeApi, Client,
    api::{DeleteParams, Patch, PatchParams},
};
use lb_abi::Counter;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::{
    agent::{Api, Node, Serving},
    objects::put,
    place::{loopback, place},
};

const CLUSTER_IP: Ipv4Addr = Ipv4Addr::new(10, 96, 1, 8);
const LOAD_BALANCER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 8);
/// The node's own address.
const NODE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 3);
const NODE_PORT: u16 = 30443;
const NAME: &str = "kubernetes-intranet";
const SERVERS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)];
const PORT: u16 = 6443;

/// By which frontend the agent reaches its API server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    ClusterIp,
    LoadBalancer,
    NodePort,
}

impl Way {
    /// Where it connects to.
    const fn address(self) -> SocketAddr {
        let (address, port) = match self {
            Self::ClusterIp => (CLUSTER_IP, 443),
            Self::LoadBalancer => (LOAD_BALANCER, 443),
            Self::NodePort => (NODE, NODE_PORT),
        };
        SocketAddr::new(IpAddr::V4(address), port)
    }

    /// As the dump has it.
    fn frontend(self) -> String {
        match self {
            Self::NodePort => format!("TCP 0.0.0.0:{NODE_PORT}"),
            _ => format!("TCP {}", self.address()),
        }
    }

    /// What others meet there without the Service: an address of a Service range, an unused one, or one of the node's
    /// without a listener.
    const fn nobody(self) -> Option<io::ErrorKind> {
        match self {
            Self::ClusterIp | Self::NodePort => REFUSED,
            Self::LoadBalancer => UNREACHABLE,
        }
    }
}

/// API servers and the agent's node.
struct World<'a> {
    way: Way,
    api: Api,
    /// Where the test itself reaches the API.
    admin: Serving,
    node: &'a Node,
    canaries: u8,
}

impl World<'_> {
    /// A replica at one of the addresses, with the certificate of the frontend.
    fn replica(&self, server: usize) -> Serving {
        let names = [self.way.address().ip().to_string()];
        self.api.serve(
            SocketAddr::new(SERVERS[server].into(), PORT),
            &names.each_ref().map(String::as_str),
        )
    }

    fn with<T>(&self, work: impl AsyncFnOnce(Client) -> T) -> T {
        self.api.with(self.admin.address, work)
    }

    fn service(&self) {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME, "namespace": "default"},
            "spec": {
                "type": "LoadBalancer", "clusterIP": CLUSTER_IP,
                "ports": [{"port": 443, "targetPort": PORT, "nodePort": NODE_PORT}],
            },
        });
        let ingress =
            json!({"status": {"loadBalancer": {"ingress": [{"ip": LOAD_BALANCER, "ipMode": "VIP"}]}}});
        self.with(async |client| {
            let services = KubeApi::<Service>::namespaced(client, "default");
            put(&services, NAME, &service).await;
            let patch = Patch::Merge(&ingress);
            let patched = services.patch_status(NAME, &PatchParams::default(), &patch).await;
            patched.expect("its load balancer");
        });
    }

    /// The Service's slice says this.
    fn slice(&self, servers: &[usize]) {
        let endpoints: Vec<Value> = servers
            .iter()
            .map(|server| json!({"addresses": [SERVERS[*server]]}))
            .collect();
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": NAME, "namespace": "default", "labels": {"kubernetes.io/service-name": NAME}},
            "addressType": "IPv4", "ports": [{"name": "", "port": PORT}], "endpoints": endpoints,
        });
        self.with(async |client| {
            put(
                &KubeApi::<EndpointSlice>::namespaced(client, "default"),
                NAME,
                &slice,
            )
            .await;
        });
    }

    fn delete_slice(&self) {
        self.with(async |client| {
            let slices: KubeApi<EndpointSlice> = KubeApi::namespaced(client, "default");
            slices
                .delete(NAME, &DeleteParams::default())
                .await
                .expect("deleted");
        });
    }

    fn delete_service(&self) {
        self.with(async |client| {
            let services: KubeApi<Service> = KubeApi::namespaced(client, "default");
            services
                .delete(NAME, &DeleteParams::default())
                .await
                .expect("deleted");
        });
    }

    /// Something new in the API arrives in the maps: the agent sees.
    #[track_caller]
    fn sees(&mut self) {
        self.canaries += 1;
        let number = self.canaries;
        let name = format!("canary-{number}");
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
            "spec": {"clusterIP": format!("10.96.2.{number}"), "ports": [{"port": 80}]},
        });
        self.with(async |client| {
            put(
                &KubeApi::<Service>::namespaced(client, "default"),
                &name,
                &service,
            )
            .await;
        });
        self.node
            .until_dumped(&[&format!("TCP 10.96.2.{number}:80 -> refused")]);
    }

    /// What other sockets meet at the frontend.
    #[track_caller]
    fn others(&self, expected: Option<io::ErrorKind>) {
        self.node.eventually(|| {
            let met = TcpStream::connect_timeout(&self.way.address(), Duration::from_secs(5)).err();
            let met = met.map(|error| error.kind());
            if met == expected {
                Ok(())
            } else {
                Err(format!("{met:?}"))
            }
        });
    }

    /// How often the agent's own sockets were sent to backends that were kept.
    fn kept(&self) -> u64 {
        let maps = lb_loader::read_pinned(self.node.bpffs()).expect("pinned maps");
        maps.counters().expect("readable").get(Counter::OwnKept)
    }
}

const REFUSED: Option<io::ErrorKind> = Some(io::ErrorKind::ConnectionRefused);
const UNREACHABLE: Option<io::ErrorKind> = Some(io::ErrorKind::NetworkUnreachable);

#[test]
fn the_agent_sees_on_whatever_becomes_of_the_service_that_leads_to_its_api_server() {
    sees_on(Way::ClusterIp);
}

#[test]
fn the_agent_sees_on_whatever_becomes_of_its_way_by_a_load_balancer() {
    sees_on(Way::LoadBalancer);
}

#[test]
fn the_agent_sees_on_whatever_becomes_of_its_way_by_a_node_port() {
    sees_on(Way::NodePort);
}

fn sees_on(way: Way) {
    let Some(place) = place() else { return };
    let api = Api::new();
    loopback(&[SERVERS[0], SERVERS[1], NODE].map(Into::into));
    let admin = api.serve("127.0.0.1:0".parse().expect("an address"), &["127.0.0.1"]);
    let node = Node::new(&place, true);
    let mut world = World {
        way,
        api,
        admin,
        node: &node,
        canaries: 0,
    };
    world.service();
    world.slice(&[0]);
    let mut replica = world.replica(0);
    let kubeconfig = world.api.kubeconfig(way.address());

    // The first start needs another address: nothing leads to the frontend yet.
    let agent = node.start(&kubeconfig, &["--api-server", "https://10.77.0.1:6443"]);
    agent.ready();
    world.sees();
    world.others(None);
    agent.end(Signal::SIGTERM);

    // From now on it has the frontend, and what it remembers.
    let agent = node.start(&kubeconfig, &[]);
    agent.ready();
    world.sees();
    let kept = world.kept();

    // Emptied: others are refused; the agent, made to dial anew, gets to the last good one through the same frontend.
    world.slice(&[]);
    world.others(REFUSED);
    replica.stop();
    replica = world.replica(0);
    world.sees();
    world.others(REFUSED);
    assert!(world.kept() > kept, "by what the programs kept");

    // Deleted, and created again.
    world.delete_slice();
    replica.stop();
    replica = world.replica(0);
    world.sees();
    world.others(REFUSED);
    world.slice(&[0]);
    world.others(None);

    // The Service goes too: now only what was remembered leads there.
    world.delete_service();
    world.others(way.nobody());
    replica.stop();
    replica = world.replica(0);
    world.sees();
    world.service();
    world.others(None);

    // Killed while there is no backend; the next one starts by what is kept and remembered.
    world.slice(&[]);
    world.others(REFUSED);
    agent.end(Signal::SIGKILL);
    let agent = node.start(&kubeconfig, &[]);
    agent.ready();
    world.sees();
    world.others(REFUSED);
    agent.end(Signal::SIGTERM);

    // Everything of it taken away, and started fresh while there is no backend: by what the state file says.
    node.clean_up();
    let agent = node.start(&kubeconfig, &[]);
    agent.ready();
    world.sees();
    world.others(REFUSED);
    agent.end(Signal::SIGTERM);

    // All API servers are gone, and come back at another address, which was given as a second one.
    world.slice(&[0]);
    let agent = node.start(&kubeconfig, &["--api-server", "https://10.77.0.2:6443"]);
    agent.ready();
    world.others(None);
    replica.stop();
    world.slice(&[1]);
    world.others(REFUSED);
    let replica = world.replica(1);
    world.sees();
    world.others(None);
    node.until_dumped(&[&format!("{} -> 10.77.0.2:6443", way.frontend())]);

    // After it all the maps are what a fresh plan says.
    agent.ready();
    node.eventually(|| {
        let (dump, plan) = (agent.get("/dump"), agent.get("/plan"));
        if dump == plan && dump.is_some() {
            Ok(())
        } else {
            Err(format!("maps: {dump:?}\nplan: {plan:?}"))
        }
    });
    replica.stop();
}
