//! Loads, attaches, adopts and finds eBPF programs and maps.
