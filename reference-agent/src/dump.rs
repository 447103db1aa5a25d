//! The maps as text: sorted, without ids, so that two agents' dumps can be compared line by line. The format is
//! specified, with an example, in `SERVICES.md`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    net::{IpAddr, SocketAddr},
};

use lb_abi::address_flags::{LOAD_BALANCER, NODE, VIP};

use crate::{
    endpoint_address::{Backend, Range, TransportAddress},
    maglev,
    maps::Contents,
    plan::{self, Plan, Selection, Serving},
    resolve,
};

/// The sections, in order.
pub const SECTIONS: [&str; 6] = [
    "frontends",
    "addresses",
    "cluster",
    "kept",
    "established",
    "defects",
];

/// The canonical text of map contents: one line for each frontend, then one for each address; then, if there are any, for
/// each range of the cluster's clients, each frontend with kept backends, each backend of established flows alone, and each
/// defect. It does not show which backends are local, as nodes differ.
pub fn dump(contents: &Contents) -> String {
    let (frontends, defects) = resolve::resolve(contents);
    let addresses = contents.addresses.iter();
    let addresses = addresses.map(|&(address, flags)| (address.into(), flags));
    let mut text = required(&frontends, &addresses.collect());
    cluster(&mut text, &resolve::clients(contents));
    let kept = resolve::kept(contents);
    let kept = kept
        .iter()
        .map(|(frontend, backends)| format!("{frontend} -> {}", sockets(backends)));
    optional(&mut text, "kept", kept);
    let established = resolve::established(contents);
    optional(
        &mut text,
        "established",
        established.iter().map(ToString::to_string),
    );
    optional(&mut text, "defects", defects.iter().map(ToString::to_string));
    text
}

/// The same text of a plan, which has no kept backends and no defects.
pub fn planned(plan: &Plan) -> String {
    let frontends = plan::resolve(plan);
    let mut text = required(&frontends, &plan::addresses(plan));
    cluster(&mut text, &plan::clients(plan));
    let slots = frontends
        .values()
        .flat_map(|serving| serving.internal.iter().chain(&serving.external));
    let slots: BTreeSet<TransportAddress> = slots.map(|backend| backend.address).collect();
    let ports = plan.values().flat_map(|service| service.ports.values());
    let serving: BTreeSet<TransportAddress> = ports
        .flat_map(|port| &port.serving)
        .map(|backend| backend.address)
        .collect();
    optional(
        &mut text,
        "established",
        serving.difference(&slots).map(ToString::to_string),
    );
    text
}

/// The two sections that are always there.
fn required(frontends: &BTreeMap<TransportAddress, Serving>, addresses: &BTreeMap<IpAddr, u32>) -> String {
    let mut text = String::new();
    let frontends = frontends
        .iter()
        .map(|(frontend, serving)| format!("{frontend} -> {}", served(serving)));
    section(&mut text, "frontends", frontends);
    let addresses = addresses
        .iter()
        .map(|(address, flags)| format!("{address} -> {}", others(*flags)));
    section(&mut text, "addresses", addresses);
    text
}

/// Ranges of clients whose sockets may be connected to backends directly.
fn cluster(text: &mut String, clients: &BTreeSet<Range>) {
    optional(text, "cluster", clients.iter().map(ToString::to_string));
}

/// A section that is left out if it is empty.
fn optional(text: &mut String, name: &str, lines: impl Iterator<Item = String>) {
    let mut lines = lines.peekable();
    if lines.peek().is_some() {
        section(text, name, lines);
    }
}

fn section(text: &mut String, name: &str, lines: impl Iterator<Item = String>) {
    let _ = writeln!(text, "{name}");
    for line in lines {
        let _ = writeln!(text, "{line}");
    }
}

/// How other ports of an address are treated.
fn others(flags: u32) -> &'static str {
    match (flags & NODE != 0, flags & VIP != 0) {
        (true, true) => "node, other ports refused",
        // Packets to this host end here, whatever other flags the address has.
        (true, false) => "node",
        (false, true) => "other ports refused",
        (false, false) if flags & LOAD_BALANCER != 0 => "other ports refused from outside",
        (false, false) => "other ports passed",
    }
}

/// How a frontend is served: once, if it is the same inside and outside.
fn served(serving: &Serving) -> String {
    let sides = if serving.internal == serving.external {
        vec![("", &serving.internal)]
    } else {
        vec![("inside ", &serving.internal), ("outside ", &serving.external)]
    };
    let whom: Vec<String> = sides
        .iter()
        .map(|(side, slots)| {
            let backends = slots.iter().map(|backend| backend.address).collect();
            format!("{side}{}", sockets(&backends))
        })
        .collect();
    let mut how = Vec::new();
    if serving.affinity_seconds != 0 {
        how.push(format!("affinity {} s", serving.affinity_seconds));
    }
    if serving.selection == Selection::Maglev {
        let tables = sides.iter().filter(|(_, slots)| !slots.is_empty());
        let tables: Vec<String> = tables.map(|(side, slots)| table(side, slots)).collect();
        if !tables.is_empty() {
            how.push(tables.join(" | "));
        }
    }
    if let Some(ranges) = &serving.sources {
        let ranges: Vec<String> = ranges.iter().map(ToString::to_string).collect();
        let whom = if ranges.is_empty() {
            "nobody".to_owned()
        } else {
            ranges.join(" ")
        };
        how.push(format!("only from {whom}"));
    }
    if serving.silent {
        how.push("silent".to_owned());
    }
    if serving.target_port {
        how.push("may be bound".to_owned());
    }
    let mut text = whom.join(" | ");
    if !how.is_empty() {
        let _ = write!(text, " ({})", how.join(", "));
    }
    text
}

fn sockets(backends: &BTreeSet<TransportAddress>) -> String {
    if backends.is_empty() {
        return "refused".to_owned();
    }
    let sockets = backends
        .iter()
        .map(|one| SocketAddr::new(one.address, one.port).to_string());
    sockets.collect::<Vec<_>>().join(" ")
}

fn table(side: &str, slots: &[Backend]) -> String {
    let table = slots.iter().map(|backend| backend.address);
    let (size, digest) = (table.len(), maglev::digest(table));
    format!("{side}maglev table of {size}: {digest:016x}")
}
