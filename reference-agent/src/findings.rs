//! What can't be used, and was left out or clipped: reasons and sentences.

use std::fmt;

/// Why a part of an object, or a whole one, is not in the maps. Displays as its own name, which metrics and Events
/// carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A part that can't be read: wrong type, unknown enumeration value.
    Malformed,
    /// An address that can't be a frontend's.
    FrontendRefused,
    /// A frontend that another Service has.
    FrontendTaken,
    /// A port that repeats another one of the same object.
    PortRepeated,
    /// A range of clients that can't be read: it admits nobody.
    RangeRefused,
    /// An address that can't be a backend's.
    EndpointRefused,
    /// More endpoints than a set of backends can have.
    EndpointsClipped,
    /// An EndpointSlice that names no Service.
    ServiceUnknown,
    /// A map is full, or the kernel said no.
    NotWritten,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Something about a Service or an EndpointSlice that its owner should know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Its kind.
    pub reason: Reason,
    /// A sentence that names the field and says what was made of it.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}
