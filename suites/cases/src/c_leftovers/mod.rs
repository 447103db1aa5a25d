//! Leftover programs and maps.
pub(crate) mod stale_sock_legacy_multi;
