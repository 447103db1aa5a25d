//! Which port a connection to a remote backend gets.

use super::*;

/// With these ports, those of sockets among them.
fn ports(snat: (u16, u16), local: (u16, u16)) -> Fake {
    let mut fake = remote();
    (fake.config.snat_first, fake.config.snat_last) = snat;
    (fake.config.local_first, fake.config.local_last) = local;
    fake
}

/// Opens a connection from a port of the client's; the port that it gets.
fn open_from(fake: &Fake, port: u16) -> Result<u16, Outcome> {
    let mut work = PacketState::NEW;
    match arrives(fake, &segment((CLIENT, port), (VIP, 80), SYN), &mut work) {
        Outcome::Opened => Ok(work.to.source_port.get()),
        outcome => Err(outcome),
    }
}

/// The search begins at this one of so many ports: at those that are taken already, a test under Miri spends minutes.
fn begin_at(fake: &mut Fake, port: u16, ports: u16) {
    fake.maps.random = u32::MAX / u32::from(ports) * u32::from(port) + u32::from(port);
}

/// Closes it from both sides.
fn close(fake: &Fake, port: u16, masked: u16) {
    let mut work = PacketState::NEW;
    let answer = segment((POD, 8080), (NODE, masked), FIN | ACK);
    assert_eq!(arrives(fake, &answer, &mut work), Outcome::Replied);
    let packet = segment((CLIENT, port), (VIP, 80), FIN | ACK);
    assert_eq!(arrives(fake, &packet, &mut work), Outcome::Forwarded);
}

#[test]
fn ports_that_the_kernel_gives_to_sockets_come_last() {
    for (snat, local, expected) in [
        ((10, 15), (12, 13), [10, 11, 14, 15, 12, 13]),
        ((10, 15), (1, 11), [12, 13, 14, 15, 10, 11]),
        ((10, 15), (14, 99), [10, 11, 12, 13, 14, 15]),
        ((10, 15), (1, 99), [10, 11, 12, 13, 14, 15]),
        ((10, 15), (20, 99), [10, 11, 12, 13, 14, 15]),
        ((10, 15), (1, 0), [10, 11, 12, 13, 14, 15]),
    ] {
        let fake = ports(snat, local);
        let got: Vec<_> = (0..6).map(|client| open_from(&fake, 5000 + client)).collect();
        assert_eq!(got, expected.map(Ok), "{snat:?} {local:?}");
        assert_eq!(open_from(&fake, 5006), Err(Outcome::DroppedPortsExhausted));
        assert_eq!(fake.reused.get(), 0);
    }
}

/// Of 1,024 ports that no socket is given, with 1,000 of sockets in their middle.
#[test]
fn a_node_and_the_nodes_of_backends_give_out_different_ports_of_its_address() {
    let (snat, local) = ((10_000, 12_023), (10_500, 11_499));
    let ends = |of: &dyn Fn(u32) -> u16| [of(0), of(u32::MAX)];
    let snat_port = |random| {
        let mut fake = ports(snat, local);
        fake.maps.random = random;
        open_from(&fake, 5000).unwrap()
    };
    // The client is another node, whose address a pod of this one sees.
    let other_port = |random| {
        let mut fake = ports(snat, local);
        fake.maps.random = random;
        fake.of_cluster = Some(CLIENT);
        let backends = fake.maps.backends.values_mut();
        backends.for_each(|pod| pod.flags = backend_flags::LOCAL);
        let frontends = fake.maps.frontends.values_mut();
        frontends.for_each(|frontend| frontend.flags = frontend_flags::SILENT);
        open_from(&fake, 5000).unwrap()
    };
    assert_eq!(ends(&snat_port), [10_000, 11_895]);
    assert_eq!(ends(&other_port), [11_896, 12_023]);
}

#[test]
fn a_range_that_is_too_short_for_two_searches_is_not_divided() {
    let mut fake = ports((10_000, 11_022), (1, 0));
    fake.maps.random = u32::MAX;
    assert_eq!(open_from(&fake, 5000), Ok(11_022));
}

#[test]
fn the_search_begins_anywhere_and_goes_around() {
    let mut fake = ports((10, 15), (12, 13));
    fake.maps.random = u32::MAX;
    let got: Vec<_> = (0..6).map(|client| open_from(&fake, 5000 + client)).collect();
    assert_eq!(got, [15, 10, 11, 14, 13, 12].map(Ok));
}

#[test]
fn a_port_whose_connection_both_have_closed_is_taken_when_there_is_no_other() {
    let mut fake = ports((10, 11), (1, 0));
    assert_eq!((open_from(&fake, 5000), open_from(&fake, 5001)), (Ok(10), Ok(11)));
    close(&fake, 5001, 11);
    assert_eq!(
        open_from(&fake, 5002),
        Err(Outcome::DroppedPortsExhausted),
        "its last packets may still be on their way"
    );
    fake.maps.now += 2;
    assert_eq!((open_from(&fake, 5003), fake.reused.get()), (Ok(11), 1));
    assert_eq!(open_from(&fake, 5004), Err(Outcome::DroppedPortsExhausted));
    // The old connection's last packets don't find their way into the new one.
    let mut work = PacketState::NEW;
    let late = segment((CLIENT, 5001), (VIP, 80), ACK);
    assert_eq!(arrives(&fake, &late, &mut work), Outcome::NoFlow);
}

