//! The control plane, from API objects to map contents.

mod adoption;
mod decoding;
mod dumps;
mod failures;
mod hooking;
mod incident_one;
mod kernel;
mod law;
mod planning;
mod reflecting;
mod whole;
mod writes;
