//! Answers from maps whose bytes are written out by hand, as each implementation writes them.

mod calico;
mod cilium;
mod ours;

use std::net::SocketAddr;

use super::{
    super::{map_bytes::memory::MemoryBytes, report::Owner},
    *,
};
use crate::destination::Protocol;

fn owner(whose: Whose) -> Owner {
    Owner {
        whose,
        guess: whose != Whose::Plumbline,
        because: Vec::new(),
    }
}

fn map(id: u32, name: &str, key_size: u32, value_size: u32) -> Map {
    Map {
        id,
        name: name.to_owned(),
        kind: "hash".to_owned(),
        key_size,
        value_size,
        max_entries: 65_536,
        pinned_at: Vec::new(),
        held_by: Vec::new(),
        layout: None,
    }
}

fn to(text: &str, from: From) -> Question {
    let (protocol, socket) = text.split_once(' ').expect("a protocol and an address");
    let socket: SocketAddr = socket.parse().expect("an address");
    let protocol = match protocol {
        "TCP" => Protocol::Tcp,
        "UDP" => Protocol::Udp,
        other => panic!("{other} is no protocol of these tests"),
    };
    let destination = Destination {
        protocol,
        address: socket.ip(),
        port: socket.port(),
    };
    Question { destination, from }
}

fn backends(sockets: &[&str]) -> BTreeSet<SocketAddr> {
    sockets
        .iter()
        .map(|text| text.parse().expect("an address"))
        .collect()
}

fn recognise(bytes: &MemoryBytes, whose: Whose, maps: &[Map]) -> Option<Tables> {
    let maps: Vec<&Map> = maps.iter().collect();
    Tables::recognise(bytes, &owner(whose), &maps).expect("readable")
}
