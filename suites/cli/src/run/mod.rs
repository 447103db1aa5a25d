//! `plumbline run`: a cluster, a selection, the cases, the reports.
//!
//! - `arguments.rs`: the options. `lab_site.rs`: labs that are used or made. `machine.rs`: how many at once.
//!   `existing_site.rs`: an existing cluster; `cluster_hold.rs`: while the run holds it;
//!   `nodes.rs`: which cases use which of its nodes. `kind_site.rs`: a kind cluster. `kind_installation.rs`: one on
//!   which a target is installed by its file's steps.
//!   `provider.rs`: which of them, and why.
//!   `namespace_deletion.rs`: namespaces of ended cases that are being deleted there. `disorder.rs`: what cases have left on nodes.
//! - `select.rs`: what runs, decided before the run; `filter.rs`: by `--filter`; `unmatched.rs`: why nothing does.
//! - `prechecks.rs`: checks before the run, if cases need them.
//! - `exempt.rs`: known deviations. `target_claims.rs`: features and deviations that a target declares.
//! - `schedule/`: concurrent labs and cases, disruptive ones alone in theirs. `process.rs`: one case as a process.
//! - `previous_run.rs`: the previous run. `estimate.rs`: the expected duration.
//! - `joint.rs`: rows that are judged over the cases of other rows.
//! - `usage.rs`: resources that the run used.
//! - `preamble.rs`: output before the cases; `progress.rs`: output during them.
//! - `dry_run.rs`: what a run would do. `in_pods.rs`: the options of a run that pods of a Job make.
//! - `conclusion.rs`: the exit code after cleanup errors. `file_owner.rs`: gives files to the user who called sudo.
mod arguments;
mod cluster_hold;
mod conclusion;
mod disorder;
mod dry_run;
mod estimate;
mod exempt;
mod existing_site;
mod file_owner;
mod filter;
mod in_pods;
mod joint;
mod kind_installation;
mod kind_site;
mod lab_site;
mod machine;
mod namespace_deletion;
mod nodes;
mod preamble;
mod prechecks;
mod previous_run;
mod process;
mod progress;
mod provider;
mod schedule;
mod select;
mod target_claims;
mod unmatched;
mod usage;

pub(crate) use arguments::{Arguments, ChaosRun, On};
pub(crate) use conclusion::{concluded, finish};
pub(crate) use file_owner::Folder;
pub(crate) use in_pods::InPods;
pub(crate) use process::remove_evidence;
pub(crate) use progress::ended_line;

use std::{
    num::NonZero,
    process::ExitCode,
    time::{Instant, SystemTime},
};

use anyhow::{Context as _, bail};
use cluster::{Cluster, software::Software};
use existing::Tested;
use harness::{case::Case, limits::Limits};
use kind::{Existing, KindConfig, KindTarget};

use crate::{
    cluster::{ExistingArgs, Provider},
    interruption::{INTERRUPTED, interruption},
    plural::seconds,
    report::{format, make, software},
    targets::KindNodes,
    terminal,
};

use self::{
    cluster_hold::HeldCluster,
    estimate::Place,
    exempt::Exemption,
    existing_site::ExistingSite,
    kind_installation::Given,
    kind_site::KindSite,
    lab_site::{LabSite, RunLab, Target},
    machine::Processors,
    preamble::Before,
    previous_run::{Durations, Last},
    process::Settings,
    progress::Progress,
    provider::{Choice, Surroundings},
    schedule::{Ended, Plan, Site},
    select::{Feature, Wanted},
    target_claims::Declared,
    usage::LabsSpent,
};

/// Folder of a rerun, in the folder of the run.
const RERUN: &str = "rerun";

