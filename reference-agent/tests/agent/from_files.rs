//! Objects from the files of a folder: added, changed, removed, half-written, malformed, repeated.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use reference_agent::{
    feed,
    folder::Folder,
    model::{Event, Kind},
    reports::Reports,
    testing::objects::name,
};
use tempfile::TempDir;
use tokio::task::JoinHandle;

pub(crate) use testing::patience::LIMIT;

/// A folder that is told of.
pub(crate) struct Told {
    folder: TempDir,
    arrivals: tokio::sync::mpsc::Receiver<feed::Arrival>,
    pub(crate) reports: Reports,
    feed: JoinHandle<()>,
}

impl Told {
    /// Of these files.
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let folder = TempDir::new().expect("a folder");
        for (file, text) in files {
            fs::write(folder.path().join(file), text).expect("written");
        }
        let reports = Reports::new(None);
        let (sender, arrivals) = feed::queue();
        let feed = Folder::open(folder.path()).expect("a folder").feed(&reports);
        let feed = tokio::spawn(feed.run(sender));
        Self {
            folder,
            arrivals,
            reports,
            feed,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        fs::write(self.path().join(file), text).expect("written");
    }

    fn remove(&self, file: &str) {
        fs::remove_file(self.path().join(file)).expect("removed");
    }

    /// The next events.
    async fn next(&mut self, count: usize) -> Vec<String> {
        let mut seen = Vec::new();
        while seen.len() < count {
            let arrival = tokio::time::timeout(LIMIT, self.arrivals.recv()).await;
            let arrival = arrival.unwrap_or_else(|_| panic!("{count} events; only {seen:?}"));
            let events = arrival.expect("the feed runs").events();
            seen.extend(events.map(|event| describe(&event)));
        }
        seen
    }

    /// Everything up to the last kind's being synced.
    pub(crate) async fn synced(&mut self) -> Vec<String> {
        let mut seen = self.next(4).await;
        while !seen.ends_with(&["synced ServiceCidr".to_owned()]) {
            seen.extend(self.next(1).await);
        }
        seen.truncate(seen.len() - 4);
        seen
    }

    /// Waits until /readyz would say this, `FOLDER` standing for the folder.
    async fn until_reasons(&self, expected: &[&str]) {
        self.until(expected, || self.reports.readiness.reasons()).await;
    }

    async fn until_findings(&self, expected: &[&str]) {
        self.until(expected, || {
            self.reports.ledger.text().lines().map(str::to_owned).collect()
        })
        .await;
    }

    async fn until(&self, expected: &[&str], look: impl Fn() -> Vec<String>) {
        let begin = Instant::now();
        loop {
            let folder = self.path().display().to_string();
            let seen: Vec<String> = look()
                .iter()
                .map(|line| line.replace(&folder, "FOLDER"))
                .collect();
            if seen == expected {
                return;
            }
            assert!(begin.elapsed() < LIMIT, "expected {expected:#?}, found {seen:#?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// No event is on its way, and the feed ends with the queue.
    pub(crate) async fn end(mut self) {
        let more = tokio::time::timeout(Duration::from_millis(300), self.arrivals.recv()).await;
        assert!(more.is_err(), "{more:?}");
        drop(self.arrivals);
        tokio::time::timeout(LIMIT, self.feed)
            .await
            .expect("it ends")
            .expect("no panic");
    }
}

fn describe(event: &Event) -> String {
    match event {
        Event::ServiceApplied(service) => format!("service {} {:?}", service.name, service.cluster_ips),
        Event::ServiceDeleted(name) => format!("no service {name}"),
        Event::SliceApplied(slice) => {
            let addresses: Vec<_> = slice.endpoints.iter().map(|endpoint| endpoint.address).collect();
            format!("slice {} {addresses:?}", slice.name)
        }
        Event::SliceDeleted(name) => format!("no slice {name}"),
        Event::NodeApplied(node) => format!("node {}", node.name),
        Event::NodeDeleted(name) => format!("no node {name}"),
        Event::ServiceCidrApplied(object) => format!("servicecidr {} {:?}", object.name, object.ranges),
        Event::ServiceCidrDeleted(name) => format!("no servicecidr {name}"),
        Event::ServiceRanges(ranges) => format!("ranges {ranges:?}"),
        Event::Host(_) => "host".to_owned(),
        Event::ApiServers(servers) => format!("API servers {servers:?}"),
        Event::Synced(kind) => format!("synced {kind:?}"),
    }
}

pub(crate) fn service(name: &str, ip: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{clusterIP: {ip}, clusterIPs: [{ip}], ports: [{{port: 80}}]}}\n"
    )
}

const SLICE: &str = r#"{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
    "metadata": {"namespace": "shop", "name": "x-1", "labels": {"kubernetes.io/service-name": "x"}},
    "addressType": "IPv4", "ports": [{"port": 80}], "endpoints": [{"addresses": ["10.0.0.1"]}]}"#;

