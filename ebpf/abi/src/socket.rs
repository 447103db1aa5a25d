//! What the socket programs write.

use crate::{Backend, BackendId, FrontendKey, ServiceId};

/// Key of CHOSEN: a socket that is not connected, and a frontend that it sends datagrams to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(C)]
pub struct ChosenKey {
    /// `bpf_get_socket_cookie`: unique for as long as the machine runs.
    pub cookie: u64,
    /// What the client asks for.
    pub frontend: FrontendKey,
    /// Zero.
    pub pad: u32,
}

/// Value of CHOSEN: where its datagrams go, for as long as the frontend is the service port's and the backend serves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(C)]
pub struct Chosen {
    /// The service port that the backend was chosen from.
    pub service: ServiceId,
    /// The backend.
    pub backend: BackendId,
}

/// Key of SOCKET_REVNAT: a socket and the backend it talks to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(C)]
pub struct SocketRevnatKey {
    /// `bpf_get_socket_cookie`: unique for as long as the machine runs.
    pub cookie: u64,
    /// The backend, with flags of zero.
    pub backend: Backend,
    /// Zero.
    pub pad: u32,
}

/// Value of SOCKET_REVNAT; with its `previous` entries, beginning at the one that SOCKET_BACKEND has for the cookie, all that there
/// are of a socket. SOCKET_BACKEND: cookie → [`Backend`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(C)]
pub struct SocketRevnat {
    /// What the client asked for.
    pub frontend: FrontendKey,
    /// The backend that this socket was sent to before, with flags of zero; all zero: none.
    pub previous: Backend,
}
