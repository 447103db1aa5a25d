//! The control plane, from API objects to map contents.

mod adoption;
mod decoding;
mod devices;
mod dumps;
mod failures;
mod hooking;
mod incident_one;
mod kernel;
mod law;
mod place;
mod planning;
mod reflecting;
mod sockets;
mod whole;
mod writes;
