//! One case from its namespaces to their removal.

use std::{
    fs,
    future::Future,
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use cluster::{Cluster, ClusterError};
use futures::FutureExt as _;

use crate::{
    agents,
    case::{Case, axes_not_enabled},
    cleanup::Made,
    context::{self, Context},
    evidence::{self, Evidence},
    history::{History, now_us},
    host_drops,
    readiness::Readiness,
    report::{AxisReport, CaseReport, overall},
    time_spent::{Activity, Spent},
    verdict::{Halt, Verdict},
};

/// How a case is run.
#[derive(Clone)]
pub struct Options {
    /// What its session has to know of the run.
    pub session: context::Options,
    /// The command that runs this case again with the same seed.
    pub replay: String,
    /// Folder for the evidence of this case; made if absent.
    pub folder: PathBuf,
    /// Of which cases everything is kept.
    pub evidence: Evidence,
    /// Leaves the namespaces of the case for a look at them; outside of a lab, of one that did not pass.
    pub keep: bool,
}

/// Runs a case. Whatever becomes of it (panic, hang, interruption), evidence is captured and its namespaces are
/// removed.
pub async fn execute(
    case: Case,
    cluster: Arc<Cluster>,
    options: Options,
    interrupted: impl Future<Output = ()>,
) -> CaseReport {
    execute_with(
        case,
        async |cx: &Context| (case.run)(cx).await,
        cluster,
        options,
        interrupted,
    )
    .await
}

/// As [`execute`], of a case that does this in place of its own [`Case::run`].
pub async fn execute_with(
    case: Case,
    run: impl AsyncFnOnce(&Context) -> Result<(), Halt>,
    cluster: Arc<Cluster>,
    options: Options,
    interrupted: impl Future<Output = ()>,
) -> CaseReport {
    let started_us = now_us();
    let began = Instant::now();
    let Options { session, folder, .. } = &options;
    let limits = &session.limits;
    let longest = limits.longest(case.longest);
    let mut report = CaseReport {
        id: case.id.to_owned(),
        area: case.area.to_owned(),
        claims: case.claims.iter().map(|claim| (*claim).to_owned()).collect(),
        tier: case.tier.to_string(),
        verdict: Verdict::Pass,
        seed: session.seed,
        replay: options.replay.clone(),
        started_us,
        seconds: 0.0,
        axes: Vec::new(),
        axes_not_enabled: axes_not_enabled(cluster.describe()),
        recorded: Default::default(),
        recoveries: Vec::new(),
        warnings: Vec::new(),
        unhealed: Vec::new(),
        evidence: Some(folder.clone()),
        spent: Spent::default(),
        undecided: Vec::new(),
    };
    let dropped = host_drops::dropped();
    let (mut cx, mut readiness, mut opened) = (None, None, None);
    let body = async {
        let history = Arc::clone(opened.insert(open(folder)?));
        let started = Context::start(case.about(), Arc::clone(&cluster), session.clone(), history).await?;
        let cx = &*cx.insert(started);
        readiness = Readiness::start(cx, case.area, case.id).await?;
        run(cx).await?;
        cx.phase("final reads");
        agents::all(cx).await?;
        Ok(())
    };
    let (mut was_interrupted, mut broken) = (false, None);
    let ended = tokio::select! {
        ended = AssertUnwindSafe(body).catch_unwind() => match ended {
            Ok(Ok(())) => None,
            Ok(Err(halt)) => {
                broken = matches!(halt, Halt::Harness(_)).then(|| halt.to_string());
                Some(halt.verdict())
            }
            Err(panic) => Some(inconclusive(format!("the case panicked: {}", panic_message(&*panic)))),
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
        report.axes = cx.axes().reports(ended.as_ref());
        report.axes_not_enabled.extend(cx.axes().all_not_enabled());
        report.recorded = cx.recorded();
        report.recoveries = cx.recoveries();
    }
    report.verdict = verdict(&report, ended);
    report.warnings.extend(untold(&report, broken));
    report
        .warnings
        .extend(host_drops::warning(host_drops::dropped().saturating_sub(dropped)));
    // The case is over, and has dropped what it held.
    report.unhealed = cx.as_ref().map(|cx| cx.faults().unhealed()).unwrap_or_default();
    let closes = Instant::now();
    if let Some(watch) = readiness {
        let limit = limits.closing / WATCH_ENDS;
        merge_readiness(&mut report, watch.end(limits, limit).await);
    }
    // A run that was interrupted may take its cluster with it.
    if !was_interrupted && let Err(why) = cluster.intact().await {
        without_cluster(&mut report, &why);
    }
    (session.progress)("evidence and clean-up");
    let keeps_all = options.evidence.keeps_all(&report);
    let closing = async {
        if let Some(cx) = cx.as_ref().filter(|_| keeps_all) {
            report.warnings.extend(evidence::collect(cx, folder).await);
        }
        if !(options.keep && stays(&cluster.describe().provider, &report.verdict)) {
            let made = Made {
                run: &session.run,
                case: Some(case.id),
                confined: cluster.describe().confined.as_deref(),
            };
            let (client, limit) = (cluster.client(), limits.cleanup);
            let cleaned = match cluster.describe().provider.as_str() {
                LAB => made.cleanup(&client, limit).await,
                _ => made.remove(&client, limit).await,
            };
            report.warnings.extend(cleaned.err().map(|halt| halt.to_string()));
        }
    };
    let limit = limits.closing;
    let left = limit.saturating_sub(closes.elapsed());
    if tokio::time::timeout(left, closing).await.is_err() {
        report
            .warnings
            .push(format!("evidence and clean-up took longer than {limit:?}"));
    }
    // Last, so that it has what the clean-up did.
    if let Some(Err(error)) = opened.map(|history| history.end(keeps_all)) {
        report.warnings.push(evidence::lacks("the history", &error));
    }
    report.seconds = began.elapsed().as_secs_f64();
    report.spent = cx.as_ref().map(|cx| cx.clock().spent()).unwrap_or_default();
    report
        .spent
        .seconds
        .insert(Activity::Closing, closes.elapsed().as_secs_f64());
    if let Err(error) = write_report(folder, &report) {
        report
            .warnings
            .push(format!("failed to write the case's report: {error}"));
    }
    report
}

/// Whether what a case has made is kept, if anything is. Of a cluster that all cases share, only what did not pass: a node takes
/// 110 pods, as many as those of some twenty cases.
fn stays(provider: &str, verdict: &Verdict) -> bool {
    provider == LAB || *verdict != Verdict::Pass
}

/// The provider whose clusters are made for a case.
const LAB: &str = "lab";

/// The clients of the readiness watch end within this part of [`Limits::closing`](crate::limits::Limits::closing); what they
/// leave of it is for evidence and clean-up.
const WATCH_ENDS: u32 = 4;

/// Name of a case's report in its folder.
pub const REPORT: &str = "case.json";

fn open(folder: &Path) -> Result<Arc<History>, Halt> {
    let broken = |error| Halt::Harness(format!("failed to write to {}: {error}", folder.display()));
    fs::create_dir_all(folder).map_err(broken)?;
    Ok(Arc::new(History::create(folder).map_err(broken)?))
}

/// What was watched all along: a failure is one of the case, and nothing of it makes up for what the case has not shown.
/// A case that passes has to have been watched.
fn merge_readiness(report: &mut CaseReport, axes: Vec<AxisReport>) {
    let is_failed = |axis: &&AxisReport| matches!(axis.verdict, Verdict::Fail { .. });
    let why = |axis: &AxisReport| format!("{}: {}", axis.name, axis.verdict.why());
    let failed = axes.iter().find(is_failed);
    let undecided = axes.iter().find(|axis| axis.verdict != Verdict::Pass);
    match (&report.verdict, failed, undecided) {
        (Verdict::Fail { .. }, ..) => {}
        (_, Some(axis), _) => report.verdict = Verdict::Fail { why: why(axis) },
        (Verdict::Pass, None, Some(axis)) => report.verdict = inconclusive(why(axis)),
        _ => {}
    }
    report.axes.extend(axes);
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

/// What of the suite is broken, where no verdict says so: axes that failed before stand for themselves.
fn untold(report: &CaseReport, broken: Option<String>) -> Option<String> {
    let why = broken?;
    let mut verdicts = report
        .axes
        .iter()
        .map(|axis| &axis.verdict)
        .chain([&report.verdict]);
    let is_told = verdicts.any(|verdict| verdict.why().contains(&why));
    (!is_told).then(|| format!("harness error: {why}"))
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

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "(no words)".to_owned())
}

fn write_report(folder: &Path, report: &CaseReport) -> Result<(), String> {
    let text = serde_json::to_vec_pretty(report).map_err(|error| error.to_string())?;
    evidence::write(&folder.join(REPORT), &text)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn what_passed_stays_in_no_cluster_that_others_use() {
        for verdict in [Verdict::Fail { why: "w".into() }, inconclusive("w".into())] {
            assert!(stays("kind", &verdict) && stays("existing", &verdict) && stays(LAB, &verdict));
        }
        assert!(stays(LAB, &Verdict::Pass));
        assert!(!stays("kind", &Verdict::Pass) && !stays("existing", &Verdict::Pass));
    }

    /// Of a case with these axes.
    pub(crate) fn report(axes: Vec<Verdict>) -> CaseReport {
        let axes = axes
            .into_iter()
            .map(|verdict| AxisReport::new("a", verdict, Vec::new()))
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
            recoveries: Vec::new(),
            warnings: Vec::new(),
            unhealed: Vec::new(),
            evidence: None,
            spent: Spent::default(),
            undecided: Vec::new(),
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
    fn an_error_of_the_suite_is_told_even_where_all_axes_had_failed() {
        let broken = || Some("no manifest".to_owned());
        let failed = || Verdict::Fail { why: "w".into() };
        let told = Some("harness error: no manifest".to_owned());
        assert_eq!(untold(&report(vec![failed()]), broken()), told);
        let open = Halt::Harness("no manifest".into()).verdict();
        assert_eq!(untold(&report(vec![failed(), open]), broken()), None);
        assert_eq!(untold(&report(vec![failed()]), None), None);
    }

    #[test]
    fn what_was_watched_fails_a_case_and_passes_none() {
        let watched = |verdict| report(vec![verdict]).axes;
        let mut nothing = report(Vec::new());
        nothing.verdict = verdict(&nothing, None);
        merge_readiness(&mut nothing, watched(Verdict::Pass));
        assert_eq!(nothing.verdict.name(), "inconclusive");
        merge_readiness(&mut nothing, watched(Verdict::Fail { why: "w".into() }));
        assert_eq!(nothing.verdict.name(), "fail");
        assert_eq!(nothing.axes.len(), 2);
    }

    #[test]
    fn a_case_whose_watch_was_lost_does_not_pass() {
        let lost = || report(vec![inconclusive("w".into())]).axes;
        for (verdict, expected) in [
            (Verdict::Pass, "inconclusive"),
            (Verdict::Fail { why: "f".into() }, "fail"),
            (Verdict::NotSupported { why: "n".into() }, "not-supported"),
        ] {
            let mut case = report(Vec::new());
            case.verdict = verdict;
            merge_readiness(&mut case, lost());
            assert_eq!(case.verdict.name(), expected);
        }
    }

    #[test]
    fn a_case_that_ends_without_judging_anything_is_no_pass() {
        assert_eq!(verdict(&report(Vec::new()), None).name(), "inconclusive");
    }
}
