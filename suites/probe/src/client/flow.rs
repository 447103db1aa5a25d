//! Established flows: sockets that live as long as their entry, and exchanges on them at an even pace.
//!
//! Requests are sent at their times, whether earlier ones have been answered or not. An error of a socket fails every
//! exchange that is under way on it, or the next one if none is, so that no end is missed; the exchange after that
//! opens another socket. A UDP socket that is not connected survives its errors, and goes on with its port: to a
//! datapath it is one flow.

use std::{collections::VecDeque, io, net::SocketAddr, sync::Arc, time::Duration};

use oracle::history::{Attempt, Exchange, Outcome, PlanEntry, Stage};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    attempt::{Trace, symbol},
    socket::Socket,
};
use crate::{clock, wire};

/// Limit of exchanges of one flow that are under way, and of requests that its socket has not accepted yet; at this
/// limit no more begin.
pub const UNDER_WAY: usize = 512;

/// One flow.
pub(super) struct Flow {
    client: Arc<str>,
    /// Unique for the flow: first part of its nonces.
    prefix: String,
    entry: Arc<PlanEntry>,
    number: u32,
    sender: mpsc::Sender<Attempt>,
    begin: Instant,
    /// Number of the next start time.
    turn: u32,
    sequence: u32,
    socket: u32,
}

/// An exchange that is under way.
struct Pending {
    sequence: u32,
    nonce: String,
    start_us: u64,
    deadline: Instant,
}

/// A socket, and the exchanges under way on it.
struct Lane {
    socket: Socket,
    local: Option<SocketAddr>,
    pending: VecDeque<Pending>,
    unsent: VecDeque<Vec<u8>>,
    begun: Vec<u8>,
    /// Its socket has failed.
    is_over: bool,
}

/// The next event of a lane.
enum Next {
    Turn,
    Sent(io::Result<()>),
    Received(io::Result<(Vec<u8>, SocketAddr)>),
    Overdue,
}

impl Flow {
    /// The flows of an entry start one after the other within one interval.
    pub(super) fn new(
        client: Arc<str>,
        prefix: &str,
        entry: Arc<PlanEntry>,
        number: u32,
        sender: mpsc::Sender<Attempt>,
    ) -> Self {
        let interval = Duration::from_millis(entry.interval_ms);
        let offset = interval * number / entry.flows.unwrap_or_default().max(1);
        Self {
            client,
            prefix: format!("{prefix}-{number}"),
            entry,
            number,
            sender,
            begin: Instant::now() + offset,
            turn: 0,
            sequence: 0,
            socket: 0,
        }
    }

    pub(super) async fn run(mut self) {
        while let Some(at) = self.next_turn() {
            sleep_until(at).await;
            let first = self.begin_exchange();
            let mut trace = Trace {
                stage: Stage::Socket,
                local: None,
            };
            let destination = self.destination();
            let source = self.entry.source_port(self.number);
            let opening = Socket::open(self.entry.transport, destination, source, &mut trace);
            match timeout_at(first.deadline, opening).await {
                Ok(Ok(socket)) => {
                    let lane = Lane {
                        unsent: [self.request(&socket, &first)].into(),
                        socket,
                        local: trace.local,
                        pending: [first].into(),
                        begun: Vec::new(),
                        is_over: false,
                    };
                    self.talk(lane).await;
                }
                Ok(Err(error)) => {
                    let (stage, errno) = (trace.stage, symbol(&error));
                    self.report(first, trace.local, Outcome::Failed { stage, errno })
                        .await;
                }
                Err(_) => {
                    let stage = trace.stage;
                    self.report(first, trace.local, Outcome::Timeout { stage }).await;
                }
            }
            self.socket += 1;
        }
    }

