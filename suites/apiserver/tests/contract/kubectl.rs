//! A real kubectl. It is taken from `PLUMBLINE_KUBECTL`, or from PATH.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::Command,
};

use crate::world::{LIMIT, REAL, World};

/// kubectl with a home of its own, in the test's namespace.
pub(crate) struct Kubectl {
    program: PathBuf,
    home: tempfile::TempDir,
    namespace: String,
}

/// What a run printed.
#[derive(Debug)]
pub(crate) struct Printed {
    pub(crate) success: bool,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Printed {
    /// Of a run that had to succeed.
    pub(crate) fn ok(self) -> String {
        assert!(self.success, "kubectl failed: {self:?}");
        self.out
    }
}

fn find() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("PLUMBLINE_KUBECTL") {
        return Some(path.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join("kubectl"))
        .find(|file| file.is_file())
}

impl Kubectl {
    /// `None`, loudly, where there is no kubectl.
    pub(crate) fn new(world: &World) -> Option<Self> {
        let Some(program) = find() else {
            println!("SKIPPED: kubectl not found (set PLUMBLINE_KUBECTL, or put kubectl into PATH)");
            return None;
        };
        let home = tempfile::tempdir().expect("a folder");
        let config = match &world.own {
            Some(own) => own.kubeconfig(&own.token),
            None => {
                std::fs::read_to_string(std::env::var(REAL).expect("a real server")).expect("a kubeconfig")
            }
        };
        std::fs::write(home.path().join("config"), config).expect("written");
        Some(Self {
            program,
            home,
            namespace: world.namespace.clone(),
        })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .env_clear()
            .env("HOME", self.home.path())
            .env("KUBECACHEDIR", self.home.path().join("cache"))
            .env("KUBECONFIG", self.home.path().join("config"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// A file for `-f`.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path: PathBuf = Path::new(self.home.path()).join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    }

    /// Runs it in the test's namespace, with a text on its standard input.
    pub(crate) async fn with_input(&self, args: &[&str], input: &str) -> Printed {
        let all: Vec<&str> = ["--namespace", &self.namespace]
            .iter()
            .chain(args)
            .copied()
            .collect();
        let mut child = self.command(&all).spawn().expect("kubectl starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(input.as_bytes()).await.expect("written");
        drop(stdin);
        let output = tokio::time::timeout(LIMIT, child.wait_with_output()).await;
        let output = output
            .unwrap_or_else(|_| panic!("kubectl {args:?} ends in time"))
            .expect("its output");
        Printed {
            success: output.status.success(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    pub(crate) async fn run(&self, args: &[&str]) -> Printed {
        self.with_input(args, "").await
    }

    /// Runs it; what it printed as JSON.
    pub(crate) async fn json(&self, args: &[&str]) -> Value {
        let args: Vec<&str> = args.iter().chain(&["-o", "json"]).copied().collect();
        serde_json::from_str(&self.run(&args).await.ok()).expect("JSON")
    }
}

/// The words of a line.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

pub(crate) fn service(name: &str, ports: Value) -> String {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
           "spec": {"selector": {"app": name}, "ports": ports}})
    .to_string()
}

fn pod(name: &str, node: Option<&str>) -> String {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "probe:1", "ports": [{"containerPort": 8080}]}],
                 "automountServiceAccountToken": false}});
    if let Some(node) = node {
        pod["spec"]["nodeName"] = node.into();
    }
    pod.to_string()
}

#[tokio::test]
async fn get_prints_tables_yaml_and_json() {
    let world = World::new().await;
    let Some(kubectl) = Kubectl::new(&world) else {
        return;
    };
    let made = kubectl
        .with_input(&["create", "-f", "-"], &service("web", json!([{"port": 80}])))
        .await
        .ok();
    assert_eq!(made, "service/web created\n");
    let text = kubectl.run(&["get", "services"]).await.ok();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        words(lines[0]),
        ["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"]
    );
    let row = words(lines[1]);
    assert_eq!(
        (row[0], row[1], row[3], row[4]),
        ("web", "ClusterIP", "<none>", "80/TCP")
    );
    let wide = kubectl.run(&["get", "svc", "web", "-o", "wide"]).await.ok();
    assert!(
        wide.lines().next().is_some_and(|line| line.ends_with("SELECTOR")),
        "{wide}"
    );
    assert!(wide.contains("app=web"), "{wide}");
    let yaml = kubectl.run(&["get", "svc", "web", "-o", "yaml"]).await.ok();
    assert!(yaml.starts_with("apiVersion: v1\nkind: Service\n"), "{yaml}");
    let list = kubectl.json(&["get", "svc"]).await;
    assert_eq!(
        (&list["kind"], &list["items"][0]["kind"]),
        (&json!("List"), &json!("Service"))
    );
    let name = kubectl
        .run(&["get", "svc", "-o", "name", "-l", "!nothing"])
        .await
        .ok();
    assert_eq!(name, "service/web\n");
    let none = kubectl.run(&["get", "pods"]).await;
    assert!(
        none.success && none.err.contains("No resources found"),
        "{none:?}"
    );
    let missing = kubectl.run(&["get", "svc", "nope"]).await;
    assert_eq!(
        missing.err,
        "Error from server (NotFound): services \"nope\" not found\n"
    );
    let unknown = kubectl.run(&["get", "gizmos"]).await;
    assert!(
        unknown
            .err
            .contains("the server doesn't have a resource type \"gizmos\""),
        "{unknown:?}"
    );
    world.end().await;
}

