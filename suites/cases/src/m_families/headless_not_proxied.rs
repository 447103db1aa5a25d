//! `headless-not-proxied`: what clients send to addresses of pods arrives as it was sent, at any port: endpoints of a
//! headless Service, of another one with a ClusterIP and node ports, or of both. From pods the source is kept, too.
//!
//! The pods serve the number of the Service's port as well as its target: a proxy that compares port numbers alone
//! redirects the one to the other, and the identity of the port tells.
use std::time::Duration;

use cluster::Family;
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    fence, frontends,
    pods::{Backend, endpoints},
    probing::{self, identities},
    verdict::Halt,
    waiting::Within,
};
use oracle::history::Transport;
use serde_json::json;

pub(crate) const CASE: Case = Case {
    id: "headless-not-proxied",
    area: super::AREA,
    claims: &["headless-not-proxied"],
    sentence: "traffic to addresses of pods arrives unchanged, whichever Services they are endpoints of",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Namespaced,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("headless_not_proxied.yaml"),
    longest: Duration::from_secs(240),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

/// The port of the Services, and that of their endpoints, as in the manifest; one that no Service has.
const PORTS: [u16; 3] = [7480, 8080, 9090];
const TRANSPORTS: [Transport; 3] = [Transport::Tcp, Transport::Udp, Transport::UdpConnected];
/// By endpoint: of the headless Service alone, of both, of the other Service alone.
const BACKENDS: [&str; 3] = ["headless", "both", "other"];

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: pods, and no Service yet");
    let namespace = cx.namespace().await?;
    let pods = frontends::serving(cx, &namespace, &BACKENDS, &PORTS, &PORTS).await?;
    let mut targets = Vec::new();
    for family in cx.families() {
        targets.extend(at_pods(family, &pods)?);
    }
    let within = Within::from_now(cx.limits().endpoints);
    probing::control(cx, "the pods answer", cx.clients(), &targets, within).await?;

    cx.phase("the Services, of which they become endpoints");
    for family in cx.families() {
        for (name, kind, cluster_ip, of) in [
            ("headless", "ClusterIP", json!("None"), &pods[..2]),
            ("balanced", "NodePort", json!(null), &pods[1..]),
        ] {
            let values = json!({
                "namespace": namespace, "service": format!("{name}-{family}").to_lowercase(), "type": kind,
                "cluster_ip": cluster_ip, "family": family.to_string(), "endpoints": endpoints(of, family)?,
            });
            cx.apply("${service}", &values).await?;
        }
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;

    cx.phase("verdict: what is sent to pods arrives unchanged");
    let attempts = probing::judge(cx, cx.clients(), &targets, within).await?;
    probing::judge_unchanged(cx, cx.clients(), &targets, &attempts);
    Ok(())
}

/// Each port of each pod, at its own address.
fn at_pods(family: Family, pods: &[Backend]) -> Result<Vec<Destination>, Halt> {
    let axis = family.to_string();
    let mut targets = Vec::new();
    for pod in pods {
        for port in PORTS {
            let address = (pod.address(family)?, port).into();
            let at = |transport| {
                let by = identities([pod], transport, port);
                Destination::serves(&axis, pod.plain(), transport, address, by)
            };
            targets.extend(TRANSPORTS.map(at));
        }
    }
    Ok(targets)
}
