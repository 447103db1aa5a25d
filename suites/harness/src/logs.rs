//! What backends have logged. Each line is parsed once, however often it is asked for.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use cluster::Cluster;
use oracle::{
    check::Permitted,
    history::{Attempt, Outcome, Served, Transport},
};

use crate::{destination::Destination, pods::Backend, verdict::Halt, waiting::has_lasted};

/// So many limits of a probe a backend that is behind is waited for at most: four clients that ask at their rate for one limit of a
/// backend that does a tenth of it.
const BEHIND: usize = 10;

/// The logs of the backends that a case has made.
pub struct Logs {
    cluster: Arc<Cluster>,
    /// The limit of a probe.
    probe: Duration,
    backends: Mutex<Vec<Backend>>,
    /// Names of the servers of backends that have been deleted: their logs go with them.
    ending: Mutex<HashSet<String>>,
    /// Lines that have been read, by backend.
    read: Mutex<HashMap<String, Read>>,
}

/// What has been read of one log.
#[derive(Debug, Default)]
struct Read {
    /// The first line of the file that was read last: one that was rotated has another.
    first: String,
    /// Bytes of whole lines of that file, which `lines` has.
    bytes: usize,
    lines: Vec<Served>,
}

impl Read {
    /// Goes on with what is new. A file that was rotated, as kubelets do, is read from its beginning.
    fn go_on(&mut self, text: &str) -> Result<(), String> {
        // The last line may still be on its way.
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let first = whole.lines().next().unwrap_or_default();
        if self.first != first {
            self.first = first.to_owned();
            self.bytes = 0;
        }
        let new = whole.get(self.bytes..).unwrap_or(whole);
        for line in new.lines().filter(|line| !line.is_empty()) {
            let line = serde_json::from_str(line).map_err(|error| format!("{error} in {line:?}"))?;
            self.lines.push(line);
        }
        self.bytes = whole.len();
        Ok(())
    }

    /// Lines that were written from then on, in microseconds since the Unix epoch. Lines are in the order of their times
    /// but for those of requests that are served at once.
    fn since(&self, from_us: u64) -> impl Iterator<Item = &Served> {
        self.lines.iter().filter(move |line| line.time_us >= from_us)
    }
}

impl Logs {
    /// Of a cluster's backends, which answer or log a probe within this time.
    pub(crate) fn new(cluster: Arc<Cluster>, probe: Duration) -> Self {
        Self {
            cluster,
            probe,
            backends: Mutex::default(),
            ending: Mutex::default(),
            read: Mutex::default(),
        }
    }

    /// Backends that the case has made.
    pub(crate) fn add(&self, backends: &[Backend]) {
        let mut known = self.backends.lock().unwrap_or_else(PoisonError::into_inner);
        known.extend_from_slice(backends);
    }

    /// These end by and by: when the cluster does not have their logs any more, what was read by then is all.
    pub(crate) fn will_end(&self, backends: &[Backend]) {
        let mut ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        ending.extend(backends.iter().map(Backend::server));
    }

    fn ends(&self, backend: &Backend) -> bool {
        let ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        ending.contains(&backend.server())
    }

