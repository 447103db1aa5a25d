//! A lab for a test, and what must not be there when it is over.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::PostParams};
use lab::{
    cluster::{Cluster, Place},
    embedded::{AgentCommand, LabCluster, LabConfig, Lifetime},
};
use oracle::history::{Attempt, Outcome, Plan, PlanEntry, Transport};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;

/// How long anything may take on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// A lab and its fake agent.
pub(crate) struct TestLab {
    pub(crate) lab: LabCluster,
    pub(crate) folder: TempDir,
}

/// Whether this test can run: as root. Without, it fails, or is put on record as skipped.
pub(crate) fn privileged() -> bool {
    testing::root_or_skip(&testing::current())
}

/// A name that no other test, and no other run of this one, has.
pub(crate) fn name(test: &str) -> String {
    format!("{test}-{}", std::process::id())
}

/// Two nodes; the agent is a script that logs what it is told to `<folder>/said` and runs until it is killed.
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
        agent: AgentCommand {
            label: "fake".to_owned(),
            ..AgentCommand::reference(&agent)
        },
        plumbline: PathBuf::from(env!("CARGO_BIN_EXE_plumbline")),
    }
}

impl TestLab {
    /// A lab that goes down with the value; nothing if this test can't run.
    pub(crate) async fn up(test: &str) -> Option<Self> {
        if !privileged() {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let config = config(&name(test), folder.path());
        let lab = LabCluster::up(&config, Lifetime::WithCaller, |_| {})
            .await
            .expect("up");
        Some(Self { lab, folder })
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.lab.client(), "default")
    }

    /// Makes a pod that serves TCP and UDP on 8080, and waits until it is Ready. Its address is returned.
    pub(crate) async fn server(&self, name: &str, node: &str, host_network: bool) -> String {
        let args = ["serve", "--name", name, "--tcp", "8080", "--udp", "8080"];
        self.create(&pod(name, node, host_network, &args)).await;
        let ready = self.pod(name, is_ready).await;
        ready
            .status
            .and_then(|status| status.pod_ip)
            .expect("a pod that is Ready has an address")
    }

    pub(crate) async fn create(&self, pod: &Pod) {
        self.pods()
            .create(&PostParams::default(), pod)
            .await
            .expect("create a pod");
    }

    /// Waits until a pod is as it should be.
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

    /// One attempt from a place.
    pub(crate) async fn dial(&self, from: &Place, transport: Transport, to: &str, port: u16) -> Outcome {
        let entry = PlanEntry {
            target: "t".to_owned(),
            transport,
            address: to.parse().expect("an address"),
            port,
            count: 1,
            interval_ms: 0,
            limit_ms: 2000,
            until: None,
        };
        let attempts = self.run(from, vec![entry]).await;
        attempts.into_iter().next().expect("one attempt").outcome
    }

    /// Carries out a plan in a place.
    pub(crate) async fn run(&self, from: &Place, entries: Vec<PlanEntry>) -> Vec<Attempt> {
        let argv = ["probe", "client"].map(str::to_owned);
        let mut child = self.lab.exec(from, &argv).await.expect("start a client");
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

    /// Runs a shell command in a place: exit code and stdout.
    pub(crate) async fn shell(&self, place: &Place, command: &str) -> (Option<i32>, String) {
        let argv = ["sh", "-c", command].map(str::to_owned);
        let child = self.lab.exec(place, &argv).await.expect("start a shell");
        let output = child.wait_with_output().await.expect("wait");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        )
    }

