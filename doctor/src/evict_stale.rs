//! Evicts what is stale, and says what came of it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{
    Examination, evict,
    evict::{Evicted, EvictionError},
    inventory::programs_of_this_node,
    report::{Attachment, Certainty, Loose, Place, Report, Standing},
};

/// What is to be evicted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Also what is stale by suspicion alone.
    pub suspected: bool,
    /// Programs that were named, of whatever owner.
    pub programs: Vec<u32>,
}

/// Something that would be evicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eviction {
    /// The program.
    pub program: u32,
    /// What would be done, as `detach program 113 (cil_sock4_conne) from connect4 of /sys/fs/cgroup`.
    pub what: String,
    /// Why: the reasons of its being stale, or that it was named.
    pub why: Vec<String>,
    target: Target,
}

/// By index in the examination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Target {
    Attachment(usize),
    Loose(usize),
}

/// What came of an eviction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// What was tried.
    pub eviction: Eviction,
    /// Why it failed, and what to do; absent: it is gone.
    pub failed: Option<String>,
}

/// Chooses what to evict. A program that was named and is attached nowhere is left out: see the programs of the result.
///
/// Of this project's programs that may be another node's, as kernels are shared and not every version's maps can be read,
/// none is chosen without [`Wanted::suspected`].
pub fn choose(examination: &Examination, wanted: &Wanted) -> Vec<Eviction> {
    choose_from(
        &examination.report,
        examination.has_current(),
        wanted,
        &known_here(),
    )
}

/// Programs that are known to have been loaded for this network namespace; none, if that can't be seen.
pub(super) fn known_here() -> BTreeSet<u32> {
    programs_of_this_node().unwrap_or_else(|error| {
        tracing::warn!(%error, "can't see which programs are this node's: those of other places are suspected only");
        BTreeSet::new()
    })
}

fn choose_from(report: &Report, has_current: bool, wanted: &Wanted, here: &BTreeSet<u32>) -> Vec<Eviction> {
    let mut chosen = Vec::new();
    for (index, attachment) in report.attachments.iter().enumerate() {
        let named = wanted.programs.contains(&attachment.program);
        let stale = attachment.stale.as_ref().filter(|stale| {
            wanted.suspected
                || stale.certainty == Certainty::Certain && is_of_this_node(report, attachment, here)
        });
        let mut why = stale.map(|stale| stale.reasons.clone()).unwrap_or_default();
        if named {
            why.push("it was named by --evict".to_owned());
        }
        if stale.is_some() || named {
            let title = title(report, attachment.program);
            chosen.push(Eviction {
                program: attachment.program,
                what: format!("detach {title} from {} ({})", attachment.place, attachment.manner),
                why,
                target: Target::Attachment(index),
            });
        }
    }
    for (index, loose) in report.loose.iter().enumerate() {
        if haunts(loose) && (wanted.suspected || has_current && here.contains(&loose.program)) {
            chosen.push(Eviction {
                program: loose.program,
                what: format!(
                    "take the maps of {} out of use: then it leaves everything alone, wherever it runs",
                    title(report, loose.program)
                ),
                why: vec![
                    "it is Plumbline's, of an earlier load, and runs where it can't be detached: mostly at a cgroup \
                     that was removed while sockets of it live on"
                        .to_owned(),
                ],
                target: Target::Loose(index),
            });
        }
    }
    chosen
}

/// Whether an attachment can be no other node's: by its place, which is the current program's or a device of this network
/// namespace, or by what its maps say.
fn is_of_this_node(report: &Report, attachment: &Attachment, here: &BTreeSet<u32>) -> bool {
    let shares_its_place = || {
        let mut all = report.attachments.iter();
        all.any(|other| other.standing == Standing::Current && other.place == attachment.place)
    };
    attachment.standing != Standing::Earlier
        || here.contains(&attachment.program)
        || matches!(attachment.place, Place::Device { name: Some(_), .. })
        || shares_its_place()
}

