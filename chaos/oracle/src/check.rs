//! The checker of probes. It takes whole histories and returns what is not as expected; nothing returned is a pass.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    breakage::{Ending, what_broke},
    counted::{Counted, What},
    finding::{self, Finding, SHOWN, Weight},
    history::{Attempt, Outcome, Served, Stage, Transport},
    observations,
    outcome::{faithful, is_answered_by, is_certified, is_silent, is_unanswered, took, were_there_together},
};

pub use crate::{
    outcome::{REFUSALS, is_cut, is_foreign, is_refusal},
    permitted::{CUT_OF, Permitted},
};

/// Probes for each backend: with as many, a backend with a fair share is missed with p < 10⁻⁶.
pub const PROBES_PER_BACKEND: usize = 14;

/// The probes of one client to one target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Stream {
    /// [`Attempt::client`].
    pub client: String,
    /// [`Attempt::target`].
    pub target: String,
    /// [`Attempt::transport`].
    pub transport: Transport,
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} from {}",
            self.target,
            finding::transport(self.transport),
            self.client
        )
    }
}

/// What one stream must show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expectation {
    /// The probes.
    pub stream: Stream,
    /// The fewest probes that decide.
    pub at_least: usize,
    /// What may happen to them.
    pub permitted: Permitted,
}

/// Limits that decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// A refusal comes within it.
    pub refuse: Duration,
    /// The clients' limit of a probe.
    pub probe: Duration,
}

/// The client of a probe that ends this long after its limit did not run meanwhile. Timers of an idle machine are late
/// by milliseconds.
pub const STALL: Duration = Duration::from_millis(100);

/// A backend that reads a request this shortly before the client's limit was late by nearly the whole limit.
pub const BEHIND: Duration = Duration::from_millis(500);

/// Histories, sorted for judging.
#[derive(Debug)]
pub struct Observed<'a> {
    streams: BTreeMap<(&'a str, &'a str, Transport), Vec<&'a Attempt>>,
    /// By nonce: when a backend logged it.
    delivered: HashMap<&'a str, &'a Served>,
    times: Times,
}

impl<'a> Observed<'a> {
    /// `logs` are the lines of every backend that could have been reached. [`Permitted::None`] needs them, and so do
    /// attempts that timed out.
    #[must_use]
    pub fn new(attempts: &'a [Attempt], logs: &'a [Served], times: Times) -> Self {
        let mut streams: BTreeMap<_, Vec<&Attempt>> = BTreeMap::new();
        for attempt in attempts {
            let stream = (
                attempt.client.as_str(),
                attempt.target.as_str(),
                attempt.transport,
            );
            streams.entry(stream).or_default().push(attempt);
        }
        let delivered = logs
            .iter()
            .map(|line| (line.answer.nonce.as_str(), line))
            .collect();
        Self {
            streams,
            delivered,
            times,
        }
    }

    /// Probes that are not as expected.
    #[must_use]
    pub fn judge(&self, expectation: &Expectation) -> Vec<Finding> {
        let judged = Judged {
            expectation,
            seen: self.of(&expectation.stream),
            observed: self,
        };
        judged.findings()
    }

    /// The attempts of a stream, in the order given.
    pub(crate) fn of<'s>(&'s self, stream: &'s Stream) -> &'s [&'s Attempt] {
        let Stream {
            client,
            target,
            transport,
        } = stream;
        let seen = self.streams.get(&(client.as_str(), target.as_str(), *transport));
        seen.map_or(&[], Vec::as_slice)
    }

    /// The attempt failed for another reason than the datapath: no socket was available, the client did not run when
    /// its limit ended, or the backend (one of `served`) read the request only after that. A TLS server keeps no log
    /// for the suite, so a connection that it accepted and did not answer decides nothing; nor does one that was ended
    /// long after the client's limit, as servers do with silent clients.
    pub(crate) fn is_not_the_datapaths(&self, attempt: &Attempt, served: Option<&BTreeSet<String>>) -> bool {
        match attempt.outcome {
            Outcome::Failed {
                stage: Stage::Socket, ..
            }
            | Outcome::Timeout { stage: Stage::Socket } => true,
            Outcome::Timeout {
                stage: Stage::Tls | Stage::Send | Stage::Receive,
            } if attempt.transport == Transport::Tls => true,
            _ if attempt.transport == Transport::Tls && is_cut(&attempt.outcome) => {
                took(attempt) > self.times.probe + STALL
            }
            Outcome::Timeout { .. } => {
                took(attempt) > self.times.probe + STALL
                    || served.is_some_and(|identities| self.was_taken_up_late(attempt, identities))
            }
            _ => false,
        }
    }

    /// The right backend logged it too late for an answer in time: after the client's limit, or so shortly before that
    /// it was late by nearly the whole limit. If it was logged in time and not answered, the answer was lost.
    pub(crate) fn was_taken_up_late(&self, attempt: &Attempt, identities: &BTreeSet<String>) -> bool {
        let behind = |line: &&Served| {
            let until = Duration::from_micros(line.time_us) + BEHIND;
            identities.contains(&line.answer.identity) && until >= Duration::from_micros(attempt.end_us)
        };
        self.delivered.get(attempt.nonce.as_str()).is_some_and(behind)
    }
}