#[tokio::test]
async fn documents_lists_and_json_are_taken_and_other_kinds_left_alone() {
    let several = format!(
        "# services\n---\n{}---\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: x}}\n---\n{}",
        service("a", "10.96.0.1"),
        service("b", "10.96.0.2")
    );
    let list =
        "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Node, metadata: {name: node1}}\n";
    let typed = "apiVersion: v1\nkind: ServiceList\nitems:\n- metadata: {name: c, namespace: shop}\n  spec: {clusterIP: 10.96.0.3, clusterIPs: [10.96.0.3]}\n";
    let mut told = Told::of(&[
        ("1.yaml", &several),
        ("2.yml", list),
        ("3.yaml", typed),
        ("4.json", SLICE),
        ("empty.yaml", ""),
        ("notes.txt", "no: object"),
        (".hidden.yaml", &service("hidden", "10.96.0.9")),
    ]);
    fs::create_dir(told.path().join("folder.yaml")).expect("made");
    let seen = told.synced().await;
    assert_eq!(told.reports.ledger.text(), "");
    assert_eq!(
        seen,
        [
            "service default/a [10.96.0.1]",
            "service default/b [10.96.0.2]",
            "service shop/c [10.96.0.3]",
            "slice shop/x-1 [10.0.0.1]",
            "node node1",
        ]
    );
    told.until_findings(&[]).await;
    told.end().await;
}

#[tokio::test]
async fn files_come_change_and_go_and_only_what_differs_is_told() {
    let two = |ip| format!("{}---\n{}", service("a", "10.96.0.1"), service("b", ip));
    let mut told = Told::of(&[("1.yaml", &two("10.96.0.2"))]);
    assert_eq!(told.synced().await.len(), 2);
    told.write("2.json", SLICE);
    assert_eq!(told.next(1).await, ["slice shop/x-1 [10.0.0.1]"]);
    told.write("1.yaml", &two("10.96.0.3"));
    assert_eq!(told.next(1).await, ["service default/b [10.96.0.3]"]);
    told.remove("1.yaml");
    assert_eq!(
        told.next(2).await,
        ["no service default/a", "no service default/b"]
    );
    // Renamed, it is the same object.
    fs::rename(told.path().join("2.json"), told.path().join("3.json")).expect("renamed");
    told.end().await;
}

#[tokio::test]
async fn a_folder_of_links_as_a_mounted_configmap_is_read_and_followed() {
    let told = Told::of(&[]);
    let (one, two) = (
        TempDir::new().expect("a folder"),
        TempDir::new().expect("a folder"),
    );
    fs::write(one.path().join("a.yaml"), service("a", "10.96.0.1")).expect("written");
    fs::write(two.path().join("a.yaml"), service("a", "10.96.0.2")).expect("written");
    let mut told = told;
    assert_eq!(told.synced().await, [""; 0]);
    let link = |to: &Path, name: &str| {
        std::os::unix::fs::symlink(to, told.folder.path().join(name)).expect("linked");
    };
    link(one.path(), "..data");
    link(Path::new("..data/a.yaml"), "a.yaml");
    assert_eq!(told.next(1).await, ["service default/a [10.96.0.1]"]);
    let link = |to: &Path, name: &str| {
        std::os::unix::fs::symlink(to, told.folder.path().join(name)).expect("linked");
    };
    link(two.path(), "..data_tmp");
    fs::rename(told.path().join("..data_tmp"), told.path().join("..data")).expect("renamed");
    assert_eq!(told.next(1).await, ["service default/a [10.96.0.2]"]);
    told.end().await;
}

