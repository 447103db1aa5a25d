//! A case: maps and a short sequence of packets, of which some follow from what became of those before.

use std::net::IpAddr;

use lb_abi::{Port, Tuple};
use proptest::prelude::*;

use super::{
    frame,
    kernel::{Observation, Shot},
    pool,
    scenario::{Scenario, scenario},
    step::{Step, Target, steps},
};
use crate::{
    model::{Device, Read, State, Transport, read, transport},
    test_node::{CLOSED, POD_A, UPLINK},
};

/// Maps and packets, drawn at random.
#[derive(Clone, Debug)]
pub struct Case {
    scenario: Scenario,
    steps: Vec<Step>,
}

/// What came and what went, as far as it has ports.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    came: Tuple,
    went: Tuple,
}

/// What the packets of a case have become so far.
#[derive(Default, Debug)]
pub(super) struct Past(Vec<Option<Exchange>>);

impl Case {
    /// How they are drawn.
    pub(super) fn strategy() -> impl Strategy<Value = Self> {
        (scenario(), steps()).prop_map(|(scenario, steps)| Self { scenario, steps })
    }

    /// Maps as they are before the first packet, at this time.
    pub(super) fn state(&self, now: u32) -> State {
        super::kernel::moved(&self.scenario.state, super::scenario::NOW, now)
    }

    /// How many packets.
    pub(super) fn packets(&self) -> usize {
        self.steps.len()
    }

    /// One of the packets.
    pub(super) fn shot(&self, index: usize, past: &Past) -> Shot {
        let step = &self.steps[index];
        let tuple = self.tuple(step, past);
        let reply = matches!(
            step.target,
            Target::Flow { reply: true, .. } | Target::Earlier { reply: true, .. }
        );
        let to_node = tuple.destination == self.scenario.state.config.node_v4
            || tuple.destination == self.scenario.state.config.node_v6;
        let hook = match step.hook {
            Device::NodeIngress if step.natural && reply && !to_node => Device::NodeEgress,
            Device::PodIngress if step.natural && reply && !to_node => Device::PodEgress,
            hook => hook,
        };
        let open = match hook {
            Device::NodeIngress | Device::NodeEgress => UPLINK,
            Device::PodIngress | Device::PodEgress => POD_A,
        };
        let closed = step.closed && hook.inbound();
        Shot {
            hook,
            ifindex: if closed { CLOSED } else { open },
            own: step.own && !hook.inbound(),
            gso_size: step.gso_size,
            frame: frame::bytes(step, &tuple, IpAddr::from(tuple.source).is_ipv4()),
        }
    }

    fn tuple(&self, step: &Step, past: &Past) -> Tuple {
        let v4 = self.scenario.v4;
        let tuple = |from, to| self.scenario.tuple(from, to);
        let frontend = |index: usize| {
            let key = self.scenario.frontends[index % self.scenario.frontends.len()];
            let address = IpAddr::from(key.address);
            let address = if address.is_unspecified() {
                pool::family(v4).node
            } else {
                address
            };
            ((address, key.port.get()), key.protocol)
        };
        let fresh = |client: usize, source: usize, index: usize| {
            let (to, protocol) = frontend(index);
            let from = (pool::client(v4, client), pool::SOURCES[source % 3]);
            Tuple {
                protocol,
                ..tuple(from, to)
            }
        };
        match step.target {
            Target::Place {
                client,
                source,
                place,
                port,
                protocol,
            } => {
                let from = (pool::client(v4, client), pool::SOURCES[source]);
                let to = (pool::reached(v4, place), pool::PORTS[port]);
                Tuple {
                    protocol: protocol.map_or(self.scenario.protocol, |index| pool::PROTOCOLS[index]),
                    ..tuple(from, to)
                }
            }
            Target::Odd {
                source,
                frontend: index,
            } => {
                let (to, protocol) = frontend(index);
                Tuple {
                    protocol,
                    ..tuple((pool::odd(v4, source), 40000), to)
                }
            }
            Target::Frontend {
                client,
                source,
                frontend,
            } => fresh(client, source, frontend),
            Target::Flow { flow, reply } => match self.scenario.flows.as_slice() {
                [] => fresh(flow, flow, flow),
                flows => {
                    let (key, to) = flows[flow % flows.len()];
                    if reply { to.inverse() } else { key }
                }
            },
            Target::Earlier { step, reply } => {
                let seen: Vec<_> = past.0.iter().flatten().collect();
                match seen.as_slice() {
                    [] => fresh(step, step, step),
                    seen => {
                        let seen = seen[step % seen.len()];
                        if reply { seen.went.inverse() } else { seen.came }
                    }
                }
            }
        }
    }
}

impl Past {
    /// One more packet, and what became of it.
    pub(super) fn add(&mut self, shot: &Shot, observation: &Observation) {
        let merged = shot.gso_size != 0;
        let seen = || {
            Some(Exchange {
                came: tuple(&shot.frame, merged)?,
                went: tuple(&observation.frame, merged)?,
            })
        };
        self.0.push(seen());
    }
}

fn tuple(frame: &[u8], merged: bool) -> Option<Tuple> {
    let Read::Whole(layout) = read(frame, merged) else {
        return None;
    };
    let (source_port, destination_port): (Port, Port) = match transport(frame, &layout, merged) {
        Transport::Ports {
            source, destination, ..
        } => (source, destination),
        _ => return None,
    };
    Some(Tuple {
        source: layout.source,
        destination: layout.destination,
        source_port,
        destination_port,
        protocol: layout.protocol,
        pad: [0; 3],
    })
}
