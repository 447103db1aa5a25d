//! Benchmark of the lab: three nodes, fifty pods, five thousand Services with three watchers, and their removal.
//!
//! ```text
//!  up ─▶ agents ready ─▶ 50 pods Ready ─▶ (last round: 5,000 Services × 2 endpoints, seen by 3 watchers) ─▶ down
//! ```
//!
//! `cargo xtask bench lab` builds and runs it. Times are measured from a user's request to its effect.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use clap::Parser;
use comfy_table::{Table, presets};
use futures::{StreamExt as _, TryStreamExt as _, future::try_join_all, pin_mut, stream};
use k8s_openapi::api::{
    core::v1::{Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client,
    api::PostParams,
    runtime::{WatchStreamExt as _, watcher},
};
use lab::{LabCluster, LabConfig, Lifetime};
use serde_json::json;

/// Rounds of everything but the Services; the table shows the median.
const ROUNDS: usize = 5;
/// Nodes, as in the target times.
const NODES: u8 = 3;
/// Pods, on the nodes in turn.
const PODS: usize = 50;
/// Services, each with one slice of two endpoints.
const SERVICES: usize = 5000;
/// Watchers of slices.
const WATCHERS: usize = 3;
/// Concurrent requests.
const REQUESTS: usize = 64;
/// Longer than any step takes.
const LIMIT: Duration = Duration::from_secs(120);
/// Interval between checks of an agent.
const LOOK: Duration = Duration::from_millis(5);

/// Measured steps, and their target times.
const AIMS: [(&str, Option<Duration>); 6] = [
    ("up, 3 nodes", Some(Duration::from_millis(1500))),
    ("and their agents ready", None),
    ("50 pods Ready", Some(Duration::from_secs(2))),
    ("5,000 Services written", None),
    ("and seen by 3 watchers", None),
    ("down", None),
];

/// Measures the lab.
#[derive(Parser)]
struct Arguments {
    /// Folder for lab.csv
    #[arg(long)]
    csv: PathBuf,
}

/// Times by step.
type Times = BTreeMap<&'static str, Vec<Duration>>;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let mut times = Times::new();
    for round in 1..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}");
        one_round(&mut times, round == ROUNDS).await?;
    }
    report(&times, &arguments.csv)
}

async fn one_round(times: &mut Times, with_services: bool) -> anyhow::Result<()> {
    let config = LabConfig {
        nodes: NODES,
        ..LabConfig::new(&format!("bench-{}", std::process::id()))?
    };
    let mut note = |what: &'static str, since: Instant| {
        times.entry(what).or_default().push(since.elapsed());
    };
    let began = Instant::now();
    let lab = LabCluster::up(&config, Lifetime::WithCaller, |_| {}).await?;
    note(AIMS[0].0, began);
    within("readiness of the agents", agents_ready(&lab)).await?;
    note(AIMS[1].0, began);

    let began = Instant::now();
    within("readiness of the pods", pods(&lab)).await?;
    note(AIMS[2].0, began);

    if with_services {
        let began = Instant::now();
        let client = lab.cluster().client();
        let watchers = try_join_all((0..WATCHERS).map(|_| see_slices(client.clone())));
        let written = async {
            services(&client).await?;
            Ok::<_, anyhow::Error>(Instant::now())
        };
        let both = async { tokio::try_join!(written, watchers) };
        let (written, _) = within("the Services", both).await?;
        times.entry(AIMS[3].0).or_default().push(written - began);
        times.entry(AIMS[4].0).or_default().push(began.elapsed());
    }
    let began = Instant::now();
    lab.down().await?;
    times.entry(AIMS[5].0).or_default().push(began.elapsed());
    Ok(())
}

async fn within<T>(what: &str, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    match tokio::time::timeout(LIMIT, work).await {
        Ok(done) => done.with_context(|| format!("failed to wait for {what}")),
        Err(_) => bail!("{what} did not come within {LIMIT:?}"),
    }
}

async fn agents_ready(lab: &LabCluster) -> anyhow::Result<()> {
    for node in &lab.cluster().describe().nodes {
        while lab.cluster().agents()?.state(&node.name).await?.ready != Some(true) {
            tokio::time::sleep(LOOK).await;
        }
    }
    Ok(())
}

