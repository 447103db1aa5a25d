//! The rules of the ClusterRole are what the agent needs: all of it, and nothing else.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use rstest::rstest;
use serde_json::json;
use testing::patience::LIMIT;

use crate::{
    authorizer::{Authorizer, Need, allowed},
    control::Control,
    manifest::Manifest,
    node::{Node, PROGRAM},
    place::{self, Place, place},
    world::World,
};

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(20);

/// A node whose agent meets these rules.
struct Governed {
    _runtime: tokio::runtime::Runtime,
    authorizer: Authorizer,
    node: Node,
}

impl Governed {
    fn new(place: &Place, name: &str, allowed: BTreeSet<Need>, streams: bool) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        place::loopback(&[]);
        let (authorizer, kubeconfig) = runtime.block_on(async {
            let control = Control::start(&place.folder).await;
            control.become_(&World::new(&[("one", 1, &[1])])).await;
            for object in unusable() {
                control.create(object).await;
            }
            let (authorizer, address) = Authorizer::start(allowed, control.client().clone(), streams).await;
            (
                authorizer,
                kubeconfig(&place.folder, &format!("http://{address}")),
            )
        });
        let node = Node::new(place, name, place.cgroup(name), &kubeconfig);
        Self {
            _runtime: runtime,
            authorizer,
            node,
        }
    }

    /// Waits until so much was asked, or more.
    fn until_asked(&self, expected: &BTreeSet<Need>) {
        let begin = Instant::now();
        while !self.authorizer.asked().is_superset(expected) {
            let asked = self.authorizer.asked();
            let missing: Vec<&Need> = expected.difference(&asked).collect();
            assert!(
                begin.elapsed() < LIMIT,
                "never asked: {missing:?}\n{}",
                self.node.said()
            );
            thread::sleep(POLL);
        }
    }
}

/// Of each kind one with something that can't be used, which the agent says in an Event.
fn unusable() -> Vec<serde_json::Value> {
    let range = |third: u8| {
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
            "metadata": {"name": format!("more-{third}")}, "spec": {"cidrs": [format!("10.97.{third}.0/24")]},
        })
    };
    // With the API server's own, one more than there is room for.
    let mut unusable: Vec<_> = (0..4).map(range).collect();
    unusable.extend([
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "refused", "namespace": "default"},
            "spec": {"externalIPs": ["255.255.255.255"], "ports": [{"port": 80}]},
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "of-nobody", "namespace": "default"},
            "addressType": "IPv4", "ports": [], "endpoints": [],
        }),
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "there"},
            "status": {"addresses": [{"type": "InternalIP", "address": "nowhere"}]},
        }),
    ]);
    unusable
}

fn kubeconfig(folder: &Path, server: &str) -> PathBuf {
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": server}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "agent"}}],
        "users": [{"name": "agent", "user": {}}],
    });
    let file = folder.join("governed");
    fs::write(&file, text.to_string()).expect("written");
    file
}

fn granted() -> BTreeSet<Need> {
    allowed(Manifest::read().rules())
}

/// Lists are streamed, or, by an older server, not: then they are listed.
fn needed(streams: bool) -> BTreeSet<Need> {
    granted()
        .into_iter()
        .filter(|need| !streams || need.verb != "list")
        .collect()
}

#[rstest]
#[case::that_streams_lists(true)]
#[case::that_does_not(false)]
fn of_a_server(#[case] streams: bool) {
    let Some(place) = place() else {
        return;
    };
    let governed = Governed::new(&place, "node", granted(), streams);
    let agent = governed.node.start(Path::new(PROGRAM));
    governed.node.ready();
    governed.until_asked(&needed(streams));
    assert_eq!(
        governed
            .authorizer
            .asked()
            .difference(&granted())
            .collect::<Vec<_>>(),
        [] as [&Need; 0]
    );
    agent.end(Signal::SIGTERM);
    governed.node.clean_up();
}

/// What follows from a need that is refused.
fn consequence(need: &Need) -> String {
    match need.verb.as_str() {
        // Named by the watch that fails, with the server's words.
        "list" | "watch" => format!("{need} is forbidden"),
        // Nothing waits for an Event.
        _ => r#"plumbline_events_total{outcome="failed"}"#.to_owned(),
    }
}

#[test]
fn what_is_refused_is_named_and_each_rule_is_missed() {
    let Some(place) = place() else {
        return;
    };
    for (nth, missing) in granted().into_iter().enumerate() {
        let mut allowed = granted();
        allowed.remove(&missing);
        // Only servers that do not stream are asked for lists.
        let governed = Governed::new(&place, &nth.to_string(), allowed, missing.verb != "list");
        let node = &governed.node;
        let agent = node.start(Path::new(PROGRAM));
        let consequence = consequence(&missing);
        let told = || {
            let metrics = node
                .get("/metrics")
                .map_or_else(String::new, |(_, metrics)| metrics);
            node.said().contains(&consequence) || metrics.contains(&consequence)
        };
        node.until(&format!("without {missing}: {consequence}"), told);
        agent.end(Signal::SIGTERM);
        node.clean_up();
    }
}
