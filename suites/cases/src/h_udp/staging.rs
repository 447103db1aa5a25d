//! Services with one port of UDP, and flows that clients keep up through their frontends.

use std::collections::BTreeSet;

use cluster::Family;
use harness::{
    client::Client,
    context::Context,
    destination::Destination,
    flows::Flows,
    frontends::{self, Frontends, Vantage},
    names::Key,
    pods::{Backend, endpoints},
    probing::{self, identities},
    verdict::Halt,
    waiting::Within,
};
use oracle::{check::Permitted, history::Transport};
use serde_json::json;

pub(super) const PORT: u16 = 7480;
pub(super) const TARGET: u16 = 8080;

/// What leads to a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frontend {
    ClusterIp,
    NodePorts,
    Balancers,
}

/// How the flows talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Talk {
    /// Each datagram of an unconnected socket is answered.
    Answered,
    /// None is: a flow that has never seen an answer is another state to a table of flows.
    OneWay,
    /// As the first, of a connected socket.
    Connected,
}

/// A Service of a family and its slice.
pub(super) struct Service {
    pub(super) made: Frontends,
    pub(super) slice: Key,
}

impl Service {
    /// With these frontends, and these backends as ready endpoints.
    pub(super) async fn create(
        cx: &Context,
        family: Family,
        (namespace, name): (&str, &str),
        frontends: &[Frontend],
        backends: &[Backend],
    ) -> Result<Self, Halt> {
        let service = format!("{name}-{family}").to_lowercase();
        let kind = match frontends {
            all if all.contains(&Frontend::Balancers) => "LoadBalancer",
            all if all.contains(&Frontend::NodePorts) => "NodePort",
            _ => "ClusterIP",
        };
        let values = json!({
            "namespace": namespace, "service": service, "type": kind, "endpoints": endpoints(backends, family)?,
        });
        let made = Frontends::create(cx, family, values).await?;
        let slice = Key::slice(namespace, &service);
        Ok(Self { made, slice })
    }

    /// Lists these backends, ready, and no others.
    pub(super) async fn list(&self, cx: &Context, backends: &[Backend]) -> Result<(), Halt> {
        let endpoints = json!({ "endpoints": endpoints(backends, self.made.family)? });
        cx.objects().patch(&self.slice, endpoints).await.map(drop)
    }

    /// Which clients dial which of its frontends, each of them an axis: of inside all, and from outside all but the cluster IP.
    pub(super) async fn dialled(
        &self,
        cx: &Context,
        frontends: &[Frontend],
        talk: Talk,
        about: &str,
    ) -> Result<Vec<Vantage>, Halt> {
        let transport = match talk {
            Talk::Connected => Transport::UdpConnected,
            Talk::Answered | Talk::OneWay => Transport::Udp,
        };
        let (mut inside, mut outside) = (Vec::new(), Vec::new());
        let none = BTreeSet::new();
        for frontend in frontends {
            let axis = |kind: &str| {
                let one_way = if talk == Talk::OneWay { ", one way" } else { "" };
                format!("{}, {kind}{about}{one_way}", self.made.family)
            };
            match frontend {
                Frontend::ClusterIp => {
                    inside.push(self.made.at_cluster_ip(&axis("cip"), transport, PORT, &none));
                }
                Frontend::NodePorts => {
                    outside.extend(self.made.at_nodes(cx, &axis("np"), transport, &none)?);
                }
                Frontend::Balancers => {
                    let axis = axis("lb");
                    let at = self.made.at_balancers(cx, &axis, transport, PORT, &none);
                    outside.extend(at.await?);
                }
            }
        }
        inside.extend(outside.clone());
        let dialled = frontends::vantages(cx, inside, outside).into_iter();
        Ok(dialled.filter(|(_, targets)| !targets.is_empty()).collect())
    }
}

/// The same targets, which these backends must serve; and be sent to, where flows ask for no answer.
pub(super) fn served(targets: &[Destination], talk: Talk, backends: &[Backend]) -> Vec<Destination> {
    let by = identities(backends, Transport::Udp, TARGET);
    let permitted = match talk {
        Talk::OneWay => Permitted::Delivered(by),
        Talk::Answered | Talk::Connected => Permitted::ServesOneOf(by),
    };
    frontends::permitting(targets, &permitted)
}

/// Flows through frontends, which go on whatever becomes of them.
pub(super) struct Senders {
    flows: Flows,
    dialled: Vec<(Talk, Vec<Destination>)>,
}

impl Senders {
    pub(super) fn none() -> Self {
        Self {
            flows: Flows::none(),
            dialled: Vec::new(),
        }
    }

    /// Opens so many more flows of each client to each of its targets.
    pub(super) async fn and(
        mut self,
        cx: &Context,
        dialled: Vec<Vantage>,
        talk: Talk,
        each: u32,
    ) -> Result<Self, Halt> {
        for (clients, targets) in dialled {
            self = self.and_from(cx, &clients, &targets, talk, each).await?;
        }
        Ok(self)
    }

    /// The same, once new clients are served by these backends: an exchange before that would be one of the flow's, too.
    ///
    /// # Errors
    /// If no axis is left where they are.
    pub(super) async fn and_served(
        self,
        cx: &Context,
        dialled: Vec<Vantage>,
        talk: Talk,
        each: u32,
        by: &[Backend],
    ) -> Result<Self, Halt> {
        let within = Within::from_now(cx.limits().service);
        for (clients, targets) in &dialled {
            let targets = served(targets, talk, by);
            probing::control(cx, "new clients are served", clients, &targets, within).await?;
        }
        self.and(cx, dialled, talk, each).await
    }

    /// As [`Senders::and`], of these clients to these targets.
    pub(super) async fn and_from(
        mut self,
        cx: &Context,
        clients: &[Client],
        targets: &[Destination],
        talk: Talk,
        each: u32,
    ) -> Result<Self, Halt> {
        let all = each * u32::try_from(clients.len()).unwrap_or(1);
        let opened = Flows::open_steadily(cx, clients, &served(targets, talk, &[]), all).await?;
        self.flows = self.flows.and(opened);
        self.dialled.push((talk, targets.to_vec()));
        Ok(self)
    }

    /// What all of them must come to: these backends, or none.
    pub(super) fn reaching(&self, backends: &[Backend]) -> Vec<Destination> {
        self.those_reaching("", backends)
    }

    /// The same, of those to axes whose name has this in it.
    pub(super) fn those_reaching(&self, about: &str, backends: &[Backend]) -> Vec<Destination> {
        let mut now: Vec<Destination> = Vec::new();
        for (talk, targets) in &self.dialled {
            let of = targets.iter().filter(|target| target.axis.contains(about));
            let of: Vec<Destination> = of.cloned().collect();
            now.extend(if backends.is_empty() {
                frontends::permitting(&of, &Permitted::None)
            } else {
                served(&of, *talk, backends)
            });
        }
        // Clients of several places dial the same.
        now.sort_by_key(|target| {
            (
                target.axis.clone(),
                target.name.clone(),
                target.address,
                target.transport,
            )
        });
        now.dedup_by_key(|target| {
            (
                target.axis.clone(),
                target.name.clone(),
                target.address,
                target.transport,
            )
        });
        now
    }

    pub(super) fn flows(&self) -> &Flows {
        &self.flows
    }

    /// To be held: these backends may serve them.
    pub(super) fn into_flows(self, backends: &[Backend]) -> Flows {
        let by = identities(backends, Transport::Udp, TARGET);
        self.flows.permitting(&Permitted::ServesOneOf(by))
    }
}
