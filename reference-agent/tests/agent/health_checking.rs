//! Health check node ports, in a network namespace of their own.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    time::{Duration, Instant},
};

use reference_agent::{
    health_checks::{self, Wanted},
    plan::HealthCheck,
    readiness::Component,
    reports::Reports,
    testing::objects::name,
};
use test_network::EnteredNamespace;
use testing::patience::LIMIT;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::watch,
    task::JoinHandle,
};

/// Health checks that are served.
struct Served {
    wanted: watch::Sender<Wanted>,
    reports: Reports,
    task: JoinHandle<()>,
}

impl Served {
    fn start() -> Self {
        let (wanted, receiver) = watch::channel(Wanted::new());
        let reports = Reports::new(None);
        let task = tokio::spawn(health_checks::serve(receiver, reports.clone()));
        Self {
            wanted,
            reports,
            task,
        }
    }

    fn want(&self, service: &str, port: u16, local_endpoints: usize) {
        let check = HealthCheck {
            port,
            local_endpoints,
        };
        self.wanted.send_modify(|wanted| {
            wanted.insert(name(service), check);
        });
    }

    fn drop(&self, service: &str) {
        self.wanted.send_modify(|wanted| {
            wanted.remove(&name(service));
        });
    }
}

/// Runs a test in a network namespace whose loopback is up.
fn in_namespace(test: impl Future<Output = ()>) {
    if !testing::root_or_skip(&testing::current()) {
        return;
    }
    // Of this thread alone, which all tasks of the runtime run on.
    let _entered = EnteredNamespace::enter().expect("a network namespace");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(test);
}

/// The answer to a GET; `None`: the port is closed.
async fn get(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = b"GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n";
    stream.write_all(request).await.expect("sent");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .await
        .expect("an answer, and the end");
    Some(answer)
}

fn at(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Asks until the status line and the body are these; `None`: until the port is closed.
async fn until(address: SocketAddr, expected: Option<(&str, &str)>) -> String {
    let begin = Instant::now();
    loop {
        let seen = get(address).await;
        let parts = seen.as_deref().map(|answer| {
            let status = answer.lines().next().unwrap_or_default();
            let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
            (status, body)
        });
        if parts == expected {
            return seen.unwrap_or_default();
        }
        assert!(begin.elapsed() < LIMIT, "expected {expected:?}, found {seen:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

const OK: &str = "HTTP/1.1 200 OK";
const UNAVAILABLE: &str = "HTTP/1.1 503 Service Unavailable";

fn body(endpoints: usize, healthy: bool) -> String {
    format!(
        r#"{{"localEndpoints":{endpoints},"service":{{"name":"x","namespace":"t"}},"serviceProxyHealthy":{healthy}}}"#
    )
}

#[test]
fn a_port_says_at_every_address_how_many_endpoints_are_here() {
    in_namespace(async {
        let served = Served::start();
        served.want("t/x", 30_100, 2);
        let two = body(2, true);
        let answer = until(at(30_100), Some((OK, &two))).await;
        assert!(
            answer.contains("\r\nx-load-balancing-endpoint-weight: 2\r\n"),
            "{answer}"
        );
        assert!(
            answer.contains("\r\ncontent-type: application/json\r\n"),
            "{answer}"
        );
        until((Ipv6Addr::LOCALHOST, 30_100).into(), Some((OK, &two))).await;

        served.want("t/x", 30_100, 0);
        until(at(30_100), Some((UNAVAILABLE, &body(0, true)))).await;
        served.want("t/x", 30_100, 1);
        until(at(30_100), Some((OK, &body(1, true)))).await;

        // An agent that can't be relied on takes no traffic.
        served
            .reports
            .readiness
            .set_reasons(Component::Probe, vec!["the probe is not answered".to_owned()]);
        until(at(30_100), Some((UNAVAILABLE, &body(1, false)))).await;
        served.reports.readiness.set_reasons(Component::Probe, Vec::new());
        until(at(30_100), Some((OK, &body(1, true)))).await;
        let unattached = vec!["not attached to device uplink".to_owned()];
        served
            .reports
            .readiness
            .set_reasons(Component::Programs, unattached);
        until(at(30_100), Some((UNAVAILABLE, &body(1, false)))).await;
        served
            .reports
            .readiness
            .set_reasons(Component::Programs, Vec::new());
        until(at(30_100), Some((OK, &body(1, true)))).await;

        // What is wrong with one pod's device, one object or the API server takes no other's traffic.
        for part in [
            Component::Hooks,
            Component::Maps,
            Component::Source,
            Component::ApiAccess,
        ] {
            served
                .reports
                .readiness
                .set_reasons(part, vec!["this lasts".to_owned()]);
        }
        served.want("t/x", 30_100, 2);
        until(at(30_100), Some((OK, &body(2, true)))).await;
    });
}

#[test]
fn a_port_is_closed_with_its_service_and_moves_with_it_and_all_are_with_the_agent() {
    in_namespace(async {
        let served = Served::start();
        served.want("t/x", 30_100, 1);
        served.want("t/y", 30_200, 0);
        until(at(30_100), Some((OK, &body(1, true)))).await;
        assert!(get(at(30_200)).await.is_some());
        served.want("t/x", 30_101, 1);
        until(at(30_101), Some((OK, &body(1, true)))).await;
        until(at(30_100), None).await;
        served.drop("t/x");
        until(at(30_101), None).await;
        assert_eq!(served.reports.metrics.health_check_servers.at([]).get(), 1);
        drop(served.wanted);
        served.task.await.expect("it ends when nobody can want anything");
        until(at(30_200), None).await;
    });
}

#[test]
fn a_port_that_somebody_has_is_a_finding_until_it_is_free() {
    in_namespace(async {
        let taken = TcpListener::bind(at(30_100)).expect("a port");
        let served = Served::start();
        served.want("t/x", 30_100, 1);
        served.want("t/y", 30_200, 1);
        let begin = Instant::now();
        while served.reports.ledger.text().is_empty() {
            assert!(begin.elapsed() < LIMIT, "no finding");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(
            served.reports.ledger.text(),
            "service t/x: NotWritten: spec.healthCheckNodePort: 30100 can't be served: Address already in use (os error 98)\n"
        );
        assert!(get(at(30_200)).await.is_some(), "nothing else suffers");
        drop(taken);
        until(at(30_100), Some((OK, &body(1, true)))).await;
        assert_eq!(served.reports.ledger.text(), "");
    });
}

#[test]
fn clients_that_say_nothing_keep_nobody_from_an_answer_for_long() {
    in_namespace(async {
        let served = Served::start();
        served.want("t/x", 30_100, 1);
        until(at(30_100), Some((OK, &body(1, true)))).await;
        let mut silent = Vec::new();
        for _ in 0..health_checks::CONNECTIONS {
            silent.push(TcpStream::connect(at(30_100)).await.expect("connected"));
        }
        let answer = tokio::time::timeout(2 * health_checks::ANSWER_LIMIT, get(at(30_100))).await;
        assert!(answer.expect("an answer").expect("open").starts_with(OK));
        drop(silent);
    });
}
