//! Every row of the tables, on the model: tables and model were written from the same document by different people,
//! and neither from the programs. Needs no kernel.

use std::collections::BTreeMap;

use lb_abi::{Affinity, Flow, Meta, Ports, Tuple, flow_flags};
use lb_loader::DeviceHook;
use lb_packets::{
    fuzz::routes,
    model::{self, Device, Input, NodeSockets, Observed, Outcome, Rejects, State},
    rows,
    table::{Connection, Entry, Row, Step, Verdict, connection},
    test_node::CLOSED,
};

/// Seconds since the machine started, here.
const NOW: u32 = 1_000_000;

/// What the maps hold before a row.
fn state(row: &Row) -> State {
    let ago = |age: i32| NOW.wrapping_sub_signed(age);
    let mut state = State {
        config: row.given.config,
        ..State::default()
    };
    for entry in &row.given.entries {
        match *entry {
            Entry::Address(address, flags) => drop(state.addresses.insert(address, flags)),
            Entry::Frontend(key, frontend) => drop(state.frontends.insert(key, frontend)),
            Entry::Service(id, service) => drop(state.services.insert(id, service)),
            Entry::Slot(key, backend) => drop(state.slots.insert(key, backend)),
            Entry::Backend(id, backend) => drop(state.backends.insert(id, backend)),
            Entry::Source(range) => drop(state.sources.insert(range)),
            Entry::Affinity(key, backend, age) => {
                let seconds = ago(age);
                state.affinity.insert(key, Affinity { backend, seconds });
            }
            Entry::Fragment(key, [source, destination], held, age) => {
                let ports = Ports {
                    source,
                    destination,
                    seconds: ago(age),
                    held,
                };
                state.fragments.insert(key, ports);
            }
            Entry::Connection(connection) => state.flows.extend(connection.entries(NOW)),
        }
    }
    state
}

/// CONNTRACK after a row.
fn flows(row: &Row) -> BTreeMap<Tuple, Flow> {
    let given = row.given.entries.iter().filter_map(|entry| match entry {
        Entry::Connection(connection) => Some(*connection),
        _ => None,
    });
    let connections: Vec<Connection> = row.connections.clone().unwrap_or_else(|| given.collect());
    connections
        .iter()
        .flat_map(|connection| connection.entries(NOW))
        .collect()
}

/// Without what is not compared: claims, and what the reply's entry has seen.
fn telling(flows: &BTreeMap<Tuple, Flow>) -> BTreeMap<Tuple, Flow> {
    let mut flows = flows.clone();
    for flow in flows.values_mut() {
        flow.claim = 0;
        if flow.flags & flow_flags::REPLY != 0 {
            (flow.seen, flow.last_seen) = (0, 0);
        }
    }
    flows
}

const fn device(hook: DeviceHook) -> Device {
    match hook {
        DeviceHook::NodeIngress => Device::NodeIngress,
        DeviceHook::NodeEgress => Device::NodeEgress,
        DeviceHook::PodIngress => Device::PodIngress,
        DeviceHook::PodEgress => Device::PodEgress,
    }
}

const fn verdict(verdict: Verdict) -> model::Verdict {
    match verdict {
        Verdict::On => model::Verdict::Pass,
        Verdict::Shot => model::Verdict::Drop,
        Verdict::Redirect => model::Verdict::Redirect,
    }
}

fn modelled(row: &Row, state: &State, step: &Step) -> Outcome {
    let unspecified = |address: std::net::IpAddr| address.is_unspecified();
    let mut sockets = NodeSockets::default();
    for held in &row.given.sockets {
        let (address, port) = held.end;
        let config = &row.given.config;
        let own = if address.is_ipv4() {
            config.node_v4
        } else {
            config.node_v6
        };
        let address = if unspecified(address) { own } else { address.into() };
        match held.peer {
            None => drop(sockets.bound.insert((held.protocol, address, port))),
            Some(peer) => {
                let sent = connection(held.protocol, [held.end, peer], [held.end, peer]).forward;
                sockets.connected.insert(sent);
            }
        }
    }
    let frame = step.packet.bytes();
    let routes = routes();
    let input = Input {
        hook: device(step.hook),
        frame: &frame,
        own: step.own,
        gso_size: step.gso_size,
        forwards: step.device != CLOSED,
        now: NOW,
        routes: &routes,
        sockets: &sockets,
        rejects: Rejects::default(),
    };
    let observed = Observed {
        counter: step.counter.expect("a counter"),
        frame: &step.out.bytes(),
        flows: &flows(row),
        pick: 0,
    };
    model::expected(state, &input, &observed)
}

/// How the model differs.
fn differences(row: &Row) -> Vec<String> {
    let mut found = Vec::new();
    let mut state = state(row);
    for (index, step) in row.steps.iter().enumerate() {
        let outcome = modelled(row, &state, step);
        let mut differ = |what: &str, row: String, model: String| {
            if row != model {
                found.push(format!(
                    "{what} of packet {index}:\n    row   {row}\n    model {model}"
                ));
            }
        };
        differ(
            "counter",
            format!("{:?}", step.counter),
            format!("{:?}", Some(outcome.counter)),
        );
        differ(
            "verdict",
            format!("{:?}", verdict(step.verdict)),
            format!("{:?}", outcome.verdict),
        );
        differ(
            "packet",
            format!("{:02x?}", step.out.bytes()),
            format!("{:02x?}", outcome.frame),
        );
        let counted = outcome
            .traffic
            .map(|traffic| (traffic.service, traffic.backend, traffic.bytes));
        let expected = matches!(
            step.counter,
            Some(lb_abi::Counter::FlowOpened | lb_abi::Counter::FlowForwarded | lb_abi::Counter::FlowReplied)
        )
        .then_some((step.traffic.0, step.traffic.1, step.packet.traffic()));
        differ("traffic", format!("{expected:?}"), format!("{counted:?}"));
        state.flows = outcome.flows;
        state.affinity = outcome.affinity;
        state.fragments = outcome.fragments;
    }
    let (row_has, model_has) = (telling(&flows(row)), telling(&state.flows));
    if row_has != model_has {
        found.push(format!(
            "CONNTRACK:\n    row   {row_has:#?}\n    model {model_has:#?}"
        ));
    }
    found
}

#[test]
fn the_model_holds_every_row() {
    let rows = rows::all();
    // Of maps that are of another version the model knows nothing.
    let rows: Vec<&Row> = rows
        .iter()
        .filter(|row| row.given.meta == Meta::CURRENT)
        .collect();
    let mut failures = Vec::new();
    for row in &rows {
        let found = differences(row);
        if !found.is_empty() {
            eprintln!("\"{}\"\n  {}\n", row.sentence, found.join("\n  "));
            failures.push(row.sentence.as_str());
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} rows do not hold in the model:\n{}",
        failures.len(),
        rows.len(),
        failures.join("\n")
    );
}
