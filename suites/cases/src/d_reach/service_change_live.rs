//! `service-change-live`: a changed port, node port, target port or type takes effect within the Service propagation
//! limit. New frontends serve, those that the Service no longer has reach no backend though its backends live, and those
//! that did not change are probed throughout and never fail. Then everything is changed back.
//!
//! What leads to a Service before and after is read from its object: the difference is judged. Each change has a Service
//! of its own, and all are made at once. The types of one Service change in a row, down to `ExternalName`. Node ports
//! are such that API servers do not hand out by themselves (KEP-3668): no other Service gets them meanwhile.
use std::{net::IpAddr, time::Duration};

use cluster::{Capability, Family};
use futures::future::try_join_all;
use harness::{
    background::Background,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    fence,
    frontends::{self, Frontend, Frontends, WRITTEN_BY_HAND},
    names::Key,
    pods::{Backend, endpoints},
    probing,
    verdict::Halt,
    waiting::Within,
};
use serde_json::{Value, json};

use crate::source_ports::{self, Range};

pub(crate) const CASE: Case = Case {
    id: "service-change-live",
    area: super::AREA,
    claims: &["service-change-live"],
    sentence: "a changed port, node port, target port or type is in force, and what did not change never fails",
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
    manifest: include_str!("service_change_live.yaml"),
    longest: Duration::from_secs(600),
    takes_at_least: Duration::from_secs(60),
    run: |cx| Box::pin(changes(cx, &CHANGES, NODE_PORTS, source_ports::SERVICE_CHANGE)),
};
pub(crate) const LB: Case = Case {
    id: "service-change-live-lb",
    sentence: "a load balancer address ends and comes back with the Service's type, and what did not change never fails",
    features: &["loadbalancer"],
    needs: Needs {
        also: &[Capability::LoadBalancerAddresses],
        ..CASE.needs
    },
    run: |cx| {
        Box::pin(changes(
            cx,
            &OF_BALANCERS,
            NODE_PORTS + 24,
            source_ports::SERVICE_CHANGE_LB,
        ))
    },
    ..CASE
};

/// The first of the node ports, two for each Service: no other case has those of a block of 40.
const NODE_PORTS: u16 = 30_000;
const TARGETS: [u16; 3] = [8080, 9090, 9091];

/// Name of a change, and the Service before and after it, and between.
type Change = (&'static str, &'static [State]);

