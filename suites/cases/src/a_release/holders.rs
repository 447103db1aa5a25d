//! Services that hold the same backends, one of which drops them: for claims whose names, namespaces, ports or kinds of
//! release differ from those of `release-prefix-empty-list`.
//!
//! Each holder is a Service without a selector that has an EndpointSlice of its own. A holder that keeps the backends
//! is a *victim*: from staging to the last probe nothing writes its EndpointSlice or restarts the agent, since either
//! would heal the fault.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use cluster::{AgentState, Family};
use harness::{
    agents,
    background::Background,
    client::Client,
    context::Context,
    destination::Destination,
    fence,
    names::Key,
    objects::annotation,
    pods::{Backend, endpoints, serve},
    probing::{self, identities},
    verdict::Halt,
    waiting::Within,
    write_effect::{self, Effect},
};
use oracle::{
    check::Permitted,
    history::{Attempt, Transport},
};
use serde_json::{Value, json};

/// Numbers of shared backends: an axis of every case.
pub(super) const SHARED: [usize; 3] = [1, 2, 10];
/// The port of every Service.
pub(super) const PORT: u16 = 7480;
const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Udp];
/// First port of the backends. Each axis has its own, so that a backend has no other holders.
const FIRST_TARGET: u16 = 8000;

/// Description of a holder.
pub(super) struct Wanted<'a> {
    pub(super) axis: &'a str,
    pub(super) family: Family,
    pub(super) namespace: &'a str,
    pub(super) service: &'a str,
    pub(super) slice: &'a str,
    /// Port of its backends.
    pub(super) target: u16,
    pub(super) backends: &'a [Backend],
}

/// A Service whose EndpointSlice lists backends that others list too.
pub(super) struct Holder {
    pub(super) axis: String,
    pub(super) family: Family,
    pub(super) service: Key,
    pub(super) slice: Key,
    address: IpAddr,
    port: u16,
    target: u16,
    transports: Vec<Transport>,
    backends: Vec<Backend>,
    /// Version of its EndpointSlice after the last write of its owner.
    version: String,
}

/// How long victims are probed after a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// N probes of each: further releases follow.
    Probes,
    /// The hold time, as the claim demands.
    Time,
}

/// As many backends as the largest axis shares, on all nodes in turn, each listening on the ports of `axes` axes.
pub(super) async fn backends(
    cx: &Context,
    namespace: &str,
    axes: usize,
    shared: impl IntoIterator<Item = usize>,
) -> Result<Vec<Backend>, Halt> {
    let ports: Vec<u16> = (0..axes).map(target).collect();
    let most = shared.into_iter().max().unwrap_or_default();
    let nodes = cx.nodes();
    let values: Vec<Value> = (1..=most)
        .zip(nodes.iter().cycle())
        .map(|(number, node)| {
            let name = format!("b{number:02}");
            let args = serve(&name, namespace, &ports, &ports);
            json!({ "name": name, "namespace": namespace, "node": node, "args": args })
        })
        .collect();
    cx.backends(&values).await
}

/// Port of the backends for an axis.
pub(super) fn target(axis: usize) -> u16 {
    FIRST_TARGET + u16::try_from(axis).unwrap_or_default()
}

/// Some of the backends, from another first one for each axis, so that none serves all of them.
pub(super) fn some(backends: &[Backend], axis: usize, count: usize) -> Vec<Backend> {
    backends.iter().cycle().skip(axis).take(count).cloned().collect()
}

impl Holder {
    /// Creates `${service}` and `${slice}` of the manifest.
    pub(super) async fn make(cx: &Context, wanted: &Wanted<'_>) -> Result<Self, Halt> {
        let Wanted {
            family,
            namespace,
            service,
            slice,
            target,
            backends,
            ..
        } = *wanted;
        let mut listed = backends.to_vec();
        cx.shuffle(&mut listed);
        let values = json!({
            "namespace": namespace,
            "service": service,
            "slice": slice,
            "family": family.to_string(),
            "port": PORT,
            "target": target,
            "endpoints": endpoints(&listed, family)?,
        });
        let address = cx.apply_service("${service}", &values).await?;
        cx.apply("${slice}", &values).await?;
        Self::of(cx, wanted, (address, PORT), &TRANSPORTS).await
    }

