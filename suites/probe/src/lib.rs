//! The client and server that run in pods.
