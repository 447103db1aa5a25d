//! Many bytes over one connection.

use std::{net::SocketAddr, time::Duration};

use oracle::history::{Outcome, Served};
use probe::{
    MAX_TRANSFER,
    client::{Transfer, transfer},
    serve::Mode,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::common::{Sink, server};

/// Longer than what one read or write takes.
const BYTES: u32 = 1_000_001;

async fn serve(log: &Sink) -> SocketAddr {
    let (port, _) = server(Mode::Prompt, "b1", "127.0.0.1", log).await;
    ([127, 0, 0, 1], port).into()
}

#[tokio::test]
async fn all_bytes_arrive_both_ways_and_the_server_logs_the_nonce() {
    let log = Sink::default();
    let to = serve(&log).await;
    let from = "127.0.0.7".parse().expect("an address");
    for (upload, download) in [(BYTES, 0), (0, BYTES), (BYTES, 1)] {
        let attempt = transfer(&Transfer {
            client: "c1".to_owned(),
            target: "t".to_owned(),
            to,
            from: Some(from),
            upload,
            download,
            limit: Duration::from_secs(30),
        })
        .await;
        let Outcome::Answered { answer, peer } = attempt.outcome else {
            panic!("{attempt:?}");
        };
        assert_eq!((&*answer.identity, peer), (&*format!("b1/TCP/{}", to.port()), to));
        assert_eq!((answer.source.ip(), answer.nonce), (from, attempt.nonce.clone()));
        let logged: Vec<Served> = log.lines();
        assert_eq!(logged.last().map(|line| &line.answer.nonce), Some(&attempt.nonce));
    }
}

#[tokio::test]
async fn what_does_not_arrive_as_it_was_sent_or_is_too_much_is_not_answered() {
    let log = Sink::default();
    let to = serve(&log).await;
    let much = format!("{{\"nonce\":\"n\",\"upload\":{}}}\n", MAX_TRANSFER + 1);
    let cut = "{\"nonce\":\"n\",\"upload\":3}\nx";
    let damaged = "{\"nonce\":\"n\",\"upload\":3}\nxyz";
    for request in [much.as_str(), cut, damaged] {
        let mut stream = TcpStream::connect(to).await.expect("a connection");
        stream.write_all(request.as_bytes()).await.expect("sent");
        stream.shutdown().await.expect("ended");
        let mut said = Vec::new();
        // A reset says no more than an end.
        drop(stream.read_to_end(&mut said).await);
        assert!(said.is_empty(), "{request:?}: {said:?}");
    }
    assert!(log.lines::<Served>().is_empty(), "nothing was served");
}

#[tokio::test]
async fn a_server_that_does_not_receive_it_all_in_time_shows_where_it_ended() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a listener");
    let attempt = transfer(&Transfer {
        client: "c1".to_owned(),
        target: "t".to_owned(),
        to: listener.local_addr().expect("an address"),
        from: None,
        upload: MAX_TRANSFER,
        download: 0,
        limit: Duration::from_millis(300),
    })
    .await;
    let stage = oracle::history::Stage::Send;
    assert_eq!(attempt.outcome, Outcome::Timeout { stage });
}
