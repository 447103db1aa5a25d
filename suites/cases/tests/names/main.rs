//! Names of all cases: no two axes and no two cases share one. Each case runs against a lab's API server of its own, in
//! a cluster without anything else. Pods become ready and never answer, so that a case ends after its staging: at its
//! first fence, or at the first fault that such a cluster cannot make. All objects created by then, of all cases, are
//! compared. Objects that a case creates later pass the same check as it runs, which is shown here to refuse.
//!
//! `stage.rs`: that cluster.

mod stage;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use cluster::Capability;
use futures::{StreamExt as _, stream};
use harness::{
    case::{Case, Rights},
    context,
    evidence::Evidence,
    execute::{Options, execute},
    limits::Limits,
    objects::CASE_LABEL,
    report::CaseReport,
};
use serde_json::{Value, json};
use stage::Stage;

/// Claims about names, and the one of them about equal names: its objects, and the ports of both, belong to one axis.
const ABOUT_NAMES: [&str; 3] = [
    "release-same-name-two-namespaces",
    "release-joined-key-collision",
    "slice-namespace-bound",
];
/// These create nothing before a fault that this cluster cannot make, or nothing at all.
const UNSTAGED: [&str; 8] = [
    "agent-own-vip-clusterip",
    "kubesvc-reachable",
    "kubesvc-shared-address-restart",
    "stale-map-name-collision",
    "stale-sock-exclusive-above",
    "stale-sock-parent-cgroup",
    "stale-sock-reverse-hooks",
    "stale-tc",
];
/// Cases at once.
const AT_ONCE: usize = 6;
/// No case stages longer: one that waits for something that never happens has staged before.
const LONGEST: Duration = Duration::from_secs(30);
/// Start of the advice in these errors.
const REFUSED: &str = "make the object in a namespace of `Context::namespace`";

