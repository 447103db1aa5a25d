//! The Lease that says which run has a cluster.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

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
    time::{Instant, sleep},
};

use super::{Connection, KubernetesError, LIMITS, Options, Tier, error::api, limits::ask};
use crate::cluster::RUN_LABEL;

/// Its name, in the namespace of the suite.
const NAME: &str = "plumbline-run";
/// Its annotation that says what the run was told.
const NOTE: &str = "plumbline-run/options";

/// A run that has a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its name.
    pub run: String,
    /// Name, user and host.
    pub who: String,
    /// Since when.
    pub since: String,
}

/// The Lease, held and renewed until this is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    leases: Hidden<Api<Object>>,
    uid: Option<String>,
    lost: Arc<AtomicBool>,
    renewing: JoinHandle<()>,
}

/// Something without `Debug`, in something with it.
pub(super) struct Hidden<T>(pub(super) T);

impl<T> fmt::Debug for Hidden<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(std::any::type_name::<T>())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

impl Lease {
    /// Takes it, if nobody has it or whoever had it is gone.
    pub(super) async fn take(client: &Client, options: &Options, who: &str) -> Result<Self, KubernetesError> {
        let leases: Api<Object> = Api::namespaced(client.clone(), &options.namespace);
        let what = "take the Lease of the cluster";
        let own = own(options, who);
        let params = PostParams::default();
        let taken = match ask(what, leases.create(&params, &own)).await? {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let there = ask(what, leases.get(NAME)).await?.map_err(api(what))?;
                if !there.labels().contains_key(RUN_LABEL) {
                    return Err(KubernetesError::ForeignLease {
                        lease: format!("{}/{NAME}", options.namespace),
                    });
                }
                if lives(&leases, &there).await? {
                    return Err(under_test(&there));
                }
                if let Some(left) = noted(&there).filter(|left| left.tier > options.tier) {
                    return Err(KubernetesError::Unhealed { run: left.run });
                }
                let mut own = own.clone();
                own.metadata.resource_version = there.metadata.resource_version;
                match ask(what, leases.replace(NAME, &params, &own)).await? {
                    // Another has taken it at the same time.
                    Err(kube::Error::Api(status)) if status.is_conflict() => {
                        let there = ask(what, leases.get(NAME)).await?.map_err(api(what))?;
                        return Err(under_test(&there));
                    }
                    taken => taken.map_err(api(what))?,
                }
            }
            taken => taken.map_err(api(what))?,
        };
        let lost = Arc::new(AtomicBool::new(false));
        let uid = taken.metadata.uid.clone();
        let renewing = tokio::spawn(renew(leases.clone(), taken, Arc::clone(&lost)));
        Ok(Self {
            leases: Hidden(leases),
            uid,
            lost,
            renewing,
        })
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Deletes it, for a namespace that stays.
    pub(super) async fn remove(self) -> Result<(), KubernetesError> {
        self.renewing.abort();
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: self.uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let what = "give the Lease of the cluster back";
        match ask(what, self.leases.0.delete(NAME, &params)).await? {
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
            done => done.map(drop).map_err(api(what)),
        }
    }
}

/// The run that has a cluster now; one whose Lease is not renewed any more has it no longer.
///
/// # Errors
/// The Lease can't be read.
pub async fn holder(client: &Client, namespace: &str) -> Result<Option<Holder>, KubernetesError> {
    let leases: Api<Object> = Api::namespaced(client.clone(), namespace);
    let what = "read the Lease of the cluster";
    let Some(there) = ask(what, leases.get_opt(NAME)).await?.map_err(api(what))? else {
        return Ok(None);
    };
    let lives = lives(&leases, &there).await?;
    Ok(lives.then(|| read(&there)))
}

/// Removes the Lease of a run that has ended ([`holder`] has found nobody), in a namespace that stays; whether there was one.
///
/// # Errors
/// It can't be removed, or somebody has taken it meanwhile.
pub async fn remove_lease(client: &Client, namespace: &str) -> Result<bool, KubernetesError> {
    let leases: Api<Object> = Api::namespaced(client.clone(), namespace);
    let what = "remove the Lease of a run that has ended";
    let there = ask(what, leases.get_opt(NAME)).await?.map_err(api(what))?;
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
    match ask(what, leases.delete(NAME, &params)).await? {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(false),
        done => done.map(|_| true).map_err(api(what)),
    }
}

