//! Sockets that stay open from one round of exchanges to the next, whatever happens meanwhile.
//!
//! ```text
//! Round (stdin) ─▶ on each of its sockets: sendto, or connect and send ─▶ answer ─▶ Attempt (stdout)
//! ```
//!
//! Each round writes one attempt for each of its sockets, and the next one starts afterwards: a reader of that many
//! lines knows that the round is over.

use std::{collections::BTreeMap, io::Write, net::SocketAddr, time::Duration};

use futures::{StreamExt as _, stream};
use oracle::history::{Attempt, Exchange, Round, Transport};
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

use super::{
    ClientError,
    attempt::{About, exchange, watched},
    fragment_capture::Watch,
    fragments,
    output::Output,
    socket::Socket,
};

/// Sockets of one transport and address family.
pub const MAX_SOCKETS: u32 = 16_384;
/// Longest line of a round in bytes, newline included.
pub const MAX_ROUND: u64 = 4096;

const EXAMPLE: &str =
    r#"{"target":"vip","transport":"UDP","address":"10.96.0.10","port":80,"sockets":100,"limit_ms":1000}"#;

/// One of the sockets.
struct Slot {
    /// `None` before its first use, and after one that failed before it was open.
    socket: Option<Socket>,
    /// Last port of the socket, and port of its replacement; 0: the kernel chooses.
    port: u16,
    /// Number of the next exchange.
    next: Exchange,
}

/// Makes the rounds that it reads from `input`, one JSON line each, until the end of input or until `stop` is
/// cancelled. Each attempt is written to `output` and flushed when it ends.
///
/// # Errors
/// [`ClientError::Round`]: a line is no round; [`ClientError::Watch`]: fragments of a round cannot be watched;
/// [`ClientError::Output`]: the output has no reader any more.
pub async fn keep(
    client: &str,
    mut input: impl AsyncBufRead + Unpin,
    output: impl Write + Send + 'static,
    stop: CancellationToken,
) -> Result<(), ClientError> {
    let (sender, output) = Output::start(output, stop.clone());
    let rounds = async {
        let prefix = format!("{:016x}", rand::random::<u64>());
        let mut kept: BTreeMap<(Transport, bool), Vec<Slot>> = BTreeMap::new();
        let mut watch = None;
        let mut number = 0u64;
        while let Some(round) = next(&mut input).await? {
            watch = match watch {
                _ if !round.watched => None,
                Some(watch) => Some(watch),
                None => Some(Watch::start().map_err(ClientError::Watch)?),
            };
            let slots = kept
                .entry((round.transport, round.address.is_ipv6()))
                .or_default();
            let made = Made {
                client,
                prefix: &prefix,
                number,
                round: &round,
                watch: watch.as_ref(),
            };
            make(&made, slots, &sender).await;
            number += 1;
        }
        Ok(())
    };
    let result = stop.run_until_cancelled(rounds).await.unwrap_or(Ok(()));
    drop(sender);
    output.end().await.map_err(ClientError::Output)?;
    result
}

/// The next line; `None` at the end.
async fn next(input: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<Round>, ClientError> {
    let mut line = String::new();
    let read = input.take(MAX_ROUND).read_line(&mut line).await;
    let wrong = |why: String| ClientError::Round {
        why,
        example: EXAMPLE,
    };
    if read.map_err(|error| wrong(error.to_string()))? == 0 {
        return Ok(None);
    }
    parse(&line).map(Some).map_err(wrong)
}

fn parse(line: &str) -> Result<Round, String> {
    let round: Round = serde_json::from_str(line).map_err(|error| error.to_string())?;
    if !matches!(
        round.transport,
        Transport::Udp | Transport::UdpConnected | Transport::Tcp
    ) {
        return Err(format!(
            "its transport is {:?}; expected UDP, UDP-CONNECTED or TCP",
            round.transport
        ));
    }
    fragments::check(&round)?;
    if round.sockets == 0 || round.sockets > MAX_SOCKETS {
        return Err(format!(
            "it has {} sockets; expected 1 to {MAX_SOCKETS}",
            round.sockets
        ));
    }
    if round.limit_ms == 0 {
        return Err("its limit_ms is 0; expected at least 1".to_owned());
    }
    Ok(round)
}

/// A running round.
struct Made<'a> {
    client: &'a str,
    /// Unique for the client: first part of its nonces.
    prefix: &'a str,
    number: u64,
    round: &'a Round,
    watch: Option<&'a Watch>,
}

