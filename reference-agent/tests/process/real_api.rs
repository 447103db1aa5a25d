//! Against a real kube-apiserver, as the manifests have it: the account with its token and rules, the configuration, the
//! capabilities. Only what makes pods of DaemonSets is not there; this is the pod.

use std::{
    collections::BTreeSet,
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
};

use nix::{
    mount::{MsFlags, mount},
    sys::signal::Signal,
};
use rstest::rstest;
use serde_json::{Value, json};

use crate::{
    authorizer::{Need, allowed},
    capabilities::start_with,
    clients::{self, Got, ask},
    kube_api::{self, KubeApi},
    manifest::{self, Manifest},
    node::{Node, Running},
    place::{self, Place, place},
    world::{World, addresses},
};

/// Where a pod finds its account.
const ACCOUNT: &str = "/run/secrets/kubernetes.io/serviceaccount";
/// The Service that a cloud's load balancer asks after.
const HEALTH_CHECKED: &str = "health-checked";

/// A node of a cluster with this manifest.
struct Cluster {
    _runtime: tokio::runtime::Runtime,
    api: KubeApi,
    node: Node,
    world: World,
}

impl Cluster {
    fn new(programs: &Path, place: &Place, streams: bool, variables: &[(&str, String)]) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let world = World::new(&[("one", 1, &[1]), ("other", 2, &[2])]);
        let servers = world.servers().flat_map(addresses);
        let all: Vec<IpAddr> = servers.chain([kube_api::ADDRESS]).collect();
        place::loopback(&all);
        runtime.block_on(clients::serve(world.servers()));
        let api = KubeApi::start(programs, &place.folder, streams);
        let deploy = manifest::file("");
        let deploy = deploy.to_str().expect("a path of UTF-8");
        api.ask(&["apply", "--dry-run=server", "--validate=strict", "-k", deploy]);
        api.ask(&["apply", "--validate=strict", "-k", deploy]);
        api.apply(world.services().values().chain(world.slices().values()));
        api.apply(&more());
        let node = node(place, &api, variables);
        Self {
            _runtime: runtime,
            api,
            node,
            world,
        }
    }

    /// With the capabilities that the manifest grants.
    fn start(&self) -> Running {
        start_with(&self.node, &Manifest::read().capabilities())
    }

    fn until_served(&self, served: bool, name: &str) {
        for (target, (of, servers)) in self.world.served() {
            if of != name {
                continue;
            }
            self.node
                .until(&format!("{target:?} is served: {served}"), || match ask(target) {
                    Got::Server(server) => served && servers.contains(&server),
                    Got::Nobody(_) => !served,
                });
        }
    }

    fn until_health(&self, port: u16, code: u16, endpoints: usize) {
        let at = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
        let expected = format!(r#""localEndpoints":{endpoints}"#);
        self.node.until(&format!("{at} says {code}"), || {
            Node::get_from(at, "/healthz")
                .is_some_and(|(found, body)| found == code && body.contains(&expected))
        });
    }

    fn events(&self) -> Vec<Value> {
        let list = self.api.ask(&["get", "events", "--all-namespaces", "-o", "json"]);
        let list: Value = serde_json::from_str(&list).expect("JSON");
        list["items"].as_array().expect("a list").clone()
    }
}

/// What there is beside the world: of each kind one with something that can't be used, and one with a health check.
fn more() -> [Value; 9] {
    let port = json!({"name": "tcp", "port": 80});
    [
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here"}}),
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "there"},
            "status": {"addresses": [{"type": "InternalIP", "address": "nowhere"}]},
        }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "refused", "namespace": "default"},
            "spec": {"externalIPs": ["255.255.255.255"], "ports": [port]},
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "of-nobody", "namespace": "default"},
            "addressType": "IPv4", "ports": [port], "endpoints": [],
        }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": HEALTH_CHECKED, "namespace": "default"},
            "spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [port]},
        }),
        health_checked_slice(&["here", "elsewhere"]),
        // With the API server's own two, one more than there is room for.
        range("10.97.0.0/24"),
        range("10.97.1.0/24"),
        range("10.97.2.0/24"),
    ]
}

