//! From a service port to one of its backends.

use lb_abi::{Address, Affinity, AffinityKey, Backend, BackendId, Frontend, Service, ServiceId, SlotKey};

use crate::{Tables, slot};

/// The backend for a new connection: the one that the client had, where the frontend has affinity, or the one in the
/// slot of `number`. `None` is a hole: something that the maps name is not in the maps.
///
/// `service` was read once, by the caller; all that follows is of its generation, whatever is switched meanwhile, and
/// the agent keeps that generation's slots until no program runs that has read it.
#[inline(always)]
pub fn choose(
    tables: &impl Tables,
    frontend: &Frontend,
    id: ServiceId,
    service: Service,
    client: &AffinityKey,
    number: u32,
) -> Option<(BackendId, Backend)> {
    if frontend.affinity_seconds == 0 {
        return pick(tables, id, service, number);
    }
    let now = tables.now();
    let (backend_id, backend) = match kept(tables, frontend, id, service, client, now) {
        Some(chosen) => chosen,
        None => pick(tables, id, service, number)?,
    };
    tables.keep_affinity(
        client,
        &Affinity {
            backend: backend_id,
            seconds: now,
        },
    );
    Some((backend_id, backend))
}

/// The backend in the slot of a number, without affinity.
#[inline(always)]
pub fn pick(
    tables: &impl Tables,
    id: ServiceId,
    service: Service,
    number: u32,
) -> Option<(BackendId, Backend)> {
    let backend = tables.slot(&SlotKey {
        service: id,
        generation: service.generation,
        index: slot(number, service.slots),
    })?;
    Some((backend, tables.backend(backend)?))
}

/// The backend that a client had, if that is not too long ago and it is one of this generation.
#[inline(always)]
fn kept(
    tables: &impl Tables,
    frontend: &Frontend,
    id: ServiceId,
    service: Service,
    client: &AffinityKey,
    now: u32,
) -> Option<(BackendId, Backend)> {
    let Affinity { backend, seconds } = tables.affinity(client)?;
    if elapsed(now, seconds) > frontend.affinity_seconds {
        return None;
    }
    tables.slot(&SlotKey::member(id, service.generation, backend))?;
    Some((backend, tables.backend(backend)?))
}

/// Seconds from one time to another, modulo 2³² and signed; 0 if that is the later one, written by a processor whose
/// clock was read after ours.
#[inline(always)]
pub const fn elapsed(now: u32, then: u32) -> u32 {
    let seconds = now.wrapping_sub(then);
    if seconds > i32::MAX as u32 { 0 } else { seconds }
}

/// The client of affinity by the address that it sends from.
#[inline(always)]
pub const fn affinity_of_address(service: ServiceId, client: Address) -> AffinityKey {
    AffinityKey {
        service,
        kind: 0,
        client,
    }
}

/// The client of affinity by the network namespace that it is in, whose cookie that is.
#[inline(always)]
pub const fn affinity_of_netns(service: ServiceId, cookie: u64) -> AffinityKey {
    let [a, b, c, d, e, f, g, h] = cookie.to_ne_bytes();
    let first = u32::from_ne_bytes([a, b, c, d]);
    let second = u32::from_ne_bytes([e, f, g, h]);
    AffinityKey {
        service,
        kind: 1,
        client: Address::from_words([first, second, 0, 0]),
    }
}

#[cfg(test)]
mod tests;
