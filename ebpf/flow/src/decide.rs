//! From a destination to a verdict.

use lb_abi::{Backend, BackendId, Frontend, FrontendKey, Service, ServiceId, SlotKey};

use crate::slot;

/// What a decision reads.
pub trait Tables {
    /// Looks up FRONTENDS.
    fn frontend(&self, destination: &FrontendKey) -> Option<Frontend>;
    /// Looks up SERVICES: generation and number of slots as one value, of one write.
    fn service(&self, id: ServiceId) -> Option<Service>;
    /// Looks up SLOTS.
    fn slot(&self, key: &SlotKey) -> Option<BackendId>;
    /// Looks up BACKENDS.
    fn backend(&self, id: BackendId) -> Option<Backend>;
    /// A number, uniformly at random.
    fn random(&self) -> u32;
}

/// What becomes of a socket operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The destination is no frontend.
    Pass,
    /// To this backend.
    Translate(Backend),
    /// ECONNREFUSED.
    Refuse(Refusal),
}

/// Why nothing is behind a frontend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The service port has no slots.
    NoBackend,
    /// Something that the maps name is not in the maps. Never, by the order of writes; refused, because to pass
    /// would send a client to an address that nobody answers, to wait for nothing.
    Hole,
}

/// Decides on a destination.
///
/// The service is read once: all that follows is of its generation, whatever is switched meanwhile, and the
/// agent keeps that generation's slots until no program runs that has read it.
#[inline(always)]
pub fn decide(tables: &impl Tables, destination: &FrontendKey) -> Verdict {
    let Some(frontend) = tables.frontend(destination) else {
        return Verdict::Pass;
    };
    match tables.service(frontend.service) {
        None | Some(Service { generation: 0, .. }) => Verdict::Refuse(Refusal::Hole),
        Some(Service { slots: 0, .. }) => Verdict::Refuse(Refusal::NoBackend),
        Some(service) => choose(tables, frontend.service, service)
            .map_or(Verdict::Refuse(Refusal::Hole), Verdict::Translate),
    }
}

/// The backend in one slot of a service.
#[inline(always)]
fn choose(tables: &impl Tables, id: ServiceId, service: Service) -> Option<Backend> {
    let index = slot(tables.random(), service.slots);
    let backend = tables.slot(&SlotKey {
        service: id,
        generation: service.generation,
        index,
    })?;
    tables.backend(backend)
}

#[cfg(test)]
mod tests;