fn range(cidr: &str) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
        "metadata": {"name": cidr.replace('/', "-")}, "spec": {"cidrs": [cidr]},
    })
}

/// Endpoints on these nodes.
fn health_checked_slice(nodes: &[&str]) -> Value {
    let endpoint =
        |(node, server): (&&str, u8)| json!({"addresses": [addresses(server)[0]], "nodeName": node});
    let endpoints: Vec<Value> = nodes.iter().zip(3..).map(endpoint).collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": HEALTH_CHECKED, "namespace": "default", "labels": {"kubernetes.io/service-name": HEALTH_CHECKED},
        },
        "addressType": "IPv4", "ports": [{"name": "tcp", "port": 8080}], "endpoints": endpoints,
    })
}

/// What the kubelet gives a pod: its account's token, variables, and the configuration, as they are in the API.
fn node(place: &Place, api: &KubeApi, variables: &[(&str, String)]) -> Node {
    mount(
        Some("tmpfs"),
        "/run",
        Some("tmpfs"),
        MsFlags::empty(),
        None::<&str>,
    )
    .expect("a tmpfs");
    fs::create_dir_all(ACCOUNT).expect("a folder");
    let give = |name: &str, text: &str| fs::write(Path::new(ACCOUNT).join(name), text).expect("written");
    give(
        "token",
        api.ask(&["-n", "kube-system", "create", "token", "plumbline-agent"])
            .trim(),
    );
    give(
        "ca.crt",
        &fs::read_to_string(api.authority()).expect("a certificate"),
    );
    give("namespace", "kube-system");
    let path = r"jsonpath={.data.agent\.yaml}";
    let config = api.ask(&[
        "-n",
        "kube-system",
        "get",
        "configmap",
        "plumbline-agent",
        "-o",
        path,
    ]);
    let config = config.replace(
        "# api-server:\n# - https://192.0.2.1:6443",
        &format!("api-server:\n- {}", KubeApi::url()),
    );
    assert!(config.contains(&KubeApi::url()), "{config}");
    let file = place.folder.join("agent.yaml");
    fs::write(&file, config).expect("written");
    let path = [("PATH", "/usr/sbin:/usr/bin:/sbin:/bin".to_owned())];
    let environment = [&path, variables].concat();
    Node::in_pod(place, "node", place.cgroup.clone(), &file, &environment)
}

