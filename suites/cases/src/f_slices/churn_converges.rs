//! `churn-converges`: 500 random writes of slices and Services within a minute, then quiet. Within the endpoint
//! propagation limit every node serves exactly what the API lists, for all Services.
//!
//! Slices are created before and after their Services, written with other entries in other conditions, and deleted;
//! entries move between slices of one Service and of two; Services are deleted and made again while their slices stay.
//! The seed decides all of it. What must be served is read from the API after the last write. A backend that several
//! slices of a Service list is in one condition in all of them: which of two counts is no claim.
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use cluster::Family;
use harness::{
    case::{Case, Needs},
    context::Context,
    dialled::Dialled,
    fence, frontends,
    pods::Backend,
    slices::{Port, Service, Slice, entry},
    verdict::Halt,
    waiting::{Within, has_lasted},
};
use serde_json::{Value, json};

use super::{PORT, TARGET, WEB, row};

pub(crate) const CASE: Case = Case {
    manifest: include_str!("slices.yaml"),
    needs: Needs {
        nodes: 2,
        ..super::NEEDS
    },
    takes_at_least: OVER,
    ..row(
        &["churn-converges"],
        "after 500 random changes in a minute every node serves exactly what the API lists",
        |cx| Box::pin(run(cx)),
    )
};

const WRITES: u32 = 500;
const OVER: Duration = Duration::from_secs(60);
/// Services of each family, slices of each, and backends that all of them list.
const SERVICES: usize = 4;
const SLICES: usize = 3;
const BACKENDS: [&str; 5] = ["b1", "b2", "b3", "b4", "b5"];

/// What an entry says; `None` is no entry.
type State = Option<[bool; 3]>;
const READY: State = Some([true, true, false]);
const UNREADY: State = Some([false, false, false]);
const GONE: State = Some([false, false, true]);
const STATES: [State; 6] = [None, None, READY, READY, UNREADY, GONE];

/// States of all backends in a slice.
type Entries = [State; BACKENDS.len()];

/// Services and slices of one family as they were written last.
struct Churn<'a> {
    cx: &'a Context,
    backends: &'a [Backend],
    family: Family,
    namespace: String,
    services: BTreeMap<usize, Service>,
    slices: BTreeMap<(usize, usize), Entries>,
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services without slices");
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &BACKENDS, &[TARGET], &[TARGET]).await?;
    let mut all = Vec::new();
    for family in cx.families() {
        let mut churn = Churn {
            cx,
            backends: &backends,
            family,
            namespace: cx.namespace().await?,
            services: BTreeMap::new(),
            slices: BTreeMap::new(),
        };
        for service in 0..SERVICES {
            churn.toggle_service(service).await?;
        }
        all.push(churn);
    }
    fence::pass(cx).await?;

    cx.phase("churn: random writes, at an even pace");
    let (began, mut writes) = (Instant::now(), 0);
    while writes < WRITES {
        for churn in &mut all {
            has_lasted(began, OVER / WRITES * writes).await;
            writes += churn.step().await?;
        }
    }
    // Every Service is there in the end, so that all of them are judged.
    for churn in &mut all {
        for service in (0..SERVICES)
            .filter(|service| !churn.services.contains_key(service))
            .collect::<Vec<_>>()
        {
            churn.toggle_service(service).await?;
        }
    }
    let within = Within::from_now(cx.limits().endpoints);

    cx.phase("verdict: every node serves what the API lists");
    let mut listed = Vec::new();
    for churn in &all {
        listed.push(churn.listed().await?);
    }
    let listed = Dialled::all(listed);
    fence::pass(cx).await?;
    listed.judge_briefly(cx, within).await?;
    listed.at_cluster_ips().judge(cx, within).await?;
    cx.record("writes", format!("{writes} in {} s", OVER.as_secs()));
    Ok(())
}

