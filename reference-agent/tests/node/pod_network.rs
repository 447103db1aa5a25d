//! The agent gives pods their network: routes, sources, the file, and what is left of them.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::{
    Client,
    api::{DeleteParams, Patch, PatchParams},
};
use nix::sys::signal::Signal;
use reference_agent::pod_network::{Conflist, Masquerade, PROTOCOL};
use serde_json::{Value, json};
use test_network::{Route, Via};

use crate::{
    agent::{Api, Node, Serving},
    network::{FAMILIES, Namespace, Network, UPLINK, flap, here, pod, routes_of},
    objects::put,
    place::{Place, place},
    sockets::{LIMIT, TCP, ask, serve},
};

/// A protocol number of another owner.
const FOREIGN: u8 = 99;
/// Routes to the pods of the node `there`.
const THERE: [&str; 2] = ["10.244.2.0/24 via 192.0.2.9", "fd00:2::/64 via 2001:db8:1::9"];

/// A Node with these addresses and ranges.
async fn machine(client: &Client, name: &str, internal: &[&str], pods: &[&str]) {
    let nodes: kube::Api<NodeObject> = kube::Api::all(client.clone());
    let object = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "spec": {"podCIDR": pods.first(), "podCIDRs": pods},
    });
    put(&nodes, name, &object).await;
    let addresses: Vec<Value> = internal
        .iter()
        .map(|ip| json!({"type": "InternalIP", "address": ip}))
        .collect();
    let status = json!({"status": {"addresses": addresses}});
    nodes
        .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
        .await
        .expect("its addresses");
}

struct Cluster {
    api: Api,
    address: SocketAddr,
    folder: PathBuf,
    node: Node,
    network: Network,
}

impl Cluster {
    /// Two nodes: this one, and `there`, which is the namespace outside.
    fn new(place: &Place) -> Self {
        let network = Network::new();
        let api = Api::new();
        let Serving { address, .. } = api.serve("127.0.0.1:0".parse().expect("an address"), &["127.0.0.1"]);
        api.with(address, async |client| {
            let own = ["192.0.2.1", "2001:db8:1::1"];
            machine(&client, "here", &own, &["10.244.1.0/24", "fd00:1::/64"]).await;
            let other = ["192.0.2.9", "2001:db8:1::9"];
            machine(&client, "there", &other, &["10.244.2.0/24", "fd00:2::/64"]).await;
        });
        Self {
            api,
            address,
            folder: place.folder.join("cni"),
            node: Node::new(place, false),
            network,
        }
    }

    fn with(&self, work: impl AsyncFnOnce(Client)) {
        self.api.with(self.address, work);
    }

    fn start(&self, more: &[&str]) -> crate::agent::Agent<'_> {
        let folder = self.folder.display().to_string();
        let mut arguments = vec!["--cni-conf-dir", &folder];
        arguments.extend(more);
        self.node.start(&self.api.kubeconfig(self.address), &arguments)
    }

    fn file(&self) -> String {
        fs::read_to_string(self.folder.join("10-plumbline.conflist")).unwrap_or_default()
    }

    #[track_caller]
    fn until_routes(&self, expected: &[&str]) {
        self.node.eventually(|| {
            let found = routes_of(PROTOCOL);
            (found == expected).then_some(()).ok_or(format!("{found:?}"))
        });
    }

    fn clean_up(&self) -> (Option<i32>, String) {
        let (cgroup, folder) = (
            self.node.cgroup().display().to_string(),
            self.folder.display().to_string(),
        );
        let (code, said, errors) =
            self.node
                .command(&["cleanup", "--cgroup", &cgroup, "--cni-conf-dir", &folder]);
        (code, said + &errors)
    }
}

/// A route of the owner with this protocol number.
fn route(protocol: u8, to: &str, gateway: &str) -> Route<'static> {
    let gateway = gateway.parse().expect("an address");
    Route::to(to.parse().expect("a range"), Via::Gateway(gateway)).protocol(protocol)
}

#[track_caller]
fn add(route: Route<'_>) {
    here().add_route(route).expect("added");
}

#[track_caller]
fn remove(route: Route<'_>) {
    here().remove_route(route).expect("removed");
}

/// The source address that a server sees of a pod.
fn seen(pod: &Namespace, from: IpAddr, to: IpAddr) -> Result<IpAddr, String> {
    let asked = pod.run(move || ask(from, SocketAddr::new(to, TCP), LIMIT));
    asked
        .map(|answer| answer.seen)
        .map_err(|error| format!("{from} → {to}: {error}"))
}