    /// Exchanges on one socket, until it fails or all have ended.
    async fn talk(&mut self, mut lane: Lane) {
        loop {
            let room = lane.pending.len() < UNDER_WAY && lane.unsent.len() < UNDER_WAY;
            let turn = self.next_turn();
            let overdue = lane.pending.front().map(|pending| pending.deadline);
            if turn.is_none() && overdue.is_none() {
                return;
            }
            let next = tokio::select! {
                () = sleep_until(turn.unwrap_or_else(Instant::now)), if turn.is_some() && room => Next::Turn,
                sent = lane.socket.send(&mut lane.unsent), if !lane.unsent.is_empty() => Next::Sent(sent),
                received = lane.socket.receive(&mut lane.begun) => Next::Received(received),
                () = sleep_until(overdue.unwrap_or_else(Instant::now)), if overdue.is_some() => Next::Overdue,
            };
            match next {
                Next::Turn => {
                    let pending = self.begin_exchange();
                    let request = self.request(&lane.socket, &pending);
                    lane.unsent.push_back(request);
                    lane.pending.push_back(pending);
                }
                Next::Sent(Ok(())) => {}
                Next::Received(Ok((message, peer))) => self.received(&mut lane, &message, peer).await,
                Next::Overdue => {
                    let stage = lane.stage();
                    if let Some(pending) = lane.pending.pop_front() {
                        self.report(pending, lane.local, Outcome::Timeout { stage }).await;
                    }
                }
                Next::Sent(Err(error)) => self.failed(&mut lane, Stage::Send, &error).await,
                Next::Received(Err(error)) => self.failed(&mut lane, Stage::Receive, &error).await,
            }
            if lane.is_over {
                return;
            }
        }
    }

    /// An answer ends its exchange. An answer after the exchange's limit is skipped.
    async fn received(&mut self, lane: &mut Lane, message: &[u8], peer: SocketAddr) {
        let (pending, outcome) = match wire::answer(message) {
            Ok(answer) => {
                let of = |pending: &Pending| pending.nonce == answer.nonce;
                let at = lane.pending.iter().position(of);
                let pending = at.and_then(|at| lane.pending.remove(at));
                (pending, Outcome::Answered { answer, peer })
            }
            Err(said) => (lane.pending.pop_front(), Outcome::Garbled { said }),
        };
        if let Some(pending) = pending {
            self.report(pending, lane.local, outcome).await;
        }
    }

    /// The request of an exchange.
    fn request(&self, socket: &Socket, pending: &Pending) -> Vec<u8> {
        if self.entry.one_way {
            wire::one_way(&pending.nonce)
        } else {
            socket.request(&pending.nonce, true)
        }
    }

    async fn failed(&mut self, lane: &mut Lane, stage: Stage, error: &io::Error) {
        lane.is_over = !matches!(lane.socket, Socket::Unconnected(..));
        lane.unsent.clear();
        if lane.pending.is_empty() {
            let unseen = self.begin_exchange();
            lane.pending.push_back(unseen);
        }
        let errno = symbol(error);
        for pending in std::mem::take(&mut lane.pending) {
            let errno = errno.clone();
            self.report(pending, lane.local, Outcome::Failed { stage, errno })
                .await;
        }
    }

    /// Start time of the next exchange; none after `count`. Times that are late by more than an interval are skipped: a
    /// flow does not make up for a delay.
    fn next_turn(&mut self) -> Option<Instant> {
        let interval = Duration::from_millis(self.entry.interval_ms);
        let at = |turn: u32| self.begin + interval * turn;
        while self.turn < self.entry.count && at(self.turn + 1) < Instant::now() {
            self.turn += 1;
        }
        (self.turn < self.entry.count).then(|| at(self.turn))
    }

    fn begin_exchange(&mut self) -> Pending {
        let pending = Pending {
            sequence: self.sequence,
            nonce: format!("{}-{}", self.prefix, self.sequence),
            start_us: clock::now_us(),
            deadline: Instant::now() + Duration::from_millis(self.entry.limit_ms),
        };
        self.sequence += 1;
        self.turn += 1;
        pending
    }

    async fn report(&self, pending: Pending, local: Option<SocketAddr>, outcome: Outcome) {
        let attempt = Attempt {
            start_us: pending.start_us,
            end_us: clock::now_us(),
            client: self.client.to_string(),
            target: self.entry.target.clone(),
            transport: self.entry.transport,
            destination: self.destination(),
            local,
            nonce: pending.nonce,
            exchange: Some(Exchange {
                flow: self.number,
                socket: self.socket,
                sequence: pending.sequence,
            }),
            fragments: None,
            outcome,
        };
        // The writer ends only after it has cancelled the client.
        drop(self.sender.send(attempt).await);
    }

    fn destination(&self) -> SocketAddr {
        SocketAddr::new(self.entry.address, self.entry.port)
    }
}

impl Lane {
    /// The call that the oldest exchange waits in.
    fn stage(&self) -> Stage {
        if self.unsent.is_empty() {
            Stage::Receive
        } else {
            Stage::Send
        }
    }
}
