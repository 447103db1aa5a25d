//! Evicts what is stale, and says what came of it.

use lb_loader::{Evicted, LoaderError};
use serde::{Deserialize, Serialize};

use super::{
    Examination,
    report::{Certainty, Loose, Standing},
};

/// What is to be evicted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Also what is stale by suspicion alone.
    pub suspected: bool,
    /// Programs that somebody has named: whatever they are, whosever they are.
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
pub fn choose(examination: &Examination, wanted: &Wanted) -> Vec<Eviction> {
    let report = &examination.report;
    let mut chosen = Vec::new();
    for (index, attachment) in report.attachments.iter().enumerate() {
        let named = wanted.programs.contains(&attachment.program);
        let stale = attachment
            .stale
            .as_ref()
            .filter(|stale| stale.certainty == Certainty::Certain || wanted.suspected);
        let mut why = stale.map(|stale| stale.reasons.clone()).unwrap_or_default();
        if named {
            why.push("it was named by --evict".to_owned());
        }
        if stale.is_some() || named {
            let title = title(examination, attachment.program);
            chosen.push(Eviction {
                program: attachment.program,
                what: format!("detach {title} from {} ({})", attachment.place, attachment.manner),
                why,
                target: Target::Attachment(index),
            });
        }
    }
    for (index, loose) in report.loose.iter().enumerate() {
        if haunts(loose) && (wanted.suspected || examination.has_current()) {
            chosen.push(Eviction {
                program: loose.program,
                what: format!(
                    "take the maps of {} out of use: then it leaves everything alone, wherever it runs",
                    title(examination, loose.program)
                ),
                why: vec![
                    "it is Plumbline's, of an earlier load, and runs where nobody can detach it: mostly at a cgroup \
                     that was removed while sockets of it live on"
                        .to_owned(),
                ],
                target: Target::Loose(index),
            });
        }
    }
    chosen
}

/// Whether a program of an earlier load of ours runs at a place that can't be seen.
pub(super) fn haunts(loose: &Loose) -> bool {
    loose.standing == Standing::Earlier && loose.unexplained && loose.armed == Some(true)
}

fn title(examination: &Examination, id: u32) -> String {
    let program = examination.report.programs.get(&id);
    program.map_or_else(|| format!("program {id}"), super::report::Program::title)
}

/// Evicts. What fails does not keep the rest from being evicted. Look again afterwards: the kernel says what is left.
pub fn heal(examination: &Examination, chosen: Vec<Eviction>) -> Vec<Done> {
    let done = |eviction: Eviction| {
        let failed = evict(examination, &eviction).err().map(|error| error.to_string());
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

fn evict(examination: &Examination, eviction: &Eviction) -> Result<(), LoaderError> {
    match eviction.target {
        Target::Attachment(index) => {
            let Some(found) = examination.found.get(index) else {
                return Ok(());
            };
            // It was shown, and agreed to: by certainty, by `--suspected`, or by name.
            lb_loader::evict(found, true).map(|(Evicted::Detached | Evicted::Gone)| ())
        }
        Target::Loose(index) => {
            let Some(found) = examination.loose_found.get(index) else {
                return Ok(());
            };
            lb_loader::disarm(found).map(drop)
        }
    }
}