#[test]
fn a_port_of_a_connection_that_has_ended_is_taken_after_sixteen_in_use() {
    let mut fake = ports((1000, 1019), (1, 0));
    for client in 0..20 {
        begin_at(&mut fake, client, 20);
        let port = open_from(&fake, 5000 + client).unwrap();
        if client >= 3 {
            close(&fake, 5000 + client, port);
        }
    }
    begin_at(&mut fake, 0, 20);
    fake.maps.now += 10;
    assert_eq!(
        open_from(&fake, 6000),
        Ok(1003),
        "the first that has ended of sixteen"
    );
    assert_eq!(fake.reused.get(), 1);
}

#[test]
fn the_clients_own_port_is_taken_again_before_anothers() {
    let other = Address::v4([198, 51, 100, 8]);
    let mut fake = ports((1000, 1019), (1, 0));
    let mut work = PacketState::NEW;
    for client in 0..20_u16 {
        begin_at(&mut fake, client, 20);
        let source = if client == 9 { other } else { CLIENT };
        let packet = segment((source, 5000 + client), (VIP, 80), SYN);
        assert_eq!(arrives(&fake, &packet, &mut work), Outcome::Opened);
        let masked = work.to.source_port.get();
        let answer = segment((POD, 8080), (NODE, masked), RST);
        assert_eq!(arrives(&fake, &answer, &mut work), Outcome::Replied);
    }
    begin_at(&mut fake, 0, 20);
    fake.maps.now += 5;
    let packet = segment((other, 6000), (VIP, 80), SYN);
    assert_eq!(arrives(&fake, &packet, &mut work), Outcome::Opened);
    assert_eq!(work.to.source_port.get(), 1009);
}

#[test]
fn what_is_written_already_is_looked_for_and_not_written_again() {
    let fake = ports((10, 11), (1, 0));
    assert_eq!(open_from(&fake, 5000), Ok(10));
    let reply = tuple((POD, 8080), (NODE, 10));
    let before = fake.entry(&reply);
    assert_eq!(open_from(&fake, 5001), Ok(11));
    assert_eq!(fake.entry(&reply), before);
}

#[test]
fn a_client_that_has_reset_and_asks_again_has_the_port_that_it_had() {
    let mut fake = ports((1000, 1019), (1, 0));
    begin_at(&mut fake, 7, 20);
    assert_eq!(open_from(&fake, 5000), Ok(1007));
    let mut work = PacketState::NEW;
    // What a backend says that knows another connection of this port, and what the client makes of it.
    let answer = segment((POD, 8080), (NODE, 1007), ACK);
    assert_eq!(arrives(&fake, &answer, &mut work), Outcome::Replied);
    let reset = segment((CLIENT, 5000), (VIP, 80), RST);
    assert_eq!(arrives(&fake, &reset, &mut work), Outcome::Forwarded);
    begin_at(&mut fake, 3, 20);
    fake.maps.now += 1;
    assert_eq!(open_from(&fake, 5000), Ok(1007));
    assert_eq!(
        open_from(&fake, 5001),
        Ok(1003),
        "another connection of this client"
    );
    // Its entries lead to each other, as those of any other.
    let answer = segment((POD, 8080), (NODE, 1007), SYN | ACK);
    assert_eq!(arrives(&fake, &answer, &mut work), Outcome::Replied);
    assert_eq!(work.to, tuple((VIP, 80), (CLIENT, 5000)));
}

#[test]
fn a_port_that_a_client_had_is_not_its_own_where_a_socket_has_it_or_the_backend_is_another() {
    let mut fake = ports((1000, 1019), (1, 0));
    let mut work = PacketState::NEW;
    let reset = segment((CLIENT, 5000), (VIP, 80), RST);
    begin_at(&mut fake, 7, 20);
    assert_eq!(open_from(&fake, 5000), Ok(1007));
    arrives(&fake, &reset, &mut work);
    fake.socket = Some((Port::new(1007), Socket::Bound));
    begin_at(&mut fake, 3, 20);
    assert_eq!(open_from(&fake, 5000), Ok(1003));
    arrives(&fake, &reset, &mut work);
    for backend in fake.maps.backends.values_mut() {
        backend.port = Port::new(8081);
    }
    begin_at(&mut fake, 5, 20);
    assert_eq!(open_from(&fake, 5000), Ok(1005));
    let left = [1003, 1007].map(|port| fake.entry(&tuple((POD, 8080), (NODE, port))));
    assert_eq!(left, [None, None], "what it had is given up");
}
