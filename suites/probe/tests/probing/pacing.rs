//! When attempts start and when they end: open loop, closed loop, `until`, an output without a reader.

use std::{
    collections::HashSet,
    io::{self, Write},
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::common::{Sink, entry, one, run, server};
use oracle::history::{Attempt, Outcome, Plan, Transport, Until};
use probe::{
    client::{self, ClientError},
    serve::Mode,
};
use tokio::net::UdpSocket;
use tokio_util::sync::CancellationToken;

async fn silent() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bind");
    let address = socket.local_addr().expect("address");
    (socket, address)
}

fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(now.as_micros()).expect("before 586000")
}

#[tokio::test]
async fn attempts_that_hang_delay_no_others() {
    let (_socket, address) = silent().await;
    let mut hanging = entry(Transport::Udp, address);
    (hanging.count, hanging.interval_ms, hanging.limit_ms) = (5, 20, 3000);
    let begin = now_us();
    let attempts = run(vec![hanging]).await;
    assert_eq!(attempts.len(), 5);
    let first_end = attempts.iter().map(|a| a.end_us).min().expect("five");
    let mut starts: Vec<u64> = attempts.iter().map(|a| a.start_us).collect();
    starts.sort_unstable();
    assert!(starts[4] < first_end, "all were under way together");
    for (number, start) in (0u64..).zip(&starts) {
        // A millisecond for the rounding of timers and of two readings of the clock.
        assert!(
            start + 1000 >= begin + number * 20_000,
            "attempt {number} began early: {starts:?}"
        );
    }
    let nonces: HashSet<&str> = attempts.iter().map(|a| a.nonce.as_str()).collect();
    assert_eq!(nonces.len(), 5, "nonces are unique");
    let ports: HashSet<_> = attempts.iter().map(|a| a.local).collect();
    assert_eq!(ports.len(), 5, "sockets are fresh");
}

#[tokio::test]
async fn as_many_are_under_way_as_the_plan_permits() {
    let (_socket, address) = silent().await;
    let mut hanging = entry(Transport::Udp, address);
    (hanging.count, hanging.interval_ms, hanging.limit_ms) = (6, 1, 200);
    hanging.at_once = Some(2);
    let attempts = run(vec![hanging]).await;
    assert_eq!(attempts.len(), 6);
    for one in &attempts {
        let with_it = |other: &&Attempt| other.start_us <= one.start_us && one.start_us < other.end_us;
        let under_way = attempts.iter().filter(with_it).count();
        assert!(under_way <= 2, "{under_way} when {one:?} began");
    }
}

