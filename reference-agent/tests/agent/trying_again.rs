//! What becomes of watches that fail: they are tried again, not too often, counted, and said where they bring nothing.

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use reference_agent::{model::Kind, readiness, reflect, reports::Reports};
use serde_json::json;

use crate::reflecting::{Answer, LIMIT, SYNCED, applied, good, line, reported};

#[rstest::rstest]
#[case::too_busy(StatusCode::TOO_MANY_REQUESTS)]
#[case::not_ready(StatusCode::SERVICE_UNAVAILABLE)]
#[case::too_slow(StatusCode::GATEWAY_TIMEOUT)]
#[tokio::test]
async fn each_answer_that_is_an_error_is_counted_and_tried_again_by_the_watch_alone(
    #[case] code: StatusCode,
) {
    let refused = std::iter::repeat_n(Answer::Error(code), 4);
    let list = [
        Answer::List(vec![]),
        Answer::Watch {
            lines: vec![line("ADDED", &good("a"))],
            open: true,
        },
    ];
    let reports = Reports::new(None);
    let (seen, _) = reported(refused.chain(list).collect(), applied("a"), &reports).await;
    assert_eq!(seen, [SYNCED, applied("a")]);
    let restarts = &reports.metrics.watch_restarts;
    // Four refusals, and that of the streamed list.
    assert_eq!(restarts.at(["endpointslice", "refused"]).get(), 5);
}

#[tokio::test]
async fn a_watch_that_ends_at_once_and_brings_nothing_has_failed_and_is_not_opened_again_at_once() {
    let nothing = Answer::Watch {
        lines: Vec::new(),
        open: false,
    };
    let last = Answer::Watch {
        lines: vec![line("ADDED", &good("a"))],
        open: true,
    };
    let mut script = vec![Answer::List(vec![])];
    script.extend(std::iter::repeat_n(nothing, 4));
    script.push(last);
    let reports = Reports::new(None);
    let begin = Instant::now();
    let (seen, _) = reported(script, applied("a"), &reports).await;
    assert_eq!(seen, [SYNCED, applied("a")], "from where it was, without a list");
    let restarts = &reports.metrics.watch_restarts;
    assert_eq!(restarts.at(["endpointslice", "broken"]).get(), 4);
    // Each pause is twice the one before; the shorter half of each at least.
    assert!(begin.elapsed() >= reflect::RETRY_FIRST * (1 + 2 + 4 + 8) / 2);
}

/// Looks until there is something.
async fn until<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(seen) = look() {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let looked = tokio::time::timeout(LIMIT, looking).await;
    looked.unwrap_or_else(|_| panic!("{what}: not within {LIMIT:?}"))
}

/// A list, failures, and at last what goes on.
fn interrupted_by(failure: &Answer) -> Vec<Answer> {
    let mut script = vec![Answer::List(vec![])];
    script.extend(std::iter::repeat_n(failure.clone(), 5));
    script.push(Answer::Watch {
        lines: vec![line("ADDED", &good("a")), line("ADDED", &good("b"))],
        open: true,
    });
    script
}

#[tokio::test]
async fn of_what_was_listed_a_watch_that_is_refused_is_known_by_its_reason_until_something_comes() {
    let reports = Reports::new(None);
    let unheard = |now| reports.readiness.silence_reason(Kind::EndpointSlice, now);
    let told = until("the refusal", || {
        let now = Instant::now();
        let told = unheard(now + readiness::WATCH_SILENCE_LIMIT + Duration::from_secs(1))?;
        (told.contains("403") && unheard(now).is_none()).then_some((now, told))
    });
    let script = interrupted_by(&Answer::Error(StatusCode::FORBIDDEN));
    let ((seen, _), (refused, told)) = tokio::join!(reported(script, applied("b"), &reports), told);
    assert_eq!(seen, [SYNCED, applied("a"), applied("b")]);
    let expected = "changes of endpointslices have not come since 90 s, and are served as last known: the request failed: ";
    assert!(told.starts_with(expected), "{told}");
    assert_eq!(
        unheard(refused + readiness::WATCH_SILENCE_LIMIT),
        None,
        "the event was heard after the refusal"
    );
}

#[tokio::test]
async fn a_server_that_accepts_watches_and_fails_each_is_heard_once() {
    let reports = Reports::new(None);
    let broken = || {
        reports
            .metrics
            .watch_restarts
            .at(["endpointslice", "broken"])
            .get()
    };
    let failing = async {
        let first = until("a failure", || (broken() >= 1).then(Instant::now)).await;
        until("more of them", || (broken() >= 3).then_some(())).await;
        let later = first + readiness::WATCH_SILENCE_LIMIT + Duration::from_millis(1);
        reports.readiness.silence_reason(Kind::EndpointSlice, later)
    };
    let status = json!({"kind": "Status", "status": "Failure", "code": 500, "message": "no leader"});
    let script = interrupted_by(&Answer::Watch {
        lines: vec![line("ERROR", &status)],
        open: false,
    });
    let ((seen, _), told) = tokio::join!(reported(script, applied("b"), &reports), failing);
    assert_eq!(seen, [SYNCED, applied("a"), applied("b")]);
    let told = told.expect("nothing was heard after the first failure");
    assert!(told.ends_with("no leader"), "{told}");
}
