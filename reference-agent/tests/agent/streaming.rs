//! Streamed lists, and servers that only seem to have them.

use axum::http::StatusCode;
use reference_agent::reports::Reports;
use serde_json::json;

use crate::reflecting::{Answer, SYNCED, applied, asked, deleted, events, expired, good, line, reported};

fn end_of_list(version: &str) -> String {
    let metadata = json!({"resourceVersion": version, "annotations": {"k8s.io/initial-events-end": "true"}});
    line(
        "BOOKMARK",
        &json!({"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "metadata": metadata}),
    )
}

#[tokio::test]
async fn a_list_is_streamed_and_the_watch_behind_it_is_the_same_request() {
    let lines = vec![
        line("ADDED", &good("a")),
        line("ADDED", &good("b")),
        end_of_list("20"),
        line("DELETED", &good("b")),
    ];
    let stream = Answer::Stream { lines, open: true };
    let (seen, asked) = asked(vec![stream], deleted("t/b")).await;
    assert_eq!(seen, [applied("a"), applied("b"), SYNCED, deleted("t/b")]);
    let [request] = asked.as_slice() else {
        panic!("one request, not {asked:?}");
    };
    assert_eq!(
        request.resource_version, "",
        "a consistent read, not whatever the server has cached"
    );
    assert_eq!(
        request.label_selector,
        "!service.kubernetes.io/service-proxy-name,!service.kubernetes.io/headless"
    );
}

#[tokio::test]
async fn the_version_of_a_streamed_list_is_gone_on_from_and_its_gap_deletes_as_that_of_a_paged_one() {
    let stream = |lines, open| Answer::Stream { lines, open };
    let script = vec![
        stream(
            vec![
                line("ADDED", &good("a")),
                line("ADDED", &good("b")),
                end_of_list("20"),
            ],
            false,
        ),
        Answer::Watch {
            lines: vec![expired()],
            open: false,
        },
        stream(vec![line("ADDED", &good("b")), end_of_list("30")], true),
    ];
    let (seen, asked) = asked(script, deleted("t/a")).await;
    assert_eq!(seen, [applied("a"), applied("b"), SYNCED, deleted("t/a")]);
    let versions: Vec<_> = asked
        .iter()
        .map(|request| request.resource_version.as_str())
        .collect();
    assert_eq!(versions, ["", "20", ""]);
}

#[rstest::rstest]
#[case::changes_before_the_end(vec![line("ADDED", &good("a")), line("MODIFIED", &good("a"))], true)]
#[case::an_end_before_the_end(vec![line("ADDED", &good("a"))], false)]
#[case::silence(vec![line("ADDED", &good("a"))], true)]
#[tokio::test]
async fn a_server_that_takes_the_request_to_stream_and_does_not_is_asked_for_pages(
    #[case] lines: Vec<String>,
    #[case] open: bool,
) {
    let script = vec![
        Answer::Stream { lines, open },
        Answer::List(vec![good("b")]),
        Answer::Watch {
            lines: vec![line("ADDED", &good("c"))],
            open: true,
        },
    ];
    let seen = events(script, applied("c")).await;
    assert_eq!(
        seen,
        [applied("a"), applied("b"), deleted("t/a"), SYNCED, applied("c")]
    );
}

#[tokio::test]
async fn a_line_that_is_no_json_within_a_streamed_list_is_followed_by_another_streamed_list() {
    let script = vec![
        Answer::Error(StatusCode::SERVICE_UNAVAILABLE),
        Answer::Stream {
            lines: vec![
                line("ADDED", &good("a")),
                r#"{"type":"ADDED","object":{{{"#.to_owned(),
            ],
            open: true,
        },
        Answer::Stream {
            lines: vec![line("ADDED", &good("b")), end_of_list("20")],
            open: true,
        },
    ];
    let seen = events(script, SYNCED).await;
    assert_eq!(seen, [applied("a"), applied("b"), deleted("t/a"), SYNCED]);
}

/// A server that stops within a list says nothing of what the next one can.
#[rstest::rstest]
#[case::an_early_end(false, "broken")]
#[case::silence(true, "silent")]
#[tokio::test]
async fn behind_a_stream_that_went_wrong_one_list_is_paged_and_the_next_one_streamed_again(
    #[case] open: bool,
    #[case] cause: &str,
) {
    let script = vec![
        Answer::Stream {
            lines: vec![line("ADDED", &good("a"))],
            open,
        },
        Answer::List(vec![good("b")]),
        Answer::Watch {
            lines: vec![expired()],
            open: false,
        },
        Answer::Stream {
            lines: vec![line("ADDED", &good("c")), end_of_list("20")],
            open: true,
        },
    ];
    let reports = Reports::new(None);
    let (seen, _) = reported(script, deleted("t/b"), &reports).await;
    assert_eq!(
        seen,
        [
            applied("a"),
            applied("b"),
            deleted("t/a"),
            SYNCED,
            applied("c"),
            deleted("t/b")
        ]
    );
    let metrics = &reports.metrics;
    assert_eq!(metrics.watch_restarts.at(["endpointslice", cause]).get(), 1);
    assert_eq!(metrics.watch_restarts.at(["endpointslice", "refused"]).get(), 0);
    assert_eq!(metrics.lists.at(["endpointslice", "streamed"]).get(), 1);
}
