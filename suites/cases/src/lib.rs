//! The cases: one file each, with its manifest or the one that its family shares. A folder is an area of the catalogue.
//!
//! ```text
//! claims.yaml ─▶ claims ──────────┬─▶ plumbline: what is listed, selected and reported
//! a case's CASE ─▶ ALL ───────────┘
//!   ├ manifest (YAML) ─▶ staging      (objects, pods that run suites/probe)
//!   └ run(Context)    ─▶ control ─▶ fault ─▶ witness ─▶ fence ─▶ verdict ─▶ CaseReport
//!                        probes          (chaos/faults)         └ chaos/oracle
//! ```
//!
//! A case reads like its claim: staging, control, fault, witness, fence, verdict. It never sleeps, has no limit of its
//! own, and judges nothing but what its clients saw and what its own watch of the API shows.
//!
//! - `claims`: the catalogue, and claims that are judged over the cases of others (`joint`).
//! - `a_release`: release isolation, one backend shared by two Services.
//! - `b_apiserver`: `default/kubernetes`, the agent's own API endpoint, and Services that are emptied and refilled.
//! - `c_leftovers`: programs and maps of an earlier start.
//! - `d_reach`: reaching a Service.
//! - `e_absent`: no endpoints, and datagrams that are larger than one packet.
//! - `f_slices`: what an EndpointSlice means.
//! - `g_draining`: readiness, termination, draining.
//! - `h_udp`: UDP and flow state.
//! - `i_policies`: traffic policies, and the source address that backends see.
//! - `j_loadbalancer`: load balancers, external IPs, addresses of nodes.
//! - `k_affinity`: session affinity.
//! - `n_restart`: restarts of agents, agents without an API, endpoints that are replaced.
//! - `m_families`: both families in one Service, headless Services.
//! - `l_topology`: hints for zones and nodes.
//! - `o_hygiene`: rules and objects on nodes, of the agent and of others.
//! - `source_ports`: those that cases give their clients.
//! - `null_slice`: an EndpointSlice emptied as API servers do it.
mod a_release;
mod b_apiserver;
mod c_leftovers;
pub mod claims;
mod d_reach;
mod e_absent;
mod f_slices;
mod g_draining;
mod h_udp;
mod i_policies;
mod j_loadbalancer;
mod k_affinity;
mod l_topology;
mod m_families;
mod n_restart;
mod null_slice;
mod o_hygiene;
mod source_ports;

use harness::case::Case;

