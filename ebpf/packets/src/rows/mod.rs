//! The tables: what the packet programs do, row by row, in the order of `ebpf/DATAPATH.md`, whose rules they show.
//!
//! | module | shows |
//! |---|---|
//! | `passing` | what is left alone |
//! | `reading` | malformed and unreadable packets, at each header |
//! | `options` | IPv4 options, IPv6 extension headers |
//! | `tags` | 802.1Q |
//! | `fragments` | fragments of both families |
//! | `icmp_errors` | ICMP errors about flows, both directions |
//! | `client_port_unreachable` | answers that a client has no socket for |
//! | `icmp_error_paths` | where such errors go |
//! | `other_icmp` | other ICMP, protocols without ports |
//! | `opening` | the first packet of a flow, without SNAT: hooks, scopes, kinds of frontends |
//! | `reverse_nat` | reverse NAT |
//! | `hairpin` | clients that are their own backend; the node's own backends |
//! | `snat` | SNAT in both directions |
//! | `cluster` | clients of the cluster, which may be connected to the backend itself, too |
//! | `allocating` | ports: reuse, exhaustion, collisions with flows and with sockets of the node |
//! | `around` | connections to a backend's own address, which look like a flow's |
//! | `policy` | traffic policies, source ranges |
//! | `affinity` | session affinity |
//! | `choosing` | Maglev's slot; holes |
//! | `ageing` | time limits |
//! | `states` | what packets show of a connection |
//! | `replacing` | flows that end for others, and entries that disagree |
//! | `machine_addresses` | addresses that are not Services' alone, and the node's own sockets |
//! | `martians` | sources that no host can have |
//! | `rejecting` | RST, port unreachable, and where they are not sent |
//! | `routing` | TTL, MTU, routes |
//! | `checksums` | checksums that are zero, become zero, or are wrong |
//!
//! A new rule of the document gets a row here first, and the row a failure; then the program and the model follow. A row
//! that fuzzing has printed can be pasted as it is, with [`frame`](crate::build::frame) for its packets.
//!
//! A module's `rows` are those of one family, for each in turn; `v4` and `v6` those that only one has.

mod affinity;
mod ageing;
mod allocating;
mod around;
mod checksums;
mod choosing;
mod client_port_unreachable;
mod cluster;
mod fragments;
mod hairpin;
mod icmp_error_paths;
mod icmp_errors;
mod machine_addresses;
mod martians;
mod opening;
mod options;
mod other_icmp;
mod passing;
mod policy;
mod prelude;
mod reading;
mod rejecting;
mod replacing;
mod reverse_nat;
mod routing;
mod snat;
mod states;
mod tags;

use crate::{
    table::Row,
    test_node::{Addresses, V4, V6},
};

/// All rows.
pub fn all() -> Vec<Row> {
    let mut all = Vec::new();
    for (at, family) in [(&V4, "IPv4"), (&V6, "IPv6")] {
        for mut row in both(at) {
            row.sentence = format!("{}: {}", family, row.sentence);
            all.push(row);
        }
    }
    for (rows, family) in [
        (around::v4(), "IPv4"),
        (options::v4(), "IPv4"),
        (reading::v4(), "IPv4"),
        (checksums::v4(), "IPv4"),
        (martians::v4(), "IPv4"),
        (rejecting::v4(), "IPv4"),
        (routing::v4(), "IPv4"),
        (icmp_errors::v4(), "IPv4"),
        (around::v6(), "IPv6"),
        (options::v6(), "IPv6"),
        (reading::v6(), "IPv6"),
        (fragments::v6(), "IPv6"),
        (other_icmp::v6(), "IPv6"),
        (rejecting::v6(), "IPv6"),
        (routing::v6(), "IPv6"),
        (icmp_errors::v6(), "IPv6"),
    ] {
        for mut row in rows {
            row.sentence = format!("{}: {}", family, row.sentence);
            all.push(row);
        }
    }
    all
}

fn both(at: &Addresses) -> Vec<Row> {
    [
        passing::rows(at),
        reading::rows(at),
        tags::rows(at),
        fragments::rows(at),
        icmp_errors::rows(at),
        client_port_unreachable::rows(at),
        icmp_error_paths::rows(at),
        other_icmp::rows(at),
        opening::rows(at),
        reverse_nat::rows(at),
        hairpin::rows(at),
        snat::rows(at),
        cluster::rows(at),
        allocating::rows(at),
        around::rows(at),
        policy::rows(at),
        affinity::rows(at),
        choosing::rows(at),
        ageing::rows(at),
        states::rows(at),
        replacing::rows(at),
        machine_addresses::rows(at),
        martians::rows(at),
        rejecting::rows(at),
        routing::rows(at),
        checksums::rows(at),
    ]
    .concat()
}
