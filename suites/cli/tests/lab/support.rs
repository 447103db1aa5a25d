//! A lab for a test.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use cluster::{AgentControl, ControlPlaneFaults, Place};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::PostParams};
use lab::{AgentCommand, ControlPlane, IpFamilies, LabCluster, LabConfig, Lifetime};
use oracle::history::{Attempt, Outcome, Plan, PlanEntry, Transport};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;

pub(crate) use testing::patience::LIMIT;
use testing::patience::TIMES;

/// A lab and its fake agent.
pub(crate) struct TestLab {
    pub(crate) lab: LabCluster,
    pub(crate) folder: TempDir,
}

/// Whether this test can run as root. Without root it fails, or is recorded as skipped.
pub(crate) fn privileged() -> bool {
    testing::root_or_skip(&testing::current())
}

/// A unique name, also between runs of this test.
pub(crate) fn name(test: &str) -> String {
    format!("{test}-{}", std::process::id())
}

/// Two nodes; the agent is a script that logs its input to `<folder>/said` and runs until it is killed.
pub(crate) fn config(name: &str, folder: &Path) -> LabConfig {
    let agent = folder.join("agent");
    let said = folder.join("said");
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> {}\ncase $1 in run) exec sleep infinity ;; esac\n",
        said.display()
    );
    fs::write(&agent, script).expect("write the fake agent");
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).expect("make it executable");
    LabConfig {
        name: name.to_owned(),
        nodes: 2,
        families: IpFamilies::Ipv4,
        control_plane: ControlPlane::default(),
        timeout_scale: TIMES,
        agent: AgentCommand {
            label: "fake".to_owned(),
            ..AgentCommand::of_target("reference", Some(&agent)).expect("the target")
        },
        plumbline: PathBuf::from(env!("CARGO_BIN_EXE_plumbline")),
    }
}

impl TestLab {
    /// A lab that is removed on drop; `None` if this test can't run.
    pub(crate) async fn up(test: &str) -> Option<Self> {
        Self::up_with(test, |_| {}).await
    }

    /// As [`TestLab::up`], with another configuration.
    pub(crate) async fn up_with(test: &str, change: impl FnOnce(&mut LabConfig)) -> Option<Self> {
        if !privileged() {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = config(&name(test), folder.path());
        change(&mut config);
        let lab = LabCluster::up(&config, Lifetime::WithCaller, |_| {})
            .await
            .expect("up");
        Some(Self { lab, folder })
    }

    pub(crate) fn agents(&self) -> &dyn AgentControl {
        self.lab.cluster().agents().expect("a lab has agents")
    }

    pub(crate) fn control_plane(&self) -> &dyn ControlPlaneFaults {
        self.lab.cluster().control_plane().expect("a lab has API servers")
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.lab.cluster().client(), "default")
    }

    /// Makes a pod that serves TCP and UDP on 8080, and waits until it is Ready. Returns its first address.
    pub(crate) async fn server(&self, name: &str, node: &str, host_network: bool) -> String {
        self.servers_addresses(name, node, host_network).await.remove(0)
    }

    /// As [`TestLab::server`], with all its addresses.
    pub(crate) async fn servers_addresses(&self, name: &str, node: &str, host_network: bool) -> Vec<String> {
        let args = ["serve", "--name", name, "--tcp", "8080", "--udp", "8080"];
        self.create(&pod(name, node, host_network, &args)).await;
        let ready = self.pod(name, is_ready).await;
        let status = ready.status.expect("a status");
        let all = status.pod_ips.expect("a pod that is Ready has addresses");
        let all: Vec<String> = all.into_iter().map(|one| one.ip).collect();
        assert_eq!(status.pod_ip.as_ref(), all.first());
        all
    }

    pub(crate) async fn create(&self, pod: &Pod) {
        self.pods()
            .create(&PostParams::default(), pod)
            .await
            .expect("create a pod");
    }

