//! The cases as tests against a running lab: `cargo nextest run -p cases`.
//!
//! `PLUMBLINE_LAB` names the lab. Without it every case is listed and ignored, which is visible and no pass. A verdict
//! other than pass fails the test, except not supported and skipped, which are ignored with the reason before they run.

use std::{
    collections::BTreeSet,
    env,
    fs::{self, OpenOptions},
    future::pending,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use cluster::{Cluster, Description};
use harness::{
    case::Case, context::Options, evidence::Evidence, execute::execute, limits::Limits, turns::Turns,
    verdict::Verdict,
};
use lab::LabCluster;
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Runtime;

const LAB: &str = "PLUMBLINE_LAB";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let lab = env::var(LAB).ok();
    let trials = match &lab {
        None => {
            if !arguments.list {
                eprintln!(
                    "the cases are ignored: name a lab that is up with {LAB}=NAME (`plumbline lab up`)"
                );
            }
            cases::ALL.iter().map(|case| trial(*case, None, true)).collect()
        }
        Some(name) => match describe(name) {
            Ok(cluster) => cases::ALL
                .iter()
                .map(|case| for_cluster(*case, name, &cluster))
                .collect(),
            Err(error) => {
                eprintln!("{LAB}={name}: {error}");
                return ExitCode::from(2);
            }
        },
    };
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn for_cluster(case: Case, lab: &str, cluster: &Description) -> Trial {
    let excluded = case.excluded(cluster, &BTreeSet::new(), None);
    if let Some(verdict) = &excluded {
        eprintln!("{}: {verdict}", case.id);
    }
    trial(case, Some(lab.to_owned()), excluded.is_some())
}

fn trial(case: Case, lab: Option<String>, ignored: bool) -> Trial {
    let test = move || match lab {
        Some(lab) => run(case, &lab),
        None => Err(format!("{LAB} is not set: there is no cluster to run in").into()),
    };
    Trial::test(case.id, test)
        .with_kind(case.area.split(' ').next().unwrap_or_default())
        .with_ignored_flag(ignored)
}

fn describe(lab: &str) -> Result<Description, String> {
    let attached = runtime()?.block_on(LabCluster::attach(lab));
    attached
        .map(|cluster| cluster.describe().clone())
        .map_err(|error| error.to_string())
}

fn run(case: Case, lab: &str) -> Result<(), Failed> {
    let folder = target().join("plumbline").join("evidence").join(case.id);
    fs::create_dir_all(&folder)?;
    // Test runners run cases concurrently, in threads or in processes; disruptive ones must be alone.
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(target().join("plumbline").join(format!("{lab}.lock")))?;
    if case.disruptive {
        lock.lock()?;
    } else {
        lock.lock_shared()?;
    }
    let report = runtime()?.block_on(async {
        let cluster: Arc<dyn Cluster> =
            Arc::new(LabCluster::attach(lab).await.map_err(|error| error.to_string())?);
        let options = Options {
            run: format!("test-{}", std::process::id()),
            seed: u64::from(std::process::id()),
            replay: format!(
                "{LAB}={lab} cargo test -p cases --test cluster -- --exact {}",
                case.id
            ),
            limits: Limits::default(),
            folder,
            evidence: Evidence::Failed,
            keep: false,
            turns: Some(Turns::of_this_machine()),
            progress: Arc::new(move |phase| eprintln!("{}: {phase}", case.id)),
        };
        // An interrupted runner ends this process; its namespaces do not disturb the next run of the lab.
        Ok::<_, String>(execute(case, cluster, options, pending()).await)
    })?;
    match report.verdict {
        Verdict::Pass => Ok(()),
        verdict => Err(format!("{verdict}\nevidence: {:?}", report.evidence).into()),
    }
}

fn runtime() -> Result<Runtime, String> {
    Runtime::new().map_err(|error| error.to_string())
}

/// The build's target folder: this program is in `target/PROFILE/deps`.
fn target() -> PathBuf {
    let own = env::current_exe().unwrap_or_default();
    own.ancestors()
        .nth(3)
        .map_or_else(|| PathBuf::from("target"), Path::to_owned)
}
