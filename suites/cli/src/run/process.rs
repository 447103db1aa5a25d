//! One case as a process: starts it, limits its time, and reports its end.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use harness::{
    case::Case, evidence::Evidence, execute::REPORT, limits::Limits, report::CaseReport, verdict::Verdict,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    arguments::{ChaosRun, MOST_TRIES},
    progress::Line,
};
use crate::{case::Order, cluster::ClusterRef, plural::seconds};

/// The folder of all cases' evidence, in that of the run.
pub(super) const EVIDENCE: &str = "evidence";
/// Limit of the shown stderr of a dead case.
const STDERR_BYTES: usize = 4096;

/// Settings that all cases of a run share.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// The program that runs a case: this one.
    pub(super) program: PathBuf,
    pub(super) run: String,
    pub(super) seed: u64,
    /// Options of the command line that name the target.
    pub(super) target: String,
    pub(super) limits: Limits,
    pub(super) out: PathBuf,
    pub(super) evidence: Evidence,
    pub(super) keep: bool,
    /// Limit of concurrent labs; at least one.
    pub(super) labs: usize,
    /// Limit of concurrent cases in all labs; at least one.
    pub(super) jobs: usize,
    /// Cases that run however busy the machine is; each further one begins when there is room ([`machine::room`]).
    ///
    /// [`machine::room`]: super::machine::room
    pub(super) always: usize,
    pub(super) shuffle: bool,
    pub(super) fail_fast: bool,
    /// Limit of tries of an inconclusive case; at least one.
    pub(super) tries: usize,
    /// Of runs of chaos, by the ids of their cases.
    pub(super) chaos: BTreeMap<&'static str, ChaosRun>,
    pub(super) interrupted: CancellationToken,
}

/// The end of a case: its report, and whether its process wrote it and undid its changes. Otherwise the case has left
/// things behind.
pub(super) struct End {
    pub(super) report: CaseReport,
    pub(super) is_its_own: bool,
}

impl Settings {
    /// The command that runs a case, or all cases of a joint row, again with the same seed.
    pub(super) fn replay(&self, id: &str) -> String {
        if let Some(chaos) = self.chaos.get(id) {
            return format!("plumbline chaos {}{}", chaos.replay, self.target);
        }
        format!("plumbline run {id} --seed {}{}", self.seed, self.target)
    }

    pub(super) fn folder(&self, case: &Case) -> PathBuf {
        self.out.join(EVIDENCE).join(case.id)
    }

    /// Folder for the evidence of an earlier try, counted from 1.
    pub(super) fn folder_of_try(&self, case: &Case, number: usize) -> PathBuf {
        self.folder(case).with_extension(number.to_string())
    }
}

/// Where a case runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<'a> {
    /// In this cluster.
    pub(super) cluster: &'a ClusterRef,
    /// The only node of the case, because other cases use the others.
    pub(super) node: Option<&'a str>,
}

impl<'a> At<'a> {
    /// All nodes of a cluster.
    pub(super) fn all_of(cluster: &'a ClusterRef) -> Self {
        Self { cluster, node: None }
    }
}

/// The file with the order of a case, in its folder.
const ORDER: &str = "order.json";

/// Runs a case in a cluster to its end, whatever the end is.
pub(super) async fn run(settings: &Settings, at: At<'_>, case: Case, line: &Line<'_>) -> End {
    let folder = settings.folder(&case);
    let began = Instant::now();
    let ended = supervise(settings, at, &case, &folder, line).await;
    let written = fs::read(folder.join(REPORT)).ok();
    let report = written.and_then(|text| serde_json::from_slice::<CaseReport>(&text).ok());
    if let Some(mut report) = report {
        let is_its_own = report.unhealed.is_empty();
        let failed = report.unhealed.iter();
        let failed = failed.map(|words| format!("healing failed: {words}"));
        report.warnings.extend(failed);
        report.evidence = Some(folder);
        return End { report, is_its_own };
    }
    let why = match ended {
        Ok(ended) => format!("the case's process {}{}", ended.words(), stderr(&folder)),
        Err(error) => format!("the case's process could not be run: {error}"),
    };
    let mut report = without_run(&case, settings, Verdict::Inconclusive { why });
    report.seconds = began.elapsed().as_secs_f64();
    report.evidence = Some(folder);
    End {
        report,
        is_its_own: false,
    }
}