struct Judged<'a> {
    expectation: &'a Expectation,
    seen: &'a [&'a Attempt],
    observed: &'a Observed<'a>,
}

impl Judged<'_> {
    /// A timeout where nothing may be delivered, or where a datagram was that asked for no answer: the backends' logs
    /// decide, however late the client ran.
    fn is_decided_by_logs(&self, attempt: &Attempt) -> bool {
        let silent = matches!(attempt.outcome, Outcome::Timeout { stage } if stage != Stage::Socket);
        silent
            && match &self.expectation.permitted {
                permitted if permitted.is_decided_by_logs() => true,
                Permitted::Delivered(_) => self.delivered_to(attempt).is_some(),
                _ => false,
            }
    }

    /// The identity that has logged it.
    fn delivered_to(&self, attempt: &Attempt) -> Option<&str> {
        let line = self.observed.delivered.get(attempt.nonce.as_str());
        line.map(|line| line.answer.identity.as_str())
    }

    fn findings(&self) -> Vec<Finding> {
        let served = self.expectation.permitted.identities();
        let (own, judged): (Vec<&Attempt>, Vec<&Attempt>) = self.seen.iter().copied().partition(|attempt| {
            !self.is_decided_by_logs(attempt) && self.observed.is_not_the_datapaths(attempt, served)
        });
        let (judged, unclear) = self.but_silent(&own, judged);
        let mut findings = Vec::new();
        let outside: Vec<&Attempt> = judged
            .iter()
            .copied()
            .filter(|attempt| !self.permits(attempt))
            .collect();
        let outside = self.but_cut(outside, judged.len());
        if !outside.is_empty() {
            let found = observations::outcomes(outside.iter().copied());
            let what = What::Probes {
                permitted: self.expectation.permitted.clone(),
            };
            let counted = Counted::attempts(what, &outside, &judged, |attempt| self.ending(attempt));
            let finding = self.finding(
                Weight::Violation,
                format!(
                    "{}, {} of {} outside: {}",
                    what_broke(&outside),
                    outside.len(),
                    judged.len(),
                    observations::line(&found)
                ) + &self.detail(&outside),
                &outside,
            );
            findings.push(Finding { counted, ..finding });
        }
        if !own.is_empty() {
            let found = observations::line(&observations::outcomes(own.iter().copied()));
            findings.push(self.finding(
                Weight::Undecided,
                format!(
                    "{} of {} failed on the machine (client or backend did not run in time, or no socket): {found}",
                    own.len(),
                    self.seen.len()
                ) + &left_out(unclear),
                &own,
            ));
        }
        if judged.len() < self.expectation.at_least {
            let found = format!(
                "only {} of the {} probes that decide",
                judged.len(),
                self.expectation.at_least
            );
            findings.push(self.finding(Weight::Undecided, found, &[]));
        }
        findings.extend(self.unseen(&judged));
        findings
    }

    /// Leaves out timeouts that are no more frequent than those which the machine is known to have caused among the
    /// same probes, and counts them: a client or a backend may stop running without a trace. Wrong answers and refusals
    /// do not depend on time.
    fn but_silent<'a>(&self, own: &[&'a Attempt], judged: Vec<&'a Attempt>) -> (Vec<&'a Attempt>, usize) {
        let is_unclear = |attempt: &&Attempt| {
            is_silent(&attempt.outcome) && !self.is_decided_by_logs(attempt) && !self.permits(attempt)
        };
        let unclear = judged.iter().filter(|attempt| is_unclear(attempt)).count();
        let known = own.iter().filter(|attempt| is_silent(&attempt.outcome)).count();
        if unclear == 0 || unclear > known {
            return (judged, 0);
        }
        (
            judged
                .into_iter()
                .filter(|attempt| !is_unclear(attempt))
                .collect(),
            unclear,
        )
    }

    /// Leaves out connections that were established and then ended, where that is permitted.
    fn but_cut<'a>(&self, outside: Vec<&'a Attempt>, of: usize) -> Vec<&'a Attempt> {
        let permitted = matches!(self.expectation.permitted, Permitted::CertifiedOrCut(_));
        let (cut, others): (Vec<&Attempt>, Vec<&Attempt>) =
            outside.iter().partition(|attempt| is_cut(&attempt.outcome));
        if permitted && (cut.len() * CUT_OF < of || were_there_together(&cut)) {
            return others;
        }
        outside
    }

    fn permits(&self, attempt: &Attempt) -> bool {
        match &self.expectation.permitted {
            Permitted::Serves(identities) | Permitted::ServesOneOf(identities) => {
                is_answered_by(attempt, identities)
            }
            Permitted::ServesOrRefuses(identities) => {
                is_answered_by(attempt, identities) || self.refused(attempt)
            }
            Permitted::ServesOrNone(identities) => {
                let by = self.delivered_to(attempt);
                is_answered_by(attempt, identities)
                    || (is_unanswered(&attempt.outcome) && by.is_none_or(|by| identities.contains(by)))
            }
            Permitted::Delivered(identities) => {
                is_silent(&attempt.outcome)
                    && self
                        .delivered_to(attempt)
                        .is_some_and(|by| identities.contains(by))
            }
            Permitted::Certified(name) | Permitted::CertifiedOrCut(name) => is_certified(attempt, name),
            Permitted::Refuse => self.refused(attempt),

            // A late refusal is a timeout that ended with an error.
            Permitted::None => is_unanswered(&attempt.outcome) && self.delivered_to(attempt).is_none(),
        }
    }

    fn refused(&self, attempt: &Attempt) -> bool {
        is_refusal(&attempt.outcome) && took(attempt) <= self.observed.times.refuse
    }

    /// Backends that no probe reached: they left, or the probes were too few to tell.
    fn unseen(&self, judged: &[&Attempt]) -> Option<Finding> {
        let Permitted::Serves(identities) = &self.expectation.permitted else {
            return None;
        };
        let met: BTreeSet<&str> = judged
            .iter()
            .filter_map(|attempt| match &attempt.outcome {
                Outcome::Answered { answer, .. } => Some(answer.identity.as_str()),
                _ => None,
            })
            .collect();
        let missing: Vec<&str> = identities
            .iter()
            .map(String::as_str)
            .filter(|identity| !met.contains(identity))
            .collect();
        if missing.is_empty() {
            return None;
        }
        let enough = judged.len() >= PROBES_PER_BACKEND * identities.len();
        let found = if enough {
            format!("0 of {} answered by {}", judged.len(), missing.join(", "))
        } else {
            format!(
                "0 of {} answered by {}, too few to tell ({} for each backend)",
                judged.len(),
                missing.join(", "),
                PROBES_PER_BACKEND
            )
        };
        let weight = if enough {
            Weight::Violation
        } else {
            Weight::Undecided
        };
        let what = What::Unreached {
            permitted: self.expectation.permitted.clone(),
            missing: missing.iter().map(|identity| (*identity).to_owned()).collect(),
        };
        Some(Finding {
            counted: Counted::attempts(what, &[], judged, Ending::of),
            ..self.finding(weight, found, &[])
        })
    }

    /// How an attempt outside ended, by what was expected and what backends have logged.
    fn ending(&self, attempt: &Attempt) -> Ending {
        match &attempt.outcome {
            Outcome::Answered { answer, .. } if !faithful(answer, attempt) => Ending::Misdelivered {
                by: answer.identity.clone(),
            },
            Outcome::Answered { .. } => Ending::of(attempt),
            _ if self.observed.delivered.contains_key(attempt.nonce.as_str())
                && matches!(
                    self.expectation.permitted,
                    Permitted::None | Permitted::ServesOrNone(_) | Permitted::Delivered(_)
                ) =>
            {
                Ending::Delivered
            }
            outcome if is_refusal(outcome) && self.expectation.permitted.has_refusals_in_time() => {
                Ending::RefusedLate
            }
            _ => Ending::of(attempt),
        }
    }

    /// Why outcomes are not permitted that look as if they were.
    fn detail(&self, outside: &[&Attempt]) -> String {
        let count = |test: &dyn Fn(&Attempt) -> bool| outside.iter().filter(|attempt| test(attempt)).count();
        let late = count(&|attempt| is_refusal(&attempt.outcome) && !self.refused(attempt));
        let delivered = count(&|attempt| {
            !matches!(attempt.outcome, Outcome::Answered { .. })
                && self.observed.delivered.contains_key(attempt.nonce.as_str())
        });
        let unfaithful = count(
            &|attempt| matches!(&attempt.outcome, Outcome::Answered { answer, .. } if !faithful(answer, attempt)),
        );
        let mut text = String::new();
        if late > 0 && self.expectation.permitted.has_refusals_in_time() {
            text += &format!("; {late} refused later than {:?}", self.observed.times.refuse);
        }
        if delivered > 0 {
            let to: BTreeSet<&str> = outside
                .iter()
                .filter_map(|attempt| self.delivered_to(attempt))
                .collect();
            let to = to.into_iter().collect::<Vec<_>>().join(", ");
            text += &match self.expectation.permitted {
                Permitted::Delivered(_) => format!("; {delivered} delivered to {to}"),
                _ => format!("; {delivered} delivered to a backend all the same"),
            };
        }
        if unfaithful > 0 {
            text += &format!(
                "; {unfaithful} answered to another nonce, or reached another port than the identity's"
            );
        }
        text
    }

    fn finding(&self, weight: Weight, found: String, first: &[&Attempt]) -> Finding {
        Finding {
            weight,
            subject: self.expectation.stream.to_string(),
            expected: self.expectation.permitted.to_string(),
            found,
            first: shown(first),
            counted: None,
        }
    }
}

/// Timeouts that were left out, in words.
fn left_out(unclear: usize) -> String {
    match unclear {
        0 => String::new(),
        _ => format!("; {unclear} more were silent, which cannot be told from those"),
    }
}

pub(crate) fn shown(attempts: &[&Attempt]) -> Vec<Attempt> {
    attempts
        .iter()
        .take(SHOWN)
        .map(|attempt| (*attempt).clone())
        .collect()
}
