//! `default/kubernetes`, the agent's own way to the API, and what happened to Services there.
pub(crate) mod empty_refill_no_restart;