#[test]
fn pods_keep_their_address_in_the_cluster_and_have_the_nodes_outside_of_it() {
    let Some(place) = place() else { return };
    let cluster = Cluster::new(&place);
    let client = pod(0);
    for family in FAMILIES {
        for address in [family.client, family.other, family.remote] {
            cluster.network.outside.run(move || serve(address));
        }
    }
    let agent = cluster.start(&["--pod-network"]);
    agent.ready();
    assert_eq!(routes_of(PROTOCOL), THERE);
    let file: Value = serde_json::from_str(&cluster.file()).expect("JSON");
    assert_eq!(file["plugins"][0]["mtu"], 1500, "that of {UPLINK}");
    assert_eq!(
        file["plugins"][0]["ipam"]["ranges"],
        json!([[{"subnet": "10.244.1.0/24"}], [{"subnet": "fd00:1::/64"}]])
    );
    let expect = |what: &str, outside: bool| {
        for family in FAMILIES {
            let own = family.pods[0];
            let hidden = if outside { family.node } else { own };
            for (to, expected) in [(family.client, hidden), (family.other, own), (family.remote, own)] {
                assert_eq!(seen(&client, own, to), Ok(expected), "{what}: {own} to {to}");
            }
        }
    };
    expect("at first", true);

    // An address that is a node's from now on.
    cluster.with(async |client| {
        let more = ["192.0.2.2", "2001:db8:1::2"];
        machine(&client, "more", &more, &["10.244.3.0/24", "fd00:3::/64"]).await;
    });
    let outside = FAMILIES[0];
    cluster
        .node
        .eventually(|| match seen(&client, outside.pods[0], outside.client) {
            Ok(seen) if seen == outside.pods[0] => Ok(()),
            other => Err(format!("{other:?}")),
        });
    expect("a node more", false);
    agent.ready();

    // The agent is gone, its network is not.
    agent.end(Signal::SIGKILL);
    expect("without an agent", false);
    let agent = cluster.start(&["--pod-network"]);
    agent.ready();
    expect("after a restart", false);
    agent.end(Signal::SIGTERM);
    assert_eq!(cluster.clean_up().0, Some(0));
    assert!(!Masquerade::exists().expect("asked"));
    assert!(routes_of(PROTOCOL).is_empty() && cluster.file().is_empty());
    let (code, said) = cluster.clean_up();
    assert_eq!((code, &*said), (Some(0), "nothing to clean\n"), "idempotent");
}

