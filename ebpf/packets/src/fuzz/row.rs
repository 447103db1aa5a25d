//! A difference, printed as a row of a packet table: what goes in and what should come out, ready to be pasted; what came
//! out instead stands after it.
//!
//! Packets are bytes here. A pasted row gets a sentence, and packets that are built as the others are.

use std::{
    fmt::{self, Write as _},
    net::IpAddr,
};

use lb_abi::{Address, Counter, Flow, Port, SCTP, TCP, Tuple, UDP, flow_flags};

use super::{
    compare::{Difference, hex},
    kernel::Shot,
    shrink::Mismatch,
};
use crate::{
    model::{Outcome, State, Verdict},
    table::allocated,
};

/// What was put in, what should have come out, and what did.
#[derive(Clone, Debug)]
pub struct Row {
    seed: u64,
    case: u64,
    state: State,
    now: u32,
    shot: Shot,
    outcome: Outcome,
    differences: Vec<Difference>,
}

impl Row {
    pub(super) fn new(seed: u64, case: u64, mismatch: Mismatch) -> Self {
        Self {
            seed,
            case,
            state: mismatch.state,
            now: mismatch.now,
            shot: mismatch.shot,
            outcome: mismatch.outcome,
            differences: mismatch.differences,
        }
    }

    /// What differs.
    pub fn differences(&self) -> &[Difference] {
        &self.differences
    }

    /// Entries of all maps that it takes.
    pub fn entries(&self) -> usize {
        self.state.entries()
    }

    fn given(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State {
            addresses,
            frontends,
            services,
            slots,
            backends,
            sources,
            affinity,
            flows,
            fragments,
            config,
        } = &self.state;
        let age = |then: u32| self.now.wrapping_sub(then).cast_signed();
        writeln!(f, "        Given::default()")?;
        writeln!(
            f,
            "            .config(Config {{ node_v4: {}, node_v6: {}, snat_first: {}, snat_last: {}, local_first: {}, \
             local_last: {}, rejects_per_second: {}, service_ranges: {:?}, ..Config::NONE }})",
            address(config.node_v4),
            address(config.node_v6),
            config.snat_first,
            config.snat_last,
            config.local_first,
            config.local_last,
            config.rejects_per_second,
            config.service_ranges
        )?;
        for (key, flags) in addresses {
            writeln!(f, "            .address({}, {flags})", address(*key))?;
        }
        for (key, value) in frontends {
            let at = end(key.address, key.port);
            writeln!(
                f,
                "            .frontend({at}, {}, {value:?})",
                protocol(key.protocol)
            )?;
        }
        for (id, value) in services {
            writeln!(f, "            .with(Entry::Service({id}, {value:?}))")?;
        }
        for (key, backend) in slots {
            writeln!(f, "            .with(Entry::Slot({key:?}, {backend}))")?;
        }
        for (id, backend) in backends {
            writeln!(
                f,
                "            .with(Entry::Backend({id}, Backend {{ address: {}, port: Port::new({}), protocol: {}, \
                 flags: {} }}))",
                address(backend.address),
                backend.port.get(),
                protocol(backend.protocol),
                backend.flags
            )?;
        }
        for range in sources {
            writeln!(
                f,
                "            .with(Entry::Source(SourceKey {{ prefix_length: {}, service: {:?}, address: {} }}))",
                range.prefix_length,
                range.service,
                address(range.address)
            )?;
        }
        for (key, value) in affinity {
            writeln!(
                f,
                "            .with(Entry::Affinity(AffinityKey {{ service: {}, kind: 0, client: {} }}, {}, {}))",
                key.service,
                address(key.client),
                value.backend,
                age(value.seconds)
            )?;
        }
        for (key, value) in fragments {
            writeln!(
                f,
                "            .with(Entry::Fragment(FragmentKey {{ source: {}, destination: {}, id: {:?}, protocol: {}, \
                 pad: [0; 3] }}, [Port::new({}), Port::new({})], {}, {}))",
                address(key.source),
                address(key.destination),
                key.id,
                protocol(key.protocol),
                value.source.get(),
                value.destination.get(),
                value.held,
                age(value.seconds)
            )?;
        }
        for (key, flow) in flows {
            writeln!(f, "            .connection({})", connection(key, flow, self.now))?;
        }
        Ok(())
    }

