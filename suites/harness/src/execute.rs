//! One case from its namespaces to their removal.

use std::{
    fs,
    future::Future,
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::FutureExt as _;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ListParams},
};
use lab::cluster::{Cluster, ClusterError};
use serde_json::Value;

use crate::{
    case::{Case, axes_not_enabled},
    context::{Context, Options},
    history::{History, now_us},
    objects::{CASE_LABEL, Key, Kind, RUN_LABEL, api},
    report::{CaseReport, overall},
    verdict::{Halt, Verdict},
};

/// Runs a case. Whatever becomes of it (panic, hang, interruption), evidence is captured and its namespaces are
/// removed.
pub async fn execute(
    case: Case,
    cluster: Arc<dyn Cluster>,
    options: Options,
    interrupted: impl Future<Output = ()>,
) -> CaseReport {
    let started_us = now_us();
    let began = Instant::now();
    let longest = options.limits.longest(case.longest);
    let mut report = CaseReport {
        id: case.id.to_owned(),
        area: case.area.to_owned(),
        claims: case.claims.iter().map(|claim| (*claim).to_owned()).collect(),
        tier: case.tier.to_string(),
        verdict: Verdict::Pass,
        seed: options.seed,
        replay: options.replay.clone(),
        started_us,
        seconds: 0.0,
        axes: Vec::new(),
        axes_not_enabled: axes_not_enabled(cluster.describe()),
        recorded: Default::default(),
        warnings: Vec::new(),
        evidence: Some(options.folder.clone()),
    };
    let mut cx = None;
    let body = async {
        let history = open(&options.folder)?;
        let started = Context::start(case, Arc::clone(&cluster), options.clone(), history).await?;
        let cx = &*cx.insert(started);
        (case.run)(cx).await?;
        cx.phase("final reads");
        cx.agents().await?;
        Ok(())
    };
    let mut was_interrupted = false;
    let ended = tokio::select! {
        ended = AssertUnwindSafe(body).catch_unwind() => match ended {
            Ok(Ok(())) => None,
            Ok(Err(halt)) => Some(Halt::verdict(&halt)),
            Err(panic) => Some(inconclusive(format!("the case panicked: {}", words(&*panic)))),
        },
        () = interrupted => {
            was_interrupted = true;
            Some(inconclusive("the run was interrupted".to_owned()))
        }
        () = tokio::time::sleep(longest) => {
            Some(inconclusive(format!("the case hung: it has not ended within {longest:?}")))
        }
    };
    if let Some(cx) = &cx {
        report.axes = cx.axes.reports(ended.as_ref());
        report.recorded = cx.all_recorded();
    }
    report.verdict = verdict(&report, ended);
    // A run that was interrupted may take its cluster with it.
    if !was_interrupted && let Err(why) = cluster.intact().await {
        without_cluster(&mut report, &why);
    }
    (options.progress)("evidence and clean-up");
    let closing = async {
        if let Some(cx) = &cx {
            report.warnings.extend(evidence(cx).await);
        }
        if !options.keep {
            let cleaned = cleanup(
                &cluster.client(),
                &options.run,
                Some(case.id),
                options.limits.cleanup,
            )
            .await;
            report.warnings.extend(cleaned.err().map(|halt| halt.to_string()));
        }
    };
    let limit = options.limits.closing;
    if tokio::time::timeout(limit, closing).await.is_err() {
        report
            .warnings
            .push(format!("evidence and clean-up took longer than {limit:?}"));
    }
    report.seconds = began.elapsed().as_secs_f64();
    if let Err(error) = write_report(&options.folder, &report) {
        report
            .warnings
            .push(format!("failed to write the case's report: {error}"));
    }
    report
}

/// Name of a case's report in its folder.
pub const REPORT: &str = "case.json";

/// Removes the namespaces of a run (or of one of its cases) and what is in them, and waits until they are gone.
pub async fn cleanup(client: &Client, run: &str, case: Option<&str>, limit: Duration) -> Result<(), Halt> {
    let mut selector = format!("{RUN_LABEL}={run}");
    if let Some(case) = case {
        selector += &format!(",{CASE_LABEL}={case}");
    }
    let namespaces: Api<DynamicObject> = api(client, &Key::new(Kind::Namespace, "", ""));
    let mine = ListParams::default().labels(&selector);
    let refused = |error| crate::objects::refused("clean up", error);
    for namespace in namespaces.list(&mine).await.map_err(refused)? {
        let name = namespace.metadata.name.unwrap_or_default();
        match namespaces.delete(&name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            done => drop(done.map_err(refused)?),
        }
    }
    let gone = async {
        while !namespaces.list(&mine).await.map_err(refused)?.items.is_empty() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    };
    tokio::time::timeout(limit, gone)
        .await
        .map_err(|_| Halt::Inconclusive(format!("namespaces {selector} are not gone within {limit:?}")))?
}

