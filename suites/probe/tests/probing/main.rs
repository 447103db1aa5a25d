//! The probe's clients and servers, on loopback.
//!
//! | file | what is shown |
//! |---|---|
//! | `outcomes` | every outcome of an attempt |
//! | `modes` | servers that are slow, refuse, close half, are not ready, or end slowly |
//! | `pacing` | when attempts start and when they end |
//! | `flows` | established flows: their pace, their exchanges, and what ends them |
//! | `sockets` | sockets that stay open and send to one destination after the other |
//! | `tls` | HTTPS: the identity is the names in a certificate whose key the server has |
//! | `transfers` | many bytes over one connection |
//! | `kept` | clients that outlive the process that started them |
//! | `program` | the program itself: readiness, log, signals, exit codes |

mod common;
mod flows;
mod kept;
mod modes;
mod outcomes;
mod pacing;
mod program;
mod sockets;
mod tls;
mod transfers;