    fn becomes(&self) -> String {
        let Outcome {
            verdict,
            counter,
            frame,
            ..
        } = &self.outcome;
        let translated = matches!(
            counter,
            Counter::FlowOpened | Counter::FlowForwarded | Counter::FlowReplied | Counter::FlowRelated
        );
        let out = format!("{counter:?}, frame(\"{}\")", hex(frame));
        match verdict {
            Verdict::Drop => format!("dropped({counter:?})"),
            Verdict::Pass if *frame == self.shot.frame => format!("left_alone({counter:?})"),
            Verdict::Pass => format!("passed_on({out})"),
            Verdict::Redirect if translated => format!("routed({out})"),
            Verdict::Redirect => format!("answered({out})"),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shot, outcome, .. } = self;
        writeln!(
            f,
            "// let ip = |text: &str| -> IpAddr {{ text.parse().expect(\"an address\") }};"
        )?;
        writeln!(f, "row(\"seed {}, case {}\")", self.seed, self.case)?;
        writeln!(f, "    .given(")?;
        self.given(f)?;
        writeln!(f, "    )")?;
        writeln!(
            f,
            "    .packet_at({:?}, {}, frame(\"{}\"))",
            shot.hook,
            shot.ifindex,
            hex(&shot.frame)
        )?;
        if shot.own {
            writeln!(f, "    .own()")?;
        }
        if shot.gso_size != 0 {
            writeln!(f, "    .segments({})", shot.gso_size)?;
        }
        write!(f, "    .{}", self.becomes())?;
        if let Some(traffic) = outcome.traffic {
            write!(f, "\n    .counted_for({}, {})", traffic.service, traffic.backend)?;
        }
        if outcome.flows != self.state.flows {
            write!(f, "\n    .leaves([")?;
            for (key, flow) in &outcome.flows {
                write!(f, "\n        {},", connection(key, flow, self.now))?;
            }
            write!(f, "\n    ])")?;
        }
        writeln!(f, ",")?;
        for difference in &self.differences {
            writeln!(f, "// {difference}")?;
        }
        Ok(())
    }
}

fn address(address: Address) -> String {
    format!("ip(\"{}\").into()", IpAddr::from(address))
}

fn end(address: Address, port: Port) -> String {
    format!("(ip(\"{}\"), {})", IpAddr::from(address), port.get())
}

fn protocol(number: u8) -> String {
    match number {
        TCP => "TCP".to_owned(),
        UDP => "UDP".to_owned(),
        SCTP => "SCTP".to_owned(),
        other => other.to_string(),
    }
}

/// One entry of CONNTRACK, as the connection that it is one half of.
fn connection(key: &Tuple, flow: &Flow, now: u32) -> String {
    let reply = flow.flags & flow_flags::REPLY != 0;
    let (forward, to) = if reply {
        (flow.to.inverse(), key.inverse())
    } else {
        (*key, flow.to)
    };
    let ends = |tuple: &Tuple| {
        format!(
            "[{}, {}]",
            end(tuple.source, tuple.source_port),
            end(tuple.destination, tuple.destination_port)
        )
    };
    let mut text = format!(
        "connection({}, {}, {})",
        protocol(key.protocol),
        ends(&forward),
        ends(&to)
    );
    let half = if reply { "without_forward" } else { "without_reply" };
    let age = now.wrapping_sub(flow.last_seen).cast_signed();
    write!(
        text,
        ".seen({}).age({age}).by({}, {}).{half}()",
        flow.seen, flow.service, flow.backend
    )
    .expect("a String takes everything");
    const ALLOCATED: u32 = flow_flags::SNAT | flow_flags::OTHER_PORT;
    let told = allocated(&forward, &to);
    if flow.flags & ALLOCATED != told {
        text.push_str(" /* SNAT otherwise than its ends say */");
    }
    text
}
