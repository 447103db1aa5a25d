//! Fragments, in any order.

use lb_abi::UDP;

use super::*;

/// A fragment of a datagram over IPv4: `at` in units of eight bytes.
fn piece(id: u16, at: u16, more: bool) -> Vec<u8> {
    let mut packet = segment((CLIENT, 5000), (VIP, 80), 0);
    packet[14 + 4..14 + 6].copy_from_slice(&id.to_be_bytes());
    let offset = at | if more { 0x2000 } else { 0 };
    packet[14 + 6..14 + 8].copy_from_slice(&offset.to_be_bytes());
    packet[14 + 9] = UDP;
    // The length of the datagram: more than is here.
    packet[14 + 24..14 + 28].copy_from_slice(&[0, 60, 0, 0]);
    packet
}

/// [`remote`], for UDP.
fn udp() -> Fake {
    let mut fake = remote();
    let frontends: Vec<_> = fake
        .maps
        .frontends
        .iter()
        .map(|(key, value)| (*key, *value))
        .collect();
    for (key, value) in frontends {
        fake.maps
            .frontends
            .insert(FrontendKey { protocol: UDP, ..key }, value);
    }
    fake.maps.backends.get_mut(&5).unwrap().protocol = UDP;
    fake
}

#[test]
fn what_comes_before_the_first_is_held_until_that_comes() {
    let (fake, mut work) = (udp(), PacketState::NEW);
    assert_eq!(arrives(&fake, &piece(1, 5, false), &mut work), Outcome::Held);
    assert_eq!(arrives(&fake, &piece(1, 3, true), &mut work), Outcome::Held);
    let numbers: Vec<_> = fake.held.borrow().iter().map(|held| held.number).collect();
    assert_eq!(numbers, [0, 1]);
    assert!(fake.is_empty());

    assert_eq!(
        arrives(&fake, &piece(1, 0, true), &mut work),
        Outcome::Held,
        "it comes in again"
    );
    assert!(fake.held.borrow().is_empty(), "they are released");
    assert_eq!(arrives(&fake, &piece(1, 0, true), &mut work), Outcome::Opened);
    for later in [piece(1, 5, false), piece(1, 3, true)] {
        assert_eq!(arrives(&fake, &later, &mut work), Outcome::Forwarded);
    }
}

#[test]
fn datagrams_are_told_apart() {
    let (fake, mut work) = (udp(), PacketState::NEW);
    assert_eq!(arrives(&fake, &piece(1, 5, false), &mut work), Outcome::Held);
    assert_eq!(arrives(&fake, &piece(2, 0, true), &mut work), Outcome::Opened);
    assert_eq!(fake.held.borrow().len(), 1);
}

#[test]
fn so_many_are_held_of_a_datagram_and_for_so_long() {
    let (mut fake, mut work) = (udp(), PacketState::NEW);
    for at in 0..48 {
        assert_eq!(arrives(&fake, &piece(1, 5 + at, true), &mut work), Outcome::Held);
    }
    assert_eq!(
        arrives(&fake, &piece(1, 99, true), &mut work),
        Outcome::DroppedFragment
    );
    fake.maps.now += 31;
    assert_eq!(
        arrives(&fake, &piece(1, 5, true), &mut work),
        Outcome::Held,
        "another datagram of that number"
    );
    assert_eq!(arrives(&fake, &piece(1, 0, true), &mut work), Outcome::Held);
    fake.maps.now += 31;
    assert_eq!(
        arrives(&fake, &piece(1, 5, true), &mut work),
        Outcome::Held,
        "the first is too old"
    );
    assert_eq!(arrives(&fake, &piece(1, 0, true), &mut work), Outcome::Held);
    assert_eq!(arrives(&fake, &piece(1, 0, true), &mut work), Outcome::Opened);
}

#[test]
fn where_the_node_itself_sends_them_they_come_in_order() {
    let (fake, mut work) = (udp(), PacketState::NEW);
    let later = decide(Hook::NodeEgress, Bytes(&piece(1, 5, false)), &fake, &mut work);
    assert_eq!(later, Ok(Outcome::DroppedFragment));
    assert!(fake.held.borrow().is_empty());
}
