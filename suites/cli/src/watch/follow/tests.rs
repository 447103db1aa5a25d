//! An API server that answers lists and then stops sending: on a watch, or on a list.

use k8s_openapi::api::core::v1::Service;
use kube::Config;
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    sync::mpsc::{Receiver, channel},
    task::JoinSet,
};

use super::*;

/// The answer to a request for a watch.
#[derive(Clone, Copy)]
enum Watches {
    /// No answer at all.
    NoAnswer,
    /// Status and headers, without an event or an end.
    HeadersAlone,
}

/// Long enough for a busy machine, and short enough for a test.
const PATIENCE: Patience = Patience {
    answer: Duration::from_secs(2),
    watch_seconds: 1,
    slack: Duration::from_secs(1),
};
/// How long anything may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Answers the requests of one connection; each list has this Service in another version.
async fn serve(stream: TcpStream, watches: Watches, mut version: u32) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut request = String::new();
        while !request.ends_with("\r\n\r\n") {
            if stream.read_line(&mut request).await? == 0 {
                return Ok(());
            }
        }
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
        let is_watch = request
            .lines()
            .next()
            .is_some_and(|line| line.contains("watch=true"));
        match watches {
            _ if !is_watch => {
                version += 1;
                let text = version.to_string();
                let service = json!({"name": "t", "resourceVersion": text, "annotations": {"note": text}});
                let list = json!({
                    "kind": "ServiceList", "apiVersion": "v1", "metadata": {"resourceVersion": text},
                    "items": [{"metadata": service}],
                });
                let body = list.to_string();
                let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
                stream.write_all(answer.as_bytes()).await?;
            }
            Watches::NoAnswer => std::future::pending::<()>().await,
            Watches::HeadersAlone => {
                let answer = format!("{head}transfer-encoding: chunked\r\n\r\n");
                stream.write_all(answer.as_bytes()).await?;
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Follows Services of such a server. Everything ends with the tasks.
async fn following(watches: Watches) -> (Receiver<ObservedEvent>, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        // A watch keeps its connection, so each list after one uses a new connection.
        for version in 0.. {
            let (stream, _) = listener.accept().await.unwrap();
            connections.spawn(serve(stream, watches, version));
        }
    });
    let client = Client::try_from(Config::new(address.parse().unwrap())).unwrap();
    let followed = Followed {
        kind: "Service",
        resource: ApiResource::erase::<Service>(&()),
        namespace: "default".into(),
        labels: None,
        fields: None,
    };
    let (sender, seen) = channel(64);
    tasks.spawn(async move { drop(follow(client, followed, PATIENCE, sender).await) });
    (seen, tasks)
}

async fn told_and_listed_again(watches: Watches, why: &str) {
    let (mut seen, _tasks) = following(watches).await;
    let mut until = async |what: EventKind| loop {
        let next = tokio::time::timeout(LIMIT, seen.recv()).await;
        let next = next.expect("it goes on").expect("it goes on");
        if next.what == what {
            return next;
        }
    };
    assert_eq!(until(EventKind::ListEnds).await.changes, ["listed: 1 object"]);
    let trouble = until(EventKind::Trouble).await;
    assert!(
        trouble.changes[0].contains(why) && trouble.changes[0].contains("listed again"),
        "{trouble:?}"
    );
    // The list after it shows a change without a watch event.
    let missed = until(EventKind::MissedChange).await;
    assert_eq!(
        (missed.name.as_str(), missed.changes.len()),
        ("t", 1),
        "{missed:?}"
    );
    until(EventKind::ListEnds).await;
    until(EventKind::Trouble).await;
}

#[tokio::test]
async fn a_watch_that_is_never_answered_is_trouble_and_all_is_listed_again() {
    told_and_listed_again(Watches::NoAnswer, "did not answer a watch within 2.0 s").await;
}

#[tokio::test]
async fn a_watch_that_says_nothing_and_does_not_end_is_trouble_and_all_is_listed_again() {
    told_and_listed_again(
        Watches::HeadersAlone,
        "neither said anything on a watch nor ended it within 2.0 s",
    )
    .await;
}
