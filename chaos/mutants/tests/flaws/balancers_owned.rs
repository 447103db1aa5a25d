//! The mutant treats external addresses of Services as cluster IPs.

use lb_abi::address_flags::{LOAD_BALANCER, VIP};
use mutants::balancers_owned::BalancersOwned;
use reference_agent::{
    control::{DesiredState, Planner},
    maps::Contents,
    model::Service,
    testing::{World, objects::service},
};

/// Flags in ADDRESSES of a Service's external IP and cluster IP.
fn flags(desired: impl DesiredState) -> Vec<u32> {
    let mut world = World::with(desired, &Contents::default());
    world.sync();
    world.put_service(Service {
        external_ips: vec!["192.0.2.1".parse().expect("an address")],
        ..service("t/x", "10.96.0.1", &["TCP 80"])
    });
    world.assert_clean();
    let addresses = world.contents().addresses.into_iter();
    addresses
        .map(|(_, flags)| flags)
        .filter(|flags| flags & !(VIP | LOAD_BALANCER) == 0)
        .collect()
}

#[test]
fn an_external_ip_is_an_address_of_services_alone() {
    assert_ne!(
        flags(Planner::default()),
        flags(BalancersOwned(Planner::default()))
    );
    assert!(
        flags(BalancersOwned(Planner::default()))
            .iter()
            .all(|flags| *flags == VIP)
    );
}