/// The report of a case whose process has written none.
pub(super) fn without_run(case: &Case, settings: &Settings, verdict: Verdict) -> CaseReport {
    CaseReport {
        id: case.id.to_owned(),
        area: case.area.to_owned(),
        claims: case.claims.iter().map(|claim| (*claim).to_owned()).collect(),
        tier: case.tier.to_string(),
        verdict,
        seed: settings.seed,
        replay: settings.replay(case.id),
        started_us: harness::history::now_us(),
        seconds: 0.0,
        axes: Vec::new(),
        axes_not_enabled: Vec::new(),
        recorded: Default::default(),
        recoveries: Vec::new(),
        warnings: Vec::new(),
        unhealed: Vec::new(),
        evidence: None,
        spent: Default::default(),
        undecided: Vec::new(),
    }
}

#[derive(Debug)]
enum Ended {
    ByItself(ExitStatus),
    Hung(Duration),
    Interrupted,
}

impl Ended {
    fn words(&self) -> String {
        match self {
            Self::ByItself(status) => format!("ended without a report, with {status}"),
            Self::Hung(limit) => format!("hung: it had not ended after {}, and was killed", seconds(*limit)),
            Self::Interrupted => "was interrupted".to_owned(),
        }
    }
}

/// Removes what an earlier run has left of a case, all of its tries: it is no evidence of this one.
///
/// # Errors
/// A folder can't be removed.
pub(crate) fn remove_evidence(out: &Path, id: &str) -> std::io::Result<()> {
    let folder = out.join(EVIDENCE).join(id);
    let tries = (1..=MOST_TRIES).map(|number| folder.with_extension(number.to_string()));
    for folder in [folder.clone()].into_iter().chain(tries) {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

async fn supervise(
    settings: &Settings,
    at: At<'_>,
    case: &Case,
    folder: &Path,
    line: &Line<'_>,
) -> std::io::Result<Ended> {
    // Remains of an earlier run are no evidence of this one.
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => fs::create_dir_all(folder)?,
    }
    let order = Order {
        cluster: at.cluster.clone(),
        node: at.node.map(str::to_owned),
        run: settings.run.clone(),
        seed: settings.seed,
        replay: settings.replay(case.id),
        limits: settings.limits.clone(),
        folder: folder.to_owned(),
        evidence: settings.evidence,
        keep: settings.keep,
        chaos: settings.chaos.get(case.id).map(|chaos| chaos.given.clone()),
    };
    let told = folder.join(ORDER);
    // It names the kubeconfig: only its owner reads it.
    let mut file = OpenOptions::new();
    let file = file
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&told)?;
    serde_json::to_writer_pretty(file, &order)?;
    let mut child = Command::new(&settings.program)
        .arg0("plumbline")
        .arg("case")
        .arg(case.id)
        .arg(&told)
        // Held open while this process lives: the case cleans up when stdin ends.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(File::create(folder.join("stderr.log"))?)
        // This process handles Ctrl-C.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    // Taken, because waiting would close it.
    let _alive = child.stdin.take();
    let phases = child.stdout.take();
    let follow = async {
        let Some(phases) = phases else { return };
        let mut lines = BufReader::new(phases).lines();
        while let Ok(Some(phase)) = lines.next_line().await {
            line.phase(&phase);
        }
    };
    let limits = &settings.limits;
    let after = limits.closing + limits.process;
    let limit = limits.longest(case.longest) + after;
    let end = async {
        tokio::select! {
            ended = timeout(limit, child.wait()) => match ended {
                Ok(status) => Ok(Ended::ByItself(status?)),
                Err(_) => {
                    stop(&mut child, after).await?;
                    Ok(Ended::Hung(limit))
                }
            },
            () = settings.interrupted.cancelled() => {
                stop(&mut child, after).await?;
                Ok(Ended::Interrupted)
            }
        }
    };
    // Processes that the case has started may keep the pipe open, so its end is not awaited.
    tokio::pin!(follow);
    tokio::pin!(end);
    tokio::select! {
        ended = &mut end => ended,
        () = &mut follow => end.await,
    }
}

