//! `dual-stack-families-apart`: of a Service of both families, emptying the EndpointSlice of one leaves the other family
//! serving, and both families of another Service whose name begins with its own and that shares the backend; also after
//! that one is changed. The emptied family is refused.
//!
//! Which family is emptied is an axis. The backend answers in both families all along.
use std::time::Duration;

use cluster::Family;
use futures::try_join;
use harness::{
    background::{Background, hold_steadily},
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    fence,
    frontends::{self, Frontends},
    names::Key,
    objects::annotation,
    pods::{Backend, endpoints},
    probing::{self, identities},
    verdict::Halt,
    waiting::Within,
};
use oracle::history::Transport;
use serde_json::json;

pub(crate) const CASE: Case = Case {
    id: "dual-stack-families-apart",
    area: super::AREA,
    claims: &["dual-stack-families-apart"],
    sentence: "emptying one family of a Service touches neither its other family nor another Service of the same backend",
    tier: Tier::Core,
    features: &["dual-stack"],
    needs: Needs {
        nodes: 1,
        families: Families::DualStack,
        rights: Rights::Api,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("dual_stack_families_apart.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const PORT: u16 = 7480;
const TARGET: u16 = 8080;
const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Udp];

/// A Service one of whose families is emptied, and the other Service, whose name begins with its own.
struct Pair {
    axis: String,
    emptied: Family,
    service: Key,
    slice: Key,
    other: Key,
    /// What is emptied.
    empty: Vec<Destination>,
    /// What must go on.
    keeps: Vec<Destination>,
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: pairs of Services of both families, with one backend");
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &["b"], &[TARGET], &[TARGET]).await?;
    let families = vec![Family::IPv4, Family::IPv6];
    let families = cx.axes().choose(families, |family| format!("{family} emptied"));
    let mut pairs = Vec::new();
    for family in families {
        pairs.push(stage(cx, family, &backends).await?);
    }
    let all = |of: fn(&Pair) -> &[Destination]| pairs.iter().flat_map(of).cloned().collect::<Vec<_>>();
    let (empty, keeps) = (all(|pair| &pair.empty), all(|pair| &pair.keeps));
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let both = [empty.clone(), keeps.clone()].concat();
    probing::control(
        cx,
        "both families of both Services serve",
        cx.clients(),
        &both,
        within,
    )
    .await?;

    cx.phase("fault: one family is emptied");
    for pair in &pairs {
        cx.objects()
            .patch(&pair.slice, json!({ "endpoints": [] }))
            .await?;
    }
    let within = Within::from_now(cx.limits().endpoints);
    fence::pass(cx).await?;

    cx.phase("trigger: both Services are changed; verdict: all others are served for the hold time");
    let hold = cx.limits().hold;
    let kept = Background::start(cx, cx.clients(), &keeps, hold).await?;
    for pair in &pairs {
        for service in [&pair.other, &pair.service] {
            let change = annotation("plumbline.example/trigger", &pair.emptied.to_string());
            cx.objects().patch(service, change).await?;
        }
    }
    fence::pass(cx).await?;
    let refuses: Vec<Destination> = empty
        .iter()
        .map(|target| Destination::refuses(&target.axis, &target.name, target.transport, target.address))
        .collect();
    let kept = kept.counting_from_now();
    probing::judge(cx, cx.clients(), &refuses, within).await?;
    let (refused, _) = try_join!(hold_steadily(cx, cx.clients(), &refuses, hold), kept.hold(cx))?;
    for pair in &pairs {
        let of_pair: Vec<_> = refused
            .iter()
            .filter(|attempt| {
                pair.empty
                    .iter()
                    .any(|target| target.address == attempt.destination)
            })
            .cloned()
            .collect();
        probing::trap_untouched(cx, &pair.axis, &of_pair, &backends[0]).await?;
    }
    Ok(())
}

async fn stage(cx: &Context, emptied: Family, backends: &[Backend]) -> Result<Pair, Halt> {
    let namespace = cx.namespace().await?;
    let axis = format!("{emptied} emptied");
    let name = format!("t-{emptied}").to_lowercase();
    let create = async |service: &str| {
        let values = json!({
            "namespace": namespace, "service": service,
            "ipv4": endpoints(backends, Family::IPv4)?, "ipv6": endpoints(backends, Family::IPv6)?,
        });
        let made = Frontends::create_dual(cx, &values).await?;
        for slice in ["${service}-ipv4", "${service}-ipv6"] {
            cx.apply(slice, &values).await?;
        }
        Ok::<_, Halt>(made)
    };
    let at = |made: &[Frontends]| {
        let of = |one: &Frontends| {
            TRANSPORTS.map(|transport| {
                let by = identities(backends, transport, TARGET);
                one.at_cluster_ip(&axis, transport, PORT, &by)
            })
        };
        made.iter().flat_map(of).collect::<Vec<Destination>>()
    };
    let made = create(&name).await?;
    let other = create(&format!("{name}-ext")).await?;
    let (empty, keeps): (Vec<_>, Vec<_>) = at(&made)
        .into_iter()
        .partition(|target| emptied.has(&target.address.ip()));
    Ok(Pair {
        slice: Key::slice(
            &namespace,
            &format!("{name}-{}", emptied.to_string().to_lowercase()),
        ),
        service: made[0].service.clone(),
        other: other[0].service.clone(),
        keeps: [keeps, at(&other)].concat(),
        emptied,
        axis,
        empty,
    })
}