    /// All backends that the case has made.
    pub(crate) fn backends(&self) -> Vec<Backend> {
        self.backends
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Everything that a backend has logged.
    pub async fn of(&self, backend: &Backend) -> Result<Vec<Served>, Halt> {
        self.read(backend, |read| read.lines.clone()).await
    }

    /// Datagrams without an answer that backends have logged all the same: the identity, by the nonce of the attempt.
    pub async fn reached(&self, attempts: &[Attempt]) -> Result<BTreeMap<String, String>, Halt> {
        let is_datagram =
            |attempt: &&Attempt| matches!(attempt.transport, Transport::Udp | Transport::UdpConnected);
        let silent: HashSet<&str> = attempts
            .iter()
            .filter(|attempt| is_silent(attempt))
            .filter(is_datagram)
            .map(|attempt| attempt.nonce.as_str())
            .collect();
        let lines = self.since(attempts).await?;
        let of_silent = lines
            .into_iter()
            .filter(|line| silent.contains(line.answer.nonce.as_str()));
        Ok(of_silent
            .map(|line| (line.answer.nonce, line.answer.identity))
            .collect())
    }

    /// What the backends have logged since the first of these attempts began: a line is written after that.
    async fn since(&self, attempts: &[Attempt]) -> Result<Vec<Served>, Halt> {
        let from_us = attempts.iter().map(|attempt| attempt.start_us).min();
        let mut lines = Vec::new();
        for backend in self.backends() {
            let since = |read: &Read| {
                read.since(from_us.unwrap_or(u64::MAX))
                    .cloned()
                    .collect::<Vec<_>>()
            };
            lines.extend(self.read(&backend, since).await?);
        }
        Ok(lines)
    }

    /// As [`Logs::if_needed`], once backends have taken up what they were behind with: while they go on to log what was
    /// silent, they get as long again.
    pub(crate) async fn in_the_end(
        &self,
        targets: &[Destination],
        attempts: &[Attempt],
    ) -> Result<Vec<Served>, Halt> {
        let mut logs = self.if_needed(targets, attempts).await?;
        let silent: HashSet<&str> = attempts
            .iter()
            .filter(|attempt| is_silent(attempt))
            .map(|attempt| attempt.nonce.as_str())
            .collect();
        if silent.is_empty() {
            return Ok(logs);
        }
        let mut behind = Behind::new(late(&silent, &logs));
        loop {
            has_lasted(Instant::now(), self.probe).await;
            logs = self.since(attempts).await?;
            if !behind.goes_on(late(&silent, &logs)) {
                return Ok(logs);
            }
        }
    }

    /// For a look at what comes to be: [`Logs::in_the_end`] if it is the last one, whose findings decide, and otherwise as the logs are.
    pub(crate) async fn at_a_look(
        &self,
        is_last: bool,
        targets: &[Destination],
        attempts: &[Attempt],
    ) -> Result<Vec<Served>, Halt> {
        if is_last {
            return self.in_the_end(targets, attempts).await;
        }
        self.if_needed(targets, attempts).await
    }

    /// That nothing else was reached is decided by the logs of backends, and so is whose a timeout is: not of the last look, as a
    /// backend that is behind has not logged yet what it takes up late.
    async fn if_needed(&self, targets: &[Destination], attempts: &[Attempt]) -> Result<Vec<Served>, Halt> {
        let mut permitted = targets.iter().map(|target| &target.permitted);
        if permitted.any(Permitted::is_decided_by_logs) || attempts.iter().any(is_silent) {
            return self.since(attempts).await;
        }
        Ok(Vec::new())
    }

    async fn read<T>(&self, backend: &Backend, of: impl FnOnce(&Read) -> T) -> Result<T, Halt> {
        let text = match self.cluster.log(&backend.namespace, &backend.in_api).await {
            Err(_) if self.ends(backend) => None,
            text => Some(text?),
        };
        let mut logs = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let read = logs.entry(backend.server()).or_default();
        if let Some(text) = text {
            read.go_on(&text).map_err(|why| {
                Halt::Harness(format!(
                    "the log of {} has no probe's line: {why}",
                    backend.in_api
                ))
            })?;
        }
        Ok(of(read))
    }
}

fn is_silent(attempt: &Attempt) -> bool {
    matches!(attempt.outcome, Outcome::Timeout { .. })
}

/// How many of what was silent for its client backends have taken up.
fn late(silent: &HashSet<&str>, logs: &[Served]) -> usize {
    let nonces = logs.iter().map(|line| line.answer.nonce.as_str());
    nonces.filter(|nonce| silent.contains(nonce)).count()
}

/// Whether backends are behind: from one look at their logs to the next.
struct Behind {
    late: usize,
    looks: usize,
}

impl Behind {
    fn new(late: usize) -> Self {
        Self { late, looks: 0 }
    }

    /// Whether this is more than at the last look, and another one is worth it.
    fn goes_on(&mut self, late: usize) -> bool {
        self.looks += 1;
        let more = late > self.late;
        self.late = late;
        more && self.looks < BEHIND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(time_us: u64, nonce: &str) -> String {
        format!(
            "{{\"time_us\":{time_us},\"identity\":\"b/TCP/1\",\"source\":\"10.0.0.1:1\",\"destination\":\"10.0.0.2:1\",\
             \"nonce\":\"{nonce}\"}}\n"
        )
    }

    fn nonces<'a>(lines: impl IntoIterator<Item = &'a Served>) -> Vec<&'a str> {
        let nonce = |line: &'a Served| line.answer.nonce.as_str();
        lines.into_iter().map(nonce).collect()
    }

    #[test]
    fn a_log_is_read_on_from_where_it_ended_and_no_half_of_a_line_is_one() {
        let (first, second) = (line(1, "a"), line(2, "b"));
        let mut read = Read::default();
        read.go_on(&(first.clone() + &second[..9])).unwrap();
        assert_eq!(nonces(&read.lines), ["a"]);
        read.go_on(&(first + &second)).unwrap();
        assert_eq!(nonces(&read.lines), ["a", "b"]);
        assert_eq!(nonces(read.since(2)), ["b"]);
    }

    #[test]
    fn a_log_that_was_rotated_is_read_from_its_beginning_and_what_was_read_stays() {
        let mut read = Read::default();
        read.go_on(&line(1, "a")).unwrap();
        read.go_on(&(line(3, "c") + &line(4, "d"))).unwrap();
        assert_eq!(nonces(&read.lines), ["a", "c", "d"]);
    }

    #[test]
    fn what_is_no_line_of_a_probe_is_an_error_that_shows_it() {
        let why = Read::default().go_on("out of luck\n").unwrap_err();
        assert!(why.contains("out of luck"), "{why}");
    }

    #[test]
    fn backends_that_go_on_to_log_are_waited_for_and_not_for_ever() {
        let looks = |numbers: &[usize]| {
            let mut behind = Behind::new(numbers[0]);
            let goes_on = numbers[1..].iter().take_while(|late| behind.goes_on(**late));
            goes_on.count() + 1
        };
        assert_eq!(looks(&[0, 0, 1]), 1);
        assert_eq!(looks(&[0, 3, 5, 5, 6]), 3);
        assert_eq!(looks(&(0..99).collect::<Vec<_>>()), BEHIND);
    }
}
