//! Datagrams of a socket that is not connected.

use super::*;

#[test]
fn a_sockets_datagrams_go_where_the_first_went() {
    let mut model = Model::two_pods();
    let sends = Client {
        chosen: Some(RefCell::default()),
        ..Client::default()
    };
    check(&model, &sends, VIP, Verdict::Translate(TO_ONE));
    model.random = u32::MAX;
    check(&model, &sends, VIP, Verdict::Translate(TO_ONE));
    check(&model, &sends, tcp(Address::LOOPBACK_V4, 30080), Verdict::Pass);
    let of_node = Client {
        chosen: Some(RefCell::default()),
        ..Client::of_node()
    };
    check(&model, &of_node, tcp(NODE, 30080), Verdict::Translate(TO_TWO));
    check(&model, &Client::default(), VIP, Verdict::Translate(TO_TWO));

    // Its backend is not among those that new ones go to; but it serves.
    model.services.get_mut(&SERVICE).unwrap().slots = 0;
    check(&model, &sends, VIP, Verdict::Translate(TO_ONE));
    check(
        &model,
        &Client::default(),
        VIP,
        Verdict::Refuse(Refusal::NoBackend),
    );
    // It serves no more.
    model.backends.remove(&ONE);
    check(&model, &sends, VIP, Verdict::Refuse(Refusal::NoBackend));
}

#[test]
fn a_sockets_datagrams_follow_the_frontend_to_another_service_port() {
    let mut model = Model::two_pods();
    let sends = Client {
        chosen: Some(RefCell::default()),
        ..Client::default()
    };
    check(&model, &sends, VIP, Verdict::Translate(TO_ONE));
    model.every_frontend(|frontend| frontend.internal = 8);
    check(&model, &sends, VIP, Verdict::Refuse(Refusal::Hole));
}

#[test]
fn what_a_pod_sends_to_a_frontend_at_the_nodes_own_address_is_left_to_packets_as_it_may_be_an_answer() {
    let model = Model::two_pods();
    let sends = Client {
        chosen: Some(RefCell::default()),
        ..Client::default()
    };
    check(&model, &sends, tcp(NODE, 30080), Verdict::Defer);
    check(
        &model,
        &Client::default(),
        tcp(NODE, 30080),
        Verdict::Translate(TO_ONE),
    );
    check(&model, &sends, tcp(NODE, 30081), Verdict::Pass);
}
