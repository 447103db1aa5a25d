//! The supervision of agents, with a script as the agent.

use cluster::{ApiEndpoint, ClusterError, Stop};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::support::{LIMIT, TestLab, cgroup, name};

async fn started(test: &TestLab, starts: u32) -> cluster::AgentState {
    let deadline = std::time::Instant::now() + LIMIT;
    loop {
        let state = test.agents().state("node1").await.expect("the agent");
        if state.starts == starts && state.pid.is_some() {
            return state;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "no start {starts} within {LIMIT:?}: {state:?}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_runs_in_its_nodes_namespaces_with_its_documented_arguments() {
    let Some(test) = TestLab::up("args").await else {
        return;
    };
    let state = started(&test, 1).await;
    assert_eq!(
        (state.ready, state.last_exit.as_deref()),
        (None, None),
        "a script has no /readyz"
    );
    let procs = cgroup(&name("args")).join("node1/agent/cgroup.procs");
    let procs = std::fs::read_to_string(procs).expect("its cgroup");
    assert_eq!(procs.trim(), state.pid.expect("it runs").to_string());
    let expected = format!(
        "run --kubeconfig=/run/plumbline/{0}/kubeconfig-node1 --node=node1 --cgroup=/sys/fs/cgroup \
         --bpffs=/sys/fs/bpf --listen=127.0.0.1:9440 --state=/run/plumbline/{0}/logs/agent-node1.state --connections=65536",
        name("args")
    );
    test.has_said(|said| said.contains(&expected)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_ends_is_started_again_and_one_that_was_stopped_is_not() {
    let Some(test) = TestLab::up("keep").await else {
        return;
    };
    let pid = started(&test, 1).await.pid.expect("it runs");
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).expect("SIGKILL");
    let state = started(&test, 2).await;
    assert_eq!(state.last_exit.as_deref(), Some("SIGKILL"));

    test.agents().stop("node1", Stop::Term).await.expect("stop");
    let state = test.agents().state("node1").await.expect("the agent");
    assert_eq!((state.pid, state.last_exit.as_deref()), (None, Some("SIGTERM")));
    let other = test.agents().state("node2").await.expect("the other agent");
    assert_eq!(
        (other.starts, other.pid.is_some()),
        (1, true),
        "the other node's runs on"
    );
    test.agents()
        .stop("node1", Stop::Kill)
        .await
        .expect("to stop a stopped one is fine");

    test.agents().start("node1", None).await.expect("start");
    assert_eq!(started(&test, 3).await.starts, 3);
    test.agents()
        .start("node1", None)
        .await
        .expect("to start a running one is fine");
    assert_eq!(test.agents().state("node1").await.expect("the agent").starts, 3);
    test.agents().stop("node1", Stop::Kill).await.expect("stop");
    assert_eq!(
        test.agents()
            .state("node1")
            .await
            .expect("the agent")
            .last_exit
            .as_deref(),
        Some("SIGKILL")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_redirected_to_another_api_endpoint_and_back() {
    let Some(test) = TestLab::up("redirected").await else {
        return;
    };
    let endpoint = ApiEndpoint {
        server: "10.96.0.1:443".parse().expect("an address"),
        further: vec!["172.30.0.9:6443".parse().expect("an address")],
    };
    match test.agents().set_api_endpoint("node1", Some(&endpoint)).await {
        Err(ClusterError::Failed { why, .. }) => assert!(why.contains("stop it first"), "{why}"),
        other => panic!("expected a refusal, found {other:?}"),
    }
    let folder = format!("/run/plumbline/{}", name("redirected"));
    let own = format!("run --kubeconfig={folder}/kubeconfig-node1 --node=node1");
    let is_own = |line: &&String| line.starts_with(&own);
    test.has_said(|said| said.iter().filter(is_own).count() == 1)
        .await;
    faults::redirect_agent(test.lab.cluster(), "node1", Some(&endpoint))
        .await
        .expect("redirected");
    assert_eq!(started(&test, 2).await.way, Some(endpoint));
    let redirected = format!("run --kubeconfig={folder}/kubeconfig-node1-redirected --node=node1");
    let further = "--api-server=https://172.30.0.9:6443";
    let is_redirected = |line: &String| line.starts_with(&redirected) && line.ends_with(further);
    test.has_said(|said| said.iter().any(is_redirected)).await;
    let kubeconfig =
        std::fs::read_to_string(format!("{folder}/kubeconfig-node1-redirected")).expect("a file");
    assert!(kubeconfig.contains("https://10.96.0.1:443"), "{kubeconfig}");

    faults::redirect_agent(test.lab.cluster(), "node1", None)
        .await
        .expect("restored");
    assert_eq!(started(&test, 3).await.way, None);
    test.has_said(|said| said.iter().filter(is_own).count() == 2)
        .await;
    let other = test.agents().state("node2").await.expect("the other agent");
    assert_eq!((other.starts, other.way), (1, None), "the other node's stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn state_is_wiped_by_the_agents_own_clean_up_and_only_while_it_is_stopped() {
    let Some(test) = TestLab::up("wipe").await else {
        return;
    };
    match test.agents().clean_up("node1").await {
        Err(ClusterError::Failed { why, .. }) => assert!(why.contains("stop it first"), "{why}"),
        other => panic!("expected a refusal, found {other:?}"),
    }
    test.agents().stop("node1", Stop::Term).await.expect("stop");
    test.agents().clean_up("node1").await.expect("wipe");
    let cleanup = "cleanup --bpffs=/sys/fs/bpf --cgroup=/sys/fs/cgroup";
    assert!(
        test.said().iter().any(|line| line == cleanup),
        "{:?}",
        test.said()
    );
    match test.agents().stop("node7", Stop::Term).await {
        Err(error) => assert_eq!(error, ClusterError::not_found("node", "node7")),
        Ok(()) => panic!("expected that there is no such node"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn evidence_holds_logs_objects_counters_and_dumps() {
    let Some(test) = TestLab::up("evidence").await else {
        return;
    };
    test.server("b1", "node1", false).await;
    let folder = test.folder.path().join("evidence");
    test.lab.cluster().evidence(&folder).await.expect("evidence");
    let read =
        |path: &str| std::fs::read_to_string(folder.join(path)).unwrap_or_else(|_| panic!("no {path}"));
    assert!(read("logs/supervisor.log").contains("the lab is up"));
    assert!(read("logs/agent-node1.log").contains("start 1 of the agent on node1"));
    assert!(read("objects/pods.json").contains("\"b1\""));
    assert!(read("objects/nodes.json").contains("\"node2\""));
    for network in ["node1", "node2", "default_b1"] {
        let counted = read(&format!("networks/{network}.txt"));
        assert!(counted.contains("Ip DefaultTTL 64\n"), "{network}: {counted}");
    }
    read("dump-node1.txt");
    assert!(test.said().iter().any(|line| line == "dump --bpffs=/sys/fs/bpf"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_has_programmed_is_compared_by_its_own_command() {
    let Some(test) = TestLab::up("compared").await else {
        return;
    };
    let found = test.agents().differences("node1").await.expect("its command");
    assert_eq!(found.as_deref(), Some(""), "a script prints nothing");
    let expected = format!(
        "plan --diff --kubeconfig=/run/plumbline/{}/kubeconfig-node1 --node=node1 --bpffs=/sys/fs/bpf",
        name("compared")
    );
    test.has_said(|said| said.contains(&expected)).await;
}
