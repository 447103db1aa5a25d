//! From a destination to its frontend.

use lb_abi::{Address, Frontend, FrontendKey, ServiceId, address_flags};

use crate::Tables;

/// Where a client is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// On this node: a socket, a pod, the node itself.
    Internal,
    /// Outside.
    External,
}

impl Scope {
    /// The service port that a frontend has for clients here; `None`: for them it is no frontend.
    #[inline(always)]
    pub const fn service_port(self, frontend: &Frontend) -> Option<ServiceId> {
        let id = match self {
            Self::Internal => frontend.internal,
            Self::External => frontend.external,
        };
        if id == 0 { None } else { Some(id) }
    }
}

/// The frontend of a destination: that of this very address, or a node port. `loopback`: whether node ports answer
/// at loopback here.
///
/// The unspecified address means loopback, as it does to `connect`: the entries of FRONTENDS that have it as their
/// address are node ports, and are found at the node's addresses only.
#[inline(always)]
pub fn find(tables: &impl Tables, destination: &FrontendKey, loopback: bool) -> Option<Frontend> {
    let address = destination.address;
    let unspecified = is_unspecified(address);
    if !unspecified && let Some(frontend) = tables.frontend(destination) {
        return Some(frontend);
    }
    let at = if !unspecified && !address.is_loopback() {
        address
    } else if !loopback {
        return None;
    } else if address.is_v4() {
        Address::LOOPBACK_V4
    } else {
        Address::LOOPBACK_V6
    };
    let flags = tables.address(&at)?;
    node_port(tables, destination, flags)
}

/// As [`find`], of a packet, where loopback has no node ports; and where `flags`, those of the destination's address, are known.
///
/// Its first look-up is written out as that of [`find`] is: in a function of both, the verifier of Linux 6.18 refused the socket programs.
#[inline(always)]
pub fn find_at(tables: &impl Tables, destination: &FrontendKey, flags: u32) -> Option<Frontend> {
    let address = destination.address;
    let unspecified = is_unspecified(address);
    if !unspecified && let Some(frontend) = tables.frontend(destination) {
        return Some(frontend);
    }
    if unspecified || address.is_loopback() {
        return None;
    }
    node_port(tables, destination, flags)
}

/// The node port of a destination's number, at an address with these flags.
#[inline(always)]
fn node_port(tables: &impl Tables, destination: &FrontendKey, flags: u32) -> Option<Frontend> {
    if flags & address_flags::NODE == 0 {
        return None;
    }
    tables.frontend(&FrontendKey {
        address: if destination.address.is_v4() {
            Address::UNSPECIFIED_V4
        } else {
            Address::UNSPECIFIED_V6
        },
        ..*destination
    })
}

/// Whether it is `0.0.0.0` or `::`.
#[inline(always)]
pub(crate) fn is_unspecified(address: Address) -> bool {
    address == Address::UNSPECIFIED_V4 || address == Address::UNSPECIFIED_V6
}

#[cfg(test)]
mod tests;
