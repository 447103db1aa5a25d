//! `pod-ip-reuse`: the only backend of a Service falls silent, its address passes to a pod of another Service, and the
//! first Service gets another backend. Connections that clients have begun before, whose SYN is sent again after the
//! address has passed, and new ones through the first Service's frontends never reach the new owner, which listens on the
//! same port.
//!
//! The address is moved from pod to pod by the case, as long after the write that takes it from the first Service as a probe
//! may take: before the SYN is sent for the fourth time. That the new owner answers at it is seen through its own Service.
use std::time::{Duration, Instant};

use cluster::Capability;
use harness::{
    background,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    fence,
    frontends::{self, Frontends, Vantage, permitting},
    half_open::HalfOpen,
    names::Key,
    pod_addresses,
    pods::{Backend, endpoints, serve},
    probing::{self, identities},
    verdict::Halt,
    waiting::{Within, has_lasted},
    write_effect::{self, Effect},
};
use oracle::{check::Permitted, history::Transport};
use serde_json::json;

pub(crate) const CASE: Case = Case {
    id: "pod-ip-reuse",
    area: super::AREA,
    claims: &["pod-ip-reuse"],
    sentence: "connections through a Service, begun before or new, never reach the pod that has got its backend's address",
    tier: Tier::Core,
    features: &[],
    // An address of a pod is moved on its node.
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Node,
        also: &[Capability::HostNetwork],
        target: &[],
    },
    disruptive: true,
    manifest: include_str!("pod_ip_reuse.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const PORT: u16 = 7480;
const TARGET: u16 = 8080;
/// Connections that each client has begun to each frontend when the address passes.
const BEGUN: u32 = 5;

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: a Service, and another one without endpoints");
    let namespace = cx.namespace().await?;
    let pod = |(name, node): (&str, usize)| {
        let args = serve(name, &namespace, &[TARGET], &[]);
        json!({ "name": name, "namespace": namespace, "node": cx.nodes()[node], "args": args })
    };
    let pods = [("former", 0), ("owner", 0), ("other", 1)].map(pod);
    let pods = cx.backends(&pods).await?;
    let [former, owner, other] = &pods[..] else {
        return Err(Halt::Harness("there are not three pods".to_owned()));
    };
    let (mut firsts, mut seconds, mut dialled) = (Vec::new(), Vec::new(), Vec::<Vantage>::new());
    let by = |backend: &Backend| identities([backend], Transport::Tcp, TARGET);
    let mut of_owner = Vec::new();
    for family in cx.families() {
        let create = async |name: &str, backends: &[Backend]| {
            let service = format!("{name}-{family}").to_lowercase();
            let endpoints = endpoints(backends, family)?;
            let values = json!({ "namespace": namespace, "service": service, "endpoints": endpoints });
            Frontends::create(cx, family, values).await
        };
        let first = create("first", std::slice::from_ref(former)).await?;
        let second = create("second", &[]).await?;
        let axis = |kind: &str| format!("{family}, {kind}");
        let cip = first.at_cluster_ip(&axis("cip"), Transport::Tcp, PORT, &by(former));
        let nodes = first.at_nodes(cx, &axis("np"), Transport::Tcp, &by(former))?;
        let inside = [vec![cip], nodes.clone()].concat();
        dialled.extend(frontends::vantages(cx, inside, nodes));
        for kind in ["cip", "np"] {
            of_owner.push(second.at_cluster_ip(&axis(kind), Transport::Tcp, PORT, &by(owner)));
        }
        firsts.push((first, family));
        seconds.push((second, family));
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    for (clients, targets) in &dialled {
        probing::control(cx, "the first Service serves", clients, targets, within).await?;
    }

    cx.phase("fault: the backend falls silent, and connections are begun");
    pod_addresses::silence(cx, &cx.families(), former).await?;
    let mut begun = Vec::new();
    for (clients, targets) in &dialled {
        begun.push(HalfOpen::begin(cx, clients, targets, BEGUN, cx.limits().endpoints).await?);
    }
    has_lasted(Instant::now(), cx.limits().exchange * (BEGUN + 1)).await;
    if !begun.iter().all(HalfOpen::are_waiting) {
        let why = "connections to a silent backend ended before its address passed";
        return Err(Halt::Inconclusive(why.to_owned()));
    }

    cx.phase("fault: it leaves its Service, and its address passes to a pod of another");
    for (first, family) in &firsts {
        list(cx, &namespace, first, &endpoints([other], *family)?).await?;
    }
    let (left, within) = (Instant::now(), Within::from_now(cx.limits().endpoints));
    fence::pass(cx).await?;
    has_lasted(left, cx.limits().probe).await;
    pod_addresses::pass(cx, &cx.families(), former, owner).await?;
    for (second, family) in &seconds {
        list(cx, &namespace, second, &endpoints([former], *family)?).await?;
    }
    fence::pass(cx).await?;
    let (effect, what) = (Effect::Listed, "the new owner serves its own Service");
    write_effect::takes_effect(cx, effect, what, cx.clients(), &of_owner, within).await?;

    cx.phase("verdict: new connections reach the first Service's other backend, and begun ones never the new owner");
    let now: Vec<Vantage> = dialled
        .iter()
        .map(|(clients, targets)| {
            (
                clients.clone(),
                permitting(targets, &Permitted::Serves(by(other))),
            )
        })
        .collect();
    background::judge_held(cx, &now, within).await?;
    for (half_open, (_, targets)) in begun.into_iter().zip(&dialled) {
        let attempts = half_open.end().await?;
        for target in targets {
            let own: Vec<_> = attempts
                .iter()
                .filter(|attempt| attempt.destination == target.address)
                .cloned()
                .collect();
            probing::trap_untouched(cx, &target.axis, &own, owner).await?;
        }
    }
    Ok(())
}

async fn list(
    cx: &Context,
    namespace: &str,
    service: &Frontends,
    endpoints: &serde_json::Value,
) -> Result<(), Halt> {
    let slice = Key::slice(namespace, &service.service.name);
    cx.objects()
        .patch(&slice, json!({ "endpoints": endpoints }))
        .await
        .map(drop)
}
