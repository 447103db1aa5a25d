//! The contract of a Kubernetes API server, as kube-rs sees it over HTTPS.
//!
//! By default against this crate's server, one per test. With `PLUMBLINE_APISERVER_KUBECONFIG` the same tests
//! run against that cluster (a real kube-apiserver with its controller manager), where they show that both
//! answer alike; tests of our own bounds are left out there and say so. `kubernetes` starts such a cluster for them: of the
//! programs in the folder that `PLUMBLINE_KUBE_API` names, and of images where Docker is.

mod applying;
mod cluster;
mod config;
mod deletion;
mod exec;
mod faults;
mod kubectl;
mod kubectl_apply;
mod kubectl_get;
mod kubectl_write;
mod kubernetes;
mod limits;
mod node;
mod objects;
mod owners;
mod owning;
mod pages;
mod patches;
mod pods;
mod recorded;
mod relist;
mod replicas;
mod sequences;
mod server;
mod service_cidrs;
mod services;
mod slices;
mod survival;
mod versions;
mod watches;
mod watching;
