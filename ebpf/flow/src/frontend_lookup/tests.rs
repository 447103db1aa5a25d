//! From destinations to frontends.

extern crate std;

use std::net::IpAddr;

use super::*;
use crate::model::{Model, NODE, NODE_PORT, VIP, tcp};

fn at(text: &str, port: u16) -> FrontendKey {
    let Ok(ip) = text.parse::<IpAddr>() else {
        panic!("{text} is no address")
    };
    tcp(ip.into(), port)
}

/// Asserts what is found where node ports answer at loopback, and where they do not.
#[track_caller]
fn check(model: &Model, destination: FrontendKey, with_loopback: bool, without: bool) {
    for (loopback, expected) in [(true, with_loopback), (false, without)] {
        let found = find(model, &destination, loopback).is_some();
        assert_eq!(found, expected, "{destination:?}, loopback: {loopback}");
    }
}

#[test]
fn an_address_of_its_own_is_found_exactly() {
    let model = Model::two_pods();
    check(&model, VIP, true, true);
    check(&model, at("10.96.0.2", 80), false, false);
    check(&model, at("10.96.0.1", 81), false, false);
    check(
        &model,
        FrontendKey {
            protocol: lb_abi::UDP,
            ..VIP
        },
        false,
        false,
    );
    check(&model, at("10.96.0.1", 30080), false, false);
}

#[test]
fn a_node_port_is_found_at_the_nodes_addresses() {
    let model = Model::two_pods();
    check(&model, at("192.0.2.7", 30080), true, true);
    check(&model, at("192.0.2.8", 30080), false, false);
    check(&model, at("192.0.2.7", 30081), false, false);
    // Only IPv4 addresses of the node are there.
    check(&model, at("2001:db8::7", 30080), false, false);
}

#[test]
fn a_node_port_is_found_at_loopback_where_it_answers_there() {
    for text in ["127.0.0.1", "127.0.0.2", "127.255.255.254", "::1"] {
        check(&Model::two_pods(), at(text, 30080), true, false);
    }
    let mut policy = Model::two_pods();
    policy.addresses.remove(&Address::LOOPBACK_V4);
    check(&policy, at("127.0.0.1", 30080), false, false);
    check(&policy, at("::1", 30080), true, false);
}

#[test]
fn the_unspecified_address_is_loopback_and_not_the_key_of_node_ports() {
    for text in ["0.0.0.0", "::"] {
        check(&Model::two_pods(), at(text, 30080), true, false);
        check(&Model::two_pods(), at(text, 30081), false, false);
    }
}

#[test]
fn a_frontend_of_its_own_goes_before_a_node_port() {
    let mut model = Model::two_pods();
    let own = Frontend {
        internal: 8,
        ..Frontend::default()
    };
    model.frontends.insert(tcp(NODE, 30080), own);
    assert_eq!(find(&model, &tcp(NODE, 30080), false), Some(own));
}

#[test]
fn an_address_that_is_only_a_services_has_no_node_ports() {
    let mut model = Model::two_pods();
    model.addresses.insert(NODE, address_flags::VIP);
    check(&model, tcp(NODE, 30080), false, false);
    model
        .addresses
        .insert(NODE, address_flags::VIP | address_flags::NODE);
    check(&model, tcp(NODE, 30080), true, true);
}

#[test]
fn each_scope_has_its_service_port_and_zero_is_none() {
    let frontend = Frontend {
        internal: 3,
        external: 4,
        ..Frontend::default()
    };
    assert_eq!(Scope::Internal.service_port(&frontend), Some(3));
    assert_eq!(Scope::External.service_port(&frontend), Some(4));
    assert_eq!(
        Scope::Internal.service_port(&Frontend {
            internal: 0,
            ..frontend
        }),
        None
    );
    assert_eq!(
        Scope::External.service_port(&Frontend {
            external: 0,
            ..frontend
        }),
        None
    );
}

#[test]
fn a_node_port_keeps_the_protocol() {
    let mut model = Model::two_pods();
    model.frontends.remove(&NODE_PORT);
    model.frontends.insert(
        FrontendKey {
            protocol: lb_abi::UDP,
            ..NODE_PORT
        },
        Frontend {
            internal: 9,
            ..Frontend::default()
        },
    );
    check(&model, tcp(NODE, 30080), false, false);
    check(
        &model,
        FrontendKey {
            protocol: lb_abi::UDP,
            ..tcp(NODE, 30080)
        },
        true,
        true,
    );
}
