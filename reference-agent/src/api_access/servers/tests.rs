//! Which addresses there are, and in which order they are tried.

use super::*;
use crate::{feed, model::Event};

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

async fn servers(url: &'static str, more: &[&'static str], state: Option<&Path>) -> ApiServers {
    let more: Vec<Uri> = more.iter().map(|url| Uri::from_static(url)).collect();
    let config = kube::Config::new(Uri::from_static(url));
    ApiServers::new(&config, &more, state).await.expect("servers")
}

#[tokio::test]
async fn the_configured_come_first_then_those_given_then_those_seen_last() {
    let servers = servers("https://10.96.0.1", &["https://[2001:db8::1]:6443"], None).await;
    servers.learn([at("10.0.0.1:6443"), at("10.0.0.2:6443")]);
    servers.learn([]);
    servers.learn([at("10.0.0.3:6443"), at("10.0.0.1:6443")]);
    let expected = [
        "10.96.0.1:443",
        "[2001:db8::1]:6443",
        "10.0.0.3:6443",
        "10.0.0.1:6443",
        "10.0.0.2:6443",
    ];
    assert_eq!(servers.candidates().await, expected.map(at));
    let kept = [at("10.96.0.1:443"), at("[2001:db8::1]:6443")].map(|address| (address.ip(), address.port()));
    assert_eq!(servers.addresses(), kept.into(), "endpoints are no frontends");
    servers.was_silent(at("10.96.0.1:443"));
    assert_eq!(servers.candidates().await[4], at("10.96.0.1:443"), "silent: last");
    servers.has_sent(at("10.96.0.1:443"));
    assert_eq!(servers.candidates().await, expected.map(at));
}

#[tokio::test]
async fn what_was_learned_outlives_the_process_and_is_bounded() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = servers("https://10.96.0.1", &[], Some(folder.path())).await;
    first.learn((0..=255).map(|last| SocketAddr::from(([10, 0, 0, last], 6443))));
    let next = servers("https://10.96.0.1", &[], Some(folder.path())).await;
    let candidates = next.candidates().await;
    assert_eq!(candidates, first.candidates().await);
    assert_eq!(candidates.len(), 1 + REMEMBERED);
}

#[tokio::test]
async fn what_could_not_be_stored_is_tried_again() {
    let folder = tempfile::tempdir().expect("a folder");
    // A file where the folder should be.
    let state = folder.path().join("state");
    std::fs::write(&state, "").expect("written");
    let servers = servers("https://10.96.0.1", &[], Some(&state)).await;
    servers.learn([at("10.0.0.1:6443")]);
    std::fs::remove_file(&state).expect("removed");
    let now = Instant::now();
    servers.store_again(now);
    assert!(!state.exists(), "not at once");
    servers.store_again(now + STORE_AGAIN);
    assert_eq!(StateFile::new(&state).read().endpoints, [at("10.0.0.1:6443")]);
    std::fs::remove_dir_all(&state).expect("removed");
    servers.store_again(now + 2 * STORE_AGAIN);
    assert!(!state.exists(), "what is stored is not stored again");
}

#[tokio::test]
async fn whoever_only_looks_knows_what_the_agent_remembers_and_writes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = kube::Config::new(Uri::from_static("https://localhost:6443"));
    let look = async || ApiServers::read_only(&config, &[], folder.path()).await;
    look().await.expect("servers").learn([at("10.0.0.1:6443")]);
    assert_eq!(folder.path().read_dir().expect("a folder").count(), 0);
    let agent = servers("https://localhost:6443", &[], Some(folder.path())).await;
    agent.learn([at("10.0.0.2:6443")]);
    let looker = look().await.expect("servers");
    assert_eq!(looker.candidates().await, agent.candidates().await);
}

#[tokio::test]
async fn a_name_is_resolved_and_what_it_was_resolved_to_is_remembered() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = servers(
        "https://localhost:6443",
        &["https://10.0.0.9"],
        Some(folder.path()),
    )
    .await;
    let known = first.addresses();
    assert!(
        known.contains(&("127.0.0.1".parse().expect("an address"), 6443)),
        "{known:?}"
    );
    assert_eq!(
        first.candidates().await.last(),
        Some(&at("10.0.0.9:443")),
        "the kubeconfig's comes first"
    );
    let file = StateFile::new(folder.path());
    assert!(file.read().names.contains_key("localhost:6443"));
}