fn open(folder: &Path) -> Result<Arc<History>, Halt> {
    let broken = |error| Halt::Harness(format!("failed to write to {}: {error}", folder.display()));
    fs::create_dir_all(folder).map_err(broken)?;
    Ok(Arc::new(
        History::create(&folder.join("history.jsonl")).map_err(broken)?,
    ))
}

/// An axis that failed fails the case, however it ended: its control had passed and its fault was witnessed.
fn verdict(report: &CaseReport, ended: Option<Verdict>) -> Verdict {
    let by_axes = overall(&report.axes);
    match ended {
        Some(ended) if !matches!(by_axes, Verdict::Fail { .. }) => {
            // The axes say more than "no axis is left", where they say anything.
            let is_told = matches!(&by_axes, Verdict::Inconclusive { .. }) && !report.axes.is_empty();
            if is_told { by_axes } else { ended }
        }
        _ => by_axes,
    }
}

/// Whatever the clients saw, the end of the cluster may be why.
fn without_cluster(report: &mut CaseReport, why: &ClusterError) {
    let verdict = inconclusive(format!("the cluster ended while the case ran: {why}"));
    for axis in &mut report.axes {
        axis.verdict = verdict.clone();
    }
    report.verdict = verdict;
}

fn inconclusive(why: String) -> Verdict {
    Verdict::Inconclusive { why }
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "(no words)".to_owned())
}

/// Objects, logs and dumps into the case's folder. Returns what could not be had.
async fn evidence(cx: &Context) -> Vec<String> {
    let folder = &cx.options.folder;
    let mut warnings = Vec::new();
    let mut keep = |what: &str, done: Result<(), String>| {
        warnings.extend(done.err().map(|error| format!("no evidence of {what}: {error}")));
    };
    keep(
        "the history",
        cx.history.flush().map_err(|error| error.to_string()),
    );
    for kind in [Kind::Service, Kind::EndpointSlice, Kind::Pod] {
        let what = format!("{kind:?}s");
        keep(
            &what,
            objects(cx, kind, folder.join(format!("objects/{what}.json"))).await,
        );
    }
    for pod in cx.backends_made() {
        let log = cx
            .cluster
            .log(&pod.namespace, &pod.name)
            .await
            .map_err(|error| error.to_string());
        keep(
            &pod.name,
            log.and_then(|text| {
                write(
                    &folder.join(format!("logs/{}.jsonl", pod.server())),
                    text.as_bytes(),
                )
            }),
        );
    }
    let dumps = folder.join("cluster");
    let dumped = match fs::create_dir_all(&dumps) {
        Ok(()) => cx
            .cluster
            .evidence(&dumps)
            .await
            .map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    keep("the cluster", dumped);
    warnings
}

async fn objects(cx: &Context, kind: Kind, file: PathBuf) -> Result<(), String> {
    let all = api(&cx.cluster.client(), &Key::new(kind, "", ""));
    let list = all
        .list(&ListParams::default())
        .await
        .map_err(|error| error.to_string())?;
    let values: Result<Vec<Value>, _> = list.items.into_iter().map(serde_json::to_value).collect();
    let text = serde_json::to_vec_pretty(&values.map_err(|error| error.to_string())?);
    write(&file, &text.map_err(|error| error.to_string())?)
}

fn write(file: &Path, text: &[u8]) -> Result<(), String> {
    let folder = file.parent().unwrap_or(file);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(file, text))
        .map_err(|error| error.to_string())
}

fn write_report(folder: &Path, report: &CaseReport) -> Result<(), String> {
    let text = serde_json::to_vec_pretty(report).map_err(|error| error.to_string())?;
    write(&folder.join(REPORT), &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::AxisReport;

    fn report(axes: Vec<Verdict>) -> CaseReport {
        let axes = axes
            .into_iter()
            .map(|verdict| AxisReport {
                name: "a".into(),
                verdict,
                findings: Vec::new(),
            })
            .collect();
        CaseReport {
            id: "c".into(),
            area: "a".into(),
            claims: vec!["c".into()],
            tier: "core".into(),
            verdict: Verdict::Pass,
            seed: 1,
            replay: String::new(),
            started_us: 0,
            seconds: 0.0,
            axes,
            axes_not_enabled: Vec::new(),
            recorded: Default::default(),
            warnings: Vec::new(),
            evidence: None,
        }
    }

    #[test]
    fn an_axis_that_failed_fails_a_case_that_was_cut_short() {
        let cut = Some(inconclusive("hung".into()));
        let failed = report(vec![Verdict::Fail { why: "w".into() }]);
        assert_eq!(verdict(&failed, cut.clone()).name(), "fail");
        assert_eq!(verdict(&report(vec![Verdict::Pass]), cut.clone()).why(), "hung");
        assert_eq!(verdict(&report(Vec::new()), cut).why(), "hung");
    }

    #[test]
    fn a_case_that_ends_without_judging_anything_is_no_pass() {
        assert_eq!(verdict(&report(Vec::new()), None).name(), "inconclusive");
    }
}