    /// Waits until a pod meets a condition.
    pub(crate) async fn pod(&self, name: &str, wanted: impl Fn(&Pod) -> bool) -> Pod {
        let pods = self.pods();
        let mut last = None;
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline {
            last = pods.get_opt(name).await.expect("get a pod");
            if let Some(pod) = last.as_ref().filter(|pod| wanted(pod)) {
                return pod.clone();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the pod {name} did not become what it should within {LIMIT:?}: {last:#?}")
    }

    /// One attempt from a place, with a limit of two seconds.
    pub(crate) async fn dial(&self, from: &Place, transport: Transport, to: &str, port: u16) -> Outcome {
        let limit = Duration::from_secs(2);
        self.dial_within(from, transport, to, port, limit).await
    }

    /// One attempt from a place. A longer wait does not help a lost packet: a new try takes the same path.
    pub(crate) async fn dial_within(
        &self,
        from: &Place,
        transport: Transport,
        to: &str,
        port: u16,
        limit: Duration,
    ) -> Outcome {
        let entry = PlanEntry {
            target: "t".to_owned(),
            transport,
            address: to.parse().expect("an address"),
            port,
            count: 1,
            interval_ms: 0,
            limit_ms: u64::try_from(limit.as_millis()).expect("a limit"),
            until: None,
            flows: None,
            source_ports: None,
            at_once: None,
            one_way: false,
        };
        let attempts = self.run(from, vec![entry]).await;
        attempts.into_iter().next().expect("one attempt").outcome
    }

    /// Runs a plan in a place.
    pub(crate) async fn run(&self, from: &Place, entries: Vec<PlanEntry>) -> Vec<Attempt> {
        let argv = ["probe", "client"].map(str::to_owned);
        let mut child = self
            .lab
            .cluster()
            .exec(from, &argv)
            .await
            .expect("start a client");
        let plan = Plan {
            client: "c".to_owned(),
            entries,
        };
        let line = serde_json::to_string(&plan).expect("a plan") + "\n";
        let mut stdin = child.stdin.take().expect("stdin");
        stdin.write_all(line.as_bytes()).await.expect("write the plan");
        let output = child.wait_with_output().await.expect("wait");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        text.lines()
            .map(|line| serde_json::from_str(line).expect("an attempt"))
            .collect()
    }

    /// Runs a shell command in a place; returns exit code and stdout.
    pub(crate) async fn shell(&self, place: &Place, command: &str) -> (Option<i32>, String) {
        let argv = ["sh", "-c", command].map(str::to_owned);
        let child = self
            .lab
            .cluster()
            .exec(place, &argv)
            .await
            .expect("start a shell");
        let output = child.wait_with_output().await.expect("wait");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        )
    }

    /// The input of the fake agent so far, by line.
    pub(crate) fn said(&self) -> Vec<String> {
        let said = fs::read_to_string(self.folder.path().join("said")).unwrap_or_default();
        said.lines().map(str::to_owned).collect()
    }

    /// Waits until the fake agent has logged it: its process exists before its first line.
    pub(crate) async fn has_said(&self, is_it: impl Fn(&[String]) -> bool) {
        let deadline = Instant::now() + LIMIT;
        loop {
            let said = self.said();
            if is_it(&said) {
                return;
            }
            assert!(Instant::now() < deadline, "not within {LIMIT:?}: {said:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// A pod of the probe.
pub(crate) fn pod(name: &str, node: &str, host_network: bool, args: &[&str]) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "hostNetwork": host_network,
            "containers": [{"name": "c", "image": "probe", "args": args}],
        },
    }))
    .expect("a pod")
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    conditions
        .iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

pub(crate) fn node(name: &str) -> Place {
    Place::Host {
        node: name.to_owned(),
    }
}

pub(crate) fn in_pod(name: &str) -> Place {
    Place::Pod {
        namespace: "default".to_owned(),
        name: name.to_owned(),
    }
}

/// The identity that answered; any other outcome is a failure.
pub(crate) fn answered(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Answered { answer, .. } => &answer.identity,
        other => panic!("expected an answer, found {other:?}"),
    }
}

/// Waits until the agent of a node is ready.
pub(crate) async fn agent_is_ready(lab: &LabCluster, node: &str) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let state = lab
            .cluster()
            .agents()
            .expect("a lab has it")
            .state(node)
            .await
            .expect("the agent");
        if state.ready == Some(true) {
            return;
        }
        let log = fs::read_to_string(lab.logs().join(format!("agent-{node}.log"))).unwrap_or_default();
        assert!(
            Instant::now() < deadline,
            "the agent of {node} is not ready: {state:?}\n{log}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits for a condition that a test can only poll.
pub(crate) async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !condition() {
        assert!(
            Instant::now() < deadline,
            "{what} did not happen within {LIMIT:?}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The cgroup of a lab, on whichever host this is.
pub(crate) fn cgroup(name: &str) -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    let cgroup2 = mounts
        .lines()
        .find(|line| line.contains(" - cgroup2 "))
        .expect("a cgroup2 mount");
    Path::new(cgroup2.split(' ').nth(4).expect("a mount point")).join(format!("plumbline-lab-{name}"))
}
