//! What becomes of one destination: through the socket programs of a cgroup in the order in which the kernel runs them,
//! each given what the one before has made of it; then by the packet programs of devices.
//!
//! | file | what |
//! |---|---|
//! | `walk` | one chain of programs |
//! | `conclude` | what it comes to, in words |
//!
//! An explanation is of the moment, and of the maps: what a program of unknown layout does is not known, and said so.

mod conclude;
#[cfg(test)]
mod tests;
mod walk;

use std::{collections::BTreeSet, net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Serialize};

use self::walk::{Chain, walk};
use super::{
    layout::From,
    map_bytes::MapBytes,
    report::{Attachment, Direction, Layer, Owner, Place, Report, SCHEMA, Stale},
    resolution::Answer,
};
use crate::destination::{Destination, Family, Protocol};

/// Most destinations that are carried from one program to the next: a service with more backends is followed by these.
pub const MOST_FOLLOWED: usize = 64;

/// What is to be explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where the client wants to go.
    pub destination: Destination,
    /// Whether the client is outside of this node: its packets come in by a device.
    pub outside: bool,
    /// The client's cgroup.
    pub cgroup: PathBuf,
}

/// What becomes of a destination. Of the same [`SCHEMA`] as a [`Report`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// [`SCHEMA`] of the program that wrote it.
    pub schema: u32,
    /// The destination, as `TCP 10.96.0.1:443`.
    pub destination: String,
    /// The cgroup whose programs were asked; absent for clients from outside.
    pub cgroup: Option<PathBuf>,
    /// The ways that there are: one for each hook by which a socket can get there, then devices.
    pub ways: Vec<Way>,
    /// Whether the programs agree, and no stale one decides.
    pub consistent: bool,
    /// Programs that send clients elsewhere than the current one would.
    pub culprits: Vec<u32>,
    /// What it comes to.
    pub conclusion: String,
}

/// One way: a chain of programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// As `connect4`, or `ingress of eth0`.
    pub name: String,
    /// The programs, in the order in which they run.
    pub steps: Vec<Step>,
    /// What comes out.
    pub end: End,
}

/// What comes out of a way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum End {
    /// The client gets to one of these. The destination itself: no program has changed it.
    Reaches {
        /// Addresses; at most [`MOST_FOLLOWED`].
        addresses: BTreeSet<SocketAddr>,
        /// The program that made them of the destination; absent: none did.
        by: Option<u32>,
        /// Conditions under which that is so.
        only_if: Vec<String>,
    },
    /// The connection is refused, or the packet dropped.
    Stopped {
        /// By this program.
        by: u32,
        /// What it does.
        answer: Answer,
    },
}

/// One program on the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Where it is attached.
    pub place: Place,
    /// Its id.
    pub program: u32,
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub owner: Owner,
    /// The maps by which it decides, if their layout is known: its own, or those of what it goes on as by tail calls.
    pub by_maps: Vec<u32>,
    /// What it is given.
    pub sees: BTreeSet<SocketAddr>,
    /// What it makes of that. Of several destinations: of those that it changes, or else of the first.
    pub answer: Answer,
    /// What it would make of the client's own destination, if it were the only one.
    pub alone: Answer,
    /// Why it is stale.
    pub stale: Option<Stale>,
}

