//! Clusters to test in.
pub mod cluster;