/// All cases, by area and then as in the catalogue.
pub const ALL: &[Case] = &[
    a_release::release_prefix_empty_list::CASE,
    a_release::release_prefix_null_slice::CASE,
    a_release::release_prefix_one_of_two::CASE,
    a_release::release_prefix_object_deleted::CASE,
    a_release::release_prefix_condition::CASE,
    a_release::release_name_lattice::CASE,
    a_release::release_same_name_two_namespaces::CASE,
    a_release::release_joined_key_collision::CASE,
    a_release::release_port_scoped::CASE,
    a_release::release_every_trigger::CASE,
    a_release::release_all_frontends::CASE,
    a_release::release_all_frontends_lb::CASE,
    a_release::release_established_flows::CASE,
    a_release::release_agent_restart_between::CASE,
    a_release::release_culprit_refilled::CASE,
    a_release::release_victim_slice_rewritten::CASE,
    b_apiserver::kubesvc_reachable::CASE,
    b_apiserver::kubesvc_empty_permitted::CASE,
    b_apiserver::kubesvc_refill_all_nodes::CASE,
    b_apiserver::kubesvc_one_of_n_leaves::CASE,
    b_apiserver::kubesvc_shared_address_restart::CASE,
    b_apiserver::agent_own_vip_clusterip::CASE,
    b_apiserver::agent_own_vip_loadbalancer::CASE,
    b_apiserver::agent_own_vip_nodeport::CASE,
    b_apiserver::agent_own_vip_slice_recreated::CASE,
    b_apiserver::agent_start_while_vip_empty::CASE,
    b_apiserver::agent_start_with_stale_vip::CASE,
    b_apiserver::empty_refill_no_restart::CASE,
    b_apiserver::all_watches_cut::CASE,
    c_leftovers::stale_sock_legacy_multi::CASE,
    c_leftovers::stale_sock_link_orphan::CASE,
    c_leftovers::stale_sock_pins_hidden::CASE,
    c_leftovers::stale_sock_child_cgroup::CASE,
    c_leftovers::stale_sock_parent_cgroup::CASE,
    c_leftovers::stale_sock_exclusive_attach::CASE,
    c_leftovers::stale_sock_exclusive_attach::ABOVE,
    c_leftovers::stale_sock_dying_cgroup::CASE,
    c_leftovers::stale_map_pin::CASE,
    c_leftovers::stale_map_name_collision::CASE,
    c_leftovers::stale_sock_udp_sendmsg::CASE,
    c_leftovers::stale_sock_reverse_hooks::CASE,
    c_leftovers::stale_sock_disabled_by_config::CASE,
    c_leftovers::stale_tc_and_xdp::TC,
    c_leftovers::stale_tc_and_xdp::XDP,
    c_leftovers::stale_restart_loop_no_growth::CASE,
    c_leftovers::foreign_programs_kept::CASE,
    c_leftovers::sock_preexisting_clients::CASE,
    c_leftovers::ready_means_served::CASE,
    c_leftovers::uninstall_leaves_nothing::CASE,
    d_reach::clusterip_from_pod::CASE,
    d_reach::one_backend::FROM_HOST,
    d_reach::one_backend::HOST_BACKEND,
    d_reach::one_backend::HAIRPIN,
    d_reach::same_port_tcp_udp::CASE,
    d_reach::same_port_tcp_udp::LB,
    d_reach::one_backend::MAPPED,
    d_reach::spread_all_endpoints::CASE,
    d_reach::one_backend::NODE_PORTS,
    d_reach::frontends_not_crossed::CASE,
    d_reach::service_without_selector::CASE,
    d_reach::own_connection_untouched::CASE,
    d_reach::frontend_moves_owner::CASE,
    d_reach::frontend_moves_owner::LB,
    d_reach::service_change_live::CASE,
    d_reach::service_change_live::LB,
    d_reach::service_deleted_vip_dead::CASE,
    d_reach::service_deleted_vip_dead::LB,
    d_reach::clusterip_reused::CASE,
    d_reach::reply_from_frontend::CASE,
    d_reach::reply_from_frontend::LB,
    d_reach::reply_from_frontend::PEERNAME,
    e_absent::clusterip_no_endpoints_refused::CASE,
    e_absent::external_no_endpoints::CASE,
    e_absent::external_no_endpoints::REJECTED,
    e_absent::slice_empty_drops_to_zero::CASE,
    e_absent::backend_port_closed_visible::CASE,
    e_absent::backend_port_closed_visible::UDP,
    e_absent::clusterip_closed_port::CASE,
    e_absent::lb_closed_port_no_loop::CASE,
    e_absent::pmtu_toward_backend::CASE,
    e_absent::pmtu_toward_client::CASE,
    e_absent::pmtu_toward_client::LB,
    e_absent::udp_fragments::CASE,
    e_absent::udp_fragments::REORDERED,
    f_slices::slice_union::CASE,
    f_slices::slice_same_address_other_port::CASE,
    f_slices::slice_duplicate_and_move::CASE,
    f_slices::slice_ghost_terminating::CASE,
    f_slices::slice_ready_is_what_counts::CASE,
    f_slices::slice_namespace_bound::CASE,
    f_slices::slice_labels_and_names::CASE,
    f_slices::slice_port_name_match::CASE,
    f_slices::slice_port_per_pod::CASE,
    f_slices::slice_odd_contents_ignored::CASE,
    f_slices::slice_relabelled::CASE,
    f_slices::churn_converges::CASE,
    g_draining::unready_no_new::CASE,
    g_draining::ready_flap_keeps_established::CASE,
    g_draining::terminating_not_preferred::CASE,
    g_draining::terminating_fallback::CASE,
    g_draining::terminating_unserving_none::CASE,
    g_draining::terminating_drains_established::CASE,
    g_draining::rollout_no_loss::CASE,
    g_draining::dead_node_excluded::CASE,
    g_draining::returning_endpoint_active::CASE,
    h_udp::udp_zero_and_back::CASE,
    h_udp::udp_zero_and_back::LB,
    h_udp::udp_deleted_no_misdelivery::CASE,
    h_udp::udp_not_ready_yet::CASE,
    h_udp::udp_backend_replaced::CASE,
    h_udp::udp_connected_socket_released::CASE,
    h_udp::udp_healthy_flow_kept::CASE,
    h_udp::udp_healthy_flow_kept::RESTART,
    h_udp::udp_socket_sticks::CASE,
    h_udp::udp_closed_socket_spares_others::CASE,
    h_udp::udp_reconnected_not_killed::CASE,
    h_udp::pod_ip_reuse::CASE,
    j_loadbalancer::lb_vip_served::CASE,
    j_loadbalancer::lb_status_followed::CASE,
    j_loadbalancer::lb_vip_served::WITHOUT_NODE_PORTS,
    j_loadbalancer::lb_source_ranges::CASE,
    j_loadbalancer::shared_frontend_ip::CASE,
    j_loadbalancer::shared_frontend_ip::EXTERNAL_IP,
    j_loadbalancer::lb_vip_served::EXTERNAL_IP,
    j_loadbalancer::hcnp_truth::CASE,
    j_loadbalancer::hcnp_agent_dead::CASE,
    j_loadbalancer::lb_address_as_source::CASE,
    j_loadbalancer::node_addresses_followed::CASE,
    k_affinity::affinity_sticks::CASE,
    k_affinity::affinity_expires::CASE,
    k_affinity::affinity_backend_gone::CASE,
    n_restart::restart_no_new_failure::CASE,
    n_restart::restart_established_kept::CASE,
    n_restart::restart_prunes_deleted::CASE,
    n_restart::upgrade_and_back::CASE,
    n_restart::bootstrap_services_apart::CASE,
    n_restart::api_outage_static::CASE,
    n_restart::relist_prunes_removals::CASE,
    n_restart::watch_stalled::CASE,
    n_restart::state_wiped_recovers::CASE,
    n_restart::atomic_endpoint_switch::CASE,
    n_restart::scale_canary_latency::CASE,
    n_restart::overflow_old_survive::CASE,
    n_restart::write_failure_retried::CASE,
    m_families::dual_stack_both::CASE,
    m_families::dual_stack_families_apart::CASE,
    m_families::service_proxy_name_ignored::CASE,
    m_families::headless_not_proxied::CASE,
    m_families::sctp_served::CASE,
    i_policies::source_ip_clusterip::CASE,
    i_policies::itp_local::CASE,
    i_policies::itp_local_leaves_external::CASE,
    i_policies::itp_local_leaves_external::LB,
    i_policies::etp_local_source_kept::CASE,
    i_policies::etp_local_source_kept::LB,
    i_policies::etp_local_no_endpoint_none::CASE,
    i_policies::etp_local_no_endpoint_none::LB,
    i_policies::etp_local_incluster::CASE,
    i_policies::etp_local_incluster::NODE_PORT,
    i_policies::policy_flip_live::CASE,
    l_topology::hints_zone::CASE,
    l_topology::hints_partial_ignored::CASE,
    l_topology::hints_unready_ignored::CASE,
    l_topology::hints_same_node::CASE,
    o_hygiene::baseline_after_churn::CASE,
    o_hygiene::foreign_rules_kept::CASE,
    o_hygiene::fresh_agent_equal::CASE,
    o_hygiene::mode_switch_clean::CASE,
];

