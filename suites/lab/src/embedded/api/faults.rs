//! What is wrong with the API servers just now. A fault lives as long as its [`Begun`] value, and no longer than it
//! was allowed to.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use lab_apiserver::faults::{FaultGuard, LONGEST, MOST_ACTIVE};
use tokio::time::sleep;

use super::{
    ApiServers,
    servers::{NOT_OURS, Server},
};
use crate::{
    cluster::ApiFault,
    embedded::{
        LIMITS,
        protocol::{ActiveApiFault, Missing, Refusal},
    },
};

/// The faults that are held.
#[derive(Clone, Default)]
pub(super) struct Held(Arc<Mutex<BTreeMap<u64, Entry>>>);

struct Entry {
    fault: ApiFault,
    begin: Instant,
    lasts: Duration,
}

/// A fault that has begun.
pub(in crate::embedded) struct Begun {
    fault: ApiFault,
    /// It is shown as long as this value lives.
    _note: Note,
    /// Those of the answers end with this value.
    _guards: Vec<FaultGuard>,
}

struct Note {
    held: Held,
    number: u64,
}

impl Drop for Note {
    fn drop(&mut self) {
        self.held.lock().remove(&self.number);
    }
}

impl Held {
    /// Notes a fault, unless too many are noted.
    fn note(&self, fault: &ApiFault, lasts: Duration) -> Option<Note> {
        let mut all = self.lock();
        if all.len() >= MOST_ACTIVE {
            return None;
        }
        let number = all.last_key_value().map_or(0, |(last, _)| last + 1);
        let entry = Entry {
            fault: fault.clone(),
            begin: Instant::now(),
            lasts,
        };
        all.insert(number, entry);
        Some(Note {
            held: self.clone(),
            number,
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ApiServers {
    /// Begins a fault, which is in force when this returns.
    pub(in crate::embedded) async fn begin(
        &self,
        fault: ApiFault,
        lasts: Duration,
    ) -> Result<Begun, Refusal> {
        let failed =
            |why: &dyn ToString| Refusal::failed("begin a fault of the API servers", &why.to_string());
        if lasts > LONGEST {
            let why = format!("expected one that lasts at most {LONGEST:?}, found {lasts:?}");
            return Err(failed(&why));
        }
        let too_many = || {
            failed(&format!(
                "{MOST_ACTIVE} are active; end one before the next begins"
            ))
        };
        let note = self.held.note(&fault, lasts).ok_or_else(too_many)?;
        let guards = match &fault {
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
        })
    }

    /// Ends a fault; it is over when this returns. A server that does not start is tried for [`LIMITS`]`.control`.
    pub(in crate::embedded) async fn heal(&self, begun: Begun) -> Result<(), Refusal> {
        if let ApiFault::Down { server, .. } = &begun.fault {
            let server = self.server(*server)?;
            let begin = Instant::now();
            while let Err(error) = self.run(server).await {
                if begin.elapsed() >= LIMITS.control {
                    let what = format!("start API server {} again", server.number);
                    return Err(Refusal::failed(what, &error));
                }
                sleep(LIMITS.api_retry).await;
            }
        }
        Ok(())
    }

    /// All faults that are held, oldest first.
    pub(in crate::embedded) fn faults(&self) -> Vec<ActiveApiFault> {
        let all = self.held.lock();
        let shown = |entry: &Entry| ActiveApiFault {
            fault: entry.fault.clone(),
            age: entry.begin.elapsed(),
            left: entry.lasts.saturating_sub(entry.begin.elapsed()),
        };
        all.values().map(shown).collect()
    }

    fn server(&self, number: u8) -> Result<&Server, Refusal> {
        let mut all = self.servers.iter();
        all.find(|server| server.number == number)
            .ok_or_else(|| Refusal::NotFound {
                what: Missing::ApiServer,
                name: number.to_string(),
            })
    }
}
