//! What the agent says over HTTP, of itself alone.

use reference_agent::{
    reports::Reports,
    status::{self, Server},
};
use testing::patience::LIMIT;
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

#[tokio::test]
async fn a_client_that_does_not_end_its_request_does_not_hold_up_the_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("an address");
    let (questions, _receiver) = mpsc::channel(1);
    let server = Server {
        reports: Reports::new(None),
        questions,
        maps_at: "nowhere".to_owned(),
    };
    let shutdown = CancellationToken::new();
    let serving = tokio::spawn(status::serve(listener, server, shutdown.clone()));
    let mut client = TcpStream::connect(at).await.expect("it listens");
    client
        .write_all(b"GET /healthz HTTP/1.1\r\n")
        .await
        .expect("sent");
    // The server has the connection, and half a request.
    let mut other = TcpStream::connect(at).await.expect("it listens");
    other
        .write_all(b"GET /healthz HTTP/1.0\r\n\r\n")
        .await
        .expect("sent");
    other.readable().await.expect("an answer");
    shutdown.cancel();
    let ended = timeout(LIMIT, serving).await.expect("it ends");
    ended.expect("no panic").expect("no failure");
}
