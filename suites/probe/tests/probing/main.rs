//! The probe's clients and servers, on loopback.
//!
//! | file | what is shown |
//! |---|---|
//! | `outcomes` | every outcome of an attempt |
//! | `modes` | servers that are slow, refuse, close half, are not ready, or end slowly |
//! | `pacing` | when attempts begin and when they end |
//! | `flows` | established flows: their pace, their exchanges, and what ends them |
//! | `sockets` | sockets that are kept, and lead to one destination after the other |
//! | `tls` | HTTPS: who answers is what the certificate says whose key they have |
//! | `kept` | clients that go on without whoever started them |
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
