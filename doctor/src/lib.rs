//! Diagnoses a node of any implementation: which programs rewrite connections and packets, in which order, by which maps,
//! whose they are, and which are left over from an earlier start. Evicts those on request.
//!
//! ```text
//! kernel ─▶ lb_loader ─▶ inventory ─▶ gather ─▶ owner, layout ─▶ judge ─▶ Report ─▶ text, JSON (`plumbline doctor`)
//!           raw maps ──────│────────▶ read ─────────┘              │
//!                          │                                       ├─▶ explain: one destination through the chain
//!                          │                                       └─▶ heal ─┐
//!                          ├─▶ leftovers: of earlier loads (the agent) ──────┼─▶ evict: detaches, disarms
//!                          └─▶ cleanup: everything of this node ─────────────┘
//! ```
//!
//! | file | what |
//! |---|---|
//! | `inventory` | [`inventory()`]: everything that is attached anywhere, of any owner, by ids |
//! | `evict` | [`evict()`]: ends an attachment; [`disarm`]: takes a load's maps out of use |
//! | `leftovers` | [`Leftovers`]: what earlier loads have left running for this node |
//! | `cleanup` | [`cleanup()`]: takes everything of this node away |
//! | `report` | what was found, as machines read it: a stable form |
//! | `gather` | the inventory → the report's parts |
//! | `tail_calls` | programs that others go on as, and where that begins |
//! | `owner` | whose a program is, by names and pins: a guess, called one |
//! | `layout` | known layouts of maps: ours, Cilium's, Calico's |
//! | `map_bytes` | maps as bytes |
//! | `resolution` | what a set of maps makes of a destination |
//! | `judge` | what is stale, how sure that is, and the story of it |
//! | `destination` | where a client wants to go |
//! | `explain` | what becomes of one destination |
//! | `evict_stale` | what is stale is evicted, and looked for again |
//! | `checks` | what else explains a broken node |
//!
//! # Invariants
//! - No map and no program is found, opened or told apart by its name; names only let `owner` guess, for people.
//! - A program of another owner, or of another node, is never detached without being told to.
//! - What could not be looked at is reported ([`Blind`](lb_loader::Blind)), never left out in silence.
//!
//! Nothing here needs the cluster or an agent, and only `leftovers` a datapath; everything but `evict`, and what uses it,
//! only reads.

mod checks;
mod cleanup;
pub mod destination;
mod evict;
pub mod evict_stale;
pub mod explain;
#[cfg(test)]
mod fixture;
mod gather;
mod inventory;
mod judge;
pub mod layout;
mod leftovers;
pub mod map_bytes;
mod owner;
pub mod report;
pub mod resolution;
mod tail_calls;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use lb_loader::{Hook, LoaderError, programs_attached};
use thiserror::Error;

pub use self::{
    cleanup::{Cleanup, cleanup},
    evict::{Evicted, EvictionError, disarm, evict},
    inventory::{
        CgroupState, Found, Holder, Inventory, LooseProgram, Manner, MapDescription, Place, ProgArray,
        ProgramDescription, Scope, inventory, programs_of_this_node,
    },
    judge::ago,
    leftovers::Leftovers,
};
use self::{
    explain::{Explanation, Request, explain},
    gather::KernelBytes,
    layout::{From, Question, Tables},
    report::{Certainty, Map, Outcome, Problem, ProblemKind, Report, SCHEMA, Services, Standing, Verdict},
};

/// Where to look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where cgroup v2 is mounted; `None`: where this mount namespace has it first.
    pub cgroup: Option<PathBuf>,
    /// The bpffs of this project's agent.
    pub bpffs: PathBuf,
    /// Where that agent answers `/readyz`.
    pub agent: SocketAddr,
    /// Only what runs for processes of this cgroup, and of those below it: for nodes that share a kernel. Devices are
    /// those of this thread's network namespace in any case.
    pub below: Option<PathBuf>,
}