    /// What the fake agent was told so far, by line.
    pub(crate) fn said(&self) -> Vec<String> {
        let said = fs::read_to_string(self.folder.path().join("said")).unwrap_or_default();
        said.lines().map(str::to_owned).collect()
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

/// The identity that answered; anything else is a failure.
pub(crate) fn answered(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Answered { answer, .. } => &answer.identity,
        other => panic!("expected an answer, found {other:?}"),
    }
}

/// Waits for something that a test can only look at.
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

/// What a lab has on this host while it is up: enough to see that it is gone.
#[derive(Debug)]
pub(crate) struct Traces {
    name: String,
    processes: BTreeSet<(u32, String)>,
    namespaces: BTreeSet<PathBuf>,
    links: BTreeSet<String>,
}

impl Traces {
    /// Of a lab that is up.
    pub(crate) fn of(name: &str) -> Self {
        let mut pids = BTreeSet::new();
        below(&cgroup(name), &mut pids);
        assert!(
            pids.len() >= 3,
            "a lab has a supervisor and an agent on each node: {pids:?}"
        );
        let mut namespaces = BTreeSet::new();
        let own = fs::read_link("/proc/self/ns/net").expect("own namespace");
        for pid in &pids {
            namespaces.extend(
                fs::read_link(format!("/proc/{pid}/ns/net"))
                    .ok()
                    .filter(|ns| *ns != own),
            );
            namespaces.extend(descriptors(*pid).into_iter().filter(|link| *link != own));
        }
        let processes = pids
            .into_iter()
            .filter_map(|pid| Some((pid, start_time(pid)?)))
            .collect();
        Self {
            name: name.to_owned(),
            processes,
            namespaces,
            links: links(),
        }
    }

    /// Its processes, other than one.
    pub(crate) fn others_than(&self, pid: u32) -> Vec<u32> {
        self.processes
            .iter()
            .map(|(process, _)| *process)
            .filter(|process| *process != pid)
            .collect()
    }

    /// Whether all its processes have ended.
    pub(crate) fn ended(&self) -> bool {
        self.processes
            .iter()
            .all(|(pid, start)| start_time(*pid).as_ref() != Some(start))
    }

    /// Waits until nothing of it is left; its namespaces end a moment after its processes.
    pub(crate) async fn are_gone(&self) {
        eventually("the end of the lab's processes", || self.ended()).await;
        eventually("the end of the lab's network namespaces", || {
            self.held().is_empty()
        })
        .await;
        assert!(!cgroup(&self.name).exists(), "its cgroup is left");
        assert!(
            !Path::new("/run/plumbline").join(&self.name).exists(),
            "its folder is left"
        );
        assert_eq!(links(), self.links, "links of this host changed");
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
        assert!(
            !mounts.contains(&format!("plumbline-lab-{}", self.name)),
            "a mount is left: {mounts}"
        );
    }

    /// Processes that are in, or hold, a network namespace of the lab.
    ///
    /// The kernel gives the number of a namespace that has ended to the next: those of other labs don't count.
    fn held(&self) -> Vec<u32> {
        processes()
            .filter(|pid| !in_another_lab(*pid, &self.name))
            .filter(|pid| {
                let inside = fs::read_link(format!("/proc/{pid}/ns/net")).ok();
                inside
                    .into_iter()
                    .chain(descriptors(*pid))
                    .any(|ns| self.namespaces.contains(&ns))
            })
            .collect()
    }
}

fn in_another_lab(pid: u32, name: &str) -> bool {
    let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let own = format!("/plumbline-lab-{name}/");
    cgroups
        .lines()
        .any(|line| line.contains("/plumbline-") && !line.contains(&own))
}

fn below(folder: &Path, pids: &mut BTreeSet<u32>) {
    let procs = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    pids.extend(procs.lines().filter_map(|line| line.parse::<u32>().ok()));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            below(&entry.path(), pids);
        }
    }
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Network namespaces that a process holds open.
fn descriptors(pid: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten();
    let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    links
        .filter(|link| link.to_string_lossy().starts_with("net:["))
        .collect()
}

/// Tells a process from a later one of the same id (proc(5): field 22 of stat). Zombies have ended.
fn start_time(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    (fields.first() != Some(&"Z")).then(|| fields.get(19).map(|start| (*start).to_owned()))?
}

fn links() -> BTreeSet<String> {
    let entries = fs::read_dir("/sys/class/net").expect("links").flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}