/// A case by its id.
#[must_use]
pub fn find(id: &str) -> Option<Case> {
    ALL.iter().copied().find(|case| case.id == id)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use harness::manifest::Manifest;

    use super::*;

    #[test]
    fn ids_are_unique_and_every_case_names_its_claims() {
        let ids: BTreeSet<_> = ALL.iter().map(|case| case.id).collect();
        assert_eq!(ids.len(), ALL.len());
        for case in ALL {
            assert!(
                !case.claims.is_empty() && !case.sentence.is_empty(),
                "{}",
                case.id
            );
            assert_eq!(find(case.id).unwrap().id, case.id);
        }
    }

    #[test]
    fn every_manifest_parses() {
        for case in ALL {
            Manifest::parse(case.manifest).unwrap_or_else(|error| panic!("{}: {error}", case.id));
        }
    }

    #[test]
    fn windows_go_on_for_as_long_as_any_case() {
        for case in ALL {
            assert!(case.longest <= harness::background::LONGEST, "{}", case.id);
        }
    }

    #[test]
    fn cases_that_stop_agents_run_alone() {
        for case in ALL
            .iter()
            .filter(|case| case.needs.rights == harness::case::Rights::Node)
        {
            assert!(case.disruptive, "{}", case.id);
        }
    }
}
