//! Services that lose their endpoints, each by one loss, with the frontends of some kinds. Their backends stay alive,
//! log, and answer where they are dialled directly.

use std::collections::BTreeMap;

use cluster::Family;
use harness::{
    background,
    client::Client,
    context::Context,
    destination::Destination,
    fence,
    frontend_kinds::{Kind, OfKinds, inside_and_outside, offered},
    frontends::{self, Vantage, permitting},
    names::Key,
    pods::{Backend, endpoints},
    probing::{self, identities},
    verdict::Halt,
    waiting::Within,
};
use oracle::{check::Permitted, history::Transport};
use serde_json::{Value, json};

const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Udp];
/// Of the first loss; those of others are further on, as external IPs of one address may be of several Services.
const PORT: u16 = 7480;
const TARGET: u16 = 8080;

/// How a Service loses its endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// Its EndpointSlice is emptied.
    Left,
    /// Its EndpointSlice is deleted.
    SliceDeleted,
    /// They are all listed as unready.
    Unready,
}

impl Loss {
    fn words(self) -> &'static str {
        match self {
            Self::Left => "emptied",
            Self::SliceDeleted => "without a slice",
            Self::Unready => "unready",
        }
    }

    /// Of which Services of this loss are called.
    fn name(self) -> &'static str {
        match self {
            Self::Left => "hollow",
            Self::SliceDeleted => "bare",
            Self::Unready => "dormant",
        }
    }
}

/// Services of each family and loss, and who dials which of their frontends.
pub(super) struct Emptied {
    namespace: String,
    backends: Vec<Backend>,
    services: Vec<(Loss, Family, OfKinds)>,
    inside: Vec<Destination>,
    outside: Vec<Destination>,
}

impl Emptied {
    /// Creates them, with two backends.
    pub(super) async fn stage(cx: &Context, losses: &[Loss], kinds: &[Kind]) -> Result<Self, Halt> {
        cx.phase("staging: Services of two backends");
        let namespace = cx.namespace().await?;
        let backends = frontends::serving(cx, &namespace, &["b1", "b2"], &[TARGET], &[TARGET]).await?;
        let kinds = offered(cx, kinds);
        let losses = cx.axes().choose(losses.to_vec(), |loss| loss.words().to_owned());
        let (mut services, mut targets) = (Vec::new(), Vec::new());
        for family in cx.families() {
            for (loss, port) in losses.iter().zip((PORT..).step_by(2)) {
                let service = format!("{}-{family}", loss.name()).to_lowercase();
                let endpoints = endpoints(&backends, family)?;
                let values = json!({ "namespace": namespace, "service": service, "endpoints": endpoints });
                let made = OfKinds::create(cx, family, &kinds, port, values).await?;
                let axis = format!("{family}, {}", loss.words());
                for transport in TRANSPORTS {
                    let by = identities(&backends, transport, TARGET);
                    targets.extend(made.targets(cx, &axis, transport, &by).await?);
                }
                services.push((*loss, family, made));
            }
        }
        let [inside, outside] = inside_and_outside(&targets);
        Ok(Self {
            namespace,
            backends,
            services,
            inside,
            outside,
        })
    }

    /// Every frontend, dialled by clients inside and by the one outside.
    pub(super) fn dialled_everywhere(&self, cx: &Context) -> Vec<Vantage> {
        frontends::vantages(cx, self.inside.clone(), self.outside.clone())
    }

    /// The frontends that the client outside dials.
    pub(super) fn dialled_outside(&self, cx: &Context) -> Vec<Vantage> {
        let client = cx.clients().outside();
        client
            .map(|client| (vec![client], self.outside.clone()))
            .into_iter()
            .collect()
    }

    /// Control: all serve. Then the endpoints are lost; a fence has passed when this returns, with the limit of that
    /// write.
    pub(super) async fn lose(&self, cx: &Context, dialled: &[Vantage]) -> Result<Within, Halt> {
        cx.phase("control: every frontend serves");
        let within = Within::from_now(cx.limits().service);
        fence::pass(cx).await?;
        for (clients, targets) in dialled {
            probing::control(cx, "every frontend serves", clients, targets, within).await?;
        }
        cx.phase("fault: the Services lose their endpoints");
        for (loss, family, service) in &self.services {
            let slice = Key::slice(&self.namespace, &service.made.service.name);
            match loss {
                Loss::Left => cx.objects().patch(&slice, json!({ "endpoints": [] })).await?,
                Loss::SliceDeleted => cx.objects().delete(&slice).await?,
                Loss::Unready => {
                    let unready = self
                        .backends
                        .iter()
                        .map(|backend| backend.endpoint(*family, false));
                    let unready = unready.collect::<Result<Value, Halt>>()?;
                    cx.objects()
                        .patch(&slice, json!({ "endpoints": unready }))
                        .await?
                }
            };
        }
        let within = Within::from_now(cx.limits().endpoints);
        fence::pass(cx).await?;
        Ok(within)
    }

    /// Control: the backends still answer where they are dialled directly.
    pub(super) async fn answer_directly(&self, cx: &Context) -> Result<(), Halt> {
        let mut direct = BTreeMap::new();
        for target in &self.inside {
            let is_of = |family: &Family| family.has(&target.address.ip());
            let family = cx.families().into_iter().find(is_of).unwrap_or(Family::IPv4);
            for backend in &self.backends {
                let by = identities([backend], target.transport, TARGET);
                let at = (backend.address(family)?, TARGET).into();
                let one = Destination::serves(&target.axis, backend.plain(), target.transport, at, by);
                direct.insert((target.axis.clone(), target.transport, at), one);
            }
        }
        let direct: Vec<Destination> = direct.into_values().collect();
        let within = Within::from_now(cx.limits().endpoints);
        let what = "the former backends answer directly";
        let one: Vec<Client> = cx.clients().in_pods().into_iter().take(1).collect();
        probing::control(cx, what, &one, &direct, within).await
    }
}

/// Verdict: within the limit and then for T_hold, with N probes of each, the frontends are what is permitted. How they
/// end is recorded.
pub(super) async fn judge(
    cx: &Context,
    dialled: &[Vantage],
    permitted: impl Fn(&Destination) -> Permitted,
    within: Within,
) -> Result<(), Halt> {
    let each = |target: &Destination| permitting(std::slice::from_ref(target), &permitted(target));
    let dialled: Vec<Vantage> = dialled
        .iter()
        .map(|(clients, targets)| (clients.clone(), targets.iter().flat_map(each).collect()))
        .collect();
    let held = background::judge_held(cx, &dialled, within).await?;
    probing::record_endings(cx, "without endpoints", &held);
    Ok(())
}
