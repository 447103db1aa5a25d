//! `frontend-moves-owner`: a node port passes from Service A to Service B by two writes within a second, and back. From T_svc on
//! every new datagram from outside, and every further one of sockets that never pause, reaches the new owner's backend; the
//! former owner's, alive and answering, gets nothing.
//!
//! Of UDP alone: a flow that is renewed by its own datagrams would keep its former owner for ever. Load balancers' addresses,
//! external IPs and a Service port on a node's address are not tried.
use std::{net::IpAddr, time::Duration};

use harness::{
    case::{Case, Families, Family, Needs, Rights, Tier},
    context::Context,
    frontends::node_port,
    objects::Key,
    pods::{Backend, endpoints, serve},
    probing::Within,
    target::Target,
    verdict::Halt,
};
use lab::cluster::Capability;
use oracle::history::Transport;
use serde_json::json;

pub(crate) const CASE: Case = Case {
    id: "frontend-moves-owner",
    area: "D reaching a Service",
    claims: &["frontend-moves-owner"],
    sentence: "a node port that passes to another Service takes clients along that send without pause",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Api,
        also: &[Capability::Outside],
    },
    disruptive: false,
    manifest: include_str!("frontend_moves_owner.yaml"),
    longest: Duration::from_secs(600),
    // T_svc of both moves, which is waited for to its end.
    takes_at_least: Duration::from_secs(60),
    run: |cx| Box::pin(run(cx)),
};

const TARGET: u16 = 8080;
/// Sockets that send all the while, to each node.
const SOCKETS: u32 = 4;

struct Owner {
    service: Key,
    backend: Backend,
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: two Services, of which one has a node port");
    let namespace = cx.namespace().await?;
    let pods = ["a", "b"].into_iter().zip(cx.nodes()).map(|(name, node)| {
        let args = serve(name, &namespace, &[], &[TARGET]);
        json!({ "name": name, "namespace": namespace, "node": node, "args": args })
    });
    let backends = cx.backends(&pods.collect::<Vec<_>>()).await?;
    for family in cx.families() {
        let mut owners = Vec::new();
        for (backend, kind) in backends.iter().zip(["NodePort", "ClusterIP"]) {
            let service = format!("{}-{family}", backend.name).to_lowercase();
            let values = json!({
                "namespace": namespace, "service": service, "type": kind, "family": family.to_string(),
                "endpoints": endpoints([backend], family)?,
            });
            cx.apply("${service}", &values).await?;
            let (service, backend) = (Key::service(&namespace, &service), backend.clone());
            owners.push(Owner { service, backend });
        }
        let object = cx.objects().get(&owners[0].service).await?;
        let port =
            node_port(&object, "UDP").ok_or_else(|| Halt::Harness(format!("no node port: {object}")))?;
        moves(cx, family, port, [&owners[0], &owners[1]]).await?;
        moves(cx, family, port, [&owners[1], &owners[0]]).await?;
    }
    Ok(())
}

async fn moves(cx: &Context, family: Family, port: u16, [from, to]: [&Owner; 2]) -> Result<(), Halt> {
    let axis = format!("{family}, {} to {}", from.service.name, to.service.name);
    let nodes: Vec<(String, IpAddr)> = cx.node_addresses(family);
    let served_by = |owner: &Owner| {
        let serves = |(node, address): &(String, IpAddr)| {
            let itself = [owner.backend.identity(Transport::Udp, TARGET)];
            Target::serves(&axis, node, Transport::Udp, (*address, port).into(), itself)
        };
        nodes.iter().map(serves).collect::<Vec<Target>>()
    };
    let (before, after) = (served_by(from), served_by(to));
    let clients: Vec<_> = cx.outside().into_iter().collect();
    cx.phase("control: the node port leads to its owner, and sockets begin to send");
    let within = Within::from_now(cx.limits().service);
    cx.fence().await?;
    cx.control("its owner serves", &clients, &before, within).await?;
    let flows = cx.flows(&clients, &before, SOCKETS, within).await?;

    cx.phase("fault: the node port passes to the other Service");
    let released = json!({ "spec": { "type": "ClusterIP" } });
    cx.objects().patch(&from.service, released).await?;
    let ports = json!([{ "name": "udp", "port": 80, "protocol": "UDP", "nodePort": port }]);
    let taken = json!({ "spec": { "type": "NodePort", "ports": ports } });
    cx.objects().patch(&to.service, taken).await?;
    let within = Within::from_now(cx.limits().service);
    cx.fence().await?;

    cx.phase("verdict: fresh sockets reach the new owner, and so do those that never paused");
    cx.judge(&clients, &after, within).await?;
    cx.hold_moved(flows, &clients, &after, within).await
}