    /// A holder whose objects exist, dialled with these transports at this frontend, or at one port of it.
    pub(super) async fn of(
        cx: &Context,
        wanted: &Wanted<'_>,
        (address, port): (IpAddr, u16),
        transports: &[Transport],
    ) -> Result<Self, Halt> {
        let slice = Key::slice(wanted.namespace, wanted.slice);
        let object = cx.objects().get(&slice).await?;
        let version = object["metadata"]["resourceVersion"].as_str();
        Ok(Self {
            axis: wanted.axis.to_owned(),
            family: wanted.family,
            service: Key::service(wanted.namespace, wanted.service),
            slice,
            address,
            port,
            target: wanted.target,
            transports: transports.to_vec(),
            backends: wanted.backends.to_vec(),
            version: version.unwrap_or_default().to_owned(),
        })
    }

    /// It serves what its EndpointSlice lists.
    pub(super) fn serves(&self) -> Vec<Destination> {
        self.serves_only(&self.backends)
    }

    /// It serves these of its backends.
    pub(super) fn serves_only(&self, backends: &[Backend]) -> Vec<Destination> {
        self.targets(backends, &self.transports)
    }

    fn targets(&self, backends: &[Backend], transports: &[Transport]) -> Vec<Destination> {
        let serves = |transport| {
            let expected = identities(backends, transport, self.target);
            let address = (self.address, self.port).into();
            Destination::serves(&self.axis, self.service.plain(), transport, address, expected)
        };
        transports.iter().copied().map(serves).collect()
    }

    /// As [`Holder::serves`], by these transports.
    pub(super) fn serves_by(&self, transports: &[Transport]) -> Vec<Destination> {
        self.targets(&self.backends, transports)
    }

    /// It has no backend.
    pub(super) fn refuses(&self) -> Destination {
        let address = (self.address, self.port).into();
        Destination::refuses(&self.axis, self.service.plain(), Transport::Tcp, address)
    }

    /// Its address belongs to no Service any more.
    pub(super) fn is_dead(&self) -> Destination {
        Destination {
            permitted: Permitted::None,
            ..self.refuses()
        }
    }

    /// Makes its EndpointSlice list these.
    pub(super) async fn list(&mut self, cx: &Context, backends: &[Backend]) -> Result<(), Halt> {
        self.write(cx, endpoints(backends, self.family)?).await
    }

    /// Gives its EndpointSlice these endpoints.
    pub(super) async fn write(&mut self, cx: &Context, endpoints: Value) -> Result<(), Halt> {
        let patch = json!({ "endpoints": endpoints });
        let written = cx.objects().patch(&self.slice, patch).await?;
        self.version = written.resource_version;
        Ok(())
    }

    /// Makes its EndpointSlice list what it listed first.
    pub(super) async fn list_again(&mut self, cx: &Context) -> Result<(), Halt> {
        let backends = self.backends.clone();
        self.list(cx, &backends).await
    }

    /// Creates another EndpointSlice for it, which lists these.
    pub(super) async fn make_slice(
        &self,
        cx: &Context,
        name: &str,
        backends: &[Backend],
    ) -> Result<(), Halt> {
        let values = json!({
            "namespace": self.slice.namespace,
            "service": self.service.name,
            "slice": name,
            "family": self.family.to_string(),
            "target": self.target,
            "endpoints": endpoints(backends, self.family)?,
        });
        cx.apply("${slice}", &values).await?;
        Ok(())
    }
}

/// Control: all serve what they list.
pub(super) async fn all_serve<'a>(
    cx: &Context,
    holders: impl IntoIterator<Item = &'a Holder>,
) -> Result<(), Halt> {
    cx.phase("control: all serve their backends");
    let targets: Vec<Destination> = holders.into_iter().flat_map(Holder::serves).collect();
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    probing::control(cx, "all serve their backends", cx.clients(), &targets, within).await
}