async fn make(made: &Made<'_>, slots: &mut Vec<Slot>, sender: &mpsc::Sender<Attempt>) {
    let round = made.round;
    if let Some(watch) = made.watch {
        watch.forget();
    }
    for flow in u32::try_from(slots.len()).unwrap_or(u32::MAX)..round.sockets {
        slots.push(Slot::new(flow));
    }
    let used = slots.iter_mut().take(round.sockets as usize);
    let mut used: Vec<&mut Slot> = used.collect();
    if round.anew {
        // All are closed before the first is opened, so that their ports are free.
        used.iter_mut().for_each(|slot| slot.close());
    }
    let exchanges = used.into_iter().map(|slot| slot.exchange(made));
    let mut ended = stream::iter(exchanges).buffer_unordered(Round::AT_ONCE as usize);
    while let Some(attempt) = ended.next().await {
        // The writer ends only after it has cancelled `stop`.
        drop(sender.send(attempt).await);
    }
}

impl Slot {
    fn new(flow: u32) -> Self {
        Self {
            socket: None,
            port: 0,
            next: Exchange {
                flow,
                socket: 0,
                sequence: 0,
            },
        }
    }

    fn close(&mut self) {
        if self.socket.take().is_some() {
            self.next.socket += 1;
        }
    }

    async fn exchange(&mut self, made: &Made<'_>) -> Attempt {
        let Made {
            client,
            prefix,
            number,
            round,
            watch,
        } = *made;
        let nonce = format!("{prefix}-{number}-{}", self.next.flow);
        let destination = SocketAddr::new(round.address, round.port);
        let about = About {
            client,
            target: &round.target,
            transport: round.transport,
            destination,
            limit: Duration::from_millis(round.limit_ms),
            nonce: nonce.clone(),
            exchange: Some(self.next),
        };
        self.next.sequence += 1;
        let Self { socket, port, .. } = self;
        let mut attempt = watched(about, async |trace| {
            let open = match socket {
                Some(open) => {
                    if round.stay {
                        trace.local = Some(open.local_addr()?);
                    } else {
                        open.lead_to(destination, trace).await?;
                    }
                    open
                }
                None => {
                    let from = round.source_port.unwrap_or(*port);
                    let opened = Socket::open(round.transport, destination, from, trace).await?;
                    socket.insert(opened)
                }
            };
            *port = trace.local.map_or(0, |local| local.port());
            if round.bytes != 0 || !round.fragments.is_empty() {
                return fragments::exchange(open, &nonce, round, trace).await;
            }
            // An open socket is used again, after late answers are read.
            let earlier = (!round.anew).then_some(prefix);
            exchange(open, &nonce, earlier, trace).await
        })
        .await;
        let port = attempt.local.map_or(0, |local| local.port());
        attempt.fragments = watch.map(|watch| watch.of(port));
        attempt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_a_round_and_so_is_what_is_written_of_it() {
        let round = parse(EXAMPLE).unwrap();
        assert!(!round.anew);
        for anew in [false, true] {
            let round = Round {
                anew,
                ..round.clone()
            };
            let line = serde_json::to_string(&round).unwrap();
            assert_eq!(line.contains("anew"), anew, "{line}");
            assert_eq!(parse(&line).unwrap(), round);
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (from, to, named) in [
            ("\"UDP\"", "\"HTTP\"", "its transport is Http"),
            ("100,", "0,", "0 sockets"),
            ("100,", "16385,", "16385 sockets"),
            ("1000}", "0}", "limit_ms is 0"),
            ("\"port\"", "\"ports\"", "unknown field"),
        ] {
            let error = parse(&EXAMPLE.replace(from, to)).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }

    #[tokio::test]
    async fn a_line_that_is_no_round_is_reported_with_what_was_expected() {
        let error = keep("c1", &b"{}\n"[..], std::io::sink(), CancellationToken::new()).await;
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("missing field") && error.contains(EXAMPLE),
            "{error}"
        );
    }
}
