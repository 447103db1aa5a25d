//! Steps as text, for readers of a reproduction.

use std::fmt;

use crate::{
    chaos::{schedule::Action, words},
    churn,
    step::{Backend, Change, Condition, Dial, Open, Protocol, Send, Service, Step, To},
};

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(changes) => {
                let all: Vec<String> = changes.iter().map(Change::to_string).collect();
                f.write_str(&all.join("; then "))
            }
            Self::Dial(dial) => dial.fmt(f),
            Self::Open(open) => open.fmt(f),
            Self::Send(send) => send.fmt(f),
            Self::Close { socket } => write!(f, "socket {socket} ends"),
            Self::Serve { node, port } => {
                write!(
                    f,
                    "a server of node{node} itself begins to listen at node{node}:{port}"
                )
            }
            Self::EndServing { node, port } => write!(f, "the server at node{node}:{port} ends"),
            Self::Chaos(actions) => {
                let all: Vec<String> = actions.iter().map(at_its_time).collect();
                f.write_str(&all.join("; then "))
            }
        }
    }
}

fn at_its_time(action: &Action) -> String {
    match action.at_ms {
        0 => action.does.to_string(),
        ms => format!("at {:.1} s {}", f64::from(ms) / 1e3, action.does),
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.to {
            None => write!(f, "Service s{} is deleted", self.service),
            Some(service) => write!(f, "Service s{}: {service}", self.service),
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, port {}", self.kind, self.port)?;
        if let Some(port) = self.node_port {
            write!(f, ", node port {port}")?;
        }
        for (what, addresses) in [
            ("external IPs", &self.external_ips),
            ("load balancer", &self.load_balancer),
        ] {
            if !addresses.is_empty() {
                write!(f, ", {what} {}", list(addresses))?;
            }
        }
        for (is_so, what) in [
            (self.external_local, "externalTrafficPolicy Local"),
            (self.internal_local, "internalTrafficPolicy Local"),
            (self.affinity, "sessionAffinity ClientIP"),
        ] {
            if is_so {
                write!(f, ", {what}")?;
            }
        }
        let endpoints = self.endpoints.iter().map(|(backend, condition)| {
            let condition = match condition {
                Condition::Ready => "",
                Condition::Unready => " (unready)",
                Condition::Terminating => " (terminating)",
            };
            format!("{}{condition}", backend.name())
        });
        match self.endpoints.len() {
            0 => f.write_str(", no endpoints"),
            _ => write!(f, ", endpoints {}", list(endpoints)),
        }
    }
}

impl fmt::Display for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            from, protocol, to, ..
        } = self;
        write!(f, "{} dials {to} by {protocol}", from.name())?;
        more(f, self.source_port, &self.fragments)
    }
}

impl fmt::Display for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            socket,
            from,
            protocol,
            to,
            ..
        } = self;
        write!(
            f,
            "{} opens socket {socket} to {to} by {protocol}, and keeps it",
            from.name()
        )?;
        more(f, self.source_port, &[])
    }
}

impl fmt::Display for Send {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "socket {} sends to {}", self.socket, self.to)?;
        more(f, None, &self.fragments)
    }
}

fn more(f: &mut fmt::Formatter<'_>, source_port: Option<u16>, fragments: &[u8]) -> fmt::Result {
    if let Some(port) = source_port {
        write!(f, ", from port {port}")?;
    }
    if !fragments.is_empty() {
        write!(f, ", in fragments that go out in the order {}", list(fragments))?;
    }
    Ok(())
}

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClusterIp { service } => match churn::of_chaos(*service) {
                Some(number) => write!(f, "the cluster IP of {}", words::service(number)),
                None => write!(f, "the cluster IP of s{service}"),
            },
            Self::At { address, port } => write!(f, "{address}:{port}"),
            Self::Loopback { port } => write!(f, "127.0.0.1:{port}"),
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::UdpConnected => "connected UDP",
        })
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn list(things: impl IntoIterator<Item = impl fmt::Display>) -> String {
    let things: Vec<String> = things.into_iter().map(|thing| thing.to_string()).collect();
    things.join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{
        chaos::schedule::{Does, SliceWrite},
        step::{Address, Kind, Vantage},
    };

    #[test]
    fn a_step_reads_as_a_sentence() {
        let service = Service {
            kind: Kind::NodePort,
            port: 80,
            node_port: Some(30500),
            external_ips: vec![Address::Outside, Address::Routed1],
            load_balancer: Vec::new(),
            external_local: true,
            internal_local: false,
            affinity: false,
            endpoints: BTreeMap::from([
                (Backend::B1, Condition::Ready),
                (Backend::B2, Condition::Terminating),
            ]),
        };
        let change = |service, to| Change { service, to };
        let write = Step::Write(vec![change(2, None), change(1, Some(service))]);
        assert_eq!(
            write.to_string(),
            "Service s2 is deleted; then Service s1: NodePort, port 80, node port 30500, external IPs outside, routed1, \
             externalTrafficPolicy Local, endpoints b1, b2 (terminating)"
        );
        let actions = [
            (0, Does::Annotate(1)),
            (1500, Does::Slice(SliceWrite { slice: 1, to: None })),
        ];
        let actions = actions.map(|(at_ms, does)| Action { at_ms, does });
        assert_eq!(
            Step::Chaos(actions.into()).to_string(),
            "Service t-ext is annotated; then at 1.5 s slice t-2 is deleted"
        );
        let service = churn::FIRST + 4;
        assert_eq!(
            To::ClusterIp { service }.to_string(),
            "the cluster IP of second/u"
        );
        let dial = Step::Dial(Dial {
            from: Vantage::Outside,
            protocol: Protocol::Udp,
            to: To::At {
                address: Address::Node1,
                port: 30500,
            },
            source_port: Some(41000),
            fragments: vec![1, 0],
        });
        assert_eq!(
            dial.to_string(),
            "outside dials node1:30500 by UDP, from port 41000, in fragments that go out in the order 1, 0"
        );
    }
}
