//! kubectl with pods: logs, exec, port-forward.

use std::{env, fs, path::PathBuf, process::Stdio, time::Duration};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use oracle::history::Transport;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::Command,
    time::timeout,
};

use super::support::{LIMIT, TestLab, cgroup, is_ready, name, node, pod};

/// Folder of the programs of a Kubernetes release; without it, kubectl is searched on the PATH.
const KUBERNETES: &str = "PLUMBLINE_KUBE_API";

/// `None`, with a record, if there is no kubectl.
fn kubectl() -> Option<PathBuf> {
    let own = env::var_os(KUBERNETES).map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = own.into_iter().chain(env::split_paths(&path));
    let found = folders.find_map(|folder| Some(folder.join("kubectl")).filter(|file| file.is_file()));
    if found.is_none() {
        let why = "kubectl not found; set PLUMBLINE_KUBE_API to its folder, or put it into PATH";
        testing::skip(&testing::current(), why);
    }
    found
}

impl TestLab {
    fn kubectl(&self, program: &PathBuf, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("KUBECONFIG", self.lab.kubeconfig())
            .env("HOME", self.folder.path())
            .kill_on_drop(true)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Processes of all pods of a node.
    fn processes(lab: &str, node: &str) -> Vec<i32> {
        let pods = cgroup(lab).join(node).join("pods");
        let folders = fs::read_dir(pods).expect("the node's pods").flatten();
        folders
            .filter_map(|folder| fs::read_to_string(folder.path().join("cgroup.procs")).ok())
            .flat_map(|all| {
                all.lines()
                    .filter_map(|line| line.parse().ok())
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    /// Exit code, stdout and stderr of a run.
    async fn run_kubectl(&self, program: &PathBuf, arguments: &[&str]) -> (Option<i32>, String, String) {
        let output = timeout(LIMIT, self.kubectl(program, arguments).output());
        let output = output.await.expect("in time").expect("kubectl runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reads_a_pods_log_and_follows_it_to_its_end() {
    let Some(kubectl) = kubectl() else {
        return;
    };
    let Some(test) = TestLab::up("kubectl-logs").await else {
        return;
    };
    let address = test.server("b1", "node1", false).await;
    test.dial(&node("node2"), Transport::Tcp, &address, 8080).await;
    let (code, said, errors) = test.run_kubectl(&kubectl, &["logs", "b1"]).await;
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("b1/TCP/8080"), "{said}");
    let (code, _, errors) = test.run_kubectl(&kubectl, &["logs", "--previous", "b1"]).await;
    assert_eq!(code, Some(1));
    assert!(errors.contains("previous"), "{errors}");

    let mut following = test
        .kubectl(&kubectl, &["logs", "--follow", "--tail=0", "--timestamps", "b1"])
        .spawn()
        .expect("kubectl runs");
    let mut lines = BufReader::new(following.stdout.take().expect("stdout")).lines();
    // The program may start slightly later than its process, so this repeats until it shows something.
    let line = timeout(LIMIT, async {
        loop {
            test.dial(&node("node2"), Transport::Udp, &address, 8080).await;
            let next = timeout(Duration::from_millis(200), lines.next_line()).await;
            if let Ok(line) = next {
                return line.expect("read").expect("a line");
            }
        }
    });
    let line = line.await.expect("in time");
    let (time, text) = line.split_once(' ').expect("a time and a line");
    assert!(time.ends_with('Z') && text.contains("b1/UDP/8080"), "{line}");
    let (code, _, errors) = test
        .run_kubectl(&kubectl, &["delete", "pod", "b1", "--grace-period=1"])
        .await;
    assert_eq!(code, Some(0), "{errors}");
    let ended = timeout(LIMIT, following.wait())
        .await
        .expect("it ends with the pod");
    assert!(ended.expect("waited").success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_the_run_before_is_shown_when_asked_for() {
    let Some(kubectl) = kubectl() else {
        return;
    };
    let Some(test) = TestLab::up("kubectl-previous").await else {
        return;
    };
    let address = test.server("b1", "node1", false).await;
    test.dial(&node("node2"), Transport::Tcp, &address, 8080).await;
    for pid in TestLab::processes(&name("kubectl-previous"), "node1") {
        // The process may have ended since.
        let killed = kill(Pid::from_raw(pid), Signal::SIGKILL);
        assert!(matches!(killed, Ok(()) | Err(Errno::ESRCH)), "{killed:?}");
    }
    test.pod("b1", |pod| {
        let statuses = pod
            .status
            .iter()
            .flat_map(|status| status.container_statuses.iter().flatten());
        is_ready(pod) && statuses.map(|status| status.restart_count).sum::<i32>() == 1
    })
    .await;
    let (code, said, errors) = test.run_kubectl(&kubectl, &["logs", "--previous", "b1"]).await;
    assert_eq!((code, said.lines().count()), (Some(0), 1), "{said}{errors}");
    let (code, said, errors) = test.run_kubectl(&kubectl, &["logs", "b1"]).await;
    assert_eq!((code, said.as_str()), (Some(0), ""), "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_runs_programs_in_a_pods_namespaces_and_cgroup() {
    let Some(kubectl) = kubectl() else {
        return;
    };
    let Some(test) = TestLab::up("kubectl-exec").await else {
        return;
    };
    test.server("b1", "node1", false).await;
    let script = "ip -o -4 addr show eth0; cat /proc/self/cgroup; echo $POD_NAME on $NODE_NAME; cat; echo wrong >&2; exit 7";
    let mut running = test
        .kubectl(&kubectl, &["exec", "-i", "b1", "--", "sh", "-c", script])
        .stdin(Stdio::piped())
        .spawn()
        .expect("kubectl runs");
    let mut stdin = running.stdin.take().expect("stdin");
    stdin.write_all(b"from here\n").await.expect("written");
    drop(stdin);
    let output = timeout(LIMIT, running.wait_with_output()).await;
    let output = output.expect("in time").expect("waited");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert!(
        said.contains("10.244.1.2") && said.contains("from here"),
        "{said}"
    );
    assert!(said.contains("/node1/pods/"), "{said}");
    assert!(said.contains("b1 on node1"), "like its container: {said}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("wrong"),
        "{output:?}"
    );

    let missing = ["exec", "b1", "--", "/no/such/program"];
    let (code, _, errors) = test.run_kubectl(&kubectl, &missing).await;
    assert_ne!(code, Some(0));
    assert!(errors.contains("/no/such/program"), "{errors}");
    let mut waits = pod("waits", "node1", false, &["serve"]);
    let spec = waits.spec.as_mut().expect("a spec");
    spec.containers[0].image = Some("not-in-the-lab".to_owned());
    test.create(&waits).await;
    let (code, _, errors) = test.run_kubectl(&kubectl, &["exec", "waits", "--", "true"]).await;
    assert_ne!(code, Some(0));
    assert!(errors.contains("ContainerCreating"), "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reaches_ports_of_a_pod() {
    let Some(kubectl) = kubectl() else {
        return;
    };
    let Some(test) = TestLab::up("kubectl-ports").await else {
        return;
    };
    test.server("b1", "node2", false).await;
    let path = |port: u16| format!("/api/v1/namespaces/default/pods/b1:{port}/proxy/");
    let (code, said, errors) = test.run_kubectl(&kubectl, &["get", "--raw", &path(8080)]).await;
    assert_eq!(code, Some(0), "{errors}");
    assert!(said.contains("b1/TCP/8080"), "{said}");
    let (code, _, errors) = test.run_kubectl(&kubectl, &["get", "--raw", &path(9999)]).await;
    assert_ne!(code, Some(0), "nobody listens there");
    assert!(errors.contains("10.244.2.2:9999"), "{errors}");
}