/// The variables of a pod that is made while the API has default/kubernetes.
fn of_kubernetes() -> [(&'static str, String); 2] {
    [
        ("KUBERNETES_SERVICE_HOST", kube_api::KUBERNETES.to_string()),
        ("KUBERNETES_SERVICE_PORT", "443".to_owned()),
    ]
}

fn granted() -> BTreeSet<Need> {
    allowed(Manifest::read().rules())
}

#[rstest]
#[case::that_streams_lists(true)]
#[case::that_does_not(false)]
fn of_a_cluster(#[case] streams: bool) {
    let Some(programs) = kube_api::programs_or_skip() else {
        return;
    };
    let Some(place) = place() else {
        return;
    };
    let cluster = Cluster::new(&programs, &place, streams, &of_kubernetes());
    let agent = cluster.start();
    cluster.node.ready();
    cluster.until_served(true, "one");
    cluster.until_served(true, "other");
    TcpStream::connect((kube_api::KUBERNETES, 443)).expect("the API server's own Service is served");

    let label = |value: &str| {
        let label = format!("service.kubernetes.io/service-proxy-name{value}");
        cluster.api.ask(&["label", "service", "one", &label]);
    };
    label("=another");
    cluster.until_served(false, "one");
    cluster.until_served(true, "other");
    label("-");
    cluster.until_served(true, "one");

    let path = "jsonpath={.spec.healthCheckNodePort}";
    let port = cluster.api.ask(&["get", "service", HEALTH_CHECKED, "-o", path]);
    let port: u16 = port.parse().expect("a port");
    cluster.until_health(port, 200, 1);
    cluster.api.apply([&health_checked_slice(&["elsewhere"])]);
    cluster.until_health(port, 503, 0);

    for (kind, name, reason) in [
        ("Service", "refused", "FrontendRefused"),
        ("EndpointSlice", "of-nobody", "ServiceUnknown"),
        ("Node", "there", "Malformed"),
        ("ServiceCIDR", "10.97.2.0-24", "ServiceRangesClipped"),
    ] {
        let of = |event: &Value| {
            event["involvedObject"]["kind"] == kind
                && event["involvedObject"]["name"] == name
                && event["involvedObject"]["uid"].is_string()
                && event["reason"] == reason
        };
        let what = format!("an Event of {kind} {name}: {reason}");
        cluster.node.until(&what, || cluster.events().iter().any(of));
    }
    agent.end(Signal::SIGTERM);
    cluster.node.clean_up();
    cluster.until_served(false, "other");

    let (asked, streamed) = cluster.api.audit();
    let follows = |need: &&Need| need.verb == "watch";
    let needed = |need: &&Need| need.verb != "list" || !streams;
    assert_eq!(asked, granted().iter().filter(needed).cloned().collect());
    let watched: BTreeSet<Need> = granted().iter().filter(follows).cloned().collect();
    assert_eq!(streamed, if streams { watched } else { BTreeSet::new() });
}

#[test]
fn of_an_agent_that_was_made_while_the_api_lacked_kubernetes() {
    let Some(programs) = kube_api::programs_or_skip() else {
        return;
    };
    let Some(place) = place() else {
        return;
    };
    let cluster = Cluster::new(&programs, &place, true, &[]);
    let agent = cluster.start();
    cluster.node.ready();
    cluster.until_served(true, "one");
    agent.end(Signal::SIGTERM);

    // A kubeconfig that is named is meant: nothing is taken in its place.
    let file = place.folder.join("agent.yaml");
    let config = fs::read_to_string(&file).expect("read");
    fs::write(&file, format!("{config}\nkubeconfig: /nowhere\n")).expect("written");
    let _ended = cluster.start();
    cluster.node.until("the kubeconfig is refused", || {
        cluster
            .node
            .said()
            .contains("failed to use the kubeconfig /nowhere")
    });
    cluster.node.clean_up();
}

#[rstest]
#[case::that_streams_lists(true)]
#[case::that_does_not(false)]
fn what_a_cluster_refuses_is_named(#[case] streams: bool) {
    let Some(programs) = kube_api::programs_or_skip() else {
        return;
    };
    let Some(place) = place() else {
        return;
    };
    let cluster = Cluster::new(&programs, &place, streams, &of_kubernetes());
    let node = &cluster.node;
    // Only servers that do not stream are asked for lists.
    let asked = granted()
        .into_iter()
        .filter(|need| (need.verb == "list") != streams);
    for missing in asked {
        let rules: Vec<Value> = granted()
            .iter()
            .filter(|need| **need != missing)
            .map(
                |need| json!({"apiGroups": [need.group], "resources": [need.resource], "verbs": [need.verb]}),
            )
            .collect();
        cluster.api.apply([&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "plumbline-agent"}, "rules": rules,
        })]);
        let agent = cluster.start();
        let Need { verb, resource, .. } = &missing;
        let told = || match verb.as_str() {
            // Nothing waits for an Event.
            "get" | "create" => node
                .get("/metrics")
                .is_some_and(|(_, metrics)| metrics.contains(r#"plumbline_events_total{outcome="failed"}"#)),
            // Named by the watch that fails, with the server's words, and by /readyz while there is no list.
            _ => {
                let refused = format!(r#"cannot {verb} resource "{resource}""#);
                let named = |(code, text): (u16, String)| code == 503 && text.contains(&refused);
                node.said().contains(&refused.replace('"', r#"\""#))
                    && (verb == "watch" && !streams || node.get("/readyz").is_some_and(named))
            }
        };
        node.until(&format!("without {missing}, this is said"), told);
        agent.end(Signal::SIGTERM);
    }
    node.clean_up();
}
