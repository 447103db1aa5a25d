//! Kubernetes' own kube-proxy, unmodified, with faulty API servers. Packets decide: whatever happened, clients on its
//! node must finally reach the backend in the EndpointSlice. Each node is a client of the API servers of its own, so
//! several nodes have a fault each at the same time, because kube-proxy waits up to a minute before it tries again.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use cluster::{ApiFault, Clients, Fault, Place, Refusal, Stop, users};
use futures::future::join_all;
use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use lab::{Advertise, AgentCommand, ControlPlane, KUBERNETES};
use oracle::history::{Outcome, Transport};
use serde_json::{Value, json};

use super::support::{LIMIT, TestLab, in_pod, pod, privileged};

/// Longer than any fault in this test.
const LASTS: Duration = Duration::from_secs(300);
/// So many equal answers in a row are no coincidence.
const IN_A_ROW: usize = 3;
const VIP: &str = "10.96.77.77";
const NODES: u8 = 7;
/// The node without a fault; it uses the second API server, as does every other node.
const WELL: u8 = 2;
/// Nodes with a fault each.
const MEETING: [u8; 6] = [1, 3, 4, 5, 6, 7];

/// What a node can know of a change during the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meanwhile {
    /// Nothing: its kube-proxy does not receive it.
    Nothing,
    /// Perhaps the change: a list or a part of a watch may be delivered.
    Perhaps,
}

