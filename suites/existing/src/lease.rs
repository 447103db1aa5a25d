//! The Lease of the run that holds a cluster: takes, renews and releases it.
//!
//! The holder renews the Lease and follows its state ([`LeaseState`]). While the API server does not answer, renewals
//! go on: after [`lease_given_up`](super::Limits::lease_given_up) running cases end, before another run may take the
//! Lease, and after the next successful renewal the run continues. The Lease is lost when another run holds it, when
//! it is deleted (`plumbline cleanup` does so, with the pods of the run), or after
//! [`lease_awaited`](super::Limits::lease_awaited). A write conflict is no loss by itself: the Lease is read again,
//! and its holder decides.

use std::collections::BTreeSet;

use cluster::RUN_LABEL;
use k8s_openapi::{
    api::coordination::v1::{Lease as Object, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ObjectMeta, PostParams, Preconditions},
};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep_until, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::{
    KubernetesError, LIMITS, Options,
    error::{Hidden, api, words},
    holders::{lives, under_test},
    labels::LEASE,
    lease_note::{self, Left},
    limits::ask,
};

mod state;
#[cfg(test)]
mod tests;

use self::state::StatePublisher;
pub use self::state::{LeaseState, LeaseWatch};

/// The Lease, held and renewed until this is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    leases: Hidden<Api<Object>>,
    uid: Option<String>,
    watch: LeaseWatch,
    renewing: JoinHandle<()>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

impl Lease {
    /// Takes a Lease that is free or expired, with its previous holder's note about nodes.
    ///
    /// # Errors
    /// Another run holds it, or its note can't be read; [`KubernetesError::Interrupted`].
    pub(super) async fn take(
        client: &Client,
        options: &Options,
        nodes: &BTreeSet<String>,
        who: &str,
        interrupted: &CancellationToken,
    ) -> Result<(Self, Option<Left>), KubernetesError> {
        let leases: Api<Object> = Api::namespaced(client.clone(), &options.namespace);
        let what = "take the Lease of the cluster";
        let fresh = own(options, nodes.clone(), who)?;
        let params = PostParams::default();
        let (taken, left) = match ask(what, leases.create(&params, &fresh)).await? {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let there = ask(what, leases.get(LEASE)).await?.map_err(api(what))?;
                let (next, left) = tokio::select! {
                    next = after(&leases, &there, options, nodes, who) => next?,
                    () = interrupted.cancelled() => return Err(KubernetesError::Interrupted),
                };
                match ask(what, leases.replace(LEASE, &params, &next)).await? {
                    // Another run has taken it at the same time.
                    Err(kube::Error::Api(status)) if status.is_conflict() => {
                        let there = ask(what, leases.get(LEASE)).await?.map_err(api(what))?;
                        return Err(under_test(&there));
                    }
                    taken => (taken.map_err(api(what))?, left),
                }
            }
            taken => (taken.map_err(api(what))?, None),
        };
        let (publisher, watch) = StatePublisher::new();
        let uid = taken.metadata.uid.clone();
        let renewing = tokio::spawn(renew(leases.clone(), taken, publisher));
        let lease = Self {
            leases: Hidden(leases),
            uid,
            watch,
            renewing,
        };
        Ok((lease, left))
    }

    pub(super) fn watch(&self) -> &LeaseWatch {
        &self.watch
    }

    /// Deletes the Lease, for a namespace that stays.
    pub(super) async fn remove(mut self) -> Result<(), KubernetesError> {
        self.stop().await;
        remove(&self.leases.0, self.uid.clone()).await
    }

    /// Stops renewing: the Lease goes with its namespace, or expires.
    pub(super) async fn leave(mut self) {
        self.stop().await;
    }

    /// Ends the renewals. None is under way when this returns: it would report that the Lease is lost.
    async fn stop(&mut self) {
        self.renewing.abort();
        // It ends as aborted, or had ended.
        let _ = (&mut self.renewing).await;
    }
}

/// The Lease that replaces one of a run that has ended.
async fn after(
    leases: &Api<Object>,
    there: &Object,
    options: &Options,
    nodes: &BTreeSet<String>,
    who: &str,
) -> Result<(Object, Option<Left>), KubernetesError> {
    if !there.labels().contains_key(RUN_LABEL) {
        return Err(KubernetesError::ForeignLease {
            lease: format!("{}/{LEASE}", options.namespace),
        });
    }
    if lives(leases, there).await? {
        return Err(under_test(there));
    }
    if lease_note::is_beyond(there, options.tier) {
        return Err(KubernetesError::Unhealed {
            run: there.labels().get(RUN_LABEL).cloned().unwrap_or_default(),
            namespace: options.namespace.clone(),
        });
    }
    let left = lease_note::left(there)?;
    let more = left.iter().flat_map(|left| left.nodes.iter().cloned());
    let mut next = own(options, nodes.iter().cloned().chain(more).collect(), who)?;
    next.metadata.resource_version = there.metadata.resource_version.clone();
    Ok((next, left))
}

/// Owner of the Lease of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseOwner {
    None,
    ThisRun,
    OtherRun,
}

/// Reads the owner, and deletes the Lease if it is this run's and `removes` is set.
pub(super) async fn settle(
    client: &Client,
    options: &Options,
    removes: bool,
) -> Result<LeaseOwner, KubernetesError> {
    let leases: Api<Object> = Api::namespaced(client.clone(), &options.namespace);
    let what = "read the Lease of the cluster";
    let Some(there) = ask(what, leases.get_opt(LEASE)).await?.map_err(api(what))? else {
        return Ok(LeaseOwner::None);
    };
    if there.labels().get(RUN_LABEL) != Some(&options.run) {
        return Ok(LeaseOwner::OtherRun);
    }
    if removes {
        remove(&leases, there.metadata.uid).await?;
    }
    Ok(LeaseOwner::ThisRun)
}

