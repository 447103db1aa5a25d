//! The rules of `SERVICES.md`, one by one: objects → model → plan, without maps.

mod addresses;
mod backends;
mod clients;
mod decoding;
mod findings;
mod frontends;
mod health;
mod law;
mod planning;
mod service_ranges;
mod services;
mod slices;
mod support;
mod tables;
mod topology;