/// A fault of an API server for one client.
type Wrong = (&'static str, Vec<Fault>, Meanwhile);

fn refuses(refusal: Refusal, retry_after: Option<u32>) -> Fault {
    Fault::Refuse { refusal, retry_after }
}

/// Every kind of fault of answers. Faults of new requests alone are combined with broken watches, because otherwise no
/// client would make new requests.
fn wrongs() -> Vec<Wrong> {
    let cut = || Fault::CutWatches {
        after: Duration::ZERO,
    };
    let late = Duration::from_secs(250);
    vec![
        ("watches are cut", vec![cut()], Meanwhile::Perhaps),
        (
            "events are late",
            vec![Fault::DelayEvents { by: late }],
            Meanwhile::Nothing,
        ),
        (
            "events are lost until a new list",
            vec![Fault::DropEvents],
            Meanwhile::Nothing,
        ),
        ("410 Gone", vec![Fault::Expire], Meanwhile::Perhaps),
        ("an old state", vec![Fault::Lag], Meanwhile::Nothing),
        (
            "lists of an old state",
            vec![Fault::Lag, cut()],
            Meanwhile::Nothing,
        ),
        (
            "429",
            vec![refuses(Refusal::TooManyRequests, Some(1)), cut()],
            Meanwhile::Nothing,
        ),
        (
            "500",
            vec![refuses(Refusal::InternalError, None), cut()],
            Meanwhile::Nothing,
        ),
        (
            "503",
            vec![refuses(Refusal::Unavailable, None), cut()],
            Meanwhile::Nothing,
        ),
        (
            "504",
            vec![refuses(Refusal::Timeout, None), cut()],
            Meanwhile::Nothing,
        ),
        (
            "slow answers",
            vec![Fault::SlowBodies {
                bytes_per_second: 200,
            }],
            Meanwhile::Perhaps,
        ),
        (
            "answers that break off",
            vec![Fault::TruncateBodies { after: 40 }, cut()],
            Meanwhile::Nothing,
        ),
    ]
}

/// One fault of a round: its node, the fault, and what the node can know meanwhile.
struct Met {
    node: u8,
    what: &'static str,
    faults: Vec<ApiFault>,
    meanwhile: Meanwhile,
}

/// Faults at the same time, each on nodes of its own. A stopped API server affects all nodes that use it.
fn rounds() -> Vec<Vec<Met>> {
    let at = |node: u8, (what, wrong, meanwhile): Wrong| Met {
        node,
        what,
        faults: wrong
            .into_iter()
            .map(|fault| ApiFault::Answers {
                server: None,
                clients: Clients::User(users::node(&format!("node{node}"))),
                fault,
            })
            .collect(),
        meanwhile,
    };
    let mut wrongs = wrongs().into_iter();
    let mut rounds = Vec::new();
    while wrongs.len() > 0 {
        rounds.push(
            MEETING
                .into_iter()
                .zip(wrongs.by_ref())
                .map(|(node, wrong)| at(node, wrong))
                .collect(),
        );
    }
    for (what, how) in [
        ("its API server stopped", Stop::Term),
        ("its API server killed", Stop::Kill),
    ] {
        rounds.push(vec![Met {
            node: 1,
            what,
            faults: vec![ApiFault::Down { server: 1, how }],
            meanwhile: Meanwhile::Nothing,
        }]);
    }
    rounds
}

/// A Service that one backend serves at a time.
struct Shop {
    test: TestLab,
    /// Addresses of b1 and b2.
    backends: [String; 2],
    /// Index of the current one.
    current: usize,
}

impl Shop {
    async fn open(test: TestLab) -> Self {
        let mut backends = [String::new(), String::new()];
        for (number, address) in (1..).zip(&mut backends) {
            *address = test
                .server(&format!("b{number}"), &format!("node{number}"), false)
                .await;
        }
        for number in 1..=NODES {
            let args = ["serve", "--name", "client", "--tcp", "9090"];
            test.create(&pod(
                &format!("client{number}"),
                &format!("node{number}"),
                false,
                &args,
            ))
            .await;
        }
        for number in 1..=NODES {
            test.pod(&format!("client{number}"), super::support::is_ready)
                .await;
        }
        let shop = Self {
            test,
            backends,
            current: 0,
        };
        let service = json!({
            "metadata": {"name": "shop"},
            "spec": {"clusterIP": VIP, "ports": [{"port": 80, "targetPort": 8080}]},
        });
        let services: Api<Service> = Api::namespaced(shop.test.lab.cluster().client(), "default");
        let service = serde_json::from_value(service).expect("a Service");
        services
            .create(&PostParams::default(), &service)
            .await
            .expect("create the Service");
        let slice = json!({
            "metadata": {"name": "shop", "labels": {"kubernetes.io/service-name": "shop"}},
            "addressType": "IPv4",
            "endpoints": shop.endpoints(),
            "ports": [{"port": 8080, "protocol": "TCP", "name": ""}],
        });
        let slice = serde_json::from_value(slice).expect("an EndpointSlice");
        shop.slices()
            .create(&PostParams::default(), &slice)
            .await
            .expect("create the slice");
        shop
    }

    fn slices(&self) -> Api<EndpointSlice> {
        Api::namespaced(self.test.lab.cluster().client(), "default")
    }

    fn endpoints(&self) -> Value {
        json!([{"addresses": [self.backends[self.current]], "conditions": {"ready": true}}])
    }

    fn identity(&self) -> String {
        format!("b{}/TCP/8080", self.current + 1)
    }

    /// Changes to the other backend.
    async fn replace(&mut self) {
        self.current = 1 - self.current;
        let patch = json!({ "endpoints": self.endpoints() });
        self.slices()
            .patch("shop", &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .expect("patch the slice");
    }

    async fn dial(&self, node: u8) -> Outcome {
        let client: Place = in_pod(&format!("client{node}"));
        self.test.dial(&client, Transport::Tcp, VIP, 80).await
    }

    /// The replaced backend still answers first on a node; a busy machine may miss the limit of an attempt.
    async fn is_still_served_by(&self, before: &str, node: u8, when: &str) {
        let deadline = Instant::now() + LIMIT;
        loop {
            let outcome = self.dial(node).await;
            match &outcome {
                Outcome::Answered { answer, .. } if answer.identity == before => return,
                Outcome::Timeout { .. } if Instant::now() < deadline => {}
                _ => panic!("{when}: expected {before} while the fault lasts, found {outcome:?}"),
            }
        }
    }

    /// Waits until clients on a node reach the current backend alone.
    async fn is_served_on(&self, node: u8, when: &str) {
        let began = Instant::now();
        let mut row = 0;
        while row < IN_A_ROW {
            let outcome = self.dial(node).await;
            match &outcome {
                Outcome::Answered { answer, .. } if answer.identity == self.identity() => row += 1,
                _ => row = 0,
            }
            assert!(
                began.elapsed() < LIMIT,
                "{when}: node{node} does not reach {} after {LIMIT:?}, but {outcome:?}",
                self.identity()
            );
        }
        eprintln!("{when}: node{node} after {:.1} s", began.elapsed().as_secs_f64());
    }

    async fn is_served_everywhere(&self, when: &str) {
        join_all((1..=NODES).map(|node| self.is_served_on(node, when))).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_proxy_by_nftables_converges_after_every_fault_of_the_api_servers() {
    converges("nftables", "nft").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_proxy_by_iptables_converges_after_every_fault_of_the_api_servers() {
    converges("iptables", "iptables").await;
}

/// kube-proxy in one mode, in which it calls this program.
async fn converges(mode: &str, calls: &str) {
    let folder = PathBuf::from(std::env::var_os(KUBERNETES).unwrap_or_default());
    if !privileged() || !testing::programs_or_skip(&testing::current(), &[calls, "kube-proxy"], &[folder]) {
        return;
    }
    let up = TestLab::up_with(mode, |config| {
        config.agent = AgentCommand::of_target(&format!("kube-proxy-{mode}"), None).expect("the target");
        config.nodes = NODES;
        config.control_plane = ControlPlane {
            servers: 2,
            advertise: Advertise::Own,
            programs: None,
        };
    });
    let Some(test) = up.await else {
        return;
    };
    let mut shop = Shop::open(test).await;
    shop.is_served_everywhere("before").await;
    for round in rounds() {
        let before = shop.identity();
        let mut held = Vec::new();
        for fault in round.iter().flat_map(|met| &met.faults) {
            held.push(
                shop.test
                    .control_plane()
                    .begin(fault, LASTS)
                    .await
                    .expect("it begins"),
            );
        }
        shop.replace().await;
        shop.is_served_on(WELL, "elsewhere, meanwhile").await;
        for met in round.iter().filter(|met| met.meanwhile == Meanwhile::Nothing) {
            shop.is_still_served_by(&before, met.node, met.what).await;
        }
        for fault in held {
            fault.end().await.expect("it ends");
        }
        join_all(round.iter().map(|met| shop.is_served_on(met.node, met.what))).await;
        shop.is_served_everywhere("afterwards").await;
    }
    shop.test
        .control_plane()
        .jump_versions(1_000_000)
        .await
        .expect("a jump");
    shop.replace().await;
    shop.is_served_everywhere("the resourceVersion jumped").await;
    for node in 1..=NODES {
        let node = format!("node{node}");
        let agent = shop.test.agents().state(&node).await.expect("the agent");
        assert_eq!((agent.starts, agent.last_exit), (1, None), "{node}");
    }
}
