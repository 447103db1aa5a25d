//! The embedded lab on the real kernel. Needs root; every lab here has a name of its own, so that these tests run
//! beside each other and beside labs of other people.
//!
//! Files: `support` (a lab for a test, what a host must not have afterwards), `life`, `network`, `pods`, `places`,
//! `agents` (a fake one), `reference` (the real one).

mod agents;
mod life;
mod network;
mod places;
mod pods;
mod reference;
mod support;