/// Creates pods and waits until the API shows all as Ready.
async fn pods(lab: &LabCluster) -> anyhow::Result<()> {
    let nodes: Vec<&str> = lab
        .cluster()
        .describe()
        .nodes
        .iter()
        .map(|node| node.name.as_str())
        .collect();
    let api: Api<Pod> = Api::namespaced(lab.cluster().client(), "default");
    let objects = (0..PODS).zip(nodes.iter().cycle()).map(|(number, node)| {
        json!({
            "metadata": {"name": format!("pod-{number}")},
            "spec": {
                "nodeName": node,
                "containers": [{
                    "name": "c", "image": "probe", "args": ["serve", "--name", "b", "--tcp", "8080"],
                }],
            },
        })
    });
    let made = create(&api, objects);
    let seen = async {
        let mut ready = BTreeMap::new();
        let events = watcher(api.clone(), watcher::Config::default()).applied_objects();
        pin_mut!(events);
        while let Some(pod) = events.try_next().await? {
            let status = pod.status.unwrap_or_default();
            let is_ready = status
                .conditions
                .unwrap_or_default()
                .iter()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True");
            ready.insert(pod.metadata.name, is_ready);
            if ready.values().filter(|is_ready| **is_ready).count() == PODS {
                return Ok(());
            }
        }
        bail!("the watch of pods ended")
    };
    tokio::try_join!(made, seen).map(drop)
}

/// Creates Services and their slices.
async fn services(client: &Client) -> anyhow::Result<()> {
    let services: Api<Service> = Api::namespaced(client.clone(), "default");
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let service =
        |number| json!({"metadata": {"name": format!("s-{number}")}, "spec": {"ports": [{"port": 80}]}});
    let slice = |number: usize| {
        let endpoint = |last: usize| format!("10.244.{}.{}", 1 + number % usize::from(NODES), last);
        json!({
            "metadata": {
                "name": format!("s-{number}"), "labels": {"kubernetes.io/service-name": format!("s-{number}")},
            },
            "addressType": "IPv4",
            "ports": [{"port": 8080, "protocol": "TCP"}],
            "endpoints": [
                {"addresses": [endpoint(2)], "conditions": {"ready": true}},
                {"addresses": [endpoint(3)], "conditions": {"ready": true}},
            ],
        })
    };
    create(&services, (0..SERVICES).map(service)).await?;
    create(&slices, (0..SERVICES).map(slice)).await
}

/// A watcher that ends once it has received the slices of all Services.
async fn see_slices(client: Client) -> anyhow::Result<()> {
    let api: Api<EndpointSlice> = Api::namespaced(client, "default");
    let events = watcher(api, watcher::Config::default()).applied_objects();
    pin_mut!(events);
    let mut seen = BTreeMap::new();
    while let Some(slice) = events.try_next().await? {
        let name = slice.metadata.name.unwrap_or_default();
        if name.starts_with("s-") {
            seen.insert(name, ());
        }
        if seen.len() == SERVICES {
            return Ok(());
        }
    }
    bail!("the watch of slices ended")
}

async fn create<K>(api: &Api<K>, objects: impl Iterator<Item = serde_json::Value>) -> anyhow::Result<()>
where
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    stream::iter(objects)
        .map(|object| async move {
            let object: K = serde_json::from_value(object)?;
            api.create(&PostParams::default(), &object).await?;
            anyhow::Ok(())
        })
        .buffer_unordered(REQUESTS)
        .try_collect()
        .await
}

fn report(times: &Times, folder: &PathBuf) -> anyhow::Result<()> {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(["", "median", "longest", "aim"]);
    let mut csv = "what,median_ms,longest_ms,rounds\n".to_owned();
    for (what, aim) in AIMS {
        let mut all = times.get(what).cloned().unwrap_or_default();
        all.sort_unstable();
        let (Some(median), Some(longest)) = (all.get(all.len() / 2), all.last()) else {
            continue;
        };
        let aim = aim.map_or_else(String::new, |aim| format!("≤ {aim:.1?}"));
        table.add_row([
            what.to_owned(),
            format!("{median:.2?}"),
            format!("{longest:.2?}"),
            aim,
        ]);
        csv += &format!(
            "\"{what}\",{},{},{}\n",
            median.as_millis(),
            longest.as_millis(),
            all.len()
        );
    }
    println!("{}", table.trim_fmt());
    fs::create_dir_all(folder).with_context(|| format!("failed to make {}", folder.display()))?;
    let path = folder.join("lab.csv");
    fs::write(&path, csv).with_context(|| format!("failed to write {}", path.display()))?;
    eprintln!("{}", path.display());
    Ok(())
}
