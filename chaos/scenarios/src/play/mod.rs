//! Plays a scenario in two new clusters at once, and compares after each step.
//!
//! Time decides nothing. After each write, the harness's fence waits until both clusters have applied it on every node,
//! before a client does anything. An exchange that differs is repeated in both clusters, until it no longer differs or
//! the tries are used up; so a delay in one of them is no difference. Only a permanent loss of a socket is not
//! repeated: a connection that ended, a backend that was left.
//!
//! Files: `finding.rs` (a difference), `side.rs` (one cluster), `clients.rs` (its clients), `churn.rs` (what chaos does there), `objects.rs` (Services as
//! objects), `staging.yaml` (the other objects).
mod churn;
mod clients;
mod finding;
mod objects;
mod side;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use harness::verdict::Halt;
use lab::LabError;

use clients::Exchange;
pub use finding::Finding;
pub use side::LabSpec;
use side::Side;

use crate::{
    compare::{Aspect, Difference, KeptSocket, Subject, permitted::Permitted},
    observation::{Observation, Outcome},
    state::State,
    step::{Open, Protocol, Step},
};

/// Fresh sockets of one step.
const FRESH: u32 = 4;
/// Datagrams of a kept socket in one step: enough to see whether the socket changes its backend by chance.
const DATAGRAMS: u32 = 4;
/// Limit of repetitions of an exchange that differs.
const AGAIN: u32 = 6;
/// Wait before the first repetition; each further wait is longer by this.
const WAIT: Duration = Duration::from_millis(250);
/// Limit of an exchange; repetitions get more time, because the machine may be slow.
const LIMIT: Duration = Duration::from_millis(1000);
const PATIENT: Duration = Duration::from_secs(3);
/// Fresh sockets that show all reached endpoints: 14 for each of four, as in the catalogue.
const ENOUGH: usize = 56;

/// Limit of findings of a scenario: more would show nothing new.
const FINDINGS: usize = 12;

