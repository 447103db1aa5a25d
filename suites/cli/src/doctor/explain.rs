//! `plumbline doctor explain`.

use std::{collections::BTreeSet, net::SocketAddr, process::ExitCode};

use clap::ValueEnum;
use doctor::{
    destination::{Destination, Protocol},
    explain::{End, Explanation, MOST_FOLLOWED, Request, Step},
    resolution::Answer,
};

use super::{HEALTHY, PROBLEMS, Scope, client::Client, look, text};
use crate::terminal;

/// Show what happens to connections to one destination.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
  plumbline doctor explain 172.17.93.4:8080               for any process that connects there
  plumbline doctor explain 172.17.93.4:8080 --pid 4711    for one process, by its cgroups
  plumbline doctor explain 10.96.0.10:53 --protocol udp   connected sockets, and each datagram
  plumbline doctor explain 192.0.2.1:30080 --outside      for packets that come in from outside

Each program gets the destination as the previous one has rewritten it, as in the kernel.
")]
pub(super) struct Arguments {
    /// Destination of the client; IPv6 in brackets
    #[arg(value_name = "ADDRESS:PORT")]
    destination: SocketAddr,
    /// Protocol
    #[arg(long, value_enum, default_value_t = ProtocolArg::Tcp)]
    protocol: ProtocolArg,
    #[command(flatten)]
    client: Client,
    #[command(flatten)]
    scope: Scope,
    /// Print JSON, whose format is documented in `doctor::explain`
    #[arg(long)]
    json: bool,
}

/// A protocol as an option value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ProtocolArg {
    Tcp,
    Udp,
    Sctp,
}

impl From<ProtocolArg> for Protocol {
    fn from(argument: ProtocolArg) -> Self {
        match argument {
            ProtocolArg::Tcp => Self::Tcp,
            ProtocolArg::Udp => Self::Udp,
            ProtocolArg::Sctp => Self::Sctp,
        }
    }
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let examination = look::look(arguments.scope.options(), false).await?;
    let request = Request {
        destination: Destination {
            protocol: arguments.protocol.into(),
            address: arguments.destination.ip(),
            port: arguments.destination.port(),
        },
        outside: arguments.client.outside,
        cgroup: arguments.client.cgroup(&examination)?,
    };
    let explanation = examination.explain(&request)?;
    if arguments.json {
        terminal::print(&format!("{}\n", serde_json::to_string_pretty(&explanation)?))?;
    } else {
        terminal::print(&show(&explanation, text::width()))?;
    }
    Ok(ExitCode::from(if explanation.consistent {
        HEALTHY
    } else {
        PROBLEMS
    }))
}

fn show(explanation: &Explanation, width: u16) -> String {
    let mut shown = explanation.destination.clone();
    if let Some(cgroup) = &explanation.cgroup {
        shown += &format!(", for clients in {}", cgroup.display());
    }
    shown.push_str("\n\n");
    for way in &explanation.ways {
        shown += &format!("{}\n", way.name);
        if way.steps.is_empty() {
            shown.push_str("  no program\n");
        }
        let rows = way.steps.iter().zip(1..).map(|(step, turn): (&Step, u32)| {
            let guess = if step.owner.guess { " ?" } else { "" };
            [
                turn.to_string(),
                format!("{} {}", step.program, step.name),
                format!("{}{guess}", step.owner.whose),
                ids(&step.by_maps),
                addresses(&step.sees),
                makes(step),
                if step.stale.is_some() { "STALE" } else { "" }.to_owned(),
            ]
        });
        if !way.steps.is_empty() {
            let heading = ["TURN", "PROGRAM", "WHOSE", "BY MAPS", "SEES", "MAKES OF IT", ""];
            shown += &text::table(heading, rows, 2, width);
        }
        let end = match &way.end {
            End::Reaches { addresses: to, .. } => format!("then: {}", addresses(to)),
            End::Stopped { answer, .. } => format!("then: {answer}"),
        };
        shown += &text::paragraph(&end, 2, width);
        shown.push('\n');
    }
    shown + &text::paragraph(&explanation.conclusion, 0, width)
}

fn makes(step: &Step) -> String {
    match &step.answer {
        Answer::NotAService => "leaves it alone".to_owned(),
        other => other.to_string(),
    }
}

fn ids(ids: &[u32]) -> String {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    ids.join(", ")
}

fn addresses(addresses: &BTreeSet<SocketAddr>) -> String {
    /// Limit of entries in a cell.
    const SHOWN: usize = 3;
    let mut shown: Vec<String> = addresses.iter().take(SHOWN).map(ToString::to_string).collect();
    match addresses.len() {
        MOST_FOLLOWED.. => shown.push(format!("and others (more than {MOST_FOLLOWED} are not followed)")),
        count if count > SHOWN => shown.push(format!("and {} others", count - SHOWN)),
        _ => {}
    }
    shown.join(", ")
}
