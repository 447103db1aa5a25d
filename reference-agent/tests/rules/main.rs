//! The rules of `SERVICES.md`, one by one: objects → model → plan, without maps.

mod addresses;
mod backends;
mod decoding;
mod findings;
mod frontends;
mod law;
mod planning;
mod services;
mod slices;
mod support;
mod topology;