#[tokio::test]
async fn a_file_that_becomes_malformed_keeps_what_it_said_and_is_named_until_it_can_be_read() {
    let mut told = Told::of(&[
        ("1.yaml", &service("a", "10.96.0.1")),
        ("2.yaml", &service("b", "10.96.0.2")),
    ]);
    assert_eq!(told.synced().await.len(), 2);
    told.write("1.yaml", "apiVersion: v1\nkind: [");
    told.write("2.yaml", &service("b", "10.96.0.3"));
    assert_eq!(
        told.next(1).await,
        ["service default/b [10.96.0.3]"],
        "nothing else suffers"
    );
    let begin = Instant::now();
    while told.reports.readiness.reasons().is_empty() {
        assert!(begin.elapsed() < LIMIT, "the file is not named");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let reasons = told.reports.readiness.reasons();
    let named = format!(
        "the file {} can't be used, and what it said before counts: it is no YAML: ",
        told.path().join("1.yaml").display()
    );
    assert!(
        matches!(reasons.as_slice(), [only] if only.starts_with(&named)),
        "{reasons:?}"
    );
    assert!(
        told.reports
            .ledger
            .text()
            .contains("1.yaml: Malformed: it is no YAML")
    );
    told.write("1.yaml", &service("a", "10.96.0.4"));
    assert_eq!(told.next(1).await, ["service default/a [10.96.0.4]"]);
    told.until_reasons(&[]).await;
    told.until_findings(&[]).await;
    told.end().await;
}

#[tokio::test]
async fn a_file_that_is_malformed_at_the_start_holds_the_list_up_for_a_while_only() {
    let begin = Instant::now();
    let mut told = Told::of(&[("1.yaml", "{"), ("2.yaml", &service("b", "10.96.0.2"))]);
    assert_eq!(told.synced().await, ["service default/b [10.96.0.2]"]);
    assert!(begin.elapsed() >= reference_agent::folder::BROKEN_LIMIT);
    assert_eq!(told.reports.readiness.reasons().len(), 1);
    told.write("1.yaml", &service("a", "10.96.0.1"));
    assert_eq!(told.next(1).await, ["service default/a [10.96.0.1]"]);
    told.end().await;
}

#[tokio::test]
async fn a_file_that_is_written_bit_by_bit_is_read_when_it_is_whole() {
    let whole = format!("{}---\n{}", service("a", "10.96.0.1"), service("b", "10.96.0.2"));
    let mut told = Told::of(&[("1.yaml", &whole)]);
    assert_eq!(told.synced().await.len(), 2);
    // In place, as an editor or `kubectl get > file` does: for a moment only the first document is there.
    let changed = format!("{}---\n{}", service("a", "10.96.0.1"), service("b", "10.96.0.3"));
    let (first, second) = changed.split_once("---\n").expect("two documents");
    let mut file = fs::File::create(told.path().join("1.yaml")).expect("open");
    std::io::Write::write_all(&mut file, first.as_bytes()).expect("written");
    tokio::time::sleep(reference_agent::folder::SETTLE / 4).await;
    std::io::Write::write_all(&mut file, format!("---\n{second}").as_bytes()).expect("written");
    assert_eq!(
        told.next(1).await,
        ["service default/b [10.96.0.3]"],
        "never that b is gone"
    );
    told.end().await;
}

#[tokio::test]
async fn of_one_object_in_two_files_that_of_the_first_by_name_counts() {
    let mut told = Told::of(&[("2.yaml", &service("a", "10.96.0.2"))]);
    assert_eq!(told.synced().await, ["service default/a [10.96.0.2]"]);
    told.write("3.yaml", &service("a", "10.96.0.3"));
    told.until_findings(&[
        "service default/a: Malformed: it is in FOLDER/2.yaml and in FOLDER/3.yaml; that of the first file by name counts",
    ])
    .await;
    told.write("1.yaml", &service("a", "10.96.0.1"));
    assert_eq!(told.next(1).await, ["service default/a [10.96.0.1]"]);
    told.remove("1.yaml");
    assert_eq!(told.next(1).await, ["service default/a [10.96.0.2]"]);
    told.remove("2.yaml");
    assert_eq!(told.next(1).await, ["service default/a [10.96.0.3]"]);
    told.until_findings(&[]).await;
    told.end().await;
}

#[tokio::test]
async fn objects_that_cannot_be_told_from_others_and_bad_fields_are_findings() {
    let file = "kind: Service\n---\napiVersion: v1\nkind: Service\nmetadata: {}\n---\n\
                apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {clusterIP: nowhere, clusterIPs: [nowhere]}\n---\n7\n";
    let mut told = Told::of(&[("1.yaml", file)]);
    assert_eq!(told.synced().await, ["service default/a []"]);
    let text = told.reports.ledger.text();
    for expected in [
        "1.yaml: Malformed: document 1: it has no apiVersion and kind; left out",
        "1.yaml: Malformed: document 2: metadata.name: expected a name, found null; left out",
        "1.yaml: Malformed: document 4: it has no apiVersion and kind; left out",
        "service default/a: Malformed: spec.clusterIPs[0]: expected",
    ] {
        assert!(text.contains(expected), "{expected} is missing in\n{text}");
    }
    told.write("1.yaml", &service("a", "10.96.0.1"));
    assert_eq!(told.next(1).await, ["service default/a [10.96.0.1]"]);
    told.until_findings(&[]).await;
    told.end().await;
}

#[tokio::test]
async fn a_folder_that_is_gone_takes_nothing_away() {
    let mut told = Told::of(&[("1.yaml", &service("a", "10.96.0.1"))]);
    assert_eq!(told.synced().await.len(), 1);
    let aside = told.path().with_extension("aside");
    fs::rename(told.path(), &aside).expect("renamed");
    told.until_reasons(&["the folder FOLDER can't be read: No such file or directory (os error 2)"])
        .await;
    fs::rename(&aside, told.path()).expect("renamed");
    told.until_reasons(&[]).await;
    told.write("1.yaml", &service("a", "10.96.0.2"));
    assert_eq!(told.next(1).await, ["service default/a [10.96.0.2]"]);
    told.end().await;
}

#[test]
fn one_reading_of_a_folder_ends_with_all_kinds_synced() {
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join("a.json"), SLICE).expect("written");
    fs::write(folder.path().join("b.json"), "{").expect("written");
    let reading = Folder::open(folder.path())
        .expect("a folder")
        .read_once()
        .expect("read");
    let [Event::SliceApplied(slice), rest @ ..] = reading.events.as_slice() else {
        panic!("a slice first, not {:?}", reading.events);
    };
    assert_eq!(slice.name, name("shop/x-1"));
    assert_eq!(rest, Kind::ALL.map(Event::Synced));
    assert_eq!(reading.findings.len(), 1);
}
