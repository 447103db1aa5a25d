//! Leftover programs and maps.
mod generations;
mod served;
pub(crate) mod stale_restart_loop_no_growth;
pub(crate) mod stale_sock_child_cgroup;
pub(crate) mod stale_sock_exclusive_attach;
pub(crate) mod stale_sock_legacy_multi;
pub(crate) mod stale_sock_link_orphan;
pub(crate) mod stale_sock_parent_cgroup;
pub(crate) mod stale_sock_pins_hidden;
pub(crate) mod stale_sock_udp_sendmsg;
pub(crate) mod uninstall_leaves_nothing;
