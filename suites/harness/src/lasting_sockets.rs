//! Sockets that clients keep through a case and use for one destination after the other: which peer do they show?

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::future::try_join_all;
use oracle::{
    check::Observed,
    finding::Finding,
    history::{Attempt, Round, Transport},
    observations,
    peer::{Shows, peers},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
    task::JoinHandle,
};

use crate::{
    client::Client,
    context::Context,
    destination::Destination,
    history::History,
    probing::open_targets,
    verdict::Halt,
    waiting::{Looks, Within},
};

/// What a client that has ended has said is there within this time.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// Beyond its exchanges' own limits, a round takes no longer.
const SLACK: Duration = Duration::from_secs(60);
/// How much of a client's stderr is kept for its error.
const STDERR_BYTES: u64 = 64 * 1024;

/// Sockets of some clients. They end with this.
#[must_use = "they end when this is dropped"]
pub struct Sockets(Vec<Keeper>);

/// The sockets of one client. They end with this.
pub struct Keeper {
    client: Client,
    stdin: ChildStdin,
    attempts: Lines<BufReader<ChildStdout>>,
    stderr: JoinHandle<String>,
    history: Arc<History>,
    /// Killed by drop.
    _child: Child,
}

/// Which sockets of each client take part in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// So many, the oldest of the target's transport and family; those that are missing are opened.
    Oldest(u32),
    /// The same, after they were closed and others opened at their ports.
    Anew(u32),
    /// The same as the first, and connected ones are not connected again.
    Staying(u32),
}

impl Which {
    fn count(self) -> u32 {
        let (Self::Oldest(count) | Self::Anew(count) | Self::Staying(count)) = self;
        count
    }
}

impl Sockets {
    /// Starts to keep sockets for these clients; there are none yet.
    ///
    /// # Errors
    /// If a client can't be started.
    pub async fn keep(cx: &Context, clients: &[Client]) -> Result<Self, Halt> {
        let start = |client| Keeper::start(cx, client);
        try_join_all(clients.iter().map(start)).await.map(Self)
    }

    /// Those of each client.
    pub(crate) fn keepers(&mut self) -> &mut [Keeper] {
        &mut self.0
    }

    /// One exchange with the target on these sockets of each client, and what is not as expected: all are answered as the
    /// target permits, and show the peer that they should.
    ///
    /// # Errors
    /// If a client ends, or does not finish its round.
    pub async fn exchange(
        &mut self,
        cx: &Context,
        target: &Destination,
        which: Which,
        shows: Shows,
    ) -> Result<(Vec<Attempt>, Vec<Finding>), Halt> {
        let (attempts, findings, _) = self.look(cx, target, which, shows, None).await?;
        Ok((attempts, findings))
    }

    /// One exchange of each; what it shows decides if it ended after the limit, or there is none, which is returned as well.
    async fn look(
        &mut self,
        cx: &Context,
        target: &Destination,
        which: Which,
        shows: Shows,
        within: Option<Within>,
    ) -> Result<(Vec<Attempt>, Vec<Finding>, bool), Halt> {
        let round = round(cx, target, which);
        let rounds = self.0.iter_mut().map(|one| one.make(&round));
        let attempts = try_join_all(rounds).await?.concat();
        let is_last = within.is_none_or(|within| within.is_over());
        let logs = cx
            .logs()
            .at_a_look(is_last, std::slice::from_ref(target), &attempts)
            .await?;
        let observed = Observed::new(&attempts, &logs, cx.limits().times());
        let mut findings = Vec::new();
        for Keeper { client, .. } in &self.0 {
            let at_least = which.count() as usize;
            // The peer comes first: a wrong one is what these sockets are for.
            findings.extend(peers(&observed, &target.stream(client), shows, at_least));
            findings.extend(observed.judge(&target.expectation(client, at_least)));
        }
        Ok((attempts, findings, is_last))
    }

    /// Exchanges again and again, until a round is as expected or the limit has passed. Returns what the last one showed.
    ///
    /// # Errors
    /// As of [`Sockets::exchange`].
    pub async fn settle(
        &mut self,
        cx: &Context,
        target: &Destination,
        shows: Shows,
        within: Within,
    ) -> Result<Vec<Finding>, Halt> {
        let fewest = u32::try_from(target.fewest()).unwrap_or(u32::MAX);
        let all = Which::Oldest(fewest);
        let mut looks = Looks::within(within);
        loop {
            let (_, findings, is_last) = self.look(cx, target, all, shows, Some(within)).await?;
            if findings.is_empty() || is_last {
                return Ok(findings);
            }
            // Where the time ended just after that look, one more is the last.
            let _: bool = looks.again().await;
        }
    }
}

