//! What the programs themselves may have written: flows, whole and torn, and fragments.

use std::net::IpAddr;

use lb_abi::{BackendId, Flow, FragmentKey, Port, Ports, ServiceId, Tuple, flow_flags, seen};

use super::{
    draw::{ConfigDraw, FlowDraw},
    pool,
    scenario::{NOW, Scenario},
};

impl Scenario {
    /// All ports of a backend taken, but for some.
    pub(super) fn fill(&mut self, draw: &ConfigDraw) {
        // A wide range takes seconds to fill, and a narrow one shows the same.
        if draw.fill > 4 || draw.ports >= pool::WIDE {
            return;
        }
        let config = self.state.config;
        let backends: Vec<_> = self
            .state
            .backends
            .iter()
            .filter(|(_, backend)| backend.address.is_v4() == self.v4)
            .map(|(id, backend)| (*id, *backend))
            .collect();
        let node = pool::family(self.v4).node;
        for (number, port) in (config.snat_first..=config.snat_last).enumerate() {
            for (id, backend) in backends.iter().take(usize::from(draw.fill) + 1) {
                if draw.fill % 2 == 1 && number % 7 == 3 {
                    continue;
                }
                let client = (pool::client(self.v4, 0), 2000 + port);
                let frontend = (pool::place(self.v4, 0), 81);
                let key = self.tuple(client, frontend);
                let to = Tuple {
                    source: node.into(),
                    source_port: Port::new(port),
                    destination: backend.address,
                    destination_port: backend.port,
                    ..key
                };
                let key = Tuple {
                    source_port: Port::new(2000 + port + 1000 * *id as u16),
                    ..key
                };
                let age = if draw.fill == 4 && number % 3 == 0 {
                    100_000
                } else {
                    1
                };
                self.pair(key, to, (1, *id), (flow_flags::SNAT, 1, age), 0);
            }
        }
    }

    pub(super) fn flow(&mut self, draw: &FlowDraw) {
        let Some(frontend) = self.frontends.get(draw.frontend % self.frontends.len()).copied() else {
            return;
        };
        let v4 = self.v4;
        let at = if IpAddr::from(frontend.address).is_unspecified() {
            pool::family(v4).node
        } else {
            frontend.address.into()
        };
        let client = (pool::client(v4, draw.client), pool::SOURCES[draw.source]);
        let key = self.tuple(client, (at, frontend.port.get()));
        let id = draw.backend as u32 + 1;
        let backend = self.state.backends.get(&id).copied();
        // Of the other family: no flow was ever opened to it.
        let Some(backend) = backend.filter(|backend| backend.address.is_v4() == v4) else {
            return;
        };
        let mut to = Tuple {
            destination: backend.address,
            destination_port: backend.port,
            ..key
        };
        let mut flags = 0;
        if let Some(port) = draw.allocated {
            flags = flow_flags::OTHER_PORT;
            to.source_port = Port::new(pool::FIRST + port);
            if !draw.keep_address {
                flags = flow_flags::SNAT;
                to.source = pool::family(v4).node.into();
            }
        }
        if draw.torn == 13 {
            // A socket of the node's has sent to the client.
            let own = self.tuple(client, (pool::family(v4).node, frontend.port.get()));
            let flow = Flow {
                to: own,
                seen: draw.seen & seen::ANSWER,
                last_seen: NOW - draw.age,
                service: 0,
                backend: 0,
                flags: flow_flags::OWN,
                pad: 0,
                claim: 0,
            };
            self.state.flows.insert(own, flow);
            return;
        }
        if draw.torn == 5 {
            // Its backend has become another one.
            to.destination_port = Port::new(8181);
        }
        self.flows.push((key, to));
        self.pair(
            key,
            to,
            (draw.service, id),
            (flags, draw.seen, draw.age),
            draw.torn,
        );
    }

    /// The first fragment of a flow's packet has passed.
    pub(super) fn piece(&mut self, (flow, reply, number, age): (usize, bool, u32, u32)) {
        let Some((key, to)) = self.flows.get(flow % self.flows.len().max(1)) else {
            return;
        };
        let tuple = if reply { to.inverse() } else { *key };
        let id = pool::datagram(number).to_be_bytes();
        let key = FragmentKey {
            source: tuple.source,
            destination: tuple.destination,
            id: if self.v4 { [id[2], id[3], 0, 0] } else { id },
            protocol: tuple.protocol,
            pad: [0; 3],
        };
        let ports = Ports {
            source: tuple.source_port,
            destination: tuple.destination_port,
            seconds: NOW - age,
            held: 0,
        };
        // Some of it has come, and not the first.
        let ports = if age % 4 == 3 {
            Ports {
                source: Port::new(0),
                destination: Port::new(0),
                held: if age % 8 == 3 { 48 } else { 1 },
                ..ports
            }
        } else {
            ports
        };
        self.state.fragments.insert(key, ports);
    }

    /// Both entries, or what is left of them.
    fn pair(
        &mut self,
        key: Tuple,
        to: Tuple,
        (service, backend): (ServiceId, BackendId),
        (flags, seen, age): (u32, u32, u32),
        torn: u8,
    ) {
        let forward = Flow {
            to,
            seen,
            last_seen: NOW - age,
            service,
            backend,
            flags,
            pad: 0,
            claim: 7,
        };
        let mut reply = Flow {
            to: key.inverse(),
            flags: flags | flow_flags::REPLY,
            claim: 8,
            ..forward
        };
        if torn == 1 {
            reply.to.destination_port = Port::new(40_002);
        }
        let flows = &mut self.state.flows;
        if torn != 2 {
            flows.insert(key, forward);
        }
        if torn != 3 {
            flows.insert(to.inverse(), reply);
        }
        if torn == 4 {
            // The forward entry has gone another way since.
            let mut elsewhere = forward;
            elsewhere.to.destination_port = Port::new(8282);
            flows.insert(key, elsewhere);
        }
    }
}