/// Kubeconfig of a kind cluster that stays, in the folder of the run.
const KUBECONFIG: &str = "kubeconfig";

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let (began, started) = (Instant::now(), SystemTime::now());
    let choice = Choice::new(&arguments, &Surroundings::now())?;
    let provider = choice.provider();
    arguments.output.apply(arguments.profile(provider).name());
    let interrupted = interruption()?;
    let (given, profile) = (arguments.out(), arguments.profile(provider));
    let last = arguments
        .which
        .rerun_failed
        .then(|| Last::read(&given))
        .transpose()?;
    let of_catalogue = || {
        select::named(&Wanted {
            parts: &arguments.which.parts,
            skip: &arguments.which.skip,
            filter: arguments.which.filter.as_ref(),
            claims: &arguments.which.claims,
            ids: last.as_ref().map(|last| &last.failed),
        })
    };
    let named = match arguments.chaos.len() {
        0 => of_catalogue()?,
        _ => arguments.chaos.iter().map(ChaosRun::case).collect(),
    };
    if arguments.which.dry_run {
        return dry_run::show(arguments, &choice, named).await;
    }
    let folder = match &last {
        Some(_) => given.join(RERUN),
        None => given.clone(),
    };
    if folder.exists() && !folder.is_dir() {
        bail!(
            "expected a folder for reports and evidence, found a file: name another by --out, not {}",
            folder.display()
        );
    }
    if provider != Provider::Existing && !nix::unistd::geteuid().is_root() {
        bail!("{}", root_needed(provider, std::env::args()));
    }
    let out = file_owner::Folder::create(&folder)
        .with_context(|| format!("failed to make the folder {}, named by --out", folder.display()))?;
    let seed = last.as_ref().map(|last| last.seed).or(arguments.seed);
    let seed = seed.unwrap_or_else(rand::random);

    let durations = Durations::read(&given, profile.name());
    let options = arguments.options();
    let control_plane = arguments.control_plane()?;
    let families = arguments.families.families();
    // A single namespace allows one case at a time, whatever the options are.
    let confined = provider == Provider::Existing && arguments.existing.is_confined();
    let nodes = arguments.nodes();
    let Arguments {
        on: arguments, chaos, ..
    } = arguments;
    let Chosen {
        place,
        replayed,
        jobs: [always, jobs],
        labs,
        rate,
    } = match provider {
        Provider::Lab => {
            let target = Target::new(arguments.lab, arguments.target, arguments.mutant);
            Chosen {
                replayed: target.options(),
                jobs: [machine::always(profile), machine::most_jobs()],
                labs: match target {
                    Target::Running(_) => 1,
                    _ => arguments.labs.map_or_else(machine::labs, NonZero::get),
                },
                rate: u32::MAX,
                place: Where::Labs(target),
            }
        }
        Provider::Existing => {
            let (existing, tested) = (arguments.existing, arguments.target.tested()?);
            Chosen {
                replayed: format!(
                    " --provider existing{}{}",
                    existing.options(),
                    arguments.target.options()
                ),
                jobs: match arguments.jobs {
                    Some(_) => [1, 1],
                    None => existing_site::jobs(&existing).await,
                },
                labs: 1,
                rate: u32::MAX,
                place: Where::Cluster(existing, Box::new(tested)),
            }
        }
        Provider::Kind if KindTarget::find(arguments.target.name()).is_err() => {
            let target = &arguments.target;
            let replayed = format!(" --provider kind{}{}", arguments.kind.options(), target.options());
            let (image, load) = arguments.kind.of_installed(target.name())?;
            let default = KindNodes::default();
            let nodes = KindNodes {
                count: arguments.nodes.unwrap_or(default.count),
                families,
            };
            let rate = machine::rate_of_kind(nodes.count.into());
            let plan = kind_installation::Plan::new(
                target.name(),
                Given {
                    tested: target.tested()?,
                    nodes,
                    image,
                    load,
                    kubeconfig: out.path().join(KUBECONFIG),
                    keep: arguments.keep,
                },
            )?;
            Chosen {
                replayed,
                jobs: [machine::jobs_of_kind(), machine::jobs_of_idle_kind()],
                labs: 1,
                rate,
                place: Where::Installed(Box::new(plan)),
            }
        }
        Provider::Kind => {
            let (kind, target) = (arguments.kind, &arguments.target);
            let replayed = format!(" --provider kind{}{}", kind.options(), target.options());
            let (config, existing) = kind.cluster(target.name(), nodes, families, &named)?;
            Chosen {
                replayed,
                jobs: [machine::jobs_of_kind(), machine::jobs_of_idle_kind()],
                labs: 1,
                rate: machine::rate_of_kind(nodes.into()),
                place: Where::Kind(Box::new(config), existing),
            }
        }
    };
    let [always, jobs] = match arguments.jobs {
        Some(said) if !confined => [said.get(); 2],
        _ => [always, jobs],
    };
    let limits = Limits::of(profile)
        .scaled(arguments.timeout_scale)
        .with_rate(arguments.rate.unwrap_or(rate));
    let settings = Settings {
        // Valid even if the program's file was replaced meanwhile.
        program: "/proc/self/exe".into(),
        run: format!(
            "run-{}-{:06x}",
            std::process::id(),
            rand::random::<u32>() & 0x00ff_ffff
        ),
        seed,
        target: replayed + &options,
        limits,
        out: out.path().to_owned(),
        evidence: arguments.evidence,
        keep: arguments.keep,
        labs,
        always: match arguments.jobs {
            // Cases that were inconclusive beside others run alone.
            None if last.is_some() => 1,
            _ => always,
        },
        jobs,
        shuffle: arguments.shuffle,
        fail_fast: arguments.fail_fast,
        tries: arguments.tries.into(),
        chaos: chaos.into_iter().map(|chaos| (chaos.id, chaos)).collect(),
        interrupted,
    };
    let mut asked = Asked {
        named,
        features: arguments.features,
        exempt: arguments.exempt,
        durations,
        last,
        software: None,
        began,
        started,
    };
    if let Some(header) = choice.header() {
        terminal::message(header);
    }
    match place {
        Where::Labs(target) => {
            terminal::stage("bringing up the lab");
            let labs = LabSite::new(&settings, &target, families, control_plane, nodes)?;
            asked.software = Some(labs.software().await);
            let done = go(&settings, &labs, RunLab::cluster, asked, Some(labs.spent())).await;
            for name in labs.stay() {
                terminal::message(&format!(
                    "the lab {name} stays up: `plumbline lab down --name {name}`"
                ));
            }
            done
        }
        Where::Cluster(existing, tested) => {
            terminal::stage("looking at the cluster");
            let program = std::env::current_exe().context("failed to find this program")?;
            let clusters = ExistingSite::new(&settings, existing.cluster(*tested, &settings.run, program));
            let done = go(&settings, &clusters, HeldCluster::cluster, asked, None).await;
            conclusion::concluded(done, clusters.release().await)
        }
        Where::Installed(plan) => {
            terminal::stage(&format!(
                "making a kind cluster, and installing {}",
                plan.target()
            ));
            let Some(installed) = kind_installation::up(&plan, &settings.interrupted).await? else {
                return Ok(ExitCode::from(INTERRUPTED));
            };
            let program = std::env::current_exe().context("failed to find this program")?;
            let options = plan.options(&installed, &settings.run, program);
            let clusters = ExistingSite::new(&settings, options);
            let done = go(&settings, &clusters, HeldCluster::cluster, asked, None).await;
            let done = conclusion::concluded(done, clusters.release().await);
            conclusion::concluded(done, plan.close(installed).await)
        }
        Where::Kind(config, existing) => {
            terminal::stage("bringing up the kind cluster");
            let kinds = KindSite::new(&settings, *config, existing);
            let done = go(&settings, &kinds, KindSite::cluster, asked, None).await;
            conclusion::concluded(done, kinds.close().await)
        }
    }
}