/// Explains a destination. `effective`: the programs that the kernel runs at a hook (`connect4`) for the cgroup, in
/// its order.
///
/// # Errors
/// What `effective` says.
pub fn explain<E>(
    report: &Report,
    bytes: &dyn MapBytes,
    request: &Request,
    effective: impl Fn(&str) -> Result<Vec<u32>, E>,
) -> Result<Explanation, E> {
    let mut ways = Vec::new();
    let chain = Chain { report, bytes };
    let wanted = request.destination;
    if !request.outside {
        for hook in hooks(wanted) {
            let programs = effective(hook)?;
            let attachments = programs
                .into_iter()
                .filter_map(|id| attachment_of(report, request, hook, id))
                .map(|attachment| (attachment, From::Socket))
                .collect();
            ways.push(walk(
                &chain,
                (*hook).to_owned(),
                wanted,
                BTreeSet::new(),
                attachments,
            ));
        }
    }
    // What the first way makes of it is what packets are sent to.
    let sent = match ways.first().map(|way| &way.end) {
        Some(End::Reaches { addresses, .. }) => Some(addresses.clone()),
        Some(End::Stopped { .. }) => None,
        None => Some(BTreeSet::new()),
    };
    if let Some(sent) = sent {
        ways.extend(devices(&chain, request, &sent));
    }
    let mut explanation = Explanation {
        schema: SCHEMA,
        destination: wanted.to_string(),
        cgroup: (!request.outside).then(|| request.cgroup.clone()),
        ways,
        consistent: true,
        culprits: Vec::new(),
        conclusion: String::new(),
    };
    conclude::conclude(&mut explanation, request);
    Ok(explanation)
}

/// Hooks by which a socket gets somewhere. The kernel has none for SCTP.
const fn hooks(destination: Destination) -> &'static [&'static str] {
    match (destination.protocol, Family::of(destination.address)) {
        (Protocol::Tcp, Family::V4) => &["connect4"],
        (Protocol::Tcp, Family::V6) => &["connect6"],
        (Protocol::Udp, Family::V4) => &["connect4", "sendmsg4"],
        (Protocol::Udp, Family::V6) => &["connect6", "sendmsg6"],
        (Protocol::Sctp, _) => &[],
    }
}

/// The attachment by which a program runs for the cgroup.
fn attachment_of<'a>(report: &'a Report, request: &Request, hook: &str, id: u32) -> Option<&'a Attachment> {
    let at = |attachment: &&Attachment| attachment.program == id && attachment.place.hook() == hook;
    let here = |attachment: &&Attachment| match &attachment.place {
        Place::Cgroup { path: Some(path), .. } => request.cgroup.starts_with(path),
        _ => false,
    };
    let mut there = report.attachments.iter().filter(at);
    there.clone().find(here).or_else(|| there.next())
}

/// Ways of packets, device by device: those on which a program could change something.
fn devices(chain: &Chain<'_>, request: &Request, sent: &BTreeSet<SocketAddr>) -> Vec<Way> {
    let mut seen = BTreeSet::new();
    let mut ways = Vec::new();
    for attachment in &chain.report.attachments {
        let Place::Device {
            index,
            name: Some(name),
            direction,
            ..
        } = &attachment.place
        else {
            continue;
        };
        if !seen.insert((*index, *direction)) {
            continue;
        }
        let on_the_way: Vec<(&Attachment, From)> = chain
            .report
            .attachments
            .iter()
            .filter(|other| match &other.place {
                Place::Device {
                    index: at,
                    name: Some(_),
                    direction: way,
                    ..
                } => (at, way) == (index, direction),
                _ => false,
            })
            .filter_map(|other| Some((other, client(chain, other, request)?)))
            .collect();
        if !on_the_way.is_empty() {
            ways.push(walk(
                chain,
                format!("{direction} of {name}"),
                request.destination,
                sent.clone(),
                on_the_way,
            ));
        }
    }
    ways
}

/// As whose packets a device program takes what it sees; `None`: the client's packets do not come by there. Which
/// programs are at devices of the network, and which at those of pods, is told by their names.
fn client(chain: &Chain<'_>, attachment: &Attachment, request: &Request) -> Option<From> {
    const FROM_NETWORK: [&str; 3] = ["node_ingress", "cil_from_netdev", "cil_xdp_entry"];
    let Place::Device { layer, direction, .. } = &attachment.place else {
        return None;
    };
    let name = &chain.report.programs.get(&attachment.program)?.name;
    let from_network = *layer == Layer::Xdp || FROM_NETWORK.contains(&name.as_str());
    match (request.outside, from_network, direction) {
        (true, _, Direction::Ingress) => Some(From::Outside),
        (true, _, Direction::Egress) | (false, true, _) => None,
        (false, false, _) => Some(From::Inside),
    }
}
