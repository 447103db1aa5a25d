//! Who may be bound to a node port's number.

use super::*;

#[test]
fn a_node_port_is_reserved_where_it_answers() {
    let model = Model::two_pods();
    let v6 = Address::v6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
    for (address, expected) in [
        (Address::UNSPECIFIED_V4, true),
        (NODE, true),
        (Address::LOOPBACK_V4, true),
        (Address::v4([127, 0, 0, 9]), true),
        (Address::v4([192, 0, 2, 8]), false),
        (VIP.address, false),
        (Address::UNSPECIFIED_V6, true),
        (Address::LOOPBACK_V6, true),
        (v6, false),
    ] {
        let bound = tcp(address, 30080);
        assert_eq!(is_reserved(&model, &bound, || false), expected, "{address:?}");
        let other_port = FrontendKey {
            port: Port::new(30081),
            ..bound
        };
        let other_protocol = FrontendKey {
            protocol: UDP,
            ..bound
        };
        for free in [other_port, other_protocol] {
            assert!(!is_reserved(&model, &free, || true), "{free:?}");
        }
    }
}

#[test]
fn a_socket_of_both_families_has_the_ports_of_both() {
    let bound = tcp(Address::UNSPECIFIED_V6, 30080);
    for (v4, v6, dual, expected) in [
        (false, false, true, false),
        (true, false, true, true),
        (true, false, false, false),
        (false, true, true, true),
        (false, true, false, true),
    ] {
        let mut model = Model::two_pods();
        if !v4 {
            model.frontends.remove(&NODE_PORT);
        }
        if !v6 {
            model.frontends.remove(&NODE_PORT_V6);
        }
        assert_eq!(is_reserved(&model, &bound, || dual), expected, "{v4} {v6} {dual}");
    }
}

#[test]
fn a_pod_with_the_nodes_network_may_have_the_number_of_its_own_node_port() {
    let mut model = Model::two_pods();
    for key in [NODE_PORT, NODE_PORT_V6] {
        model.frontends.get_mut(&key).unwrap().flags |= frontend_flags::TARGET_PORT;
    }
    for address in [Address::UNSPECIFIED_V4, NODE, Address::UNSPECIFIED_V6] {
        assert!(!is_reserved(&model, &tcp(address, 30080), || true), "{address:?}");
    }
}

#[test]
fn an_ipv4_socket_and_an_address_of_ipv6_have_their_own_familys_ports_alone() {
    let mut model = Model::two_pods();
    model.frontends.remove(&NODE_PORT);
    assert!(!is_reserved(&model, &tcp(Address::UNSPECIFIED_V4, 30080), || {
        true
    }));
    let mut model = Model::two_pods();
    model.frontends.remove(&NODE_PORT_V6);
    assert!(!is_reserved(&model, &tcp(Address::LOOPBACK_V6, 30080), || true));
}
