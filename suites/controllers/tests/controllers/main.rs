//! The controllers against the lab's API server.
//!
//! With `PLUMBLINE_APISERVER_KUBECONFIG` the tests of the EndpointSlice controller run against that cluster and its own
//! controller instead of ours: both must do the same.

mod balancer;
mod scheduler;
mod server;
mod slices;
mod survival;
mod topology;
