//! The objects of the first cases of area A, and their course: culprit and victim list the same backends, and the
//! culprit drops them.
//!
//! The axes are 1, 2 and 10 shared backends; the victim created before and after the culprit; and the trigger: an
//! annotation of the victim, or (the twin) an annotation and a new port p2, whose answers prove that the victim was
//! reconciled. All variants run concurrently, each in a namespace and on backend ports of its own, so that no backend
//! has more than its two holders.

use std::time::Instant;

use cluster::Family;
use futures::future::try_join_all;
use harness::{
    agents,
    background::Background,
    context::Context,
    destination::Destination,
    fence,
    names::Key,
    objects::{Written, annotation},
    pods::{Backend, endpoints, serve},
    probing::{self, identities},
    verdict::Halt,
    waiting::Within,
    write_effect::{self, Effect},
};
use oracle::history::Transport;
use serde_json::{Value, json};

/// Their names: the culprit's is a prefix of the victim's.
const CULPRIT: &str = "t";
const VICTIM: &str = "t-ext";

const SHARED: [usize; 3] = [1, 2, 10];
const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Udp];
/// Service ports p1 and p2; not the backends' ports.
const P1: u16 = 7480;
const P2: u16 = 7481;
/// First backend port of the variants, which have two each.
const FIRST_TARGET: u16 = 8000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Older {
    Victim,
    Culprit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trigger {
    Annotation,
    /// The twin.
    AnnotationAndPort,
}

/// A combination of the axes.
#[derive(Clone, Copy)]
struct Point {
    family: Family,
    shared: usize,
    older: Older,
    trigger: Trigger,
}

/// A combination of the axes, with the names and ports of its objects.
struct Variant {
    axis: String,
    family: Family,
    namespace: String,
    shared: Vec<Backend>,
    older: Older,
    trigger: Trigger,
    /// Destination ports of p1 and p2.
    targets: [u16; 2],
}

/// A variant whose objects exist.
struct Staged {
    variant: Variant,
    culprit: std::net::IpAddr,
    victim: std::net::IpAddr,
    /// The victim's EndpointSlice as it was written, once.
    victims_slice: String,
}

/// The whole case: staging, control, release by `release`, fence, witness, trigger, fence, verdict over the hold time.
pub(super) async fn prefix_release(
    cx: &Context,
    release: impl AsyncFn(&Context, &Key) -> Result<Written, Halt>,
) -> Result<(), Halt> {
    cx.phase("staging: culprit and victim list the same backends");
    let namespace = cx.namespace().await?;
    let points = points(cx);
    let backends = backends(cx, &namespace, &points).await?;
    let mut variants = variants(cx, points, &backends).await?;
    cx.shuffle(&mut variants);
    let mut staged = Vec::new();
    for variant in variants {
        staged.push(variant.stage(cx).await?);
    }
    let agents = agents::all(cx).await?;

    cx.phase("control: both serve their backends");
    let both: Vec<Destination> = staged
        .iter()
        .flat_map(|one| [one.victim_p1(), one.culprit_p1()])
        .flatten()
        .collect();
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    probing::control(cx, "both serve {b} first", cx.clients(), &both, within).await?;

    cx.phase("release: the culprit's EndpointSlice drops all backends");
    for one in &staged {
        release(cx, &Key::slice(&one.variant.namespace, CULPRIT)).await?;
    }
    let released = Instant::now();
    fence::pass(cx).await?;
    let refused: Vec<Destination> = staged.iter().map(Staged::culprit_refuses).collect();
    let within = Within::from(released, cx.limits().endpoints);
    let (effect, what) = (Effect::Emptied, "the culprit refuses on every node");
    write_effect::takes_effect(cx, effect, what, cx.clients(), &refused, within).await?;

    cx.phase("trigger: the victim is patched, and must serve its backends for the hold time");
    let victims: Vec<Destination> = staged.iter().flat_map(Staged::victim_p1).collect();
    let window = Background::start(cx, cx.clients(), &victims, cx.limits().hold).await?;
    for one in &staged {
        one.trigger(cx).await?;
    }
    let triggered = Instant::now();
    fence::pass(cx).await?;
    let added: Vec<Destination> = staged.iter().flat_map(Staged::victim_p2).collect();
    let within = Within::from(triggered, cx.limits().service);
    let reconciled = probing::settle(cx, cx.clients(), &added, within);
    let (_, reconciled) = futures::try_join!(window.hold(cx), reconciled)?;
    // After that verdict: a victim that lost its backends lost them on p2 too, which is a failure, not a missing
    // witness.
    probing::record_settled(cx, &reconciled);
    write_effect::must_hold(
        cx,
        Effect::Changed,
        "the victim was reconciled: p2 serves its backends",
        reconciled,
    );
    undisturbed(cx, &staged, agents.as_ref()).await
}

/// Nothing has healed the fault meanwhile.
async fn undisturbed(
    cx: &Context,
    staged: &[Staged],
    agents: Option<&std::collections::BTreeMap<String, cluster::AgentState>>,
) -> Result<(), Halt> {
    let restarted = agents::restarted_since(cx, agents).await?;
    for one in staged {
        let axis = &one.variant.axis;
        let slice = Key::slice(&one.variant.namespace, VICTIM);
        let writes = cx.objects().watch().versions_since(&slice, &one.victims_slice)?;
        if writes > 0 {
            let why =
                format!("another client of the API wrote {slice} {writes} times, which heals the fault");
            cx.axes().inconclusive(axis, why, Vec::new());
        }
        if !restarted.is_empty() {
            let why = format!(
                "agents restarted, which heals the fault: {}",
                restarted.join(", ")
            );
            cx.axes().inconclusive(axis, why, Vec::new());
        }
    }
    Ok(())
}

/// As many backends as the largest variant shares, on all nodes in turn, each listening on every variant's ports.
async fn backends(cx: &Context, namespace: &str, points: &[Point]) -> Result<Vec<Backend>, Halt> {
    let ports: Vec<u16> = (FIRST_TARGET..).take(points.len() * 2).collect();
    let nodes = cx.nodes();
    let most = points.iter().map(|point| point.shared).max().unwrap_or_default();
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

fn points(cx: &Context) -> Vec<Point> {
    let mut points = Vec::new();
    for family in cx.families() {
        for shared in SHARED {
            for older in [Older::Victim, Older::Culprit] {
                for trigger in [Trigger::Annotation, Trigger::AnnotationAndPort] {
                    points.push(Point {
                        family,
                        shared,
                        older,
                        trigger,
                    });
                }
            }
        }
    }
    cx.axes().choose(points, Point::axis)
}

impl Point {
    fn axis(&self) -> String {
        let Self {
            family,
            shared,
            older,
            trigger,
        } = self;
        let age = match older {
            Older::Victim => "victim older",
            Older::Culprit => "victim younger",
        };
        let how = match trigger {
            Trigger::Annotation => "annotation",
            Trigger::AnnotationAndPort => "annotation and port",
        };
        format!("{family}, {shared} shared, {age}, {how}")
    }
}

async fn variants(cx: &Context, points: Vec<Point>, backends: &[Backend]) -> Result<Vec<Variant>, Halt> {
    let made = points
        .into_iter()
        .zip((FIRST_TARGET..).step_by(2))
        .map(async |(point, target)| {
            let Point {
                family,
                shared,
                older,
                trigger,
            } = point;
            Ok::<_, Halt>(Variant {
                axis: point.axis(),
                family,
                namespace: cx.namespace().await?,
                // From another first one for each variant, so that none serves all of them.
                shared: backends
                    .iter()
                    .cycle()
                    .skip(target.into())
                    .take(shared)
                    .cloned()
                    .collect(),
                older,
                trigger,
                targets: [target, target + 1],
            })
        });
    try_join_all(made).await
}

impl Variant {
    async fn stage(self, cx: &Context) -> Result<Staged, Halt> {
        let mut shared = self.shared.clone();
        cx.shuffle(&mut shared);
        let values = json!({
            "namespace": self.namespace,
            "family": self.family.to_string(),
            "endpoints": endpoints(&shared, self.family)?,
            "p1": P1,
            "target1": self.targets[0],
            "target2": self.targets[1],
        });
        let (culprit, victim) = match self.older {
            Older::Culprit => {
                let culprit = cx.apply_service(CULPRIT, &values).await?;
                (culprit, cx.apply_service(VICTIM, &values).await?)
            }
            Older::Victim => {
                let victim = cx.apply_service(VICTIM, &values).await?;
                (cx.apply_service(CULPRIT, &values).await?, victim)
            }
        };
        let slice = cx.objects().get(&Key::slice(&self.namespace, VICTIM)).await?;
        let victims_slice = slice["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        Ok(Staged {
            variant: self,
            culprit,
            victim,
            victims_slice,
        })
    }
}

impl Staged {
    fn serves(&self, service: &str, address: std::net::IpAddr, port: u16, target: u16) -> Vec<Destination> {
        let serves = |transport| {
            let expected = identities(&self.variant.shared, transport, target);
            let name = format!("{service}:{port}");
            Destination::serves(
                &self.variant.axis,
                &name,
                transport,
                (address, port).into(),
                expected,
            )
        };
        TRANSPORTS.into_iter().map(serves).collect()
    }

    fn victim_p1(&self) -> Vec<Destination> {
        self.serves(VICTIM, self.victim, P1, self.variant.targets[0])
    }

    fn culprit_p1(&self) -> Vec<Destination> {
        self.serves(CULPRIT, self.culprit, P1, self.variant.targets[0])
    }

    /// Only the twin has one.
    fn victim_p2(&self) -> Vec<Destination> {
        match self.variant.trigger {
            Trigger::Annotation => Vec::new(),
            Trigger::AnnotationAndPort => self.serves(VICTIM, self.victim, P2, self.variant.targets[1]),
        }
    }

    fn culprit_refuses(&self) -> Destination {
        let address = (self.culprit, P1).into();
        Destination::refuses(&self.variant.axis, CULPRIT, Transport::Tcp, address)
    }

    async fn trigger(&self, cx: &Context) -> Result<Written, Halt> {
        let mut patch = annotation("plumbline-trigger", "1");
        if self.variant.trigger == Trigger::AnnotationAndPort {
            let port = |number: u16, port: u16, protocol: &str| json!({ "name": format!("p{number}-{}", protocol.to_lowercase()), "port": port, "protocol": protocol });
            patch["spec"] = json!({ "ports": [
                port(1, P1, "TCP"), port(1, P1, "UDP"), port(2, P2, "TCP"), port(2, P2, "UDP"),
            ] });
        }
        cx.objects()
            .patch(&Key::service(&self.variant.namespace, VICTIM), patch)
            .await
    }
}