/// Why a scenario could not be played to its end. These are no differences.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// The lab.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// An error of the API, a client, or the fence.
    #[error("{0}")]
    Halt(#[from] Halt),
    /// The staged objects are not in the expected state.
    #[error("{why}")]
    NotStaged {
        /// The reason.
        why: String,
    },
    /// Histories can't be written.
    #[error("failed to write to {}: {error}", path.display())]
    Folder {
        /// Path of the file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
}

/// Receives progress while a scenario is played.
pub trait Progress: Send + Sync {
    /// A step begins.
    fn step(&self, number: usize, step: &Step);
}

/// Result of a scenario.
#[derive(Clone, Debug, Default)]
pub struct Played {
    /// Findings in the order in which they were seen.
    pub findings: Vec<Finding>,
    /// The number of times that each permitted difference was seen.
    pub permitted: BTreeMap<&'static str, usize>,
    /// Exchanges that were compared.
    pub compared: usize,
    /// Exchanges that were answered in both clusters.
    pub answered: usize,
}

/// Two running clusters.
pub struct Twins {
    sides: [Side; 2],
    state: State,
    /// Backend and destination of each kept socket's last exchange.
    kept: BTreeMap<u8, KeptSocket>,
    /// Sockets after a permitted difference: from then on they have another history in each cluster.
    parted: BTreeSet<u8>,
    deviations: BTreeSet<String>,
    played: Played,
}

impl Twins {
    /// Starts both clusters. Histories are written to the folder.
    ///
    /// # Errors
    /// One of them does not start; then the other is removed as well.
    pub async fn up(name: &str, make: [&LabSpec; 2], folder: &Path) -> Result<Self, PlayError> {
        let (names, folders) = (["a", "b"], ["a", "b"].map(|side| folder.join(side)));
        let names = names.map(|side| format!("{name}-{side}"));
        let sides = futures::future::try_join(
            Side::up(&names[0], make[0], &folders[0]),
            Side::up(&names[1], make[1], &folders[1]),
        );
        let sides = <[Side; 2]>::from(sides.await?);
        let deviations = sides.iter().flat_map(Side::deviations).collect();
        Ok(Self {
            sides,
            state: State::default(),
            kept: BTreeMap::new(),
            parted: BTreeSet::new(),
            deviations,
            played: Played::default(),
        })
    }

    /// Plays steps in turn, to the last one or to the limit of findings.
    ///
    /// # Errors
    /// The scenario can't continue.
    pub async fn play(&mut self, steps: &[Step], progress: &dyn Progress) -> Result<Played, PlayError> {
        for (number, step) in steps.iter().enumerate() {
            // A file may contain any steps.
            let Some(next) = self.state.after(step) else {
                continue;
            };
            progress.step(number, step);
            let before = std::mem::replace(&mut self.state, next);
            self.make(number, step, &before).await?;
            if self.played.findings.len() >= FINDINGS {
                break;
            }
        }
        for side in &self.sides {
            side.intact().await?;
        }
        Ok(std::mem::take(&mut self.played))
    }

    /// Removes both clusters.
    ///
    /// # Errors
    /// Something can't be removed.
    pub async fn down(self) -> Result<(), PlayError> {
        let [a, b] = self.sides;
        let (a, b) = futures::future::join(a.down(), b.down()).await;
        a.and(b)
    }

    async fn make(&mut self, number: usize, step: &Step, before: &State) -> Result<(), PlayError> {
        match step {
            Step::Write(changes) => {
                let [a, b] = &self.sides;
                let writes = [a, b].map(|side| side.write(&before.services, changes));
                futures::future::try_join_all(writes).await?;
                let settled = self.sides.iter_mut().map(Side::settle);
                futures::future::try_join_all(settled).await?;
                self.forget_closed();
                return self.go_on(number).await;
            }
            Step::Chaos(actions) => {
                let played = self
                    .sides
                    .iter_mut()
                    .map(|side| side.chaos(&before.world, actions));
                futures::future::try_join_all(played).await?;
                self.forget_closed();
                return self.go_on(number).await;
            }
            Step::Dial(dial) => {
                let open = Open {
                    socket: 0,
                    from: dial.from,
                    protocol: dial.protocol,
                    to: dial.to,
                    source_port: dial.source_port,
                };
                self.compare(number, &open, None, &dial.fragments).await?;
            }
            Step::Open(open) => {
                self.kept.insert(open.socket, KeptSocket::default());
                self.compare(number, open, Some(open.socket), &[]).await?;
            }
            Step::Send(send) => {
                let open = &self.state.sockets[&send.socket].clone();
                let is_led_elsewhere = before.sockets[&send.socket].to != send.to;
                if is_led_elsewhere {
                    self.kept.insert(send.socket, KeptSocket::default());
                }
                self.compare(number, open, Some(send.socket), &send.fragments)
                    .await?;
            }
            Step::Close { .. } => self.forget_closed(),
            Step::Serve { node, port } => {
                let begin = self.sides.iter_mut().map(|side| side.serve(*node, *port));
                futures::future::try_join_all(begin).await?;
                return self.go_on(number).await;
            }
            Step::EndServing { node, port } => {
                for side in &mut self.sides {
                    side.end_serving(*node, *port).await;
                }
                return self.go_on(number).await;
            }
        }
        Ok(())
    }

    /// Forgets kept sockets that the scenario has closed.
    fn forget_closed(&mut self) {
        let sockets = &self.state.sockets;
        let closed: Vec<u8> = self
            .kept
            .keys()
            .filter(|one| !sockets.contains_key(one))
            .copied()
            .collect();
        for socket in closed {
            self.kept.remove(&socket);
            self.parted.remove(&socket);
            for side in &mut self.sides {
                side.close(socket);
            }
        }
    }

    /// All kept sockets send again, to their destinations.
    async fn go_on(&mut self, number: usize) -> Result<(), PlayError> {
        let open: Vec<Open> = self.state.sockets.values().cloned().collect();
        for open in open {
            self.compare(number, &open, Some(open.socket), &[]).await?;
        }
        Ok(())
    }

    /// Compares one exchange in both clusters, until it does not differ or the tries are used up.
    async fn compare(
        &mut self,
        number: usize,
        open: &Open,
        socket: Option<u8>,
        fragments: &[u8],
    ) -> Result<(), PlayError> {
        let Some(to) = objects::destination(&self.state, open.to) else {
            return Ok(());
        };
        if socket.is_some_and(|socket| self.parted.contains(&socket)) {
            return Ok(());
        }
        self.played.compared += 1;
        let is_one = socket.is_some() || open.source_port.is_some();
        let mut exchange = Exchange {
            from: open.from,
            protocol: open.protocol,
            to,
            source_port: open.source_port,
            fragments,
            sockets: if is_one { 1 } else { FRESH },
            stays: false,
            limit: LIMIT,
        };
        let mut seen: [Vec<Observation>; 2] = Default::default();
        let mut differences = Vec::new();
        let kept = socket.and_then(|socket| self.kept.get(&socket));
        exchange.stays = kept.is_some_and(|kept| kept.is_connected);
        for again in 0..=AGAIN {
            let new = self.exchange(&exchange, socket).await?;
            let subject = Subject {
                from: open.from,
                protocol: open.protocol,
                to: open.to,
                source_port: open.source_port,
                kept: socket.and_then(|socket| self.kept.get(&socket).cloned()),
                state: &self.state,
            };
            // The reached endpoint is chance, so results add up. Any other difference may be a delay, so results
            // replace earlier ones.
            let only_chance = differences
                .iter()
                .all(|one: &Difference| one.aspect == Aspect::Served);
            if again == 0 || !only_chance {
                seen = new;
            } else {
                seen.iter_mut().zip(new).for_each(|(all, new)| all.extend(new));
            }
            differences = subject.differences([&seen[0], &seen[1]], &self.deviations);
            differences.retain(|one| one.permitted.is_none() || again == 0);
            let open_ones = || differences.iter().filter(|one| one.permitted.is_none());
            let is_enough = seen[0].len() >= ENOUGH;
            let is_final = open_ones().any(|one| lasts(one, &seen, open.protocol, socket.is_some()));
            if open_ones().next().is_none() || is_final {
                break;
            }
            exchange.stays = socket.is_some() && is_connected(open.protocol, &seen);
            exchange.limit = PATIENT;
            if only(&differences, Aspect::Served) {
                exchange.sockets = 2 * FRESH;
                if is_enough {
                    break;
                }
            } else {
                tokio::time::sleep(WAIT * (again + 1)).await;
            }
        }
        let is_answered = |seen: &Vec<Observation>| seen.iter().any(|one| one.outcome == Outcome::Answered);
        self.played.answered += usize::from(seen.iter().all(is_answered));
        if let Some(socket) = socket {
            self.note(socket, open.protocol, &seen, &differences);
        }
        for difference in &differences {
            match difference.permitted {
                Some(Permitted { what, .. }) => *self.played.permitted.entry(what).or_default() += 1,
                None => {
                    let finding = Finding::new(number, open, socket, &self.state, difference, &seen);
                    self.played.findings.push(finding);
                }
            }
        }
        Ok(())
    }

    async fn exchange(
        &mut self,
        exchange: &Exchange<'_>,
        socket: Option<u8>,
    ) -> Result<[Vec<Observation>; 2], PlayError> {
        let one = async |side: &mut Side| {
            let Some(socket) = socket else {
                return side.fresh(exchange).await;
            };
            let is_connection = exchange.protocol == Protocol::Tcp;
            let times = if is_connection { 1 } else { DATAGRAMS };
            let mut all: Vec<Observation> = Vec::new();
            for number in 0..times {
                let stays = exchange.stays || (number > 0 && !is_refused(&all));
                all.extend(side.kept(socket, &Exchange { stays, ..*exchange }).await?);
                // Further datagrams would get no answer either.
                if all.last().is_some_and(|one| one.outcome == Outcome::Silent) {
                    break;
                }
            }
            Ok(all)
        };
        let [a, b] = &mut self.sides;
        let both = futures::future::try_join(one(a), one(b)).await?;
        Ok(both.into())
    }

    /// Records the result of a kept socket's exchange.
    fn note(
        &mut self,
        socket: u8,
        protocol: Protocol,
        seen: &[Vec<Observation>; 2],
        differences: &[Difference],
    ) {
        let kept = self.kept.entry(socket).or_default();
        kept.is_connected = is_connected(protocol, seen);
        for (before, seen) in kept.before.iter_mut().zip(seen) {
            if let Some(by) = seen.iter().rev().find_map(|one| one.by.clone()) {
                *before = Some(by);
            }
        }
        if differences
            .iter()
            .any(|one| matches!(one.aspect, Aspect::Outcome | Aspect::Moved))
        {
            self.parted.insert(socket);
        }
    }
}

fn is_refused(seen: &[Observation]) -> bool {
    seen.last().is_some_and(|one| one.outcome == Outcome::Refused)
}

/// Whether a kept socket is connected to its new destination: if socket programs refuse a UDP `connect`, the socket
/// keeps its old destination.
fn is_connected(protocol: Protocol, seen: &[Vec<Observation>; 2]) -> bool {
    protocol != Protocol::UdpConnected || !seen.iter().any(|one| is_refused(one))
}

/// Whether another try can't show the difference again: a connection that has ended, a socket that has left its
/// backend.
fn lasts(difference: &Difference, seen: &[Vec<Observation>; 2], protocol: Protocol, is_kept: bool) -> bool {
    let ended = |one: &Observation| match one.outcome {
        Outcome::Cut => true,
        Outcome::Refused | Outcome::Odd => protocol == Protocol::Tcp,
        Outcome::Answered | Outcome::Silent | Outcome::NotBound => false,
    };
    let has_ended = protocol != Protocol::Udp && seen.iter().flatten().any(ended);
    difference.aspect == Aspect::Moved || is_kept && has_ended
}

fn only(differences: &[Difference], aspect: Aspect) -> bool {
    differences
        .iter()
        .filter(|one| one.permitted.is_none())
        .all(|one| one.aspect == aspect)
}
