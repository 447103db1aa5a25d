//! The canary: a Service whose EndpointSlice switches from one backend to another.

use std::net::IpAddr;

use cluster::Family;
use harness::{
    context::Context,
    destination::Destination,
    names::Key,
    objects::Written,
    pods::{Backend, endpoints, serve},
    probing::{self, identities},
    verdict::Halt,
    waiting::Within,
};
use oracle::history::Transport;
use serde_json::json;

const NAME: &str = "canary";
const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Udp];
const PORT: u16 = 7480;
const TARGET: u16 = 8080;

/// The Service, its EndpointSlice, and the backends by turns. The former one stays alive, and would answer.
pub(in crate::b_apiserver) struct Canary {
    family: Family,
    address: IpAddr,
    slice: Key,
    /// The listed one is the first.
    backends: [Backend; 2],
}

impl Canary {
    /// Creates it in a namespace, with backends on the node.
    pub(in crate::b_apiserver) async fn stage(
        cx: &Context,
        namespace: &str,
        family: Family,
        node: &str,
    ) -> Result<Self, Halt> {
        let values = ["c1", "c2"].map(|name| {
            let args = serve(name, namespace, &[TARGET], &[TARGET]);
            json!({ "name": name, "namespace": namespace, "node": node, "args": args })
        });
        let made = cx.backends(&values).await?;
        let backends: [Backend; 2] = made.try_into().map_err(|made: Vec<Backend>| {
            Halt::Harness(format!("expected 2 backends, found {}", made.len()))
        })?;
        let values = json!({
            "canary": NAME, "namespace": namespace, "family": family.to_string(),
            "endpoints": endpoints(&backends[..1], family)?,
        });
        let address = cx
            .apply("${canary}", &values)
            .await?
            .ok_or_else(|| Halt::Harness("the manifest has no canary".to_owned()))?;
        Ok(Self {
            family,
            address,
            slice: Key::slice(namespace, NAME),
            backends,
        })
    }

    /// Switches it to the other backend.
    pub(in crate::b_apiserver) async fn turn(&mut self, cx: &Context) -> Result<Written, Halt> {
        self.backends.swap(0, 1);
        let patch = json!({ "endpoints": endpoints(&self.backends[..1], self.family)? });
        cx.objects().patch(&self.slice, patch).await
    }

    /// It serves what was written last.
    pub(in crate::b_apiserver) fn targets(&self, axis: &str) -> Vec<Destination> {
        let serves = |transport| {
            let expected = identities(&self.backends[..1], transport, TARGET);
            Destination::serves(axis, NAME, transport, (self.address, PORT).into(), expected)
        };
        TRANSPORTS.into_iter().map(serves).collect()
    }

    /// Verdict: a switch now takes effect on a node within the limit.
    pub(in crate::b_apiserver) async fn judge(
        &mut self,
        cx: &Context,
        axis: &str,
        node: &str,
        within: Within,
    ) -> Result<(), Halt> {
        cx.phase(&format!("{axis}: a canary that is written now takes effect"));
        self.turn(cx).await?;
        probing::judge(cx, &cx.clients().on(node), &self.targets(axis), within).await?;
        Ok(())
    }
}
