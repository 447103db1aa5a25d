//! Cases that were inconclusive are tried again: a machine that was busy may have let them show nothing.
//!
//! Never one that failed, and no more than some of all: where a target or a cluster lets most of them show nothing, a second
//! look shows no more. Each such try stays in the report, with its reason and its evidence.
//!
//! One under way while the API server was away is no such case: all of those are tried again, whatever `--tries` says.

use std::{collections::BTreeMap, fs, io, path::PathBuf};

use harness::{
    case::Case,
    report::{CaseReport, Undecided},
    verdict::Verdict,
};

use super::super::{arguments::MOST_TRIES, process::Settings};

/// One of so many cases of a run may be tried again, rounded up.
const ONE_OF: usize = 4;

/// How often a case is tried again because the API server was away, at most: one that goes away more often lets nothing be
/// decided, however long the run lasts.
const MOST_ABSENCES: usize = 3;

/// Tries of a case, at most.
const MOST_FOLDERS: usize = MOST_TRIES as usize + MOST_ABSENCES;

/// What becomes of a case that has ended.
pub(super) enum After {
    /// This is its report.
    Over(Box<CaseReport>),
    /// It begins once more.
    OnceMore(Case),
    /// It begins again as if it never had.
    Anew(Case),
}

/// Tries of the cases of a run.
pub(super) struct Tries<'a> {
    settings: &'a Settings,
    /// By the id of their case.
    undecided: BTreeMap<&'static str, Vec<Undecided>>,
    /// How many of these were under way while the API server was away.
    absent: BTreeMap<&'static str, usize>,
    /// How many further cases may be tried again.
    cases: usize,
}

impl<'a> Tries<'a> {
    /// Of these cases, none of which has begun. What is left of tries in an earlier run with these folders is removed.
    pub(super) fn new(settings: &'a Settings, cases: &[Case]) -> Self {
        let folders = cases
            .iter()
            .flat_map(|case| (1..MOST_FOLDERS).map(|number| settings.folder_of_try(case, number)));
        for folder in folders {
            if let Err(error) = removed(&folder) {
                eprintln!("warning: {} is of an earlier run: {error}", folder.display());
            }
        }
        Self {
            settings,
            undecided: BTreeMap::new(),
            absent: BTreeMap::new(),
            cases: cases.len().div_ceil(ONE_OF),
        }
    }

    /// Whether a case with this report is to be tried again. Its evidence makes way for that of the next try then.
    pub(super) fn once_more(&mut self, case: &Case, report: &CaseReport) -> bool {
        let all = self.undecided.get(case.id).map_or(0, Vec::len);
        let before = all - self.absent.get(case.id).copied().unwrap_or_default();
        let is_first = before == 0;
        if before + 1 >= self.settings.tries || (is_first && self.cases == 0) || !self.keep(case, report) {
            return false;
        }
        self.cases -= usize::from(is_first);
        true
    }

    /// The same of a case under way while the API server was away.
    pub(super) fn anew(&mut self, case: &Case, report: &CaseReport) -> bool {
        let before = self.absent.get(case.id).copied().unwrap_or_default();
        if before >= MOST_ABSENCES || !self.keep(case, report) {
            return false;
        }
        *self.absent.entry(case.id).or_default() += 1;
        true
    }

    /// Keeps a try as one that was not the last, if it may be tried again.
    fn keep(&mut self, case: &Case, report: &CaseReport) -> bool {
        // One without evidence has not begun: its lab did not come up.
        let (Verdict::Inconclusive { why }, Some(evidence)) = (&report.verdict, &report.evidence) else {
            return false;
        };
        // It shows enough to fail a row that is judged over many cases.
        if report
            .recoveries
            .iter()
            .any(|needed| matches!(needed.axis(case.id).verdict, Verdict::Fail { .. }))
        {
            return false;
        }
        let number = self.undecided.get(case.id).map_or(0, Vec::len) + 1;
        let folder = self.settings.folder_of_try(case, number);
        let moved = match removed(&folder).and_then(|()| fs::rename(evidence, &folder)) {
            Ok(()) => Some(folder),
            Err(error) => {
                eprintln!(
                    "warning: the evidence of {}'s try {number} is lost: {error}",
                    case.id
                );
                None
            }
        };
        self.undecided.entry(case.id).or_default().push(Undecided {
            why: why.clone(),
            seconds: report.seconds,
            evidence: moved,
        });
        true
    }

    /// The tries of a case that were not its last one.
    pub(super) fn of(&mut self, id: &str) -> Vec<Undecided> {
        self.undecided.remove(id).unwrap_or_default()
    }
}

/// Removes a folder, if it is there.
fn removed(folder: &PathBuf) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