impl Churn<'_> {
    /// One of some, as the seed decides.
    fn pick<T: Copy>(&self, some: &[T]) -> Option<T> {
        let mut some = some.to_vec();
        self.cx.shuffle(&mut some);
        some.first().copied()
    }

    fn number(&self, below: usize) -> usize {
        self.pick(&(0..below).collect::<Vec<_>>()).unwrap_or_default()
    }

    /// Some writes; returns how many.
    async fn step(&mut self) -> Result<u32, Halt> {
        let slice = (self.number(SERVICES), self.number(SLICES));
        let other = (self.number(SERVICES), self.number(SLICES));
        match self.number(10) {
            0 => self.toggle_service(slice.0).await?,
            1 => {
                if self.slices.remove(&slice).is_none() {
                    return Ok(0);
                }
                self.object(slice).delete(self.cx).await?;
            }
            2..4 => return self.moves(slice, other).await,
            _ => {
                let entries = BACKENDS.map(|_| self.pick(&STATES).flatten());
                self.write(slice, entries).await?;
            }
        }
        Ok(1)
    }

    /// An entry leaves a slice for another one, where it is there first.
    async fn moves(&mut self, from: (usize, usize), to: (usize, usize)) -> Result<u32, Halt> {
        let Some(mut left) = self.slices.get(&from).copied().filter(|_| from != to) else {
            return Ok(0);
        };
        let mut joined = self.slices.get(&to).copied().unwrap_or_default();
        let backend = self.number(BACKENDS.len());
        joined[backend] = left[backend];
        left[backend] = None;
        self.write(to, joined).await?;
        self.write(from, left).await?;
        Ok(2)
    }

    /// Creates a slice, or lists other entries in it; those that other slices of its Service have, too, as these have
    /// them.
    async fn write(&mut self, slice: (usize, usize), mut entries: Entries) -> Result<(), Halt> {
        let others = self
            .slices
            .iter()
            .filter(|(other, _)| other.0 == slice.0 && **other != slice);
        for (_, others) in others {
            for (state, other) in entries.iter_mut().zip(others) {
                *state = state.and(other.or(*state));
            }
        }
        let mut listed = Vec::new();
        for (backend, state) in self.backends.iter().zip(entries) {
            let Some([ready, serving, terminating]) = state else {
                continue;
            };
            let conditions = json!({ "ready": ready, "serving": serving, "terminating": terminating });
            listed.push(entry(backend, self.family, conditions)?);
        }
        let object = self.object(slice);
        match self.slices.insert(slice, entries) {
            Some(_) => object.list(self.cx, listed.into()).await.map(drop),
            None => object.create(self.cx, listed.into()).await,
        }
    }

    /// Creates a Service, or deletes it.
    async fn toggle_service(&mut self, number: usize) -> Result<(), Halt> {
        if let Some(service) = self.services.remove(&number) {
            return self.cx.objects().delete(service.key()).await.map(drop);
        }
        let (name, ports) = (name(number), Port::both(WEB, PORT));
        let axis = self.family.to_string();
        let made = Service::create(self.cx, &axis, &self.namespace, &name, self.family, &ports).await?;
        self.services.insert(number, made);
        Ok(())
    }

    fn object(&self, (service, number): (usize, usize)) -> Slice {
        let slice = format!("{}-{number}", name(service));
        Slice::new(
            &self.namespace,
            &slice,
            &name(service),
            self.family,
            &Port::both(WEB, TARGET),
        )
    }

    /// What clients must meet at all Services, as the API has their slices.
    async fn listed(&self) -> Result<Dialled, Halt> {
        let mut ready: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
        for slice in self.slices.keys() {
            let object = self.cx.objects().get(self.object(*slice).key()).await?;
            let entries = object["endpoints"].as_array().into_iter().flatten();
            let addresses = entries.filter(|entry| entry["conditions"]["ready"] == true);
            let addresses = addresses.filter_map(|entry: &Value| entry["addresses"][0].as_str());
            ready
                .entry(slice.0)
                .or_default()
                .extend(addresses.map(str::to_owned));
        }
        let mut all = Vec::new();
        for (number, service) in &self.services {
            let is_listed = |backend: &&Backend| {
                let address = backend.address(self.family).map(|address| address.to_string());
                let listed = ready.get(number);
                listed
                    .zip(address.ok())
                    .is_some_and(|(listed, address)| listed.contains(&address))
            };
            let by: Vec<_> = self
                .backends
                .iter()
                .filter(is_listed)
                .map(|one| (one, TARGET))
                .collect();
            all.push(service.meets(self.cx, PORT, &by)?);
        }
        Ok(Dialled::all(all))
    }
}

fn name(service: usize) -> String {
    format!("s{service}")
}
