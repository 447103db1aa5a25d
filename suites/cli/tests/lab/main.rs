//! The embedded lab on the real kernel. Needs root; every lab here has a name of its own, so that these tests run
//! beside each other and beside labs of other people.
//!
//! Files: `support` (a lab for a test), `traces` (what must be gone afterwards), `life`, `starts` (ended
//! at bad moments), `gone` (the host afterwards; `host` is what is looked at), `lacks` (hosts that lack something), `network`, `pods`, `places`,
//! `agents` (a fake one), `api_servers` (and the controllers), `balancers` (load balancers), `kubectl`,
//! `programs` (Kubernetes' own control plane),
//! `targets` (by their files), `families` (IPv6 and dual stack), `reference` (the real agent), `links` (of one that was killed),
//! `kube_proxy` (the real one, with API servers that go wrong).

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
mod network;
mod places;
mod pods;
mod programs;
mod reference;
mod starts;
mod support;
mod targets;
mod traces;
