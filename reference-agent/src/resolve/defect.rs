//! Defects of maps: what no complete set of writes leaves.

use std::fmt;

use lb_abi::{Address, BackendId, FrontendKey, Service, ServiceId, SlotKey, SourceKey};

use crate::endpoint_address::{Backend, Range, TransportAddress};

/// A state of an entry that no complete set of writes leaves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Defect {
    /// A frontend that can't have been written by an agent of this version.
    StrangeFrontend(FrontendKey),
    /// A frontend at an address that ADDRESSES doesn't have.
    MissingAddress(TransportAddress),
    /// A frontend whose service is missing.
    DanglingFrontend(TransportAddress, ServiceId),
    /// A frontend's service has fewer slots (the last number) than it names (the one before).
    MissingSlots(TransportAddress, ServiceId, u32, usize),
    /// A frontend's slot names a backend that is missing, or that no agent can have written.
    DanglingSlot(TransportAddress, SlotKey, BackendId),
    /// A frontend has affinity, and this backend of its service's current generation is not noted as a member.
    MissingMember(TransportAddress, Service, ServiceId, BackendId),
    /// An address, and its flags, that can't have been written by an agent of this version.
    StrangeAddress(Address, u32),
    /// An address that no frontend has, and that is not the node's.
    OrphanAddress(Address),
    /// A service that no frontend names.
    OrphanService(ServiceId),
    /// Kept slots of a service that no frontend names, or that has backends.
    NeedlessKept(ServiceId),
    /// Kept slots of a service, of which a slot or a backend is missing.
    DanglingKept(ServiceId, Service),
    /// A slot that is neither of its service's current generation nor kept.
    OrphanSlot(SlotKey),
    /// A member that is in no slot of its service's current generation, or whose service has no frontend with affinity.
    OrphanMember(SlotKey),
    /// An entry of SOURCES that can't have been written by an agent of this version.
    StrangeSource(SourceKey, u32),
    /// A range of clients that no frontend uses.
    OrphanSource(ServiceId, Range),
    /// A backend that can't have been written by an agent of this version.
    StrangeBackend(BackendId),
    /// A backend that has a lower number, too.
    DoubleBackend(BackendId, Backend),
}

impl Defect {
    /// Whether a frontend is not served as the maps say.
    pub const fn is_hole(&self) -> bool {
        matches!(
            self,
            Self::MissingAddress(..)
                | Self::DanglingFrontend(..)
                | Self::MissingSlots(..)
                | Self::DanglingSlot(..)
                | Self::MissingMember(..)
                | Self::DanglingKept(..)
        )
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const STRANGE: &str = "not written by this version";
        match self {
            Self::StrangeFrontend(key) => write!(f, "frontend {key:?}: {STRANGE}"),
            Self::MissingAddress(frontend) => write!(f, "frontend {frontend}: its address is not known"),
            Self::DanglingFrontend(frontend, service) => {
                write!(f, "frontend {frontend}: its service {service} is missing")
            }
            Self::MissingSlots(frontend, service, named, found) => {
                write!(
                    f,
                    "frontend {frontend}: its service {service} names {named} slots, {found} are there"
                )
            }
            Self::DanglingSlot(frontend, key, backend) => {
                write!(
                    f,
                    "frontend {frontend}: backend {backend} of its {} is missing",
                    slot(key)
                )
            }
            Self::MissingMember(frontend, Service { generation, .. }, service, backend) => {
                write!(
                    f,
                    "frontend {frontend}: backend {backend} of its service {service} generation {generation} is not noted as a member"
                )
            }
            Self::StrangeAddress(address, flags) => {
                write!(f, "address {address:?} with flags {flags:#x}: {STRANGE}")
            }
            Self::OrphanAddress(address) => write!(f, "address {address:?}: no frontend has it"),
            Self::OrphanService(service) => write!(f, "service {service}: no frontend names it"),
            Self::NeedlessKept(service) => write!(f, "kept of service {service}: not needed"),
            Self::DanglingKept(service, Service { generation, slots }) => {
                write!(
                    f,
                    "kept of service {service}: not all of the {slots} slots of generation {generation} are there"
                )
            }
            Self::OrphanSlot(key) => write!(f, "{}: not current", slot(key)),
            Self::OrphanMember(SlotKey {
                service,
                generation,
                index,
            }) => {
                let backend = index & !SlotKey::MEMBER;
                write!(
                    f,
                    "member {backend} of service {service} generation {generation}: nobody asks for it"
                )
            }
            Self::StrangeSource(key, value) => write!(f, "range {key:?} with value {value}: {STRANGE}"),
            Self::OrphanSource(service, range) => {
                write!(f, "range {range} of service {service}: no frontend asks for it")
            }
            Self::StrangeBackend(backend) => write!(f, "backend {backend}: {STRANGE}"),
            Self::DoubleBackend(backend, Backend { address, .. }) => {
                write!(f, "backend {backend}: {address} has a lower number too")
            }
        }
    }
}

fn slot(key: &SlotKey) -> String {
    let SlotKey {
        service,
        generation,
        index,
    } = key;
    format!("slot {index} of service {service} generation {generation}")
}