/// Why nothing could be looked at.
#[derive(Debug, Error)]
pub enum DoctorError {
    /// There is no cgroup v2.
    #[error(
        "no cgroup2 file system is mounted here, so it can't be seen what is attached to cgroups: run this on the node \
         itself, or mount one (`mount -t cgroup2 none /mnt`) and name it with --cgroup-mount"
    )]
    NoCgroups,
    /// The mounts can't be read.
    #[error("failed to read what is mounted: {0}")]
    Mounts(std::io::Error),
    /// The kernel won't say.
    #[error(transparent)]
    Loader(#[from] LoaderError),
}

/// One look at a node, and what it takes to act on it.
#[derive(Debug)]
pub struct Examination {
    /// What was found.
    pub report: Report,
    /// The hierarchy that was looked at.
    pub cgroup: PathBuf,
    bytes: KernelBytes,
    /// What each attachment of the report was made from.
    found: Vec<Found>,
    loose_found: Vec<LooseProgram>,
}

/// Looks at this node: the cgroups of its hierarchy, and the devices of this thread's network namespace. Changes
/// nothing.
///
/// # Errors
/// Nothing can be looked at: privileges are missing, or there is no cgroup v2. What can't be looked at in part is in
/// [`Report::blind`].
pub fn examine(options: &Options) -> Result<Examination, DoctorError> {
    let cgroup = match &options.cgroup {
        Some(cgroup) => cgroup.clone(),
        None => first_mount()?,
    };
    let bpf_mounts = lb_loader::mount_points("bpf").map_err(DoctorError::Mounts)?;
    let mounted = bpf_mounts.iter().any(|point| options.bpffs.starts_with(point));
    let inventory = inventory(&Scope {
        cgroup: cgroup.clone(),
        bpffs: mounted.then(|| options.bpffs.clone()),
        current: Vec::new(),
    })?;
    let mut parts = gather::parts(inventory, gather::uptime(), options.below.as_deref());
    let bytes = KernelBytes::default();
    let facts = judge::Facts {
        attachments: &mut parts.attachments,
        programs: &parts.programs,
        maps: &parts.maps,
    };
    let mut problems = judge::judge(facts, &bytes);
    let checks = checks::checks(&parts, &cgroup, &options.bpffs, options.agent);
    problems.extend(
        checks
            .iter()
            .filter(|check| check.outcome == Outcome::Bad)
            .map(of_check),
    );
    let mut examination = Examination {
        report: Report {
            schema: SCHEMA,
            verdict: Verdict::Healthy,
            problems,
            attachments: parts.attachments,
            loose: parts.loose,
            programs: parts.programs,
            maps: parts.maps,
            prog_arrays: parts.prog_arrays,
            services: None,
            others: parts.others,
            checks,
            blind: parts.blind,
        },
        cgroup,
        bytes,
        found: parts.found,
        loose_found: parts.loose_found,
    };
    let haunting = examination.haunting();
    examination.report.problems.extend(haunting);
    if !examination.report.problems.is_empty() {
        examination.report.verdict = Verdict::Problems;
    }
    Ok(examination)
}

fn first_mount() -> Result<PathBuf, DoctorError> {
    let mounts = lb_loader::mount_points("cgroup2").map_err(DoctorError::Mounts)?;
    mounts.into_iter().next().ok_or(DoctorError::NoCgroups)
}

fn of_check(check: &report::Check) -> Problem {
    Problem {
        kind: ProblemKind::CheckFailed,
        certainty: Certainty::Certain,
        summary: format!("check failed: {}", check.name),
        story: check.text.clone(),
        remedy: String::new(),
        programs: Vec::new(),
        against: Vec::new(),
        misled: Vec::new(),
        misled_in_all: 0,
    }
}

impl Examination {
    /// What becomes of a destination, as of this look; the order of programs is asked of the kernel anew.
    ///
    /// # Errors
    /// The cgroup can't be asked.
    pub fn explain(&self, request: &Request) -> Result<Explanation, DoctorError> {
        let effective = |name: &str| {
            let hook = Hook::ALL.into_iter().find(|hook| hook.name() == name);
            hook.map_or_else(
                || Ok(Vec::new()),
                |hook| programs_attached(&request.cgroup, hook, true),
            )
        };
        Ok(explain(&self.report, &self.bytes, request, effective)?)
    }

