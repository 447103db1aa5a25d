//! Runs that hold a cluster, in any namespace: each has a Lease of the same name.
//!
//! Two runs disturb each other in any namespaces: one that stops agents disturbs all others, and two with namespaces
//! of their own count the other's objects. Each run takes the Lease of its own namespace first, and lists all others
//! then: of two simultaneous runs, at least one sees the other. A run of [`Tier::Namespaced`] makes only pods and
//! Services, and does not exclude others of its tier. Its account can't list other namespaces, so it does not see a
//! run that stops agents; a later run that stops agents sees it, and is refused.

use std::time::Duration;

use cluster::RUN_LABEL;
use futures::future::try_join_all;
use k8s_openapi::{
    api::coordination::v1::Lease as Object, apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp,
};
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use tokio::time::{Instant, sleep};

use super::{KubernetesError, LIMITS, Options, Tier, error::api, labels::LEASE, lease_note, limits::ask};

/// A run that holds a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its name.
    pub run: String,
    /// User name and host.
    pub who: String,
    /// Start time.
    pub since: String,
    /// Namespace of its Lease.
    pub namespace: String,
}

/// Runs that hold the cluster now, in this namespace and, as far as the account may list them, in others. A run whose
/// Lease is not renewed any more holds nothing.
///
/// # Errors
/// Leases can't be read.
pub async fn holders(client: &Client, namespace: &str) -> Result<Vec<Holder>, KubernetesError> {
    let leases: Api<Object> = Api::namespaced(client.clone(), namespace);
    let what = "read the Lease of the cluster";
    let mut all = others(client, namespace).await?;
    all.extend(ask(what, leases.get_opt(LEASE)).await?.map_err(api(what))?);
    Ok(living(client, &all).await?.into_iter().map(read).collect())
}

/// Checks that no run in another namespace holds the cluster, or has left faults that this run can't heal.
///
/// # Errors
/// [`KubernetesError::UnderTest`], [`KubernetesError::Unhealed`].
pub(super) async fn expect_alone(client: &Client, options: &Options) -> Result<(), KubernetesError> {
    let mut all = others(client, &options.namespace).await?;
    all.retain(|other| exclude(options.tier, lease_note::tier(other)));
    let living = living(client, &all).await?;
    if let Some(other) = living.first() {
        return Err(under_test(other));
    }
    // Under this tier, the run has pods on the unhealed nodes.
    match all
        .iter()
        .find(|other| lease_note::is_beyond(other, options.tier))
    {
        Some(other) => Err(KubernetesError::Unhealed {
            run: other.labels().get(RUN_LABEL).cloned().unwrap_or_default(),
            namespace: other.namespace().unwrap_or_default(),
        }),
        None => Ok(()),
    }
}

/// Whether two runs in different namespaces disturb each other.
fn exclude(one: Tier, other: Tier) -> bool {
    one.max(other) >= Tier::Node || one.min(other) >= Tier::Api
}

/// Leases of runs in other namespaces: none, if the account may not list them.
async fn others(client: &Client, namespace: &str) -> Result<Vec<Object>, KubernetesError> {
    let what = "look for other runs in the cluster";
    let leases: Api<Object> = Api::all(client.clone());
    // With this field selector, the right to list can be limited to one name.
    let params = ListParams::default().fields(&format!("metadata.name={LEASE}"));
    let listed = match ask(what, leases.list(&params)).await? {
        Err(kube::Error::Api(status)) if status.is_forbidden() => return Ok(Vec::new()),
        listed => listed.map_err(api(what))?,
    };
    let is_other = |lease: &Object| {
        lease.labels().contains_key(RUN_LABEL) && lease.namespace().as_deref() != Some(namespace)
    };
    Ok(listed.items.into_iter().filter(is_other).collect())
}

/// Leases that are renewed.
async fn living<'a>(client: &Client, all: &'a [Object]) -> Result<Vec<&'a Object>, KubernetesError> {
    let look = |lease: &'a Object| async move {
        let namespace = lease.namespace().unwrap_or_default();
        let leases = Api::namespaced(client.clone(), &namespace);
        Ok::<_, KubernetesError>(lives(&leases, lease).await?.then_some(lease))
    };
    let holders = try_join_all(all.iter().map(look)).await?;
    Ok(holders.into_iter().flatten().collect())
}

/// Whether a Lease is renewed. A recent time is enough. An old one may come from a wrong clock, so the Lease is
/// watched for its duration, as leader elections do, but no longer than the suite's own duration.
pub(super) async fn lives(leases: &Api<Object>, there: &Object) -> Result<bool, KubernetesError> {
    let what = "see whether the Lease of the cluster is renewed";
    let renewed = |lease: &Object| lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
    let spec = there.spec.as_ref();
    let seconds = spec.and_then(|spec| u64::try_from(spec.lease_duration_seconds?).ok());
    let lasts = seconds
        .map_or(LIMITS.lease, Duration::from_secs)
        .min(LIMITS.lease);
    let age = renewed(there).map(|MicroTime(at)| Timestamp::now().duration_since(at).unsigned_abs());
    if age.is_some_and(|age| age < lasts) {
        return Ok(true);
    }
    let began = Instant::now();
    while began.elapsed() < lasts {
        sleep(LIMITS.look).await;
        match ask(what, leases.get_opt(LEASE)).await?.map_err(api(what))? {
            None => return Ok(false),
            Some(now) if renewed(&now) != renewed(there) => return Ok(true),
            Some(_) => {}
        }
    }
    Ok(false)
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
        namespace: there.namespace().unwrap_or_default(),
    }
}

pub(super) fn under_test(there: &Object) -> KubernetesError {
    let Holder {
        who,
        since,
        namespace,
        ..
    } = read(there);
    KubernetesError::UnderTest {
        who,
        since,
        namespace,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_stops_agents_excludes_all_others_and_runs_of_one_namespace_do_not() {
        let [least, api, node] = Tier::ALL;
        for other in Tier::ALL {
            assert!(exclude(node, other) && exclude(other, node));
        }
        assert!(exclude(api, api));
        assert!(!exclude(least, api) && !exclude(api, least) && !exclude(least, least));
    }
}