/// Sends SIGTERM, waits for evidence and cleanup, sends SIGKILL.
async fn stop(child: &mut Child, within: Duration) -> std::io::Result<()> {
    if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
        // The process may have ended meanwhile.
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
    if timeout(within, child.wait()).await.is_err() {
        child.kill().await?;
    }
    Ok(())
}

fn stderr(folder: &Path) -> String {
    let text = fs::read(folder.join("stderr.log")).unwrap_or_default();
    let tail = &text[text.len().saturating_sub(STDERR_BYTES)..];
    let tail = String::from_utf8_lossy(tail);
    if tail.trim().is_empty() {
        String::new()
    } else {
        format!("; it said: {}", tail.trim())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::{
        super::{estimate::Place, previous_run::Durations, progress::Progress},
        *,
    };

    /// Settings of a run whose cases are this program.
    pub(in super::super) fn settings(out: &Path, program: Option<PathBuf>, process: Duration) -> Settings {
        Settings {
            program: program.unwrap_or_default(),
            run: "run".into(),
            seed: 7,
            target: String::new(),
            limits: Limits {
                pods: Duration::ZERO,
                cleanup: Duration::ZERO,
                closing: Duration::ZERO,
                process,
                ..Limits::default()
            },
            out: out.to_owned(),
            evidence: Evidence::Failed,
            keep: false,
            labs: 1,
            jobs: 1,
            always: 1,
            shuffle: false,
            fail_fast: false,
            tries: 1,
            chaos: BTreeMap::new(),
            interrupted: CancellationToken::new(),
        }
    }

    /// The end of a script that runs as a case with this limit.
    async fn end_within(process: Duration, script: &str) -> (CaseReport, Duration) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let settings = settings(&folder.path().join("out"), Some(program), process);
        let case = Case {
            longest: Duration::from_millis(100),
            ..cases::find("clusterip-from-pod").unwrap()
        };
        let profile = settings.limits.profile;
        let expected = Durations::default().expected_of(&[case], profile, Place::Labs);
        let progress = Progress::new(profile, &settings.interrupted, expected);
        let line = progress.begin(&case, "lab");
        let began = Instant::now();
        let end = run(
            &settings,
            At::all_of(&ClusterRef::Lab("lab".to_owned())),
            case,
            &line,
        )
        .await;
        assert!(!end.is_its_own, "{:?}", end.report);
        (end.report, began.elapsed())
    }

    #[tokio::test]
    async fn a_case_that_hangs_is_ended_at_its_limit_even_if_it_will_not_listen() {
        let script = "#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 1; done\n";
        let (report, took) = end_within(Duration::from_millis(300), script).await;
        assert_eq!(report.verdict.name(), "inconclusive");
        assert!(
            report
                .verdict
                .why()
                .contains("hung: it had not ended after 0.4 s"),
            "{}",
            report.verdict
        );
        assert!(took < Duration::from_secs(30), "{took:?}");
    }

    #[tokio::test]
    async fn a_case_that_dies_is_inconclusive_with_what_it_said() {
        let script = "#!/bin/sh\necho out of luck >&2\nexit 3\n";
        let (report, _) = end_within(Duration::from_secs(30), script).await;
        let why = report.verdict.why();
        assert!(
            why.contains("exit status: 3") && why.contains("out of luck"),
            "{why}"
        );
        assert_eq!(report.replay, "plumbline run clusterip-from-pod --seed 7");
    }

    #[tokio::test]
    async fn a_case_that_could_not_undo_its_faults_says_so_and_has_left_something() {
        let case = cases::find("clusterip-from-pod").unwrap();
        let nobodys = settings(Path::new("out"), None, Duration::ZERO);
        let written = CaseReport {
            unhealed: vec!["the agent of n1 stays down: no answer".to_owned()],
            ..without_run(&case, &nobodys, Verdict::Pass)
        };
        let written = serde_json::to_string(&written).unwrap();
        let script = format!("#!/bin/sh\ncat >\"$(dirname \"$3\")\"/{REPORT} <<'END'\n{written}\nEND\n");
        let (report, _) = end_within(Duration::from_secs(30), &script).await;
        assert_eq!(report.verdict, Verdict::Pass, "what it has seen stands");
        assert_eq!(
            report.warnings,
            ["healing failed: the agent of n1 stays down: no answer"]
        );
    }
}