    /// Reads the services of every set of maps whose layout is known into [`Report::services`].
    pub fn read_services(&mut self) {
        let mut all: Vec<Services> = Vec::new();
        for program in self.report.programs.values() {
            let maps: Vec<&Map> = program
                .maps
                .iter()
                .filter_map(|id| self.report.maps.get(id))
                .collect();
            let Ok(Some(tables)) = Tables::recognise(&self.bytes, &program.owner, &maps) else {
                continue;
            };
            let maps = tables.generation();
            match all.iter_mut().find(|known| known.maps == maps) {
                Some(known) => known.programs.push(program.id),
                None => {
                    let mut services = self.services(&tables);
                    (services.whose, services.programs) = (program.owner.whose, vec![program.id]);
                    all.push(services);
                }
            }
        }
        self.report.services = Some(all);
    }

    fn services(&self, tables: &Tables) -> Services {
        let (frontends, unreadable) = match tables.frontends(&self.bytes) {
            Ok(frontends) => (frontends, None),
            Err(error) => (layout::Frontends::default(), Some(error.to_string())),
        };
        let answer = |destination| {
            let question = Question {
                destination,
                from: From::Socket,
            };
            (destination.to_string(), tables.ask(&self.bytes, &question))
        };
        Services {
            whose: report::Whose::Unknown,
            maps: tables.generation(),
            programs: Vec::new(),
            services: frontends.found.into_iter().map(answer).collect(),
            complete: frontends.complete,
            unreadable,
        }
    }

    /// The cgroup of a process, in the hierarchy that was looked at.
    ///
    /// # Errors
    /// There is no such process, or it has no cgroup v2.
    pub fn cgroup_of(&self, pid: u32) -> std::io::Result<PathBuf> {
        let file = Path::new("/proc").join(pid.to_string()).join("cgroup");
        let text = std::fs::read_to_string(file)?;
        // `0::/kubepods.slice/…` (cgroups(7)), relative to the root of this cgroup namespace.
        let path = text.lines().find_map(|line| line.strip_prefix("0::/"));
        path.map(|path| self.cgroup.join(path))
            .ok_or_else(|| std::io::Error::other("it is in no cgroup v2"))
    }

    /// Whether anything here is the agent's of now.
    fn has_current(&self) -> bool {
        let mut attachments = self.report.attachments.iter();
        attachments.any(|attachment| attachment.standing == Standing::Current)
    }

    /// Programs of an earlier load of ours that run out of sight.
    fn haunting(&self) -> Option<Problem> {
        let loose = self
            .report
            .loose
            .iter()
            .filter(|loose| evict_stale::haunts(loose));
        let programs: Vec<u32> = loose.map(|loose| loose.program).collect();
        let named: Vec<String> = programs.iter().map(ToString::to_string).collect();
        // Whatever else may be another node's.
        let ours = || {
            let here = evict_stale::known_here();
            programs.iter().all(|program| here.contains(program))
        };
        let (certainty, how) = if !programs.is_empty() && self.has_current() && ours() {
            (Certainty::Certain, "plumbline doctor --fix")
        } else {
            (Certainty::Suspected, "plumbline doctor --fix --suspected")
        };
        (!programs.is_empty()).then(|| Problem {
            kind: ProblemKind::StalePrograms,
            certainty,
            summary: "programs of an earlier load of Plumbline run out of sight".to_owned(),
            story: format!(
                "Nothing that can be seen keeps these programs loaded, so something does that can't be seen: mostly a \
                 cgroup that was removed while sockets of it live on, and for those they still run, by maps that \
                 nothing writes to any more: {}.",
                named.join(", ")
            ),
            remedy: format!("`{how}` takes their maps out of use, and they leave everything alone from then on"),
            programs,
            against: Vec::new(),
            misled: Vec::new(),
            misled_in_all: 0,
        })
    }
}