#[tokio::test]
async fn every_kind_has_a_table() {
    let world = World::new().await;
    let Some(kubectl) = Kubectl::new(&world) else {
        return;
    };
    kubectl
        .with_input(&["create", "-f", "-"], &pod("one", None))
        .await
        .ok();
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "web", "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.1.1"]}, {"addresses": ["10.1.1.2"]}, {"addresses": ["10.1.1.3"]},
                      {"addresses": ["10.1.1.4"]}],
        "ports": [{"port": 80}, {"port": 81, "name": "b"}]});
    kubectl
        .with_input(&["create", "-f", "-"], &slice.to_string())
        .await
        .ok();
    let cases: [(&[&str], &str, &str); 4] = [
        (
            &["get", "pods", "-o", "wide"],
            "NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES",
            "one 0/1 Pending 0 * <none> <none> <none> <none>",
        ),
        (
            &["get", "endpointslices"],
            "NAME ADDRESSTYPE PORTS ENDPOINTS AGE",
            "web IPv4 80,81 10.1.1.1,10.1.1.2,10.1.1.3 + 1 more... *",
        ),
        (
            &["get", "namespace", "default"],
            "NAME STATUS AGE",
            "default Active *",
        ),
        (&["get", "po", "one", "--no-headers"], "one 0/1 Pending 0 *", ""),
    ];
    for (args, header, row) in cases {
        let text = kubectl.run(args).await.ok();
        for (line, expected) in text.lines().zip([header, row]) {
            let (found, expected) = (words(line), words(expected));
            let same = found.len() == expected.len()
                && found
                    .iter()
                    .zip(&expected)
                    .all(|(found, expected)| *expected == "*" || found == expected);
            assert!(same, "{args:?}: expected {expected:?}, found {found:?}");
        }
    }
    world.end().await;
}

#[tokio::test]
async fn get_watch_follows_a_service() {
    let world = World::new().await;
    let Some(kubectl) = Kubectl::new(&world) else {
        return;
    };
    kubectl
        .with_input(&["create", "-f", "-"], &service("web", json!([{"port": 80}])))
        .await
        .ok();
    let args = ["--namespace", &world.namespace, "get", "svc", "-w"];
    let mut child = kubectl.command(&args).spawn().expect("kubectl starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut next = async || {
        let line = tokio::time::timeout(LIMIT, lines.next_line())
            .await
            .expect("a line in time");
        line.expect("readable").expect("kubectl goes on")
    };
    assert!(next().await.starts_with("NAME"));
    assert!(next().await.contains("80/TCP"));
    let patch = json!({"spec": {"ports": [{"port": 81, "name": "more"}, {"port": 80, "name": "web"}]}});
    kubectl
        .run(&["patch", "svc", "web", "--type", "merge", "-p", &patch.to_string()])
        .await
        .ok();
    assert!(next().await.contains("81/TCP,80/TCP"));
    child.kill().await.expect("it ends");
    world.end().await;
}

