//! `clusterip-reused`: a Service is deleted, and within a second another one has its ClusterIP and port, or its name. New
//! clients reach only the new backends; the former ones, alive and answering, get nothing. What was opened through the
//! former Service and keeps sending from its source port never reaches a new backend.
//!
//! A name is reused in two ways: at once, so that the deletion may be handled after the creation, and in order: the
//! deletion of the Service, that of its EndpointSlice, which the garbage collector deletes later, and the creation are
//! each handled before the next is written. An agent that forgets slices with their Service misses the second.
//!
//! Where the ClusterIP is reused, only connections are judged: datagrams have to follow the address to its new Service
//! (`frontend-moves-owner`), and where they go is recorded. Where only the name is reused, no Service has the former
//! ClusterIP, and neither connections nor datagrams to it may reach a new backend.
use std::time::{Duration, Instant};

use cluster::Family;
use harness::{
    background,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    fence,
    flows::Flows,
    frontends::{self, Frontends},
    names::Key,
    pods::{Backend, endpoints},
    probing::{self, identities},
    verdict::Halt,
    waiting::Within,
};
use oracle::{
    history::{Attempt, Transport},
    observations,
};
use serde_json::{Value, json};

pub(crate) const CASE: Case = Case {
    id: "clusterip-reused",
    area: super::AREA,
    claims: &["clusterip-reused"],
    sentence: "a ClusterIP or a name that is reused within a second leads to the new backends alone",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Api,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("clusterip_reused.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const PORT: u16 = 7480;
const TARGET: u16 = 8080;
const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Udp];
/// Sockets of each kind that keep sending, to each former Service.
const SOCKETS: u32 = 4;
/// From the deletion of a Service to the creation of the next, at most.
const AT_ONCE: Duration = Duration::from_secs(1);
const REUSED: [What; 3] = [What::ClusterIp, What::Name, What::NameInOrder];

/// What is reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    ClusterIp,
    Name,
    /// The name, where each write waits until nodes have handled the one before.
    NameInOrder,
}

struct Reused {
    axis: String,
    what: What,
    former: Frontends,
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services with the former backends, through which sockets send");
    let namespace = cx.namespace().await?;
    let mut former =
        frontends::serving(cx, &namespace, &["f1", "f2", "n1", "n2"], &[TARGET], &[TARGET]).await?;
    let new = former.split_off(2);
    let mut all = Vec::new();
    for family in cx.families() {
        for what in REUSED {
            let values = values(&namespace, what.service(), family, &former, &Value::Null)?;
            all.push(Reused {
                axis: format!("{family}, {}", what.name()),
                what,
                former: create(cx, family, &values).await?,
            });
        }
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let clients = cx.clients();
    let before: Vec<Destination> = all.iter().flat_map(|one| one.at(&one.former, &former)).collect();
    probing::control(cx, "the former Services serve", clients, &before, within).await?;
    let flows = Flows::open(cx, clients, &before, SOCKETS, within).await?;

    cx.phase("fault: Services are deleted, and others have what they had");
    let mut after = Vec::new();
    for one in &all {
        let next = one.replace(cx, &namespace, &new).await?;
        after.extend(one.at(&next, &new));
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;

    cx.phase(
        "verdict: new clients reach new backends alone, for the hold time; what was opened before never does",
    );
    probing::judge(cx, clients, &after, within).await?;
    background::hold_steadily(cx, clients, &after, cx.limits().hold).await?;
    let sent = flows.end().await?;
    for one in &all {
        let opened: Vec<Attempt> = sent
            .iter()
            .filter(|attempt| one.is_judged(attempt))
            .cloned()
            .collect();
        for trap in &new {
            probing::trap_untouched(cx, &one.axis, &opened, trap).await?;
        }
        let datagrams = sent
            .iter()
            .filter(|attempt| one.has_sent(attempt, Transport::Udp));
        let answers = observations::line(&observations::outcomes(datagrams));
        cx.record(
            &format!("{}: datagrams of sockets that keep sending", one.axis),
            answers,
        );
    }
    Ok(())
}

impl What {
    const fn name(self) -> &'static str {
        match self {
            Self::ClusterIp => "ClusterIP",
            Self::Name => "name",
            Self::NameInOrder => "name, in order",
        }
    }

    /// The former Service.
    const fn service(self) -> &'static str {
        match self {
            Self::ClusterIp => "of-clusterip",
            Self::Name => "of-name",
            Self::NameInOrder => "of-name-in-order",
        }
    }
}

impl Reused {
    /// The ClusterIP of a Service, which these backends must serve.
    fn at(&self, service: &Frontends, backends: &[Backend]) -> Vec<Destination> {
        let at = |transport| {
            let by = identities(backends, transport, TARGET);
            service.at_cluster_ip(&self.axis, transport, PORT, &by)
        };
        TRANSPORTS.map(at).to_vec()
    }

    /// Deletes the former Service, and creates the one that has its ClusterIP or name.
    async fn replace(&self, cx: &Context, namespace: &str, new: &[Backend]) -> Result<Frontends, Halt> {
        let (family, former) = (self.former.family, &self.former.service);
        let (name, cluster_ip) = match self.what {
            What::ClusterIp => ("next", json!(self.former.cluster_ip)),
            What::Name | What::NameInOrder => (self.what.service(), Value::Null),
        };
        let mut values = values(namespace, name, family, new, &cluster_ip)?;
        values["slice"] = json!(format!("next-{}-{family}", self.what.service()).to_lowercase());
        let slice = Key::slice(namespace, &former.name);
        let deleted = Instant::now();
        for gone in [former, &slice] {
            cx.objects().delete(gone).await?;
            if self.what == What::NameInOrder {
                fence::pass(cx).await?;
            }
        }
        let next = create(cx, family, &values).await?;
        if self.what != What::NameInOrder && deleted.elapsed() > AT_ONCE {
            let why = format!(
                "the next Service came after {:?}, and not within {AT_ONCE:?}",
                deleted.elapsed()
            );
            cx.axes().inconclusive(&self.axis, why, Vec::new());
        }
        Ok(next)
    }

    /// What must not reach a new backend: exchanges of connections that were opened before, and of any socket where the
    /// former ClusterIP was not reused.
    fn is_judged(&self, attempt: &Attempt) -> bool {
        let is_first = attempt.exchange.is_some_and(|exchange| exchange.socket == 0);
        let is_connection = self.has_sent(attempt, Transport::Tcp) && is_first;
        is_connection || (self.what != What::ClusterIp && attempt.destination.ip() == self.former.cluster_ip)
    }

    fn has_sent(&self, attempt: &Attempt, transport: Transport) -> bool {
        attempt.destination.ip() == self.former.cluster_ip && attempt.transport == transport
    }
}

/// A Service, and its EndpointSlice, whose name is another.
async fn create(cx: &Context, family: Family, values: &Value) -> Result<Frontends, Halt> {
    let made = Frontends::create(cx, family, values.clone()).await?;
    cx.apply("${slice}", values).await?;
    Ok(made)
}

fn values(
    namespace: &str,
    name: &str,
    family: Family,
    backends: &[Backend],
    cluster_ip: &Value,
) -> Result<Value, Halt> {
    let service = format!("{name}-{family}").to_lowercase();
    Ok(json!({
        "namespace": namespace, "service": service, "slice": service, "cluster-ip": cluster_ip, "family": family.to_string(),
        "endpoints": endpoints(backends, family)?,
    }))
}