/// Why the run needs root, and the command that has it.
fn root_needed(provider: Provider, command: impl Iterator<Item = String>) -> String {
    let needs = match provider {
        Provider::Kind => "a kind cluster is used through the namespaces of its nodes and pods",
        _ => "a lab is made of namespaces, cgroups and eBPF programs",
    };
    let command: Vec<String> = command.collect();
    let command = shlex::try_join(command.iter().map(String::as_str));
    let command = command.unwrap_or_else(|_| "plumbline run".to_owned());
    format!("{needs}, which needs root: `sudo {command}`")
}

/// Where the cases run.
#[derive(Debug)]
enum Where {
    /// In labs with this target.
    Labs(Target),
    /// In an existing cluster with this target.
    Cluster(ExistingArgs, Box<Tested>),
    /// In a kind cluster on which a target is installed.
    Installed(Box<kind_installation::Plan>),
    /// In a kind cluster.
    Kind(Box<KindConfig>, Existing),
}

/// Settings that depend on the provider.
struct Chosen {
    place: Where,
    /// The options of cluster and target, for the command that runs a case again.
    replayed: String,
    /// Concurrent cases however busy the nodes are, and while they are idle.
    jobs: [usize; 2],
    labs: usize,
    /// Limit of probes that a client starts in a second.
    rate: u32,
}