/// Type of a Service, and its ports: name, number, target, and which of its two node ports.
type State = (&'static str, &'static [Port]);
type Port = (&'static str, u16, u16, usize);

const CHANGED: Port = ("web", 7480, 8080, 0);
const KEPT: Port = ("kept", 7481, 9090, 1);
const CHANGES: [Change; 6] = [
    (
        "port",
        &[
            ("NodePort", &[CHANGED, KEPT]),
            ("NodePort", &[("web", 7482, 8080, 0), KEPT]),
        ],
    ),
    (
        "node port",
        &[("NodePort", &[CHANGED]), ("NodePort", &[("web", 7480, 8080, 1)])],
    ),
    (
        "target port",
        &[
            ("NodePort", &[CHANGED, KEPT]),
            ("NodePort", &[("web", 7480, 9091, 0), KEPT]),
        ],
    ),
    (
        "removed port",
        &[("NodePort", &[CHANGED, KEPT]), ("NodePort", &[KEPT])],
    ),
    (
        "NodePort to ClusterIP",
        &[("NodePort", &[CHANGED]), ("ClusterIP", &[CHANGED])],
    ),
    (
        "NodePort to ExternalName",
        &[
            ("NodePort", &[CHANGED]),
            ("ClusterIP", &[CHANGED]),
            ("ExternalName", &[CHANGED]),
        ],
    ),
];
const OF_BALANCERS: [Change; 3] = [
    (
        "port of a load balancer",
        &[
            (BALANCER, &[CHANGED, KEPT]),
            (BALANCER, &[("web", 7482, 8080, 0), KEPT]),
        ],
    ),
    (
        "LoadBalancer to NodePort",
        &[(BALANCER, &[CHANGED]), ("NodePort", &[CHANGED])],
    ),
    (
        "LoadBalancer to ExternalName",
        &[
            (BALANCER, &[CHANGED]),
            ("NodePort", &[CHANGED]),
            ("ClusterIP", &[CHANGED]),
            ("ExternalName", &[CHANGED]),
        ],
    ),
];
const BALANCER: &str = "LoadBalancer";

/// A Service that changes.
struct Changing {
    axis: String,
    family: Family,
    key: Key,
    states: Vec<State>,
    node_ports: [u16; 2],
    balancers: Vec<IpAddr>,
    /// As the API has it now.
    object: Value,
}

/// The sources are of probes that no frontend takes: conntrack leaves a connection untranslated whose first packet came then,
/// and later ones from that port too.
async fn changes(cx: &Context, changes: &[Change], first: u16, sources: Range) -> Result<(), Halt> {
    cx.phase("staging: a Service for each change");
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &["b1", "b2"], &TARGETS, &TARGETS).await?;
    let mut all = Vec::new();
    for family in cx.families() {
        for (at, change) in changes.iter().enumerate() {
            let number = u16::try_from(all.len()).unwrap_or_default();
            let node_ports = [0, 1].map(|port| first + 2 * number + port);
            let service = format!("c{at}-{family}").to_lowercase();
            all.push(
                Changing::stage(cx, &namespace, family, &service, *change, node_ports, &backends).await?,
            );
        }
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let serves = |axis: &str, one: &Frontend| one.serves(axis, &backends);
    let leads: Vec<_> = all.iter().flat_map(|one| one.leads(cx, &one.object)).collect();
    for (clients, targets) in frontends::dialled(cx, &leads, serves) {
        probing::control(cx, "every frontend serves", &clients, &targets, within).await?;
    }
    for way in ["there", "back"] {
        cx.phase(&format!(
            "Services are changed {way}, under probes of what does not change"
        ));
        let before: Vec<_> = all.iter().flat_map(|one| one.leads(cx, &one.object)).collect();
        let kept: Vec<_> = all.iter().flat_map(|one| one.unchanged(cx)).collect();
        let mut windows = Vec::new();
        for (clients, targets) in frontends::dialled(cx, &kept, serves) {
            windows.push(Background::start(cx, &clients, &targets, cx.limits().hold).await?);
        }
        for one in &mut all {
            one.change(cx).await?;
        }
        fence::pass(cx).await?;

        cx.phase(&format!(
            "verdict, {way}: new frontends serve, former ones reach no backend, others never fail"
        ));
        let after: Vec<_> = all.iter().flat_map(|one| one.leads(cx, &one.object)).collect();
        let new: Vec<_> = after
            .iter()
            .filter(|one| !before.contains(one))
            .cloned()
            .collect();
        for (clients, targets) in frontends::dialled(cx, &new, serves) {
            windows.push(Background::start(cx, &clients, &targets, cx.limits().hold).await?);
        }
        for (clients, targets) in frontends::dialled(cx, &former(&before, &after), |axis, one| one.none(axis))
        {
            let clients: Vec<_> = clients.into_iter().map(|client| (client, sources)).collect();
            windows.push(Background::start_from(cx, &clients, &targets, cx.limits().hold).await?);
        }
        try_join_all(windows.into_iter().map(|window| window.hold(cx))).await?;
    }
    Ok(())
}

/// Frontends that are no longer.
fn former(before: &[(String, Frontend)], after: &[(String, Frontend)]) -> Vec<(String, Frontend)> {
    let at = |one: &Frontend| (one.transport, one.address);
    let is_former = |one: &&(String, Frontend)| after.iter().all(|other| at(&one.1) != at(&other.1));
    before.iter().filter(is_former).cloned().collect()
}

impl Changing {
    async fn stage(
        cx: &Context,
        namespace: &str,
        family: Family,
        service: &str,
        (change, states): Change,
        node_ports: [u16; 2],
        backends: &[Backend],
    ) -> Result<Self, Halt> {
        let axis = format!("{family}, {change}");
        let (kind, ports) = states[0];
        let values = json!({
            "namespace": namespace, "service": service, "type": kind,
            "class": (kind == BALANCER).then_some(WRITTEN_BY_HAND), "endpoints": endpoints(backends, family)?,
            "ports": of_service(kind, ports, node_ports), "targets": of_slice(ports),
        });
        let made = Frontends::create(cx, family, values).await?;
        let mut object = made.object().clone();
        let mut balancers = Vec::new();
        if kind == BALANCER {
            let holder = format!("holds-{service}");
            balancers = frontends::assigned_balancers(cx, namespace, family, &holder).await?;
            object = frontends::give_balancers(cx, &made.service, &balancers)
                .await?
                .object;
        }
        Ok(Self {
            axis,
            family,
            key: made.service,
            states: states.to_vec(),
            node_ports,
            balancers,
            object,
        })
    }

    /// All that leads to it, were this its object.
    fn leads(&self, cx: &Context, object: &Value) -> Vec<(String, Frontend)> {
        let all = frontends::leading_to(cx, object, self.family).into_iter();
        all.map(|one| (self.axis.clone(), one)).collect()
    }

    /// What leads to it now, and will after its changes.
    fn unchanged(&self, cx: &Context) -> Vec<(String, Frontend)> {
        let mut after = self.object.clone();
        if let Some(state) = self.states.last() {
            after["spec"]["type"] = state.0.into();
            after["spec"]["ports"] = of_service(state.0, state.1, self.node_ports).into();
            if state.0 != BALANCER {
                after["status"] = Value::Null;
            }
        }
        let after = self.leads(cx, &after);
        let mut now = self.leads(cx, &self.object);
        now.retain(|one| after.contains(one));
        now
    }

    /// Changes it to its last state, through those between; back the next time.
    async fn change(&mut self, cx: &Context) -> Result<(), Halt> {
        for pair in self.states.windows(2) {
            let ((from, _), (kind, ports)) = (pair[0], pair[1]);
            let mut spec = json!({ "type": kind, "ports": of_service(kind, ports, self.node_ports) });
            if kind == BALANCER && from != BALANCER {
                spec["loadBalancerClass"] = WRITTEN_BY_HAND.into();
            }
            if kind == "ExternalName" {
                spec["externalName"] = "service.example".into();
            }
            if from == "ExternalName" {
                spec["externalName"] = Value::Null;
                spec["ipFamilies"] = json!([self.family.to_string()]);
            }
            self.object = cx
                .objects()
                .patch(&self.key, json!({ "spec": spec }))
                .await?
                .object;
            if kind == BALANCER {
                self.object = frontends::give_balancers(cx, &self.key, &self.balancers)
                    .await?
                    .object;
            }
            let slice = Key::slice(&self.key.namespace, &self.key.name);
            cx.objects()
                .patch(&slice, json!({ "ports": of_slice(ports) }))
                .await?;
        }
        self.states.reverse();
        Ok(())
    }
}

const PROTOCOLS: [&str; 2] = ["TCP", "UDP"];

fn of_service(kind: &str, ports: &[Port], node_ports: [u16; 2]) -> Vec<Value> {
    let has_node_ports = kind == BALANCER || kind == "NodePort";
    let each = |&(name, port, target, at): &Port| {
        PROTOCOLS.map(|protocol| {
            let mut port = json!({
                "name": format!("{name}-{protocol}").to_lowercase(), "port": port, "protocol": protocol, "targetPort": target,
            });
            if has_node_ports {
                port["nodePort"] = node_ports[at].into();
            }
            port
        })
    };
    ports.iter().flat_map(each).collect()
}

fn of_slice(ports: &[Port]) -> Vec<Value> {
    let each = |&(name, _, target, _): &Port| {
        PROTOCOLS.map(|protocol| {
            json!({ "name": format!("{name}-{protocol}").to_lowercase(), "port": target, "protocol": protocol })
        })
    };
    ports.iter().flat_map(each).collect()
}
