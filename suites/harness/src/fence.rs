//! The fence: the proof that a write has been handled.
//!
//! After write W, one Service and one slice of the suite are changed and awaited in the datapath of the node under
//! test. Watches are ordered per kind, so W has then been handled too. The fence has a namespace, a backend and
//! ports of its own, and its names share no prefix with those under test (`p…`).
//!
//! Cases also put a fence between a new Service and their first dial of it. Whoever tracks connections leaves one
//! untranslated whose first packet came before the Service's rules, as long as its entry lives (two minutes for a TCP
//! handshake), and a client that comes by the same source port again meets that entry: a kernel hands source ports out
//! often enough for a case to see it. What becomes of those who dial too early is a claim of its own
//! (`udp-not-ready-yet`).

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use futures::future::try_join_all;
use oracle::history::{Outcome, PlanEntry, Transport, Until};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::{
    case::Family,
    client::{Client, Run},
    context::Context,
    history::Event,
    objects::Key,
    pods::{Backend, pod},
    target::plan,
    verdict::Halt,
};

const NAME: &str = "signal";
/// Ports on which the fence's backend listens: the slice switches between them.
const TARGETS: [u16; 2] = [7001, 7002];
/// The Service's port is this plus the number of the fence.
const FIRST_PORT: u16 = 20_000;
/// From one look to the next, and how long each may take: before the change nobody may answer there.
const LOOK: Duration = Duration::from_millis(50);
const LOOK_LIMIT: Duration = Duration::from_millis(500);
/// Looks side by side: silent ones do not delay the one that is answered.
const LANES: usize = 4;

/// The Service and slice of the fence.
pub(crate) struct Fence {
    namespace: String,
    address: IpAddr,
    backend: Backend,
    number: Mutex<u16>,
}

impl Fence {
    /// Creates it.
    pub(crate) async fn start(cx: &Context, namespace: &str) -> Result<Self, Halt> {
        let node = cx
            .nodes()
            .into_iter()
            .next()
            .ok_or_else(|| Halt::Harness("no node".to_owned()))?;
        let family = *cx
            .families()
            .first()
            .ok_or_else(|| Halt::Harness("no family".to_owned()))?;
        let object = pod(namespace, NAME, &node, &TARGETS);
        let backend = cx.pods(vec![object]).await?.remove(0);
        let service = cx
            .objects()
            .create(&json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": { "name": NAME, "namespace": namespace },
                "spec": { "ipFamilies": [family.to_string()], "ports": service_ports(0) },
            }))
            .await?;
        let address = service.object["spec"]["clusterIP"]
            .as_str()
            .and_then(|text| text.parse().ok());
        let address =
            address.ok_or_else(|| Halt::Harness("the fence's Service has no cluster IP".to_owned()))?;
        cx.objects().create(&slice(namespace, &backend, family)?).await?;
        Ok(Self {
            namespace: namespace.to_owned(),
            address,
            backend,
            number: Mutex::new(0),
        })
    }
}

impl Context {
    /// Everything written before is handled on every node when this returns.
    pub async fn fence(&self) -> Result<(), Halt> {
        self.fence_on(&self.nodes()).await
    }

    /// Everything written before is handled on these nodes when this returns.
    ///
    /// # Errors
    /// Inconclusive if it is not seen within T_ep.
    pub async fn fence_on(&self, nodes: &[String]) -> Result<(), Halt> {
        let fence = self.fence_objects()?;
        // Held while it is awaited: the next fence would move the port away.
        let mut number = fence.number.lock().await;
        *number += 1;
        let began = Instant::now();
        let service = Key::service(&fence.namespace, NAME);
        self.objects()
            .patch(&service, json!({ "spec": { "ports": service_ports(*number) } }))
            .await?;
        let slice = Key::slice(&fence.namespace, NAME);
        self.objects()
            .patch(&slice, json!({ "ports": slice_ports(*number) }))
            .await?;
        let clients = self.pod_clients();
        let clients = clients.iter().filter(|client| nodes.contains(&client.node));
        try_join_all(clients.map(|client| self.await_fence(fence, client, *number, began))).await?;
        Ok(())
    }

    async fn await_fence(
        &self,
        fence: &Fence,
        client: &Client,
        number: u16,
        began: Instant,
    ) -> Result<(), Halt> {
        let identity = fence.backend.identity(Transport::Tcp, target(number));
        let limit = self.limits().endpoints;
        let address = SocketAddr::new(fence.address, FIRST_PORT + number);
        let looks = limit.as_millis().div_ceil(LOOK.as_millis());
        let entry = PlanEntry {
            target: format!("fence {number}"),
            transport: Transport::Tcp,
            address: address.ip(),
            port: address.port(),
            count: u32::try_from(looks).unwrap_or(u32::MAX),
            interval_ms: u64::try_from(LOOK.as_millis()).unwrap_or(u64::MAX),
            limit_ms: u64::try_from(LOOK_LIMIT.as_millis()).unwrap_or(u64::MAX),
            until: Some(Until::Identity(identity.clone())),
            flows: None,
            source_ports: None,
        };
        let plan = plan(client, vec![entry; LANES]);
        let run = Run::start(&*self.cluster, client, &plan, self.history.clone()).await?;
        let unseen = |found: &str| {
            Halt::Inconclusive(format!(
                "fence {number} was not seen on {} within {limit:?}: expected {address} served by {identity}, \
                 found {found}; what was written before it may not have been handled",
                client.node
            ))
        };
        let attempts = match tokio::time::timeout(limit, run.finish(limit + LOOK_LIMIT)).await {
            Ok(attempts) => attempts?,
            Err(_) => return Err(unseen("no end of the probes")),
        };
        let is_it = |outcome: &Outcome| matches!(outcome, Outcome::Answered { answer, .. } if answer.identity == identity);
        if !attempts.iter().any(|attempt| is_it(&attempt.outcome)) {
            let found = oracle::record::line(&oracle::record::outcomes(&attempts));
            return Err(unseen(&found));
        }
        self.history.add(&Event::Fence {
            number: u32::from(number),
            node: client.node.clone(),
            took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
        Ok(())
    }
}

fn target(number: u16) -> u16 {
    TARGETS[usize::from(number) % TARGETS.len()]
}

fn service_ports(number: u16) -> Value {
    json!([{ "name": NAME, "protocol": "TCP", "port": FIRST_PORT + number, "targetPort": target(number) }])
}

fn slice_ports(number: u16) -> Value {
    json!([{ "name": NAME, "protocol": "TCP", "port": target(number) }])
}

fn slice(namespace: &str, backend: &Backend, family: Family) -> Result<Value, Halt> {
    Ok(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": NAME, "namespace": namespace,
            "labels": {
                "kubernetes.io/service-name": NAME,
                "endpointslice.kubernetes.io/managed-by": crate::objects::MANAGER,
            },
        },
        "addressType": family.to_string(),
        "endpoints": [backend.endpoint(family, true)?],
        "ports": slice_ports(0),
    }))
}