/// A round of one exchange with a target.
pub(crate) fn round(cx: &Context, target: &Destination, which: Which) -> Round {
    let (address, limit) = (target.address, cx.limits().probe);
    Round {
        target: target.label(),
        transport: target.transport,
        address: address.ip(),
        port: address.port(),
        sockets: which.count(),
        anew: matches!(which, Which::Anew(_)),
        stay: matches!(which, Which::Staying(_)),
        source_port: None,
        fragments: Vec::new(),
        bytes: 0,
        watched: false,
        limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
    }
}

/// Verdict: the sockets of these attempts show the peer that they should.
pub fn judge_peers(
    cx: &Context,
    clients: &[Client],
    targets: &[Destination],
    attempts: &[Attempt],
    shows: Shows,
) {
    let observed = Observed::new(attempts, &[], cx.limits().times());
    for target in open_targets(cx, targets) {
        let of = |client| peers(&observed, &target.stream(client), shows, target.fewest());
        cx.axes()
            .judged(&target.axis, clients.iter().flat_map(of).collect());
    }
}

/// Records which peers the sockets of these attempts show, by transport.
pub fn record_peers(cx: &Context, axis: &str, attempts: &[Attempt]) {
    let transports: BTreeSet<Transport> = attempts.iter().map(|attempt| attempt.transport).collect();
    for transport in transports {
        let of = attempts.iter().filter(|attempt| attempt.transport == transport);
        let seen = observations::peers(of).into_iter();
        let seen: Vec<_> = seen.map(|(peer, count)| format!("{count} {peer:?}")).collect();
        let name = format!("{axis}: peer that {transport:?} clients saw");
        cx.record(&name, seen.join(", "));
    }
}

impl Keeper {
    /// Starts to keep sockets for one client; there are none yet.
    ///
    /// # Errors
    /// If it can't be started.
    pub async fn start(cx: &Context, client: &Client) -> Result<Self, Halt> {
        let argv = ["probe", "sockets", "--client", &client.name].map(str::to_owned);
        let mut child = cx.cluster().exec(&client.place, &argv).await?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            let name = &client.name;
            return Err(Halt::Harness(format!("the sockets of {name} have no pipes")));
        };
        let stderr = tokio::spawn(async move {
            let mut text = String::new();
            // What can't be read explains nothing.
            let _ = stderr.take(STDERR_BYTES).read_to_string(&mut text).await;
            text
        });
        Ok(Self {
            client: client.clone(),
            stdin,
            attempts: BufReader::new(stdout).lines(),
            stderr,
            history: Arc::clone(cx.history()),
            _child: child,
        })
    }

    /// The client.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Makes a round. Returns an attempt for each of its sockets.
    ///
    /// # Errors
    /// If the client has ended, or does not end the round.
    pub async fn make(&mut self, round: &Round) -> Result<Vec<Attempt>, Halt> {
        let limit = Duration::from_millis(round.limit_ms);
        let longest = limit * round.sockets.div_ceil(Round::AT_ONCE) + SLACK;
        match tokio::time::timeout(longest, self.attempts_of(round)).await {
            Ok(Ok(attempts)) => Ok(attempts),
            Ok(Err(why)) => {
                // It has ended, or ends with this; what it has said by then is all.
                let said = tokio::time::timeout(LAST_WORDS, &mut self.stderr).await;
                let said = said.ok().and_then(Result::ok).unwrap_or_default();
                Err(self.broken(&format!("{why}: {}", said.trim())))
            }
            Err(_) => Err(self.broken(&format!("have not ended their round within {longest:?}"))),
        }
    }

    async fn attempts_of(&mut self, round: &Round) -> Result<Vec<Attempt>, String> {
        let mut line = serde_json::to_string(round).map_err(|error| error.to_string())?;
        line.push('\n');
        let told = self.stdin.write_all(line.as_bytes()).await;
        told.map_err(|error| format!("did not take a round ({error})"))?;
        let mut attempts = Vec::new();
        for _ in 0..round.sockets {
            let line = self
                .attempts
                .next_line()
                .await
                .map_err(|error| error.to_string())?;
            let line = line.ok_or("ended within a round")?;
            let attempt: Attempt =
                serde_json::from_str(&line).map_err(|error| format!("{error} in {line:?}"))?;
            self.history.attempt(&line, &attempt);
            attempts.push(attempt);
        }
        Ok(attempts)
    }

    fn broken(&self, what: &str) -> Halt {
        Halt::Harness(format!("the sockets of {} {what}", self.client.name))
    }
}
