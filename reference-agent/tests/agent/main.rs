//! The control plane, from API objects to map contents.

mod adoption;
mod decoding;
mod dumps;
mod failures;
mod incident_one;
mod law;
mod planning;
mod writes;