#[test]
fn routes_follow_the_nodes_and_those_of_others_stay() {
    let Some(place) = place() else { return };
    let cluster = Cluster::new(&place);
    let taken = route(FOREIGN, "10.244.4.0/24", "192.0.2.2");
    add(taken);
    add(route(FOREIGN, "10.244.9.0/24", "192.0.2.2"));
    let foreign = ["10.244.4.0/24 via 192.0.2.2", "10.244.9.0/24 via 192.0.2.2"];
    // One that an earlier start has left: no Node has it.
    add(route(PROTOCOL, "10.244.77.0/24", "192.0.2.2"));
    let agent = cluster.start(&["--pod-network"]);
    agent.ready();
    assert_eq!(routes_of(PROTOCOL), THERE);

    // A node moves, one comes, and one whose range has a route of another owner.
    cluster.with(async |client| {
        machine(
            &client,
            "there",
            &["192.0.2.8"],
            &["10.244.2.0/24", "fd00:2::/64"],
        )
        .await;
        machine(&client, "third", &["192.0.2.3"], &["10.244.3.0/24"]).await;
    });
    cluster.until_routes(&["10.244.2.0/24 via 192.0.2.8", "10.244.3.0/24 via 192.0.2.3"]);
    let says = |sentence: &str| {
        cluster.node.eventually(|| match agent.get("/readyz") {
            Some((503, body)) if body.contains(sentence) => Ok(()),
            other => Err(format!("{other:?}")),
        });
    };
    says("pods of the node there in fd00:2::/64 can't be reached: it has no InternalIP of that family");
    cluster.with(async |client| {
        machine(
            &client,
            "there",
            &["192.0.2.9", "2001:db8:1::9"],
            &["10.244.2.0/24", "fd00:2::/64"],
        )
        .await;
        machine(&client, "third", &["192.0.2.3"], &["10.244.3.0/24"]).await;
        machine(&client, "fourth", &["192.0.2.4"], &["10.244.4.0/24"]).await;
        // Not on any link of this node.
        machine(
            &client,
            "far",
            &["198.51.100.7", "2001:db8:ff::7"],
            &["10.244.5.0/24", "fd00:5::/64"],
        )
        .await;
    });
    let near = [THERE[0], "10.244.3.0/24 via 192.0.2.3", THERE[1]];
    cluster.until_routes(&near);
    says(
        "pods of the node fourth in 10.244.4.0/24 can't be reached: a route of another owner is there via 192.0.2.2",
    );
    says("pods of the node far in 10.244.5.0/24 can't be reached: no route via 198.51.100.7");
    says("pods of the node far in fd00:5::/64 can't be reached: no route via 2001:db8:ff::7");
    assert_eq!(routes_of(FOREIGN), foreign);

    // What was in the way is gone: without anybody's doing.
    remove(taken);
    cluster.with(async |client| {
        let nodes: kube::Api<NodeObject> = kube::Api::all(client);
        for name in ["far", "third"] {
            nodes
                .delete(name, &DeleteParams::default())
                .await
                .expect("deleted");
        }
    });
    let left = [THERE[0], "10.244.4.0/24 via 192.0.2.4", THERE[1]];
    cluster.until_routes(&left);
    agent.ready();

    // Routes that are lost come back: one that is removed, and those that go with their device, of which IPv4 says nothing.
    remove(route(PROTOCOL, "10.244.4.0/24", "192.0.2.4"));
    cluster.until_routes(&left);
    flap(UPLINK);
    cluster.until_routes(&left);

    // Killed; what changes meanwhile is made up for.
    agent.end(Signal::SIGKILL);
    cluster.with(async |client| {
        let nodes: kube::Api<NodeObject> = kube::Api::all(client);
        nodes
            .delete("fourth", &DeleteParams::default())
            .await
            .expect("deleted");
    });
    let agent = cluster.start(&["--pod-network"]);
    agent.ready();
    assert_eq!(routes_of(PROTOCOL), THERE);
    agent.end(Signal::SIGTERM);

    // A start without the option leaves nothing of one with it, and everything of others'.
    add(route(FOREIGN, "10.244.8.0/24", "192.0.2.2"));
    let agent = cluster.start(&[]);
    agent.ready();
    cluster.until_routes(&[]);
    cluster.node.eventually(|| {
        let gone = cluster.file().is_empty() && !Masquerade::exists().expect("asked");
        gone.then_some(())
            .ok_or("the file or the table is there".to_owned())
    });
    assert!(!routes_of(FOREIGN).is_empty());
    agent.ready();
}

#[test]
fn where_another_cni_is_at_work_nothing_is_set() {
    let Some(place) = place() else { return };
    let cluster = Cluster::new(&place);
    let foreign = cluster.folder.join("10-kindnet.conflist");
    fs::create_dir_all(&cluster.folder).expect("a folder");
    fs::write(&foreign, "{}").expect("written");
    let agent = cluster.start(&["--pod-network"]);
    cluster.node.eventually(|| match agent.get("/readyz") {
        Some((503, body))
            if body.contains("another CNI is at work") && body.contains("10-kindnet.conflist") =>
        {
            Ok(())
        }
        other => Err(format!("{other:?}")),
    });
    assert!(routes_of(PROTOCOL).is_empty() && cluster.file().is_empty());
    assert!(!Masquerade::exists().expect("asked"));

    // It is checked again and again, without a restart.
    fs::remove_file(&foreign).expect("removed");
    agent.ready();
    cluster.until_routes(&THERE);
    assert!(cluster.file().contains("10.244.1.0/24"));
}

#[test]
fn a_file_from_before_a_boot_goes_with_the_option_and_another_nodes_stays() {
    let Some(place) = place() else { return };
    let cluster = Cluster::new(&place);
    // As after a boot: nothing is in this network namespace.
    let left = |node: &str| {
        let own = ["10.244.1.0/24".parse().expect("a range")];
        let conflist = Conflist::new(&cluster.folder);
        assert!(
            conflist
                .write(&Conflist::render(node, &own, None))
                .expect("written")
        );
    };
    left("there");
    let agent = cluster.start(&[]);
    agent.ready();
    agent.end(Signal::SIGTERM);
    assert!(cluster.file().contains("there"), "another node's of this host");
    left("here");
    let agent = cluster.start(&[]);
    cluster.node.eventually(|| {
        cluster
            .file()
            .is_empty()
            .then_some(())
            .ok_or("the file is there".to_owned())
    });
    agent.ready();
}
