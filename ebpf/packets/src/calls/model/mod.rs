//! The socket programs once more, in plain Rust and from the document alone: what a call may do.
//!
//! Where programs may choose (a backend at random) there are several outcomes, and any of them is right. What the kernel
//! makes of a call that a program has let through is in it, too: what a stack with nothing but loopback answers.
//!
//! | module | holds |
//! |---|---|
//! | `state` | what is read: [`State`]; what is returned: [`Outcome`] |
//! | `decide` | `connect`, `sendmsg`: which backend, refused, left alone |
//! | `effect` | what follows: what is noted of sockets, which server the kernel reaches, what the client is shown |

mod decide;
mod effect;
mod state;

pub use self::{
    effect::{applies, permitted},
    state::{CallResult, Ids, Outcome, Socket, State},
};