/// The settings of a run that do not depend on the provider.
#[derive(Debug)]
struct Asked {
    named: Vec<Case>,
    features: Option<Vec<Feature>>,
    exempt: Vec<Exemption>,
    durations: Durations,
    /// The run that this one continues.
    last: Option<Last>,
    /// The software, if the cluster does not report it.
    software: Option<Software>,
    began: Instant,
    started: SystemTime,
}

/// Runs the cases in the cluster, and writes the reports.
async fn go<S: Site>(
    settings: &Settings,
    site: &S,
    cluster: fn(&S::Lab) -> &Cluster,
    asked: Asked,
    labs: Option<&LabsSpent>,
) -> anyhow::Result<ExitCode> {
    let processors = Processors::now();
    let interrupted = &settings.interrupted;
    let first = tokio::select! {
        lab = site.make() => lab?,
        () = interrupted.cancelled() => return Ok(ExitCode::from(INTERRUPTED)),
    };
    let mut description = cluster(&first).describe().clone();
    if let Some(software) = asked.software {
        description.software = software;
    }
    let declared = Declared::new(asked.features, asked.exempt, &description);
    let Declared {
        features,
        exemptions,
        not_applied,
    } = match declared {
        Ok(declared) => declared,
        Err(why) => {
            site.end(first).await?;
            return Err(why);
        }
    };
    let wanted = prechecks::Wanted {
        named: asked.named,
        features: &features,
        limits: &settings.limits,
        run: &settings.run,
    };
    let decided = tokio::select! {
        selection = prechecks::decide(wanted, cluster(&first), &mut description) => Some(selection),
        () = interrupted.cancelled() => None,
    };
    let Some(selection) = decided else {
        site.end(first).await?;
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let place = match labs {
        Some(_) => Place::Labs,
        None => Place::Cluster {
            at_once: settings.always,
        },
    };
    let expected = asked
        .durations
        .expected_of(&selection.run, settings.limits.profile, place);
    preamble::print(&Before {
        cluster: &description,
        features: &features,
        not_applied: &not_applied,
        settings,
        selection: &selection,
        expected: &expected,
        took: asked.began.elapsed(),
    })?;

    let progress = Progress::new(settings.limits.profile, interrupted, expected);
    let plan = Plan {
        selection,
        exemptions: &exemptions,
        durations: &asked.durations,
    };
    let Ended { reports: cases, down } = schedule::all(settings, site, first, plan, &progress).await;
    progress.end();
    if let Some(labs) = labs {
        let reports = cases.iter().map(|(report, _)| report);
        usage::write(&settings.out, asked.began.elapsed(), processors, labs, reports)?;
    }
    let cases = joint::with_joint_claims(cases, settings, &exemptions, asked.last.as_ref());

    let report = make::report(make::RunData {
        description: &description,
        features: &features,
        not_applied,
        limits: &settings.limits,
        run: format::Run {
            seed: settings.seed,
            shuffled: settings.shuffle,
            profile: settings.limits.profile.name().to_owned(),
            labs: settings.labs,
            jobs: settings.jobs,
            tries: settings.tries,
            evidence: settings.evidence.name().to_owned(),
            rerun: asked.last.is_some(),
        },
        started: asked.started,
        took: asked.began.elapsed(),
        interrupted: interrupted.is_cancelled(),
        out: &settings.out,
        cases,
    });
    let kept = software::keep(&description.software, &settings.out)
        .context("the verdicts above stand, but not all reports could be written");
    let finished = finish(&report, &settings.out, interrupted.is_cancelled());
    let finished = conclusion::concluded(finished, kept);
    let down = down.context("the verdicts stand, but a lab did not end cleanly");
    conclusion::concluded(finished, down)
}
