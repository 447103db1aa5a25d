//! What these tests share.

use std::{
    io::{self, Write},
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use oracle::history::{Attempt, Plan, PlanEntry, Transport};
use probe::{
    client,
    serve::{Mode, ServeConfig, Server},
};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

/// Written bytes, shared with the test.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    /// All whole lines so far.
    pub(crate) fn lines<T: DeserializeOwned>(&self) -> Vec<T> {
        let bytes = self.0.lock().expect("no writer panicked").clone();
        let text = String::from_utf8(bytes).expect("UTF-8");
        text.lines()
            .map(|line| serde_json::from_str(line).expect("a record"))
            .collect()
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no writer panicked").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A server on one TCP and one UDP port, for as long as the test runs.
pub(crate) async fn server(mode: Mode, name: &str, address: &str, log: &Sink) -> (u16, u16) {
    let address = address.parse().expect("an address");
    let config = ServeConfig {
        name: name.to_owned(),
        addresses: vec![address],
        tcp: vec![0],
        udp: vec![0],
        sctp: Vec::new(),
        pod: None,
        mode,
    };
    let server = Server::bind(&config, log.clone()).expect("bind");
    let ports = (
        server.tcp_ports().next().expect("TCP"),
        server.udp_ports().next().expect("UDP"),
    );
    tokio::spawn(server.run());
    ports
}

/// One attempt.
pub(crate) fn entry(transport: Transport, destination: SocketAddr) -> PlanEntry {
    PlanEntry {
        target: "t".to_owned(),
        transport,
        address: destination.ip(),
        port: destination.port(),
        count: 1,
        interval_ms: 0,
        limit_ms: 10_000,
        until: None,
        flows: None,
        source_ports: None,
        at_once: None,
        one_way: false,
    }
}

/// The attempts of a plan with these entries.
pub(crate) async fn run(entries: Vec<PlanEntry>) -> Vec<Attempt> {
    let sink = Sink::default();
    let plan = Plan {
        client: "c1".to_owned(),
        entries,
    };
    client::run(plan, sink.clone(), CancellationToken::new())
        .await
        .expect("the client ends well");
    sink.lines()
}

/// The result of one attempt.
pub(crate) async fn one(entry: PlanEntry) -> Attempt {
    let mut attempts = run(vec![entry]).await;
    assert_eq!(attempts.len(), 1);
    attempts.remove(0)
}
