//! Short constructors of attempts, logs and expectations.

use std::{net::SocketAddr, time::Duration};

use oracle::{
    check::{Expectation, Observed, Permitted, Stream, Times},
    finding::Finding,
    history::{Answer, Attempt, Outcome, Served, Stage, Transport},
};

pub(crate) const VIP: &str = "10.96.0.10:80";
pub(crate) const TIMES: Times = Times {
    refuse: Duration::from_secs(1),
    probe: Duration::from_secs(3),
};

pub(crate) fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// What came back, as a word: an identity, an errno with its call, or silence.
pub(crate) fn attempt(number: usize, outcome: Outcome, milliseconds: u64) -> Attempt {
    Attempt {
        start_us: 1_000_000,
        end_us: 1_000_000 + milliseconds * 1000,
        client: "pod@node-1".into(),
        target: "web".into(),
        transport: Transport::Tcp,
        destination: address(VIP),
        local: None,
        nonce: format!("nonce-{number}"),
        exchange: None,
        fragments: None,
        outcome,
    }
}

pub(crate) fn answer(number: usize, identity: &str, port: u16) -> Answer {
    Answer {
        identity: identity.into(),
        source: address("10.1.0.9:40000"),
        destination: SocketAddr::new([10, 1, 0, 2].into(), port),
        nonce: format!("nonce-{number}"),
        pod: None,
    }
}

pub(crate) fn answered(number: usize, identity: &str) -> Attempt {
    let port = identity.rsplit('/').next().unwrap().parse().unwrap();
    attempt(
        number,
        Outcome::Answered {
            answer: answer(number, identity, port),
            peer: address(VIP),
        },
        1,
    )
}

pub(crate) fn failed(stage: Stage, errno: &str) -> Outcome {
    Outcome::Failed {
        stage,
        errno: errno.into(),
    }
}

/// Reset in the TLS handshake, `after` milliseconds after the first attempt began.
pub(crate) fn cut(number: usize, after: u64, milliseconds: u64) -> Attempt {
    let mut cut = attempt(number, failed(Stage::Tls, "ECONNRESET"), milliseconds);
    cut.start_us += after * 1000;
    cut.end_us += after * 1000;
    cut
}

pub(crate) fn refused(number: usize) -> Attempt {
    attempt(number, failed(Stage::Connect, "ECONNREFUSED"), 1)
}

pub(crate) fn silent(number: usize) -> Attempt {
    attempt(
        number,
        Outcome::Timeout {
            stage: Stage::Connect,
        },
        3000,
    )
}

pub(crate) fn served(number: usize, identity: &str) -> Served {
    Served {
        time_us: 1_000_500,
        answer: answer(number, identity, 8080),
    }
}

pub(crate) fn many(count: usize, make: impl Fn(usize) -> Attempt) -> Vec<Attempt> {
    (0..count).map(make).collect()
}

pub(crate) fn serves(identities: &[&str]) -> Permitted {
    Permitted::Serves(identities.iter().map(|one| (*one).to_owned()).collect())
}

pub(crate) fn serves_one_of(identities: &[&str]) -> Permitted {
    Permitted::ServesOneOf(identities.iter().map(|one| (*one).to_owned()).collect())
}

pub(crate) fn serves_or_refuses(identities: &[&str]) -> Permitted {
    Permitted::ServesOrRefuses(identities.iter().map(|one| (*one).to_owned()).collect())
}

pub(crate) fn serves_or_none(identities: &[&str]) -> Permitted {
    Permitted::ServesOrNone(identities.iter().map(|one| (*one).to_owned()).collect())
}

pub(crate) fn check(attempts: &[Attempt], logs: &[Served], permitted: Permitted) -> Vec<Finding> {
    let stream = Stream {
        client: "pod@node-1".into(),
        target: "web".into(),
        transport: Transport::Tcp,
    };
    let expectation = Expectation {
        stream,
        at_least: 28,
        permitted,
    };
    Observed::new(attempts, logs, TIMES).judge(&expectation)
}

pub(crate) const B1: &str = "b1/TCP/8080";
pub(crate) const B2: &str = "b2/TCP/8080";