#[tokio::test]
async fn a_name_that_is_not_resolved_leads_where_it_led_before_whatever_others_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = StateFile::new(folder.path());
    let led = |text: &str| vec![at(text)];
    let names = [
        ("nobody.invalid:6443".to_owned(), led("192.0.2.1:6443")),
        ("localhost:6443".to_owned(), led("192.0.2.2:6443")),
        ("another.invalid:6443".to_owned(), led("192.0.2.3:6443")),
    ];
    let remembered = Remembered {
        names: names.into(),
        ..Remembered::default()
    };
    file.write(&remembered).expect("written");
    let servers = servers(
        "https://nobody.invalid:6443",
        &["https://localhost:6443"],
        Some(folder.path()),
    )
    .await;
    let candidates = servers.candidates().await;
    assert_eq!(candidates[0], at("192.0.2.1:6443"), "not resolved: as before");
    assert!(
        candidates.contains(&at("127.0.0.1:6443")),
        "resolved: {candidates:?}"
    );
    assert!(
        !candidates.contains(&at("192.0.2.2:6443")),
        "resolved to another one"
    );
    assert!(!candidates.contains(&at("192.0.2.3:6443")), "configured no more");
    // And so is the state file of the next start.
    let known: Vec<_> = file.read().names.into_keys().collect();
    assert_eq!(known, ["localhost:6443", "nobody.invalid:6443"]);
    assert_eq!(file.read().names["nobody.invalid:6443"], led("192.0.2.1:6443"));
}

#[tokio::test]
async fn what_a_name_is_resolved_to_is_followed() {
    let servers = servers("https://localhost:6443", &[], None).await;
    let (sender, mut events) = feed::queue();
    let _feeding = tokio::spawn(servers.clone().feed().run(sender));
    let mut told = async || match events
        .recv()
        .await
        .and_then(|arrival| arrival.events().next())
        .expect("it goes on")
    {
        Event::ApiServers(addresses) => addresses,
        other => panic!("of API servers, found {other:?}"),
    };
    let now = told().await;
    assert_eq!(now, servers.addresses());
    // As if it had led elsewhere, and for longer than an answer is good.
    let before = at("192.0.2.7:6443");
    {
        let mut state = servers.lock();
        state.remembered.names = [("localhost:6443".to_owned(), vec![before])].into();
        state.resolved = None;
    }
    servers.publish();
    assert_eq!(told().await, [(before.ip(), before.port())].into());
    servers.candidates().await;
    assert_eq!(told().await, now);
}

#[tokio::test]
async fn without_a_certificate_nothing_is_learned() {
    let servers = servers("http://10.96.0.1:8080", &[], None).await;
    servers.learn([at("10.0.0.1:6443")]);
    assert_eq!(servers.candidates().await, [at("10.96.0.1:8080")]);
}

#[tokio::test]
async fn what_is_no_server_is_refused_by_name() {
    for wrong in ["10.0.0.1", "/api", "ftp://10.0.0.1"] {
        let config = kube::Config::new(Uri::from_static("https://10.96.0.1"));
        let error = ApiServers::new(&config, &[Uri::from_static(wrong)], None).await;
        let error = error.expect_err("no server").to_string();
        assert!(
            error.contains(wrong) && error.contains("expected a URL"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn blindness_is_told_after_a_while_and_once() {
    let servers = servers("https://10.96.0.1", &[], None).await;
    servers.unanswered(&["10.96.0.1:443: refused".to_owned()]);
    let begin = Instant::now();
    assert_eq!(
        servers.reasons(begin),
        [""; 0],
        "a restart of the API server is no reason"
    );
    let told = servers.reasons(begin + UNANSWERED_LIMIT);
    assert!(told[0].contains("10.96.0.1:443: refused"), "{told:?}");
    assert_eq!(
        servers.reasons(begin + UNANSWERED_LIMIT + Duration::from_secs(9)),
        told
    );
    servers.answered(at("10.96.0.1:443"));
    assert_eq!(servers.reasons(begin + UNANSWERED_LIMIT), [""; 0]);
}