/// Whether a program of an earlier load of ours runs at a place that can't be seen.
pub(super) fn haunts(loose: &Loose) -> bool {
    loose.standing == Standing::Earlier && loose.unexplained && loose.armed == Some(true)
}

fn title(report: &Report, id: u32) -> String {
    let program = report.programs.get(&id);
    program.map_or_else(|| format!("program {id}"), super::report::Program::title)
}

/// Evicts. What fails does not keep the rest from being evicted. Look again afterwards: the kernel says what is left.
pub fn heal(examination: &Examination, chosen: Vec<Eviction>) -> Vec<Done> {
    let done = |eviction: Eviction| {
        let failed = end(examination, &eviction).err().map(|error| error.to_string());
        match &failed {
            None => tracing::info!(program = eviction.program, what = eviction.what, "evicted"),
            Some(error) => tracing::warn!(
                program = eviction.program,
                what = eviction.what,
                error,
                "not evicted"
            ),
        }
        Done { eviction, failed }
    };
    chosen.into_iter().map(done).collect()
}

fn end(examination: &Examination, eviction: &Eviction) -> Result<(), EvictionError> {
    match eviction.target {
        Target::Attachment(index) => {
            let Some(found) = examination.found.get(index) else {
                return Ok(());
            };
            // It was shown, and agreed to: by certainty, by `--suspected`, or by name.
            evict::evict(found, true).map(|(Evicted::Detached | Evicted::Gone)| ())
        }
        Target::Loose(index) => {
            let Some(found) = examination.loose_found.get(index) else {
                return Ok(());
            };
            evict::disarm(found).map(drop)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            fixture::{Fixture, at},
            report::{CgroupState, Manner},
        },
        *,
    };

    /// The agent's program.
    const CURRENT: u32 = 1;
    /// Of an earlier load, at its place.
    const BESIDE: u32 = 2;
    /// Of one, at a cgroup below.
    const BELOW: u32 = 3;
    /// Of one, at a cgroup that was removed.
    const DYING: u32 = 4;
    /// Of one, out of sight.
    const LOOSE: u32 = 5;

    fn report() -> Report {
        let mut fixture = Fixture::new();
        let removed = Place::Cgroup {
            id: 7,
            path: None,
            state: CgroupState::Dying,
            hook: "connect4".to_owned(),
        };
        for (program, place, standing) in [
            (CURRENT, at("/node", "connect4"), Standing::Current),
            (BESIDE, at("/node", "connect4"), Standing::Earlier),
            (BELOW, at("/node/pod", "connect4"), Standing::Earlier),
            (DYING, removed, Standing::Earlier),
        ] {
            fixture.program(program, "connect4", Some(1), &[]);
            fixture.attach(place, 0, program, Manner::Legacy { flags: 2 }, standing);
        }
        let mut report = fixture.report();
        report.loose.push(Loose {
            program: LOOSE,
            standing: Standing::Earlier,
            called_from: Vec::new(),
            unexplained: true,
            armed: Some(true),
            tail_called: None,
        });
        report
    }

    #[track_caller]
    fn check(suspected: bool, here: &[u32], expected: &[u32]) {
        let wanted = Wanted {
            suspected,
            programs: Vec::new(),
        };
        let here = here.iter().copied().collect();
        let chosen = choose_from(&report(), true, &wanted, &here);
        let programs: Vec<u32> = chosen.iter().map(|eviction| eviction.program).collect();
        assert_eq!(programs, expected);
    }

    #[test]
    fn what_may_be_another_nodes_is_evicted_on_suspicion_alone() {
        check(false, &[], &[BESIDE]);
        check(false, &[BELOW, DYING, LOOSE], &[BESIDE, BELOW, DYING, LOOSE]);
        check(true, &[], &[BESIDE, BELOW, DYING, LOOSE]);
    }
}
