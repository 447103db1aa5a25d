//! The mutant removes an address with the first Service that has it.

use mutants::addresses_removed::AddressesRemoved;
use reference_agent::{
    control::Planner,
    maps::Contents,
    model::Service,
    testing::{World, objects::service},
};

#[test]
fn a_shared_address_goes_with_one_of_its_services_until_the_other_one_changes() {
    let mut world = World::with(AddressesRemoved::new(Planner::default()), &Contents::default());
    world.sync();
    let shared = |name: &str, cluster_ip: &str, port: &str| Service {
        external_ips: vec!["192.0.2.1".parse().expect("an address")],
        ..service(name, cluster_ip, &[port])
    };
    world.put_service(shared("t/one", "10.96.0.1", "TCP 80"));
    world.put_service(shared("t/two", "10.96.0.2", "TCP 81"));
    assert!(world.serves("TCP 192.0.2.1:81").is_some());
    world.delete_service("t/one");
    assert!(world.serves("TCP 192.0.2.1:81").is_none());
    assert!(world.serves("TCP 10.96.0.2:81").is_some());
    world.put_service(shared("t/two", "10.96.0.2", "TCP 81"));
    assert!(world.serves("TCP 192.0.2.1:81").is_some());
    world.assert_clean();
}
