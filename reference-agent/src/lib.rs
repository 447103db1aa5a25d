//! The reference service load balancer agent.
pub mod maps;