#[tokio::test]
async fn patch_label_annotate_and_replace_change_what_they_say() {
    let world = World::new().await;
    let Some(kubectl) = Kubectl::new(&world) else {
        return;
    };
    let ports = json!([{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]);
    kubectl
        .with_input(&["create", "-f", "-"], &service("web", ports))
        .await
        .ok();
    let strategic = json!({"spec": {"ports": [{"port": 81, "targetPort": 9}]}}).to_string();
    kubectl.run(&["patch", "svc", "web", "-p", &strategic]).await.ok();
    let merge = json!({"spec": {"selector": {"app": null, "tier": "x"}}}).to_string();
    kubectl
        .run(&["patch", "svc", "web", "--type", "merge", "-p", &merge])
        .await
        .ok();
    let operations = json!([{"op": "replace", "path": "/spec/ports/0/targetPort", "value": 7}]).to_string();
    kubectl
        .run(&["patch", "svc", "web", "--type", "json", "-p", &operations])
        .await
        .ok();
    kubectl
        .run(&["annotate", "svc", "web", "example.com/touched=1"])
        .await
        .ok();
    kubectl.run(&["label", "svc", "web", "a=b"]).await.ok();
    let refused = kubectl.run(&["label", "svc", "web", "a=c"]).await;
    assert!(
        !refused.success && refused.err.contains("--overwrite is false"),
        "{refused:?}"
    );
    kubectl
        .run(&["label", "svc", "web", "a=c", "--overwrite"])
        .await
        .ok();
    let mut found = kubectl.json(&["get", "svc", "web"]).await;
    assert_eq!(found["spec"]["ports"][0]["targetPort"], 7);
    assert_eq!(found["spec"]["ports"][1]["targetPort"], 9);
    assert_eq!(found["spec"]["selector"], json!({"tier": "x"}));
    assert_eq!(found["metadata"]["labels"], json!({"a": "c"}));
    assert_eq!(
        found["metadata"]["annotations"],
        json!({"example.com/touched": "1"})
    );
    // What `kubectl edit` does: the whole object, changed, with its resourceVersion.
    found["spec"]["ports"][0]["targetPort"] = 6.into();
    kubectl
        .with_input(&["replace", "-f", "-"], &found.to_string())
        .await
        .ok();
    let stale = kubectl
        .with_input(&["replace", "-f", "-"], &found.to_string())
        .await;
    assert!(stale.err.contains("the object has been modified"), "{stale:?}");
    kubectl.run(&["label", "svc", "web", "a-"]).await.ok();
    let found = kubectl.json(&["get", "svc", "web"]).await;
    assert_eq!(
        (
            &found["spec"]["ports"][0]["targetPort"],
            &found["metadata"]["labels"]
        ),
        (&json!(6), &Value::Null)
    );
    world.end().await;
}

#[tokio::test]
async fn edit_writes_what_the_editor_wrote() {
    let world = World::new().await;
    let Some(kubectl) = Kubectl::new(&world) else {
        return;
    };
    kubectl
        .with_input(&["create", "-f", "-"], &service("web", json!([{"port": 80}])))
        .await
        .ok();
    let args = ["--namespace", &world.namespace, "edit", "svc", "web"];
    let edited = kubectl
        .command(&args)
        .env("EDITOR", "/bin/sed -i s/port:.80/port:\\ 90/")
        .output()
        .await;
    let edited = edited.expect("kubectl runs");
    assert!(edited.status.success(), "{edited:?}");
    assert_eq!(
        kubectl.json(&["get", "svc", "web"]).await["spec"]["ports"][0]["port"],
        90
    );
    world.end().await;
}

#[tokio::test]
async fn delete_waits_until_the_object_is_gone() {
    let world = World::new().await;
    let Some(kubectl) = Kubectl::new(&world) else {
        return;
    };
    let file = kubectl.file("web.json", &service("web", json!([{"port": 80}])));
    kubectl.run(&["create", "-f", &file]).await.ok();
    kubectl.run(&["delete", "-f", &file]).await.ok();
    let again = kubectl.run(&["delete", "-f", &file, "--ignore-not-found"]).await;
    assert!(again.success, "{again:?}");
    kubectl
        .with_input(&["create", "-f", "-"], &pod("free", None))
        .await
        .ok();
    kubectl.run(&["delete", "pod", "free"]).await.ok();
    // No kubelet runs on this node, so the pod stays until somebody forces it.
    kubectl
        .with_input(&["create", "-f", "-"], &pod("held", Some("no-such-node")))
        .await
        .ok();
    kubectl.run(&["delete", "pod", "held", "--wait=false"]).await.ok();
    let held = kubectl.json(&["get", "pod", "held"]).await;
    assert_eq!(held["metadata"]["deletionGracePeriodSeconds"], 30);
    assert!(
        kubectl
            .run(&["get", "pod", "held"])
            .await
            .ok()
            .contains("Terminating")
    );
    kubectl
        .run(&["delete", "pod", "held", "--grace-period=0", "--force"])
        .await
        .ok();
    assert!(!kubectl.run(&["get", "pod", "held"]).await.success);
    kubectl
        .with_input(&["create", "-f", "-"], &service("late", json!([{"port": 80}])))
        .await
        .ok();
    kubectl.run(&["delete", "svc", "--all"]).await.ok();
    kubectl.run(&["delete", "namespace", &world.namespace]).await.ok();
    let gone = kubectl.run(&["get", "namespace", &world.namespace]).await;
    assert!(gone.err.contains("NotFound"), "{gone:?}");
}
