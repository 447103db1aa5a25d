//! To whom established flows keep, and who leaves them.

use std::collections::BTreeSet;

use lb_abi::{BackendId, ServiceId};

use super::{
    Reconciler,
    backends::is_udp,
    written::{Port, PortRef},
};
use crate::{
    hash::HashSet,
    maps::{LbMaps, MapError},
    plan::PortPlan,
    transport::{Backend, TransportAddress},
};

/// How many departed backends, and frontends that have moved, are told at once; of more than these only the number.
pub const DEPARTED_LIMIT: usize = 4096;

/// A UDP backend that has left a service port: flows and connected sockets that were sent to it as one of that would
/// go on for as long as both ends have something to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departed {
    /// The number that the service port had; 0: that of an earlier start, which is not known.
    pub service: ServiceId,
    /// Its frontends; none of an earlier start.
    pub frontends: BTreeSet<TransportAddress>,
    /// The backend.
    pub backend: TransportAddress,
    /// The number that it had.
    pub id: BackendId,
}

/// A list of at most [`DEPARTED_LIMIT`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounded<T> {
    /// The first of them.
    pub listed: Vec<T>,
    /// How many more there were.
    pub unlisted: u64,
}

impl<T> Default for Bounded<T> {
    fn default() -> Self {
        Self {
            listed: Vec::new(),
            unlisted: 0,
        }
    }
}

impl<T> Bounded<T> {
    /// Whether there is nothing to tell.
    pub const fn is_empty(&self) -> bool {
        self.listed.is_empty() && self.unlisted == 0
    }

    pub(super) fn add(&mut self, one: T) {
        if self.listed.len() < DEPARTED_LIMIT {
            self.listed.push(one);
        } else {
            self.unlisted += 1;
        }
    }
}

impl<M: LbMaps> Reconciler<M> {
    /// After the switch: the backends that a service port's established flows may keep to are these.
    ///
    /// `before`: the numbers that the service port had before.
    pub(super) fn serve(
        &mut self,
        at: &PortRef,
        plan: &PortPlan,
        before: [Option<ServiceId>; 2],
    ) -> Result<(), MapError> {
        let new: BTreeSet<Backend> = plan
            .serving
            .iter()
            .copied()
            .filter(|backend| self.written.backends.id(backend).is_none())
            .collect();
        let put = self.put_new_backends(&new);
        let serving = plan.serving.iter();
        let mut serving: Vec<BackendId> = serving
            .filter_map(|backend| self.written.backends.id(backend))
            .collect();
        serving.sort_unstable();
        if let Some(port) = self.written.port(at)
            && *port.serving != *serving
        {
            let addresses: HashSet<_> = plan.serving.iter().map(|backend| backend.address).collect();
            let gone: Vec<_> = port
                .serving
                .iter()
                .filter_map(|&id| Some((id, self.written.backends.get(id)?)))
                .filter(|(_, backend)| is_udp(backend) && !addresses.contains(&backend.address))
                .collect();
            let ids: BTreeSet<ServiceId> = before.into_iter().flatten().chain(port.ids()).collect();
            for (id, backend) in gone {
                let frontends: BTreeSet<_> = plan.frontends.keys().copied().collect();
                for &service in &ids {
                    self.departed.add(Departed {
                        service,
                        frontends: frontends.clone(),
                        backend: backend.address,
                        id,
                    });
                }
            }
            self.hold(at, &serving);
        }
        put
    }

    /// While a service port is not written: whoever served it does so still, and so does who is to serve it and is
    /// there already, so that it is there when that succeeds.
    pub(super) fn hold_too(&mut self, at: &PortRef, plan: &PortPlan) {
        let held = self.written.port(at).into_iter().flat_map(|port| &port.serving);
        let there = plan.serving.iter();
        let there = there.filter_map(|backend| self.written.backends.id(backend));
        let serving: BTreeSet<BackendId> = held.copied().chain(there).collect();
        self.hold(at, &serving.into_iter().collect::<Vec<_>>());
    }

    /// Notes whom a service port serves by; sorted.
    pub(super) fn hold(&mut self, at: &PortRef, serving: &[BackendId]) {
        for &id in serving {
            self.written.backends.held(id);
        }
        let before = std::mem::replace(&mut self.written.port_mut(at).serving, serving.into());
        for id in before {
            self.written.backends.dropped(id);
        }
    }

    /// A service port is gone, and with it everybody who served it.
    pub(super) fn release(&mut self, port: &Port) {
        for &id in &port.serving {
            let udp = self.written.backends.get(id).filter(is_udp);
            let frontends = port.wanted.iter();
            let frontends: BTreeSet<_> = frontends
                .filter_map(|key| TransportAddress::from_frontend_key(*key))
                .collect();
            if let Some(backend) = udp {
                for service in port.ids() {
                    self.departed.add(Departed {
                        service,
                        frontends: frontends.clone(),
                        backend: backend.address,
                        id,
                    });
                }
            }
            self.written.backends.dropped(id);
        }
    }

    /// Every plan has been seen: what an earlier start has left is nobody's.
    pub(super) fn disown(&mut self) {
        for (id, backend) in self.written.backends.disown() {
            self.departed.add(Departed {
                service: 0,
                frontends: BTreeSet::new(),
                backend: backend.address,
                id,
            });
        }
    }
}
