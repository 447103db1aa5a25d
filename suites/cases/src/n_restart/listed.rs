//! A Service that lists some backends, with ClusterIP and node port, and what its EndpointSlice lists now.

use std::collections::BTreeSet;

use cluster::Family;
use harness::{
    context::Context,
    destination::Destination,
    frontend_kinds::{Kind, OfKinds},
    names::Key,
    objects::Written,
    pods::{Backend, endpoints},
    probing::identities,
    verdict::Halt,
};
use oracle::{check::Permitted, history::Transport};
use serde_json::json;

const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Udp];
const PORT: u16 = 7480;
pub(crate) const TARGET: u16 = 8080;

/// A Service of one family.
pub(crate) struct Listed {
    family: Family,
    of: OfKinds,
    slice: Key,
    axis: String,
}

impl Listed {
    /// Creates one whose name begins so. `axis`: what it decides, in its family.
    pub(crate) async fn create(
        cx: &Context,
        namespace: &str,
        (name, axis): (&str, &str),
        family: Family,
        kinds: &[Kind],
        backends: &[Backend],
    ) -> Result<Self, Halt> {
        let service = format!("{name}-{family}").to_lowercase();
        let slice = Key::slice(namespace, &service);
        let endpoints = endpoints(backends, family)?;
        let values = json!({ "namespace": namespace, "service": service, "endpoints": endpoints });
        Ok(Self {
            family,
            of: OfKinds::create(cx, family, kinds, PORT, values).await?,
            slice,
            axis: format!("{family}, {axis}"),
        })
    }

    /// Makes its EndpointSlice list these.
    pub(crate) async fn list(&self, cx: &Context, backends: &[Backend]) -> Result<Written, Halt> {
        let listed = json!({ "endpoints": endpoints(backends, self.family)? });
        cx.objects().patch(&self.slice, listed).await
    }

    /// Deletes it, and its EndpointSlice.
    pub(crate) async fn delete(&self, cx: &Context) -> Result<(), Halt> {
        cx.objects().delete(&self.of.made.service).await?;
        cx.objects().delete(&self.slice).await.map(drop)
    }

    /// Its frontends of a transport, which must be served by exactly these.
    pub(crate) async fn serves_by(
        &self,
        cx: &Context,
        transport: Transport,
        backends: &[Backend],
    ) -> Result<Vec<(Kind, Destination)>, Halt> {
        let by: BTreeSet<String> = identities(backends, transport, TARGET);
        self.of.targets(cx, &self.axis, transport, &by).await
    }

    /// Its frontends, which must be served by exactly these.
    pub(crate) async fn serves(
        &self,
        cx: &Context,
        backends: &[Backend],
    ) -> Result<Vec<(Kind, Destination)>, Halt> {
        let mut targets = Vec::new();
        for transport in TRANSPORTS {
            targets.extend(self.serves_by(cx, transport, backends).await?);
        }
        Ok(targets)
    }

    /// Its frontends, which must reach no backend.
    pub(crate) async fn is_dead(&self, cx: &Context) -> Result<Vec<(Kind, Destination)>, Halt> {
        let mut targets = self.serves(cx, &[]).await?;
        for (_, target) in &mut targets {
            target.permitted = Permitted::None;
        }
        Ok(targets)
    }
}

/// Of these targets, those that go through one node: its own node port, and no node port of others.
pub(crate) fn through(node: &str, targets: Vec<(Kind, Destination)>) -> Vec<(Kind, Destination)> {
    let is_of = |(kind, target): &(Kind, Destination)| {
        *kind != Kind::NodePort || target.name.ends_with(&format!(" {node}"))
    };
    targets.into_iter().filter(is_of).collect()
}