/// Deletes the Lease with this uid, and no other.
async fn remove(leases: &Api<Object>, uid: Option<String>) -> Result<(), KubernetesError> {
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid,
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let what = "give the Lease of the cluster back";
    match ask(what, leases.delete(LEASE, &params)).await? {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        done => done.map(drop).map_err(api(what)),
    }
}

fn own(options: &Options, nodes: BTreeSet<String>, who: &str) -> Result<Object, KubernetesError> {
    let annotations = lease_note::annotations(options, nodes).map_err(|error| KubernetesError::Api {
        what: "take the Lease of the cluster".to_owned(),
        why: error.to_string(),
    })?;
    let now = Some(MicroTime(Timestamp::now()));
    Ok(Object {
        metadata: ObjectMeta {
            name: Some(LEASE.to_owned()),
            namespace: Some(options.namespace.clone()),
            labels: Some([(RUN_LABEL.to_owned(), options.run.clone())].into()),
            annotations: Some(annotations.into_iter().collect()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(format!("{} of {who}", options.run)),
            lease_duration_seconds: i32::try_from(LIMITS.lease.as_secs()).ok(),
            acquire_time: now.clone(),
            renew_time: now,
            ..LeaseSpec::default()
        }),
    })
}

/// Renews it until it is aborted, or lost.
async fn renew(leases: Api<Object>, taken: Object, publisher: StatePublisher) {
    let mut held = taken;
    let mut renewed = Instant::now();
    let mut limit = renewed + LIMITS.lease_given_up;
    let why = loop {
        sleep_until(limit.min(Instant::now() + LIMITS.lease_renewed)).await;
        let began = Instant::now();
        if began >= renewed + LIMITS.lease_awaited {
            break format!("it could not be renewed for {:?}", LIMITS.lease_awaited);
        }
        if began >= limit {
            tracing::warn!("the Lease of the cluster expires: what is under way ends");
            publisher.expires();
            limit = renewed + LIMITS.lease_awaited;
        }
        let patience = limit.min(began + LIMITS.lease_answer);
        let failed = match timeout_at(patience, renewal(&leases, &held)).await {
            Ok(Ok(Renewed::Held(now))) => {
                held = *now;
                renewed = began;
                limit = renewed + LIMITS.lease_given_up;
                publisher.held(renewed);
                continue;
            }
            Ok(Ok(Renewed::Lost(why))) => break why,
            // The Lease has not expired, so another try may succeed.
            Ok(Err(error)) => words(&error),
            Err(_) => "no answer".to_owned(),
        };
        // Logged once for each outage: an API server that is away for minutes fails many renewals.
        if publisher.unanswered(renewed, &failed) {
            tracing::warn!("failed to renew the Lease of the cluster, and tries on: {failed}");
        }
    };
    tracing::error!("the Lease of the cluster is lost: {why}");
    publisher.lost(why);
}

/// Result of a renewal.
enum Renewed {
    Held(Box<Object>),
    Lost(String),
}

async fn renewal(leases: &Api<Object>, held: &Object) -> kube::Result<Renewed> {
    let params = PostParams::default();
    match leases.replace(LEASE, &params, &with_time(held)).await {
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {}
        now => return now.map(|now| Renewed::Held(Box::new(now))),
    }
    // Another client has written it, or an earlier renewal succeeded without a response.
    let Some(there) = leases.get_opt(LEASE).await? else {
        return Ok(Renewed::Lost("it was deleted".to_owned()));
    };
    if holder_of(&there) != holder_of(held) || !there.labels().contains_key(RUN_LABEL) {
        let owner = holder_of(&there).unwrap_or("no run");
        return Ok(Renewed::Lost(format!("its holder is {owner} now")));
    }
    let now = leases.replace(LEASE, &params, &with_time(&there)).await?;
    Ok(Renewed::Held(Box::new(now)))
}

fn holder_of(lease: &Object) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref()
}

fn with_time(lease: &Object) -> Object {
    let mut next = lease.clone();
    if let Some(spec) = &mut next.spec {
        spec.renew_time = Some(MicroTime(Timestamp::now()));
    }
    next
}

/// Deletes the Lease of a run that has ended ([`holders`](super::holders()) does not list it), in a namespace that
/// stays. Returns whether there was one.
///
/// # Errors
/// It can't be deleted, or another run has taken it meanwhile.
pub async fn remove_lease(client: &Client, namespace: &str) -> Result<bool, KubernetesError> {
    let leases: Api<Object> = Api::namespaced(client.clone(), namespace);
    let what = "remove the Lease of a run that has ended";
    let there = ask(what, leases.get_opt(LEASE)).await?.map_err(api(what))?;
    let Some(there) = there.filter(|there| there.labels().contains_key(RUN_LABEL)) else {
        return Ok(false);
    };
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: there.metadata.uid,
            resource_version: there.metadata.resource_version,
        }),
        ..DeleteParams::default()
    };
    match ask(what, leases.delete(LEASE, &params)).await? {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(false),
        done => done.map(|_| true).map_err(api(what)),
    }
}

/// The note about nodes of the last run, if that ended without releasing the cluster.
///
/// # Errors
/// The Lease can't be read; another version of the suite has written it.
pub async fn left_on_nodes(client: &Client, namespace: &str) -> Result<Option<Left>, KubernetesError> {
    let leases: Api<Object> = Api::namespaced(client.clone(), namespace);
    let what = "read the Lease of the cluster";
    let there = ask(what, leases.get_opt(LEASE)).await?.map_err(api(what))?;
    there.as_ref().map_or(Ok(None), lease_note::left)
}