#[tokio::test]
async fn few_are_under_way_while_answers_are_late_and_timeouts_delay_nothing() {
    let (_socket, address) = silent().await;
    let mut hanging = entry(Transport::Udp, address);
    (hanging.count, hanging.interval_ms, hanging.limit_ms) = (100, 5, 300);
    let late = Mode::Slow(Duration::from_millis(200));
    let (_, port) = server(late, "b1", "127.0.0.1", &Sink::default()).await;
    let mut answered = entry(Transport::Udp, SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    (answered.count, answered.interval_ms) = (100, 5);
    let silence = run(vec![hanging.clone()]).await;
    let attempts = run(vec![hanging, answered]).await;
    assert_eq!((silence.len(), attempts.len()), (100, 200));
    let is_answered = |one: &&Attempt| matches!(one.outcome, Outcome::Answered { .. });
    let first = attempts.iter().filter(is_answered).map(|one| one.end_us).min();
    // And as long again until the client notices.
    let known = first.expect("answers") + 50_000;
    let later: Vec<&Attempt> = attempts.iter().filter(|one| one.start_us > known).collect();
    assert!(!later.is_empty(), "all began before an answer was late");
    let mut under_way: Vec<usize> = later
        .iter()
        .map(|one| {
            let with_it = |other: &&&Attempt| other.start_us <= one.start_us && one.start_us < other.end_us;
            later.iter().filter(with_it).count()
        })
        .collect();
    under_way.sort_unstable();
    // Not all of them: on a busy machine none may end for so long that the next ones do not wait.
    assert!(under_way[under_way.len() / 2] <= 16, "{under_way:?}");
    let took = |attempts: &[Attempt]| {
        let starts = attempts.iter().map(|one| one.start_us);
        starts.clone().max().expect("many") - starts.min().expect("many")
    };
    assert!(took(&silence) < took(&attempts), "silence delays nothing");
}

#[tokio::test]
async fn a_client_that_stood_still_does_not_begin_all_that_it_missed_at_once() {
    const INTERVAL: u64 = 20;
    let (_socket, address) = silent().await;
    let mut paced = entry(Transport::Udp, address);
    (paced.count, paced.interval_ms, paced.limit_ms) = (60, INTERVAL, 10);
    let running = tokio::spawn(run(vec![paced]));
    tokio::time::sleep(Duration::from_millis(200)).await;
    // The only thread of this test.
    std::thread::sleep(Duration::from_millis(600));
    let attempts = running.await.expect("no panic");
    let mut starts: Vec<u64> = attempts.iter().map(|one| one.start_us).collect();
    starts.sort_unstable();
    let between: Vec<u64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(
        between.iter().any(|&us| us > 500_000),
        "it did not stand still: {between:?}"
    );
    // Two milliseconds for the rounding of timers.
    let half = INTERVAL * 1000 / 2 - 2000;
    assert!(between.iter().all(|&us| us >= half), "{between:?}");
}

#[tokio::test]
async fn without_an_interval_each_begins_when_the_last_has_ended() {
    let (_socket, address) = silent().await;
    let mut plan = entry(Transport::Udp, address);
    (plan.count, plan.limit_ms) = (3, 30);
    let attempts = run(vec![plan]).await;
    assert_eq!(attempts.len(), 3);
    for pair in attempts.windows(2) {
        assert!(pair[0].end_us <= pair[1].start_us);
    }
}

#[tokio::test]
async fn entries_run_side_by_side() {
    let (_socket, address) = silent().await;
    let mut slow = entry(Transport::Udp, address);
    slow.limit_ms = 3000;
    let (port, _) = server(Mode::Prompt, "b1", "127.0.0.1", &Sink::default()).await;
    let fast = entry(Transport::Tcp, SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let attempts = run(vec![slow, fast]).await;
    assert_eq!(attempts.len(), 2);
    assert!(
        matches!(attempts[0].outcome, Outcome::Answered { .. }),
        "written as it ended"
    );
    assert!(matches!(attempts[1].outcome, Outcome::Timeout { .. }));
}

#[tokio::test]
async fn an_identity_ends_the_entry_and_others_do_not() {
    let (port, _) = server(Mode::Prompt, "b1", "127.0.0.1", &Sink::default()).await;
    let destination = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    for interval in [0, 1] {
        let mut wanted = entry(Transport::Tcp, destination);
        (wanted.count, wanted.interval_ms) = (10_000, interval);
        wanted.until = Some(Until::Identity(format!("b1/TCP/{port}")));
        let attempts = run(vec![wanted.clone()]).await;
        assert!(attempts.len() < 10_000);
        assert!(
            attempts
                .iter()
                .any(|a| matches!(a.outcome, Outcome::Answered { .. }))
        );

        wanted.count = 7;
        wanted.until = Some(Until::Identity("b2/TCP/1".to_owned()));
        assert_eq!(run(vec![wanted]).await.len(), 7);
    }
}

#[tokio::test]
async fn a_refusal_ends_the_entry_that_waits_for_one() {
    let (port, _) = server(Mode::Prompt, "b1", "127.0.0.1", &Sink::default()).await;
    let mut answered = entry(Transport::Tcp, SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    answered.count = 3;
    answered.until = Some(Until::Refused);
    assert_eq!(
        run(vec![answered.clone()]).await.len(),
        3,
        "an answer is no refusal"
    );

    let closed = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("bind");
    answered.port = closed.local_addr().expect("address").port();
    drop(closed);
    assert!(matches!(one(answered).await.outcome, Outcome::Failed { .. }));
}

#[tokio::test]
async fn cancelling_ends_it_with_what_is_there() {
    let (_socket, address) = silent().await;
    let (port, _) = server(Mode::Prompt, "b1", "127.0.0.1", &Sink::default()).await;
    let mut hanging = entry(Transport::Udp, address);
    hanging.limit_ms = 3_600_000;
    let quick = entry(Transport::Tcp, SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let plan = Plan {
        client: "c1".to_owned(),
        entries: vec![hanging, quick],
    };
    let (sink, stop) = (Sink::default(), CancellationToken::new());
    let running = tokio::spawn(client::run(plan, sink.clone(), stop.clone()));
    while sink.lines::<Attempt>().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stop.cancel();
    running.await.expect("no panic").expect("ends well");
    assert_eq!(sink.lines::<Attempt>().len(), 1);
}

#[tokio::test]
async fn a_reader_that_is_gone_ends_it_with_an_error() {
    struct Gone;
    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (_socket, address) = silent().await;
    let mut plan = entry(Transport::Udp, address);
    (plan.count, plan.limit_ms) = (1_000_000, 1);
    let plan = Plan {
        client: "c1".to_owned(),
        entries: vec![plan],
    };
    let result = client::run(plan, Gone, CancellationToken::new()).await;
    assert!(matches!(result, Err(ClientError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe));
}

#[test]
fn a_plan_that_makes_no_sense_is_refused_with_an_example() {
    let entry = |count: u32, limit: u32, at_once: u32| {
        format!(
            r#"{{"client":"c","entries":[{{"target":"x","transport":"TCP","address":"10.96.0.1","port":80,"count":{count},"interval_ms":0,"limit_ms":{limit},"at_once":{at_once}}}]}}"#
        )
    };
    assert!(client::parse(&entry(1, 1, 1)).is_ok());
    for (line, named) in [
        (entry(0, 1, 1), "count 0"),
        (entry(1, 0, 1), "limit_ms 0"),
        (entry(1, 1, 0), "at_once 0"),
        (entry(1, 1, 1).replace("}]", r#","one_way":true}]"#), "one_way"),
        (String::new(), "EOF"),
    ] {
        let error = client::parse(&line).expect_err("refused").to_string();
        assert!(
            error.contains(named) && error.contains("expected one JSON line such as"),
            "{error}"
        );
    }
}
