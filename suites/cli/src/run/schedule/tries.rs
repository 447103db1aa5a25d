//! Inconclusive cases are tried again: a busy machine may be the cause.
//!
//! A failed case is never tried again, and only a part of all cases is: if most are inconclusive because of the target
//! or the cluster, a second try shows no more. Each earlier try stays in the report, with its reason and its evidence.
//!
//! Cases that ran while the API server was away are not limited by this: all of them are tried again, whatever
//! `--tries` is.

use std::{collections::BTreeMap, fs, io, path::PathBuf};

use harness::{
    case::Case,
    report::{CaseReport, Undecided},
    verdict::Verdict,
};

use super::super::{arguments::MOST_TRIES, process::Settings};
use crate::terminal;

/// One in this number of cases may be tried again, rounded up.
const ONE_OF: usize = 4;

/// Limit of tries of a case because the API server was away: if it goes away more often, a longer run decides nothing
/// either.
const MOST_ABSENCES: usize = 3;

/// Limit of tries of a case.
const MOST_FOLDERS: usize = MOST_TRIES as usize + MOST_ABSENCES;

/// What happens after a case has ended.
pub(super) enum After {
    /// The case is over with this report.
    Over(Box<CaseReport>),
    /// The case begins once more.
    OnceMore(Case),
    /// The case begins again as if it had never begun.
    Anew(Case),
}

/// Tries of a run's cases.
pub(super) struct Tries<'a> {
    settings: &'a Settings,
    /// Inconclusive tries by the id of their case.
    undecided: BTreeMap<&'static str, Vec<Undecided>>,
    /// How many of these ran while the API server was away.
    absent: BTreeMap<&'static str, usize>,
    /// How many further cases may be tried again.
    cases: usize,
}

impl<'a> Tries<'a> {
    /// None of these cases has begun. Evidence of tries of an earlier run is removed from these folders.
    pub(super) fn new(settings: &'a Settings, cases: &[Case]) -> Self {
        let folders = cases
            .iter()
            .flat_map(|case| (1..MOST_FOLDERS).map(|number| settings.folder_of_try(case, number)));
        for folder in folders {
            if let Err(error) = removed(&folder) {
                terminal::message(&format!(
                    "warning: {} is of an earlier run: {error}",
                    terminal::path(&folder)
                ));
            }
        }
        Self {
            settings,
            undecided: BTreeMap::new(),
            absent: BTreeMap::new(),
            cases: cases.len().div_ceil(ONE_OF),
        }
    }

    /// Whether a case with this report is tried again. If so, its evidence is moved to make room for the next try's.
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

    /// Whether a case that ran while the API server was away is tried again; such tries have a limit of their own.
    pub(super) fn anew(&mut self, case: &Case, report: &CaseReport) -> bool {
        let before = self.absent.get(case.id).copied().unwrap_or_default();
        if before >= MOST_ABSENCES || !self.keep(case, report) {
            return false;
        }
        *self.absent.entry(case.id).or_default() += 1;
        true
    }

    /// Keeps the try as an earlier one, if the case may be tried again.
    fn keep(&mut self, case: &Case, report: &CaseReport) -> bool {
        // A case without evidence has not begun: its lab did not start.
        let (Verdict::Inconclusive { why }, Some(evidence)) = (&report.verdict, &report.evidence) else {
            return false;
        };
        // Such a case already fails a row that is judged over many cases.
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
                terminal::message(&format!(
                    "warning: the evidence of {}'s try {number} is lost: {error}",
                    case.id
                ));
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

    /// The earlier tries of a case.
    pub(super) fn of(&mut self, id: &str) -> Vec<Undecided> {
        self.undecided.remove(id).unwrap_or_default()
    }
}

/// Removes a folder, if it exists.
fn removed(folder: &PathBuf) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
