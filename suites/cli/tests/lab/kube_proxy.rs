//! Kubernetes' own kube-proxy, unmodified, on API servers that go wrong. It is judged by packets: whatever happened, its
//! node comes to reach who the EndpointSlice lists.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use k8s_openapi::api::{core::v1::Service, discovery::v1::EndpointSlice};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use lab::{
    cluster::{ApiFault, Clients, Cluster, Fault, Place, Refusal, Stop, users},
    embedded::{Advertise, AgentCommand, ControlPlane, KUBERNETES},
};
use oracle::history::{Outcome, Transport};
use serde_json::{Value, json};

use super::support::{LIMIT, TestLab, in_pod, pod, privileged};

/// From the end of a fault to the change on the node. client-go waits 30 s at most before it asks again, and lengthens
/// that by chance to the double; as long again for a busy machine.
const CONVERGES: Duration = Duration::from_secs(120);
/// Longer than any fault here lasts.
const LASTS: Duration = Duration::from_secs(300);
/// So many answers in a row are no chance.
const IN_A_ROW: usize = 3;
const VIP: &str = "10.96.77.77";

/// What a node sees of a change while the fault lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meanwhile {
    /// Nothing: its kube-proxy can't know.
    Nothing,
    /// Perhaps the change: a list or a part of a watch gets through.
    Perhaps,
}

fn answers(fault: Fault) -> ApiFault {
    ApiFault::Answers {
        server: None,
        clients: Clients::User(users::node("node1")),
        fault,
    }
}

fn refuses(refusal: Refusal, retry_after: Option<u32>) -> ApiFault {
    answers(Fault::Refuse { refusal, retry_after })
}

/// Every kind of fault. Those that touch only new requests come with watches that break, or nobody would make any.
fn faults() -> Vec<(&'static str, Vec<ApiFault>, Meanwhile)> {
    let cut = || {
        answers(Fault::CutWatches {
            after: Duration::ZERO,
        })
    };
    let down = |how| vec![ApiFault::Down { server: 1, how }];
    let late = Duration::from_secs(250);
    vec![
        ("watches are cut", vec![cut()], Meanwhile::Perhaps),
        (
            "events are late",
            vec![answers(Fault::DelayEvents { by: late })],
            Meanwhile::Nothing,
        ),
        (
            "events are lost until a new list",
            vec![answers(Fault::DropEvents)],
            Meanwhile::Nothing,
        ),
        ("410 Gone", vec![answers(Fault::Expire)], Meanwhile::Perhaps),
        ("an old state", vec![answers(Fault::Lag)], Meanwhile::Nothing),
        (
            "lists of an old state",
            vec![answers(Fault::Lag), cut()],
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
            vec![answers(Fault::SlowBodies {
                bytes_per_second: 200,
            })],
            Meanwhile::Perhaps,
        ),
        (
            "answers that break off",
            vec![answers(Fault::TruncateBodies { after: 40 }), cut()],
            Meanwhile::Nothing,
        ),
        ("its API server stopped", down(Stop::Term), Meanwhile::Nothing),
        ("its API server killed", down(Stop::Kill), Meanwhile::Nothing),
    ]
}

/// A Service that one backend serves at a time.
struct Shop {
    test: TestLab,
    /// Addresses of b1 and b2.
    backends: [String; 2],
    /// Which of them it is.
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
        for number in 1..=2 {
            let args = ["serve", "--name", "client", "--tcp", "9090"];
            let name = format!("client{number}");
            test.create(&pod(&name, &format!("node{number}"), false, &args))
                .await;
            test.pod(&name, super::support::is_ready).await;
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
        let services: Api<Service> = Api::namespaced(shop.test.lab.client(), "default");
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
        Api::namespaced(self.test.lab.client(), "default")
    }

    fn endpoints(&self) -> Value {
        json!([{"addresses": [self.backends[self.current]], "conditions": {"ready": true}}])
    }

    fn identity(&self) -> String {
        format!("b{}/TCP/8080", self.current + 1)
    }

    /// From now on it is the other one.
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

    /// The first who answers on node1 is the backend that was replaced; a busy machine may miss the limit of an attempt.
    async fn is_still_served_by(&self, before: &str, when: &str) {
        let deadline = Instant::now() + LIMIT;
        loop {
            let outcome = self.dial(1).await;
            match &outcome {
                Outcome::Answered { answer, .. } if answer.identity == before => return,
                Outcome::Timeout { .. } if Instant::now() < deadline => {}
                _ => panic!("{when}: expected {before} while the fault lasts, found {outcome:?}"),
            }
        }
    }

    /// Waits until clients on a node reach the current backend, and no other.
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
                began.elapsed() < CONVERGES,
                "{when}: node{node} does not reach {} after {CONVERGES:?}, but {outcome:?}",
                self.identity()
            );
        }
        eprintln!("{when}: node{node} after {:.1} s", began.elapsed().as_secs_f64());
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

/// In one of its modes, which calls a program.
async fn converges(mode: &str, calls: &str) {
    let folder = PathBuf::from(std::env::var_os(KUBERNETES).unwrap_or_default());
    if !privileged() || !testing::programs_or_skip(&testing::current(), &[calls, "kube-proxy"], &[folder]) {
        return;
    }
    let up = TestLab::up_with(mode, |config| {
        config.agent = AgentCommand::of_target(&format!("kube-proxy-{mode}"), None).expect("the target");
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
    for node in 1..=2 {
        shop.is_served_on(node, "before").await;
    }
    for (what, faults, meanwhile) in faults() {
        let before = shop.identity();
        let mut held = Vec::new();
        for fault in &faults {
            held.push(shop.test.lab.api_fault(fault, LASTS).await.expect("it begins"));
        }
        shop.replace().await;
        shop.is_served_on(2, &format!("{what}, elsewhere")).await;
        if meanwhile == Meanwhile::Nothing {
            shop.is_still_served_by(&before, what).await;
        }
        for fault in held {
            fault.end().await.expect("it ends");
        }
        shop.is_served_on(1, what).await;
    }
    shop.test.lab.jump_versions(1_000_000).await.expect("a jump");
    shop.replace().await;
    for node in 1..=2 {
        shop.is_served_on(node, "the resourceVersion jumped").await;
    }
    for node in ["node1", "node2"] {
        let agent = shop.test.lab.agent(node).await.expect("the agent");
        assert_eq!((agent.starts, agent.last_exit), (1, None), "{node}");
    }
}
