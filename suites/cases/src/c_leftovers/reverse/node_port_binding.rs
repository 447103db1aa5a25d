//! Node ports, and host processes that want to bind them.

use cluster::Family;
use harness::{
    client::Client,
    context::Context,
    fence,
    names::Key,
    pods::{Backend, endpoints},
    probing,
    verdict::Halt,
    waiting::{Looks, Within},
};
use oracle::{
    check::{Observed, Stream},
    finding::Finding,
    history::{PlanEntry, Transport},
    socket_binding::{Port, bound},
};
use serde_json::{Value, json};

use super::{
    POST_BIND, of_family,
    two_vips::{TARGET, require},
};

/// Each of its sockets has a port of its own.
const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Udp];
/// Sockets that try to bind a port, one after the other, for each client and transport.
const EACH: u32 = 3;

/// A Service with node ports, of one family.
pub(in super::super) struct Gate {
    /// The hook: its axis.
    pub(in super::super) axis: &'static str,
    family: Family,
    namespace: String,
    backend: Backend,
    /// Its node ports of TCP and of UDP.
    ports: [u16; 2],
    /// Host processes.
    clients: Vec<Client>,
}

impl Gate {
    /// Creates a Service, with node ports that no process uses.
    pub(in super::super) async fn stage(
        cx: &Context,
        namespace: &str,
        family: Family,
        backend: &Backend,
        clients: Vec<Client>,
    ) -> Result<Self, Halt> {
        let mut gate = Self {
            axis: of_family(POST_BIND, family),
            family,
            namespace: namespace.to_owned(),
            backend: backend.clone(),
            ports: [0; 2],
            clients,
        };
        // The API server chooses.
        gate.ports = gate.make(cx).await?;
        gate.delete(cx).await?;
        let within = Within::from_now(cx.limits().service);
        fence::pass(cx).await?;
        let findings = gate.settle(cx, Port::Free, within).await?;
        require(cx, gate.axis, "control failed (the ports are free)", findings);
        gate.make(cx).await?;
        Ok(gate)
    }

    /// Whether generation 1 keeps its node ports: otherwise a leftover has nothing to keep.
    pub(in super::super) async fn is_kept(&self, cx: &Context, within: Within) -> Result<bool, Halt> {
        Ok(self.settle(cx, Port::Kept, within).await?.is_empty())
    }

    /// Witness: the leftover keeps the ports of a deleted Service.
    pub(in super::super) async fn stays_kept(&self, cx: &Context, within: Within) -> Result<(), Halt> {
        let findings = self.settle(cx, Port::Kept, within).await?;
        require(
            cx,
            self.axis,
            "not witnessed (the leftover keeps the ports)",
            findings,
        );
        Ok(())
    }

    /// Verdict: within the limit host processes can bind the former node ports.
    pub(in super::super) async fn judge(&self, cx: &Context, within: Within) -> Result<(), Halt> {
        let findings = self.settle(cx, Port::Free, within).await?;
        if findings.is_empty() {
            cx.record_delay(self.axis, within.since.elapsed(), within.limit);
        }
        cx.axes().judged(self.axis, findings);
        Ok(())
    }

    /// Verdict: it stays so.
    pub(in super::super) async fn judge_again(&self, cx: &Context) -> Result<(), Halt> {
        if cx.axes().is_open(self.axis) {
            cx.axes().judged(self.axis, self.probe(cx, Port::Free).await?);
        }
        Ok(())
    }

    /// The Service and its EndpointSlice.
    pub(in super::super) async fn delete(&self, cx: &Context) -> Result<(), Halt> {
        for key in [
            Key::slice(&self.namespace, "gate"),
            Key::service(&self.namespace, "gate"),
        ] {
            cx.objects().delete(&key).await?;
        }
        Ok(())
    }

    /// Creates it with these ports, or with chosen ones if there are none yet; returns its ports.
    async fn make(&self, cx: &Context) -> Result<[u16; 2], Halt> {
        let ports = TRANSPORTS.iter().zip(self.ports).map(|(&transport, number)| {
            let protocol = protocol(transport);
            let mut port = json!({ "name": protocol.to_lowercase(), "port": 7480, "protocol": protocol });
            if number != 0 {
                port["nodePort"] = json!(number);
            }
            port
        });
        let values = json!({
            "namespace": self.namespace,
            "family": self.family.to_string(),
            "endpoints": endpoints([&self.backend], self.family)?,
            "ports": ports.collect::<Vec<Value>>(),
        });
        cx.apply_service("gate", &values).await?;
        let object = cx.objects().get(&Key::service(&self.namespace, "gate")).await?;
        let port = |at: usize| {
            let port = object["spec"]["ports"][at]["nodePort"].as_u64();
            port.and_then(|port| u16::try_from(port).ok())
                .ok_or_else(|| Halt::Harness("the Service gate has no node ports".to_owned()))
        };
        Ok([port(0)?, port(1)?])
    }

    /// Probes until the ports are as expected or the limit has passed. Returns the last result.
    async fn settle(&self, cx: &Context, port: Port, within: Within) -> Result<Vec<Finding>, Halt> {
        let mut looks = Looks::within(within);
        loop {
            let findings = self.probe(cx, port).await?;
            if findings.is_empty() || !looks.again().await {
                return Ok(findings);
            }
        }
    }

    /// Host processes dial the backend from these ports; whether they are answered does not matter.
    async fn probe(&self, cx: &Context, port: Port) -> Result<Vec<Finding>, Halt> {
        let address = self.backend.address(self.family)?;
        let of = |transport| format!("bind {} ({})", protocol(transport), self.axis);
        let mut findings = Vec::new();
        for client in &self.clients {
            let entry = |(&transport, number): (&Transport, u16)| PlanEntry {
                target: of(transport),
                transport,
                address,
                port: TARGET,
                count: EACH,
                interval_ms: 0,
                limit_ms: u64::try_from(cx.limits().probe.as_millis()).unwrap_or(u64::MAX),
                until: None,
                flows: None,
                source_ports: Some([number, number]),
                at_once: None,
                one_way: false,
            };
            let entries = TRANSPORTS.iter().zip(self.ports).map(entry).collect();
            let attempts = probing::run(cx, client, entries).await?;
            let observed = Observed::new(&attempts, &[], cx.limits().times());
            for transport in TRANSPORTS {
                let stream = Stream {
                    client: client.name.clone(),
                    target: of(transport),
                    transport,
                };
                findings.extend(bound(&observed, &stream, port, EACH as usize));
            }
        }
        Ok(findings)
    }
}

fn protocol(transport: Transport) -> &'static str {
    match transport {
        Transport::Tcp => "TCP",
        _ => "UDP",
    }
}
