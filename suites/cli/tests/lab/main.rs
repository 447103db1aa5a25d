//! The embedded lab on the real kernel. Needs root. Every lab has a name of its own, so that these tests can run beside
//! each other and beside other users' labs.
//!
//! Files: `support` (a lab for a test), `traces` (what must be gone afterwards), `life`, `starts` (labs that end during
//! their start), `gone` (the host afterwards; `host` is the compared state), `lacks` (hosts that lack something),
//! `network`, `narrow_hop`, `pods`, `places`, `power` (a node without it), `agents` (a fake one), `api_servers` (and the controllers), `balancers` (load
//! balancers), `kubectl`, `programs` (Kubernetes' own control plane), `targets` (by their files), `families` (IPv6 and
//! dual stack), `reference` (the real agent), `links` (of a killed agent), `kube_proxy` (the real one, with faulty API
//! servers).

mod agents;
mod api_servers;
mod balancers;
mod families;
mod gone;
mod host;
mod kube_proxy;
mod kubectl;
mod lacks;
mod life;
mod links;
mod narrow_hop;
mod network;
mod places;
mod pods;
mod power;
mod programs;
mod reference;
mod starts;
mod support;
mod targets;
mod traces;