/// Whether a Lease is renewed. One that looks new is; of one that looks old, clocks may be why, so it is watched for as long
/// as it lasts, as leader elections do.
async fn lives(leases: &Api<Object>, there: &Object) -> Result<bool, KubernetesError> {
    let what = "see whether the Lease of the cluster is renewed";
    let renewed = |lease: &Object| lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
    let lasts = LIMITS.lease;
    let age = renewed(there).map(|MicroTime(at)| Timestamp::now().duration_since(at).unsigned_abs());
    if age.is_some_and(|age| age < lasts) {
        return Ok(true);
    }
    let began = Instant::now();
    while began.elapsed() < lasts {
        sleep(LIMITS.look).await;
        match ask(what, leases.get_opt(NAME)).await?.map_err(api(what))? {
            None => return Ok(false),
            Some(now) if renewed(&now) != renewed(there) => return Ok(true),
            Some(_) => {}
        }
    }
    Ok(false)
}

/// What the last run was told that has ended without letting the cluster go, if it had to do with nodes.
///
/// # Errors
/// The Lease can't be read.
pub async fn left_on_nodes(client: &Client, namespace: &str) -> Result<Option<Options>, KubernetesError> {
    let leases: Api<Object> = Api::namespaced(client.clone(), namespace);
    let what = "read the Lease of the cluster";
    let there = ask(what, leases.get_opt(NAME)).await?.map_err(api(what))?;
    Ok(there.as_ref().and_then(noted))
}

/// The note of a run that has to do with nodes. That of another version of the suite may be none.
fn noted(there: &Object) -> Option<Options> {
    serde_json::from_str(there.annotations().get(NOTE)?).ok()
}

/// What whoever comes after a killed run has to know of it, but the way to the API, which is whoever's.
fn note(options: &Options) -> Option<String> {
    let options = Options {
        connection: Connection::default(),
        ..options.clone()
    };
    let text = serde_json::to_string(&options).ok()?;
    (options.tier >= Tier::Node).then_some(text)
}

fn own(options: &Options, who: &str) -> Object {
    let note = note(options).map(|note| [(NOTE.to_owned(), note)].into());
    let now = Some(MicroTime(Timestamp::now()));
    Object {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            namespace: Some(options.namespace.clone()),
            labels: Some([(RUN_LABEL.to_owned(), options.run.clone())].into()),
            annotations: note,
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(format!("{} of {who}", options.run)),
            lease_duration_seconds: i32::try_from(LIMITS.lease.as_secs()).ok(),
            acquire_time: now.clone(),
            renew_time: now,
            ..LeaseSpec::default()
        }),
    }
}

fn read(there: &Object) -> Holder {
    let spec = there.spec.clone().unwrap_or_default();
    let run = there.labels().get(RUN_LABEL).cloned().unwrap_or_default();
    Holder {
        who: spec.holder_identity.unwrap_or_else(|| run.clone()),
        run,
        since: spec
            .acquire_time
            .map(|MicroTime(at)| at.to_string())
            .unwrap_or_default(),
    }
}

fn under_test(there: &Object) -> KubernetesError {
    let Holder { who, since, .. } = read(there);
    KubernetesError::UnderTest { who, since }
}

/// Renews it until it is aborted, or lost: for as long as it lasts it could not be renewed, or somebody else has it.
async fn renew(leases: Api<Object>, taken: Object, lost: Arc<AtomicBool>) {
    let mut held = taken;
    let mut renewed = Instant::now();
    while renewed.elapsed() < LIMITS.lease {
        sleep(LIMITS.lease_renewed).await;
        let mut next = held.clone();
        if let Some(spec) = &mut next.spec {
            spec.renew_time = Some(MicroTime(Timestamp::now()));
        }
        let began = Instant::now();
        match ask(
            "renew the Lease",
            leases.replace(NAME, &PostParams::default(), &next),
        )
        .await
        {
            Ok(Ok(now)) => {
                held = now;
                renewed = began;
            }
            Ok(Err(kube::Error::Api(status))) if status.is_conflict() || status.is_not_found() => break,
            Ok(Err(error)) => tracing::warn!("failed to renew the Lease of the cluster: {error}"),
            Err(error) => tracing::warn!("{error}"),
        }
    }
    tracing::error!("the Lease of the cluster is lost: another run may have it now");
    lost.store(true, Ordering::Relaxed);
}