/// After a release: fence, witness, a trigger for each victim, fence; then the victims serve what they served before.
/// Returns their probes.
pub(super) async fn released<'a>(
    cx: &Context,
    (effect, what): (Effect, &str),
    seen: &[Destination],
    victims: impl IntoIterator<Item = &'a Holder>,
    hold: Hold,
) -> Result<Vec<Attempt>, Halt> {
    witnessed(cx, (effect, what), seen).await?;
    serve_on(cx, what, victims, hold).await
}

/// The second half of [`released`]: trigger, fence, verdict. Returns the victims' probes.
pub(super) async fn serve_on<'a>(
    cx: &Context,
    what: &str,
    victims: impl IntoIterator<Item = &'a Holder>,
    hold: Hold,
) -> Result<Vec<Attempt>, Halt> {
    let victims: Vec<&Holder> = victims.into_iter().collect();
    cx.phase("trigger: the others are patched, and must serve what they did");
    let window = probed(cx, victims.iter().copied(), hold).await?;
    trigger(cx, what, victims).await?;
    window.hold(cx).await
}

/// Probes all of them until the hold time is over.
pub(super) async fn probed<'a>(
    cx: &Context,
    holders: impl IntoIterator<Item = &'a Holder>,
    hold: Hold,
) -> Result<Background, Halt> {
    let targets: Vec<Destination> = holders.into_iter().flat_map(Holder::serves).collect();
    probed_by(cx, cx.clients(), &targets, hold).await
}

/// As [`probed`], by these clients.
pub(super) async fn probed_by(
    cx: &Context,
    clients: &[Client],
    targets: &[Destination],
    hold: Hold,
) -> Result<Background, Halt> {
    let probes: usize = targets.iter().map(|target| target.probes(cx.limits())).sum();
    let fastest = Duration::from_secs_f64(probes as f64 / f64::from(cx.limits().rate));
    let window = match hold {
        Hold::Probes => fastest,
        Hold::Time => cx.limits().hold.max(fastest),
    };
    Background::start(cx, clients, targets, window).await
}

/// Right after a release: the fence, and the witness.
pub(super) async fn witnessed(
    cx: &Context,
    (effect, what): (Effect, &str),
    seen: &[Destination],
) -> Result<(), Halt> {
    let since = Instant::now();
    fence::pass(cx).await?;
    let within = Within::from(since, cx.limits().endpoints);
    write_effect::takes_effect(cx, effect, what, cx.clients(), seen, within).await
}

/// Makes the agent reconcile each of them by a changed annotation, which tells triggers apart, and waits for the fence.
pub(super) async fn trigger<'a>(
    cx: &Context,
    annotated: &str,
    victims: impl IntoIterator<Item = &'a Holder>,
) -> Result<(), Halt> {
    // Held during the writes.
    let victims: Vec<&Key> = victims.into_iter().map(|victim| &victim.service).collect();
    for victim in victims {
        let patch = annotation("plumbline-trigger", annotated);
        cx.objects().patch(victim, patch).await?;
    }
    fence::pass(cx).await
}

/// Nothing has healed the fault meanwhile.
pub(super) async fn undisturbed<'a>(
    cx: &Context,
    victims: impl IntoIterator<Item = &'a Holder>,
    agents: Option<&BTreeMap<String, AgentState>>,
) -> Result<(), Halt> {
    let restarted = agents::restarted_since(cx, agents).await?;
    for victim in victims {
        let writes = cx
            .objects()
            .watch()
            .versions_since(&victim.slice, &victim.version)?;
        if writes > 0 {
            let why = format!(
                "another client of the API wrote {} {writes} times, which heals the fault",
                victim.slice
            );
            cx.axes().inconclusive(&victim.axis, why, Vec::new());
        }
        if !restarted.is_empty() {
            let why = format!(
                "agents restarted, which heals the fault: {}",
                restarted.join(", ")
            );
            cx.axes().inconclusive(&victim.axis, why, Vec::new());
        }
    }
    Ok(())
}
