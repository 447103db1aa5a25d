//! `release-port-scoped`: (i) one Service has ports `p` and `p-x` in two EndpointSlices of the same address: emptying
//! one leaves the other. (ii) The culprit uses port 80 of a backend, the victim 8080. (iii) The culprit uses port 53
//! with TCP, the victim with UDP. The victim serves after a trigger in all three.
//!
//! Only the port numbers differ here. The backend answers on every port with an identity of that port, so that a wrong
//! port shows.
use std::{net::IpAddr, time::Duration};

use cluster::Family;
use harness::{
    agents,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    pods::{Backend, endpoints},
    verdict::Halt,
    write_effect::Effect,
};
use oracle::history::Transport;
use serde_json::{Value, json};

use super::{
    holders::{Hold, Holder, SHARED, Wanted, all_serve, backends, released, some, target, undisturbed},
    pairs::Point,
};

pub(crate) const CASE: Case = Case {
    id: "release-port-scoped",
    area: super::AREA,
    claims: &["release-port-scoped"],
    sentence: "a port keeps its backends when another port or protocol drops the same addresses",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Api,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("release_port_scoped.yaml"),
    longest: Duration::from_secs(420),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const BOTH: &[Transport] = &[Transport::Tcp, Transport::Udp];

/// What culprit and victim share, in addition to the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// The Service: culprit and victim are ports of it.
    OneService,
    /// Nothing.
    OtherPort,
    /// The number of the backends' port.
    OtherProtocol,
}

const SHAPES: [(Shape, &str); 3] = [
    (Shape::OneService, "two ports of one Service"),
    (Shape::OtherPort, "two ports of the backends"),
    (Shape::OtherProtocol, "two protocols of one port"),
];

/// One port of a Service, in one protocol or both, with an EndpointSlice of its own.
#[derive(Clone, Copy)]
struct Part {
    service: &'static str,
    slice: &'static str,
    /// End of its ports' names.
    ending: &'static str,
    number: u16,
    target: u16,
    transports: &'static [Transport],
}

/// Culprit and victim of a shape, whose backends listen on two ports.
fn parts(shape: Shape, targets: [u16; 2]) -> [Part; 2] {
    let culprit = Part {
        service: "t",
        slice: "t",
        ending: "",
        number: 7480,
        target: targets[0],
        transports: BOTH,
    };
    let victim = Part {
        service: "t-ext",
        slice: "t-ext",
        ..culprit
    };
    match shape {
        Shape::OneService => {
            let victim = Part {
                service: "t",
                ending: "-x",
                number: 7481,
                target: targets[1],
                ..victim
            };
            [culprit, victim]
        }
        Shape::OtherPort => {
            let target = targets[1];
            [culprit, Part { target, ..victim }]
        }
        Shape::OtherProtocol => {
            let (tcp, udp) = BOTH.split_at(1);
            let culprit = Part {
                transports: tcp,
                ..culprit
            };
            let victim = Part {
                transports: udp,
                ..victim
            };
            [culprit, victim]
        }
    }
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: culprit and victim list the same backends");
    let namespace = cx.namespace().await?;
    let points = points(cx);
    let all = backends(
        cx,
        &namespace,
        points.len() * 2,
        points.iter().map(|point| point.shared),
    )
    .await?;
    let mut pairs = Vec::new();
    for (at, point) in points.into_iter().enumerate() {
        let axis = point.axis();
        let Point {
            family,
            how,
            shared,
            victim_first,
            ..
        } = point;
        let [culprit, victim] = parts(how, [target(2 * at), target(2 * at + 1)]);
        let shared = some(&all, at, shared);
        let stage = Stage {
            axis: &axis,
            family,
            namespace: &cx.namespace().await?,
            backends: &shared,
        };
        let order = if victim_first {
            [victim, culprit]
        } else {
            [culprit, victim]
        };
        let mut made = stage.make(cx, order).await?;
        if victim_first {
            made.reverse();
        }
        pairs.push(made);
    }
    let agents = agents::all(cx).await?;
    all_serve(cx, pairs.iter().flatten()).await?;

    cx.phase("release: the culprit's EndpointSlice is emptied");
    let mut seen = Vec::new();
    for [culprit, _] in &mut pairs {
        culprit.list(cx, &[]).await?;
        seen.push(culprit.refuses());
    }
    let victims = || pairs.iter().map(|[_, victim]| victim);
    released(
        cx,
        (Effect::Emptied, "the culprit refuses"),
        &seen,
        victims(),
        Hold::Time,
    )
    .await?;
    undisturbed(cx, victims(), agents.as_ref()).await
}

fn points(cx: &Context) -> Vec<Point<Shape>> {
    let mut points = Vec::new();
    for family in cx.families() {
        for (how, name) in SHAPES {
            for shared in SHARED {
                for victim_first in [true, false] {
                    points.push(Point {
                        family,
                        how,
                        name,
                        shared,
                        victim_first,
                    });
                }
            }
        }
    }
    cx.axes().choose(points, Point::axis)
}

/// Where two parts are created.
struct Stage<'a> {
    axis: &'a str,
    family: Family,
    namespace: &'a str,
    backends: &'a [Backend],
}

impl Stage<'_> {
    /// Creates two parts in their order; of one Service, the Service first.
    async fn make(&self, cx: &Context, parts: [Part; 2]) -> Result<[Holder; 2], Halt> {
        let [first, second] = parts;
        if first.service == second.service {
            let address = self.service(cx, &parts).await?;
            return Ok([
                self.part(cx, first, address).await?,
                self.part(cx, second, address).await?,
            ]);
        }
        let address = self.service(cx, &[first]).await?;
        let made = self.part(cx, first, address).await?;
        let address = self.service(cx, &[second]).await?;
        Ok([made, self.part(cx, second, address).await?])
    }

    async fn service(&self, cx: &Context, parts: &[Part]) -> Result<IpAddr, Halt> {
        let ports: Vec<Value> = parts
            .iter()
            .flat_map(|part| part.ports(part.number, part.target))
            .collect();
        let values = json!({
            "service": parts[0].service,
            "namespace": self.namespace,
            "family": self.family.to_string(),
            "ports": ports,
        });
        cx.apply_service("${service}", &values).await
    }

    async fn part(&self, cx: &Context, part: Part, address: IpAddr) -> Result<Holder, Halt> {
        let mut listed = self.backends.to_vec();
        cx.shuffle(&mut listed);
        let values = json!({
            "service": part.service,
            "slice": part.slice,
            "namespace": self.namespace,
            "family": self.family.to_string(),
            "endpoints": endpoints(&listed, self.family)?,
            "ports": part.ports(part.target, part.target),
        });
        cx.apply("${slice}", &values).await?;
        let wanted = Wanted {
            axis: self.axis,
            family: self.family,
            namespace: self.namespace,
            service: part.service,
            slice: part.slice,
            target: part.target,
            backends: self.backends,
        };
        Holder::of(cx, &wanted, (address, part.number), part.transports).await
    }
}

impl Part {
    /// Its ports with this number: of a Service, with `target` as the target port, or of an EndpointSlice.
    fn ports(&self, number: u16, target: u16) -> Vec<Value> {
        let port = |transport: &Transport| {
            // `p` and `p-x`, one name for each protocol.
            let (name, protocol) = match transport {
                Transport::Tcp => ("p", "TCP"),
                _ => ("u", "UDP"),
            };
            let mut port =
                json!({ "name": format!("{name}{}", self.ending), "port": number, "protocol": protocol });
            if number != target {
                port["targetPort"] = target.into();
            }
            port
        };
        self.transports.iter().map(port).collect()
    }
}
