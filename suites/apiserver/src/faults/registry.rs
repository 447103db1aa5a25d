//! The active faults, and the guards that end them.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::{sync::watch, time::Instant};

use super::{Client, Clients, Fault, FaultError, MOST_ACTIVE};
use crate::status::Status;

/// Active faults; clones are handles to the same list.
#[derive(Clone, Default)]
pub struct Faults {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    active: Mutex<Active>,
    /// Counts changes of the list, on which open watches wait.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct Active {
    next: u64,
    /// By age: the oldest has precedence.
    faults: Vec<(u64, ActiveFault)>,
}

/// A fault that has begun, with the clients that it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ActiveFault {
    clients: Clients,
    pub(crate) fault: Fault,
    pub(crate) since: Instant,
}

/// Ends its fault when it is dropped.
#[must_use = "the fault ends when its guard is dropped"]
pub struct FaultGuard {
    faults: Faults,
    number: u64,
}

impl Drop for FaultGuard {
    fn drop(&mut self) {
        let mut active = self.faults.lock();
        active.faults.retain(|(number, _)| *number != self.number);
        drop(active);
        self.faults.notify();
    }
}

impl Faults {
    /// No faults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a fault for some clients until the guard is dropped. It applies to open requests and watches too.
    ///
    /// # Errors
    /// Too many are active, or its numbers are out of bounds.
    pub fn begin(&self, clients: Clients, fault: Fault) -> Result<FaultGuard, FaultError> {
        fault.check()?;
        let mut active = self.lock();
        if active.faults.len() == MOST_ACTIVE {
            return Err(FaultError::TooMany);
        }
        let number = active.next;
        active.next += 1;
        let since = Instant::now();
        active.faults.push((
            number,
            ActiveFault {
                clients,
                fault,
                since,
            },
        ));
        drop(active);
        self.notify();
        Ok(FaultGuard {
            faults: self.clone(),
            number,
        })
    }

    /// The active faults for a client, oldest first.
    pub(super) fn active_for(&self, client: &Client) -> Vec<ActiveFault> {
        let active = self.lock();
        let mine = active
            .faults
            .iter()
            .filter(|(_, fault)| fault.clients.contain(client));
        mine.map(|(_, fault)| fault.clone()).collect()
    }

    /// Refuses a request of a client with such a fault.
    pub(crate) fn refuse(&self, client: &Client) -> Result<(), Status> {
        let refused = self
            .active_for(client)
            .into_iter()
            .find_map(|active| match active.fault {
                Fault::Refuse { refusal, retry_after } => Some(refusal.status(retry_after)),
                _ => None,
            });
        refused.map_or(Ok(()), Err)
    }

    /// Changes whenever a fault begins or ends.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }

    fn notify(&self) {
        self.shared.changes.send_modify(|count| *count += 1);
    }

    fn lock(&self) -> MutexGuard<'_, Active> {
        self.shared.active.lock().expect("no holder of this lock panics")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::faults::LONGEST;

    fn client(user: &str) -> Client {
        Client {
            users: vec![user.to_owned()],
            source: [10, 0, 0, 1].into(),
        }
    }

    #[test]
    fn a_fault_meets_the_clients_that_it_names_until_its_guard_is_dropped() {
        let faults = Faults::new();
        let user = faults
            .begin(Clients::User("a".into()), Fault::Expire)
            .expect("begun");
        let source = faults
            .begin(Clients::Source([10, 0, 0, 2].into()), Fault::Lag)
            .expect("begun");
        let all = faults.begin(Clients::All, Fault::DropEvents).expect("begun");
        let kinds = |met: Vec<ActiveFault>| met.into_iter().map(|met| met.fault).collect::<Vec<_>>();
        assert_eq!(
            kinds(faults.active_for(&client("a"))),
            [Fault::Expire, Fault::DropEvents]
        );
        assert_eq!(kinds(faults.active_for(&client("b"))), [Fault::DropEvents]);
        drop(user);
        assert_eq!(kinds(faults.active_for(&client("a"))), [Fault::DropEvents]);
        drop((source, all));
        assert_eq!(faults.active_for(&client("a")), []);
    }

    #[test]
    fn bounds_are_kept() {
        let faults = Faults::new();
        let long = LONGEST + Duration::from_millis(1);
        let rows = [
            (
                Fault::DelayEvents { by: long },
                FaultError::TooLong { found: long },
            ),
            (
                Fault::CutWatches { after: long },
                FaultError::TooLong { found: long },
            ),
            (
                Fault::SlowBodies { bytes_per_second: 99 },
                FaultError::Rate { found: 99 },
            ),
        ];
        for (fault, expected) in rows {
            assert_eq!(faults.begin(Clients::All, fault).err(), Some(expected));
        }
        let begin = || faults.begin(Clients::All, Fault::Expire);
        let guards: Vec<FaultGuard> = (0..MOST_ACTIVE).map(|_| begin().expect("begun")).collect();
        assert_eq!(begin().err(), Some(FaultError::TooMany));
        drop(guards);
        assert!(begin().is_ok());
    }
}
