//! The agent's own probe, without programs that translate it.

use std::{
    io::Write as _,
    net::{SocketAddr, TcpListener},
    thread,
    time::{Duration, Instant},
};

use reference_agent::{
    probe::{FAILURES, LIMIT, PERIOD, Prober},
    readiness::Component,
    reports::Reports,
};

/// Failures that are told take so long at most, on a busy machine.
const TOLD: Duration = testing::patience::LIMIT;

/// The readiness reasons about the probe to a frontend, as soon as they are others than at first.
async fn told(frontend: SocketAddr) -> (Vec<String>, Reports) {
    let reports = Reports::new(None);
    let prober = Prober::new(frontend, &reports.readiness)
        .await
        .expect("a listener");
    let first = reports.readiness.reasons();
    assert_eq!(first, ["the agent's own probe has not been served yet"]);
    let probing = tokio::spawn(prober.run(reports.clone()));
    let begin = Instant::now();
    while reports.readiness.reasons() == first {
        assert!(begin.elapsed() < TOLD, "nothing new is told");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    probing.abort();
    (reports.readiness.reasons(), reports)
}

#[tokio::test]
async fn a_probe_that_nobody_translates_is_told_with_what_happened() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let frontend = free.local_addr().expect("an address");
    drop(free);
    let (reasons, reports) = told(frontend).await;
    let [reason] = &reasons[..] else {
        panic!("one reason: {reasons:?}")
    };
    assert!(
        reason.starts_with(&format!("the agent's own probe to {frontend} is not served"))
            && reason.contains("Connection refused"),
        "{reason}"
    );
    assert_eq!(reports.metrics.probes.at(["served"]).get(), 0);
}

#[tokio::test]
async fn an_answer_of_another_server_is_none() {
    let stranger = TcpListener::bind("127.0.0.1:0").expect("a port");
    let frontend = stranger.local_addr().expect("an address");
    thread::spawn(move || {
        for mut stream in stranger.incoming().flatten() {
            // Who is gone wants no answer.
            let _ = stream.write_all(b"sixteen bytes ok");
        }
    });
    let (reasons, _) = told(frontend).await;
    assert!(
        reasons[0].contains("the answer came from another server"),
        "{reasons:?}"
    );
}

#[tokio::test]
async fn what_lasts_in_objects_devices_and_the_api_server_does_not_keep_it_from_probing() {
    let reports = Reports::new(None);
    for part in [
        Component::Maps,
        Component::Source,
        Component::ApiAccess,
        Component::Hooks,
    ] {
        reports.readiness.set_reasons(part, vec!["this lasts".to_owned()]);
    }
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let frontend = free.local_addr().expect("an address");
    drop(free);
    let prober = Prober::new(frontend, &reports.readiness)
        .await
        .expect("a listener");
    let probing = tokio::spawn(prober.run(reports.clone()));
    let begin = Instant::now();
    while reports.metrics.probes.at(["failed"]).get() == 0 {
        assert!(begin.elapsed() < TOLD, "it does not probe");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    probing.abort();
}

#[tokio::test]
async fn while_others_have_something_to_say_the_probe_waits() {
    let reports = Reports::new(None);
    reports.readiness.set_reasons(
        Component::Lists,
        vec!["services have not been listed yet".to_owned()],
    );
    let prober = Prober::new("127.0.0.1:9".parse().expect("an address"), &reports.readiness).await;
    let probing = prober.expect("a listener").run(reports.clone());
    // Long enough for several: the first one does not wait for its period.
    let window = Duration::from_millis(300);
    tokio::time::timeout(window, probing)
        .await
        .expect_err("it goes on for ever");
    assert_eq!(reports.metrics.probes.at(["failed"]).get(), 0);
    assert!(PERIOD * FAILURES + LIMIT * FAILURES < TOLD);
}