#[test]
fn what_a_manifest_names_itself_is_in_a_namespace_of_its_case() {
    for case in cases::ALL {
        let objects: Vec<Value> = serde_saphyr::from_multiple(case.manifest).expect("a manifest");
        for object in objects
            .iter()
            .filter(|object| text(object, "namespace") != "${namespace}")
        {
            for name in names(object) {
                assert!(name.starts_with("${"), "{}: {name} belongs to no axis", case.id);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_axes_cases_or_helpers_share_a_name() {
    let (reports, objects) = run(async || Stage::new(None).await, cases::ALL).await;
    none_is_refused(&reports);
    are_distinct(&objects);

    let all: BTreeSet<&str> = cases::ALL.iter().map(|case| case.id).collect();
    let unstaged: Vec<&str> = all.difference(&staged(&objects)).copied().collect();
    assert_eq!(
        unstaged, UNSTAGED,
        "a case that is listed here shows its names only where it runs"
    );

    // The comparison covers what has equal names on purpose.
    let equal = objects.iter().filter(|object| case(object) == ABOUT_NAMES[0]);
    let mut namespaces: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for object in equal.filter(|object| object["kind"] == "EndpointSlice" && !is_of_helper(object)) {
        let of_name = namespaces.entry(text(object, "name")).or_default();
        of_name.insert(text(object, "namespace"));
    }
    assert!(
        namespaces.len() > 1 && namespaces.values().all(|all| all.len() == 2),
        "{namespaces:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_do_they_where_all_is_in_one_namespace() {
    let all: Vec<Case> = cases::ALL
        .iter()
        .filter(|case| case.needs.rights == Rights::Namespaced)
        .copied()
        .collect();
    let (reports, objects) = run(async || Stage::new(Some("shop")).await, &all).await;
    none_is_refused(&reports);
    assert!(
        all.len() > 1 && staged(&objects).len() == all.len(),
        "{objects:?}"
    );
    assert!(objects.iter().all(|object| text(object, "namespace") == "shop"));
    are_distinct(&objects);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_cases_that_remove_an_agent_are_of_their_nodes_where_it_is_their_network() {
    let all: Vec<Case> = cases::ALL
        .iter()
        .filter(|case| case.needs.also.contains(&Capability::AgentCleanup))
        // Those that need pods with networks of their own do not run there.
        .filter(|case| !case.needs.also.contains(&Capability::PodsWithoutAgents))
        .copied()
        .collect();
    let (reports, objects) = run(Stage::of_agents_network, &all).await;
    for report in reports {
        let left_out = report.axes_not_enabled.join("; ");
        assert!(
            left_out.starts_with("pods with a network of their own: "),
            "{}: {left_out}",
            report.id
        );
    }
    let mut served: BTreeMap<(&str, &str), BTreeSet<u64>> = BTreeMap::new();
    for pod in objects.iter().filter(|object| object["kind"] == "Pod") {
        assert_eq!(pod["spec"]["hostNetwork"], true, "{pod}");
        let of_node = served
            .entry((case(pod), pod["spec"]["nodeName"].as_str().expect("a node")))
            .or_default();
        for port in tcp(pod) {
            assert!(of_node.insert(port), "two serve port {port} of a node: {pod}");
        }
    }
    for ((case, _), ports) in &served {
        let width = ports
            .last()
            .zip(ports.first())
            .map_or(0, |(last, first)| last - first);
        assert!(width < 16, "more than a block of ports of {case}: {ports:?}");
    }
    let slices = objects.iter().filter(|object| object["kind"] == "EndpointSlice");
    let mut seen = 0;
    for slice in slices {
        let endpoints = slice["endpoints"].as_array().expect("endpoints").iter();
        let ports = slice["ports"].as_array().expect("ports").iter();
        let ports: BTreeSet<u64> = ports.filter_map(|port| port["port"].as_u64()).collect();
        for endpoint in endpoints {
            let node = endpoint["nodeName"].as_str().expect("a node");
            assert!(served[&(case(slice), node)].is_superset(&ports), "{slice}");
            seen += 1;
        }
    }
    assert!(
        all.len() > 1 && seen > all.len(),
        "{seen} endpoints of {} cases",
        all.len()
    );
}

/// TCP ports that a pod of the suite serves; a port that the kernel chooses does not count.
fn tcp(pod: &Value) -> Vec<u64> {
    let args = pod["spec"]["containers"][0]["args"]
        .as_array()
        .expect("arguments");
    let ports = args.windows(2).filter(|two| two[0] == "--tcp");
    ports
        .filter_map(|two| two[1].as_str()?.parse().ok())
        .filter(|&port| port != 0)
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_case_that_would_share_a_name_creates_nothing_and_reports_why() {
    let manifest = "{ apiVersion: v1, kind: Service, metadata: { name: '${service}', namespace: default }, \
                    spec: { ports: [{ name: '${port}', port: 80 }] } }";
    let like = cases::find("clusterip-from-pod").expect("a case");
    let another_cases = Case {
        id: "another-cases",
        manifest,
        run: |cx| {
            let values = json!({ "service": "web", "port": cx.named("http") });
            Box::pin(async move { cx.apply("${service}", &values).await.map(drop) })
        },
        ..like
    };
    let another_cases_port = Case {
        id: "another-cases-port",
        run: |cx| {
            let values = json!({ "service": cx.named("web"), "port": "http" });
            Box::pin(async move { cx.apply("${service}", &values).await.map(drop) })
        },
        ..another_cases
    };
    let helpers = Case {
        id: "helpers",
        run: |cx| {
            // The objects of the fence's Service.
            let signal = format!("fence-{}-signal", cx.named("").trim_start_matches('-'));
            let values = json!({ "service": signal, "port": cx.named("http") });
            Box::pin(async move { cx.apply("${service}", &values).await.map(drop) })
        },
        ..another_cases
    };
    let all = [another_cases, another_cases_port, helpers];
    let (reports, objects) = run(async || Stage::new(None).await, &all).await;
    for report in &reports {
        let verdict = report.verdict.to_string();
        assert!(
            verdict.starts_with("inconclusive: harness error: the name"),
            "{verdict}"
        );
        assert!(verdict.contains(REFUSED), "{verdict}");
    }
    assert_eq!(reports.len(), 3);
    assert!(!objects.is_empty() && staged(&objects).is_empty(), "{objects:?}");
}

/// Runs cases until they end, each on a stage of its own: what ends a case lists all objects there are. Returns their
/// reports, and all objects that they created.
async fn run(stage: impl AsyncFn() -> Stage, cases: &[Case]) -> (Vec<CaseReport>, Vec<Value>) {
    let folder = tempfile::tempdir().expect("a folder");
    let one = async |case: Case| {
        let stage = stage().await;
        let folder = folder.path().join(case.id);
        fs::create_dir_all(&folder).expect("a folder");
        let options = Options {
            session: context::Options {
                run: "names".to_owned(),
                seed: 1,
                limits: Limits {
                    endpoints: Duration::from_millis(100),
                    service: Duration::from_millis(100),
                    heal: Duration::from_millis(100),
                    own_watch: Duration::from_secs(60),
                    ..Limits::default()
                },
                turns: None,
                progress: std::sync::Arc::new(|_| {}),
            },
            replay: String::new(),
            folder,
            evidence: Evidence::Failed,
            keep: true,
        };
        let report = execute(case, stage.cluster(), options, tokio::time::sleep(LONGEST)).await;
        (report, stage.objects().await)
    };
    let ended: Vec<(CaseReport, Vec<Value>)> = stream::iter(cases.iter().copied())
        .map(one)
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let (reports, objects): (Vec<_>, Vec<_>) = ended.into_iter().unzip();
    (reports, objects.concat())
}

fn none_is_refused(reports: &[CaseReport]) {
    for report in reports {
        let text = serde_json::to_string(report).expect("a report");
        assert!(!text.contains(REFUSED), "{}: {text}", report.id);
    }
}

/// Cases that created more than clients, the fence and the control Service.
fn staged(objects: &[Value]) -> BTreeSet<&str> {
    let under_test = objects.iter().filter(|object| !is_of_helper(object));
    under_test.map(case).collect()
}

/// Each name of an object or of its ports belongs to one case, and to one axis or helper of it.
fn are_distinct(objects: &[Value]) {
    let mut owners: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    for object in objects {
        let owner = (case(object), axis(object));
        for name in names(object) {
            let first = *owners.entry(name).or_insert(owner);
            assert_eq!(first, owner, "both have {name}");
        }
    }
}

/// The namespace of an axis or a helper; where all are in one, the start of their names. An axis of claims about names
/// has all namespaces that begin alike.
fn axis(object: &Value) -> &str {
    let (namespace, name) = (text(object, "namespace"), text(object, "name"));
    let begins = |text: &str| text.match_indices('-').nth(1).map_or(text.len(), |(at, _)| at);
    if namespace == "shop" {
        return &name[..begins(name)];
    }
    if ABOUT_NAMES.contains(&case(object)) && !namespace.starts_with("fence-") {
        let number = namespace.find('-').map_or(0, |at| at + 1);
        let digits = namespace[number..].find(|char: char| !char.is_ascii_digit());
        return &namespace[..digits.map_or(namespace.len(), |digits| number + digits)];
    }
    namespace
}

/// Its own name, and those of its ports.
fn names(object: &Value) -> impl Iterator<Item = &str> {
    let ports = ["/spec/ports", "/ports"].map(|at| object.pointer(at).and_then(Value::as_array));
    let ports = ports.into_iter().flatten().flatten();
    ports
        .filter_map(|port| port["name"].as_str())
        // A port without a name shares none.
        .filter(|name| !name.is_empty())
        .chain([text(object, "name")])
}

fn is_of_helper(object: &Value) -> bool {
    axis(object).starts_with("fence-")
}

fn case(object: &Value) -> &str {
    object["metadata"]["labels"][CASE_LABEL]
        .as_str()
        .unwrap_or_default()
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}
