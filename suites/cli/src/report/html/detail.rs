//! How much a page shows of each case: less, if many cases have much to show, so that the page stays small.

use super::super::format::{Case, Report};

/// Timelines of which a page can show everything; those of failures count twice.
const ROOM: usize = 60;

/// Timelines of which a page can show the most important lanes.
const ROOM_FOR_LESS: usize = 150;

/// Limits for each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Detail {
    lanes: usize,
    more_lanes: usize,
    more_findings: usize,
    marks: usize,
    lists: bool,
}

impl Detail {
    /// Everything that fits a case.
    pub(super) const ALL: Self = Self {
        lanes: 16,
        more_lanes: 12,
        more_findings: 20,
        marks: usize::MAX,
        lists: true,
    };
    const LESS: Self = Self {
        lanes: 8,
        more_lanes: 0,
        more_findings: 0,
        ..Self::ALL
    };

    const LEAST: Self = Self {
        lanes: 1,
        marks: 2,
        lists: false,
        ..Self::LESS
    };

    /// The limits of a page with the cases of these reports.
    pub(super) fn of<'a>(reports: impl IntoIterator<Item = &'a Report>) -> Self {
        let cases = reports.into_iter().flat_map(|report| &report.cases);
        let with_timelines = cases.filter(|case| case.timeline.is_some());
        let weight = |case: &Case| 1 + usize::from(case.fails_the_run());
        match with_timelines.map(weight).sum::<usize>() {
            weight if weight <= ROOM => Self::ALL,
            weight if weight <= ROOM_FOR_LESS => Self::LESS,
            _ => Self::LEAST,
        }
    }

    /// Limit of lanes of the first chart.
    pub(super) fn lanes(self) -> usize {
        self.lanes
    }

    /// Limit of folded lanes of a case that failed.
    pub(super) fn more_lanes(self) -> usize {
        self.more_lanes
    }

    /// Limit of marks of a chart.
    pub(super) fn marks(self) -> usize {
        self.marks
    }

    /// Whether all axes, first attempts, and what was recorded, are listed. The report itself always has them.
    pub(super) fn has_lists(self) -> bool {
        self.lists
    }

    /// Limit of folded findings.
    pub(super) fn more_findings(self) -> usize {
        self.more_findings
    }
}
