//! Active faults of the API servers. A fault lasts as long as its [`Begun`] value, and no longer than its time limit.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use cluster::{ApiFault, ClusterError};
use lab_apiserver::{
    RestingReconciler,
    faults::{FaultGuard, LONGEST, MOST_ACTIVE},
};
use tokio::time::sleep;

use super::{
    ApiServers,
    servers::{NOT_OURS, Server},
};
use crate::{LIMITS, protocol::ActiveApiFault};

/// All active faults.
#[derive(Clone, Default)]
pub(super) struct ActiveFaults(Arc<Mutex<BTreeMap<u64, Entry>>>);

struct Entry {
    fault: ApiFault,
    begin: Instant,
    lasts: Duration,
}

/// A fault that has begun.
pub(crate) struct Begun {
    fault: ApiFault,
    /// Lists the fault as active as long as this value lives.
    _note: Note,
    /// Guards of response faults, which end with this value.
    _guards: Vec<FaultGuard>,
    /// The fault makes servers share an address.
    shares: bool,
    /// Keeps the servers' reconcilers stopped.
    _rest: Option<RestingReconciler>,
}

struct Note {
    active_faults: ActiveFaults,
    number: u64,
}

impl Drop for Note {
    fn drop(&mut self) {
        self.active_faults.lock().remove(&self.number);
    }
}

impl ActiveFaults {
    /// Lists a fault as active, unless there are too many, or one that excludes it.
    fn note(&self, fault: &ApiFault, lasts: Duration) -> Result<Note, String> {
        let mut all = self.lock();
        if all.len() >= MOST_ACTIVE {
            return Err(format!(
                "{MOST_ACTIVE} are active; end one before the next begins"
            ));
        }
        let shares = |fault: &ApiFault| matches!(fault, ApiFault::SharedAddress);
        if shares(fault) && all.values().any(|entry| shares(&entry.fault)) {
            return Err("the API servers share an address by another fault; end that one first".to_owned());
        }
        let number = all.last_key_value().map_or(0, |(last, _)| last + 1);
        let entry = Entry {
            fault: fault.clone(),
            begin: Instant::now(),
            lasts,
        };
        all.insert(number, entry);
        Ok(Note {
            active_faults: self.clone(),
            number,
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ApiServers {
    /// Begins a fault, which is in force when this returns.
    pub(crate) async fn begin(&self, fault: ApiFault, lasts: Duration) -> Result<Begun, ClusterError> {
        let failed =
            |why: &dyn ToString| ClusterError::failed("begin a fault of the API servers", why.to_string());
        if lasts > LONGEST {
            let why = format!("expected one that lasts at most {LONGEST:?}, found {lasts:?}");
            return Err(failed(&why));
        }
        let note = self
            .active_faults
            .note(&fault, lasts)
            .map_err(|why| failed(&why))?;
        let (mut rest, mut shares) = (None, false);
        let guards = match &fault {
            ApiFault::SharedAddress => {
                if !self.are_ours() && !self.is_shared().await {
                    return Err(failed(&NOT_OURS));
                }
                shares = match self.share(true).await {
                    Ok(changed) => changed,
                    Err(error) => {
                        self.stop_sharing().await?;
                        return Err(failed(&error));
                    }
                };
                Vec::new()
            }
            ApiFault::Unreconciled => {
                rest = Some(self.rest_reconciler().map_err(|why| failed(&why))?);
                Vec::new()
            }
            ApiFault::Down { server, how } => {
                let server = self.server(*server)?;
                let ended = self.end(server, *how).await.map_err(|error| failed(&error))?;
                if !ended {
                    return Err(failed(&format!("API server {} is down already", server.number)));
                }
                Vec::new()
            }
            ApiFault::Answers {
                server,
                clients,
                fault,
            } => {
                if !self.are_ours() {
                    return Err(failed(&NOT_OURS));
                }
                let servers: Vec<&Server> = match server {
                    Some(number) => vec![self.server(*number)?],
                    None => self.servers.iter().collect(),
                };
                let begin = |server: &Server| server.faults.begin(clients.clone(), fault.clone());
                let guards: Result<Vec<_>, _> = servers.into_iter().map(begin).collect();
                guards.map_err(|error| failed(&error))?
            }
        };
        Ok(Begun {
            fault,
            _note: note,
            _guards: guards,
            shares,
            _rest: rest,
        })
    }

    /// Ends a fault; it is over, and a stopped server serves again, when this returns. A server that does not start
    /// is tried for [`LIMITS`]`.control`, and may then take [`LIMITS`]`.api_serves`.
    pub(crate) async fn heal(&self, begun: Begun) -> Result<(), ClusterError> {
        if begun.shares {
            self.stop_sharing().await?;
        }
        if let ApiFault::Down { server, .. } = &begun.fault {
            let server = self.server(*server)?;
            let begin = Instant::now();
            while let Err(error) = self.run(server).await {
                if begin.elapsed() >= LIMITS.control {
                    let what = format!("start API server {} again", server.number);
                    return Err(ClusterError::failed(what, &error));
                }
                sleep(LIMITS.api_retry).await;
            }
            let served = self.serves(server).await;
            served.map_err(|error| {
                ClusterError::failed(format!("start API server {} again", server.number), &error)
            })?;
        }
        Ok(())
    }

    /// Lets each server advertise its own address again; tried for [`LIMITS`]`.control`.
    async fn stop_sharing(&self) -> Result<(), ClusterError> {
        let begin = Instant::now();
        while let Err(error) = self.share(false).await {
            if begin.elapsed() >= LIMITS.control {
                return Err(ClusterError::failed("start the API servers again", &error));
            }
            sleep(LIMITS.api_retry).await;
        }
        Ok(())
    }

    /// Active faults, oldest first.
    pub(crate) fn faults(&self) -> Vec<ActiveApiFault> {
        let all = self.active_faults.lock();
        let shown = |entry: &Entry| ActiveApiFault {
            fault: entry.fault.clone(),
            age: entry.begin.elapsed(),
            left: entry.lasts.saturating_sub(entry.begin.elapsed()),
        };
        all.values().map(shown).collect()
    }

    fn server(&self, number: u8) -> Result<&Server, ClusterError> {
        let mut all = self.servers.iter();
        all.find(|server| server.number == number)
            .ok_or_else(|| ClusterError::not_found("API server", number.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shared_by_one_fault_at_a_time() {
        let (active_faults, lasts) = (ActiveFaults::default(), Duration::from_secs(1));
        let note = |fault| active_faults.note(&fault, lasts);
        let first = note(ApiFault::SharedAddress).expect("nothing is held");
        assert!(note(ApiFault::SharedAddress).is_err_and(|why| why.contains("end that one first")));
        let _other = note(ApiFault::Unreconciled).expect("another fault");
        drop(first);
        assert!(note(ApiFault::SharedAddress).is_ok(), "the first has ended");
    }

    #[test]
    fn no_more_are_noted_than_are_allowed() {
        let (active_faults, lasts) = (ActiveFaults::default(), Duration::from_secs(1));
        let note = || active_faults.note(&ApiFault::Unreconciled, lasts);
        let all: Result<Vec<Note>, String> = (0..MOST_ACTIVE).map(|_| note()).collect();
        let all = all.expect("as many as are allowed");
        assert!(note().is_err());
        drop(all);
        assert!(note().is_ok(), "they have ended");
    }
}
