//! Leftover programs and maps: what an earlier start of an agent left in the kernel.
//!
//! In most cases two *generations* of the agent run on one node, see `generations/mod.rs`. Others change Services while
//! no agent runs: `replaced_backends.rs`, `node_ports.rs`, `shared_vips.rs` and `local_service.rs` are their objects, `reverse/` is what
//! hooks of the reply direction show.
pub(crate) mod foreign_programs_kept;
mod generations;
mod local_service;
mod node_ports;
pub(crate) mod ready_means_served;
mod replaced_backends;
mod reverse;
mod shared_vips;
pub(crate) mod sock_preexisting_clients;
pub(crate) mod stale_map_name_collision;
pub(crate) mod stale_map_pin;
pub(crate) mod stale_restart_loop_no_growth;
pub(crate) mod stale_sock_child_cgroup;
pub(crate) mod stale_sock_disabled_by_config;
pub(crate) mod stale_sock_dying_cgroup;
pub(crate) mod stale_sock_exclusive_attach;
pub(crate) mod stale_sock_legacy_multi;
pub(crate) mod stale_sock_link_orphan;
pub(crate) mod stale_sock_parent_cgroup;
pub(crate) mod stale_sock_pins_hidden;
pub(crate) mod stale_sock_reverse_hooks;
pub(crate) mod stale_sock_udp_sendmsg;
pub(crate) mod stale_tc_and_xdp;
pub(crate) mod uninstall_leaves_nothing;

/// Name of the area in the catalogue.
const AREA: &str = "C leftover programs and maps";
