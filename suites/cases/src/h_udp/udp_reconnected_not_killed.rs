//! `udp-reconnected-not-killed`: sockets that were connected to a Service and are connected elsewhere now, by a second
//! `connect`, go on without an error when their former backend leaves that Service: to another Service's backend, to a
//! Service that keeps the former backend, and to that backend's own address.
use std::time::Duration;

use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    fence, frontends,
    lasting_sockets::{Sockets, Which},
    probing::{self, identities},
    verdict::Halt,
    waiting::{Looks, Within},
    write_effect::{self, Effect},
};
use oracle::{history::Transport, peer::Shows};

use super::staging::{PORT, Service, TARGET};

pub(crate) const CASE: Case = Case {
    id: "udp-reconnected-not-killed",
    area: super::AREA,
    claims: &["udp-reconnected-not-killed"],
    sentence: "a UDP socket that has connected elsewhere since goes on when its former backend leaves",
    tier: Tier::Robustness,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Api,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("served.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// Where the sockets go.
const ELSEWHERE: [&str; 3] = ["another backend", "a Service that keeps it", "the backend itself"];
/// Of each client.
const SOCKETS: u32 = 4;

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: sockets are connected to a Service, and then elsewhere");
    let namespace = cx.namespace().await?;
    let all = frontends::serving(cx, &namespace, &["former", "other"], &[], &[TARGET]).await?;
    let (former, other) = all.split_at(1);
    let (mut services, mut firsts, mut seconds) = (Vec::new(), Vec::new(), Vec::new());
    for family in cx.families() {
        let named = |name| (&*namespace, name);
        let first = Service::create(cx, family, named("first"), &[], former).await?;
        let apart = Service::create(cx, family, named("apart"), &[], other).await?;
        let keeps = Service::create(cx, family, named("keeps"), &[], former).await?;
        let connected = Transport::UdpConnected;
        let [of_former, of_other] = [former, other].map(|by| identities(by, connected, TARGET));
        let axis = |elsewhere: &str| format!("{family}, {elsewhere}");
        for elsewhere in ELSEWHERE {
            firsts.push(
                first
                    .made
                    .at_cluster_ip(&axis(elsewhere), connected, PORT, &of_former),
            );
        }
        let itself = (former[0].address(family)?, TARGET).into();
        seconds.push(
            apart
                .made
                .at_cluster_ip(&axis(ELSEWHERE[0]), connected, PORT, &of_other),
        );
        seconds.push(
            keeps
                .made
                .at_cluster_ip(&axis(ELSEWHERE[1]), connected, PORT, &of_former),
        );
        let direct = Destination::serves(&axis(ELSEWHERE[2]), "itself", connected, itself, of_former);
        seconds.push(direct);
        services.push(first);
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let both = [firsts.clone(), seconds.clone()].concat();
    probing::control(cx, "all of them serve", cx.clients(), &both, within).await?;
    let mut reconnected = Vec::new();
    for (first, second) in firsts.iter().zip(&seconds) {
        if !cx.axes().is_open(&second.axis) {
            continue;
        }
        let mut sockets = Sockets::keep(cx, cx.clients()).await?;
        for target in [first, second] {
            let shows = Shows::FrontendOrBackend;
            let (_, findings) = sockets
                .exchange(cx, target, Which::Oldest(SOCKETS), shows)
                .await?;
            if !findings.is_empty() {
                let why = "control failed (the sockets are answered)".to_owned();
                cx.axes().inconclusive(&target.axis, why, findings);
            }
        }
        reconnected.push((sockets, second));
    }

    cx.phase("fault: the former backend leaves the Service");
    for service in &services {
        service.list(cx, other).await?;
    }
    let within = Within::from_now(cx.limits().endpoints);
    fence::pass(cx).await?;
    let of_other = identities(other, Transport::UdpConnected, TARGET);
    let left = frontends::permitting(&firsts, &oracle::check::Permitted::Serves(of_other));
    let (effect, what) = (Effect::Left, "the former backend has left");
    write_effect::takes_effect(cx, effect, what, cx.clients(), &left, within).await?;

    cx.phase("verdict: the sockets go on as they are");
    let mut looks = Looks::throughout(cx.limits().hold);
    loop {
        for (sockets, second) in &mut reconnected {
            if cx.axes().is_open(&second.axis) {
                let (all, shows) = (Which::Staying(SOCKETS), Shows::FrontendOrBackend);
                let (_, findings) = sockets.exchange(cx, second, all, shows).await?;
                cx.axes().judged(&second.axis, findings);
            }
        }
        if !looks.again().await {
            return Ok(());
        }
    }
}
