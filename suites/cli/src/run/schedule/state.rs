//! Decides what begins next: pure, so that tests can check every bound.

use std::{collections::BTreeSet, sync::Arc};

use harness::case::Case;

/// Waiting and running cases.
#[derive(Debug)]
pub(super) struct State<Lab> {
    /// Limit of concurrent parts of labs.
    most: usize,
    /// Parts of one lab: the number of its nodes, if cases may have one each; otherwise one.
    parts: usize,
    /// Limit of concurrent cases.
    most_cases: usize,
    /// Limit of concurrent cases while the machine has no room for more.
    always: usize,
    /// Waiting cases, in the order in which they begin.
    waiting: Vec<Case>,
    /// Ids of waiting cases that were inconclusive beside others: each begins alone, or when there is room.
    again: BTreeSet<&'static str>,
    /// The lab that was made before the first case, until a disruptive case takes it.
    first: Option<Lab>,
    shared: Shared<Lab>,
    /// Running cases in the shared lab.
    together: usize,
    /// Running disruptive cases, each with a lab.
    alone: usize,
    /// Parts of labs that run, start or stop.
    taken: usize,
}

/// The shared lab.
#[derive(Debug)]
enum Shared<Lab> {
    /// No shared lab exists.
    None,
    Coming,
    Up(Arc<Lab>),
    /// The lab has died, and its cases are ending.
    Dead(Arc<Lab>),
}

/// Something that begins.
#[derive(Debug)]
pub(super) enum Begin<Lab> {
    /// The start of a shared lab.
    Share,
    /// A case in the shared lab.
    Together(Arc<Lab>, Case),
    /// A disruptive case in this lab, or in a new one, with this number of its parts.
    Alone(Option<Lab>, Case, usize),
    /// The removal of a lab.
    End(Lab),
}

impl<Lab> State<Lab> {
    /// None of the cases has begun. `first` is a fresh lab with this number of parts; at most `labs` such labs may
    /// exist.
    pub(super) fn new(
        [labs, parts]: [usize; 2],
        [always, most_cases]: [usize; 2],
        waiting: Vec<Case>,
        first: Lab,
    ) -> Self {
        let is_shared = waiting.iter().any(|case| !case.disruptive);
        let (first, shared) = if is_shared {
            (None, Shared::Up(Arc::new(first)))
        } else {
            (Some(first), Shared::None)
        };
        Self {
            most: labs.saturating_mul(parts),
            parts,
            most_cases,
            always,
            waiting,
            again: BTreeSet::new(),
            first,
            shared,
            together: 0,
            alone: 0,
            taken: parts,
        }
    }

    /// Parts of a lab that a disruptive case needs: all, or one node's.
    fn needs(&self, case: &Case) -> usize {
        if case.needs.nodes <= 1 { 1 } else { self.parts }
    }

    /// What begins now, if anything may; it counts as begun when this returns. `room` permits one case more than those
    /// that always run.
    pub(super) fn next(&mut self, room: bool) -> Option<Begin<Lab>> {
        self.end_of_a_lab()
            .or_else(|| self.share())
            .or_else(|| self.case(room))
    }

    /// Whether a case waits only for room.
    pub(super) fn waits_for_room(&self) -> bool {
        let without_room = |at| self.without_room(at)..self.most_cases;
        self.first_that_may()
            .is_some_and(|at| without_room(at).contains(&(self.together + self.alone)))
    }

    /// Removal of a lab that no case needs any more.
    fn end_of_a_lab(&mut self) -> Option<Begin<Lab>> {
        if self.waiting.is_empty()
            && let Some(first) = self.first.take()
        {
            return Some(Begin::End(first));
        }
        let is_over = match self.shared {
            Shared::Up(_) => !self.some_share(),
            Shared::Dead(_) => true,
            Shared::None | Shared::Coming => false,
        };
        if !is_over || self.together > 0 {
            return None;
        }
        match std::mem::replace(&mut self.shared, Shared::None) {
            // No case runs in the lab, so this is the only reference.
            Shared::Up(lab) | Shared::Dead(lab) => Arc::into_inner(lab).map(Begin::End),
            Shared::None | Shared::Coming => None,
        }
    }

    /// Start of a shared lab, if cases need one.
    fn share(&mut self) -> Option<Begin<Lab>> {
        let lacks = matches!(self.shared, Shared::None) && self.some_share();
        if !lacks || self.taken + self.parts > self.most {
            return None;
        }
        self.taken += self.parts;
        self.shared = Shared::Coming;
        Some(Begin::Share)
    }

    /// The first case whose lab is available.
    fn case(&mut self, room: bool) -> Option<Begin<Lab>> {
        let at = self.first_that_may()?;
        let most = if room {
            self.most_cases
        } else {
            self.without_room(at)
        };
        if self.together + self.alone >= most {
            return None;
        }
        let case = self.waiting.remove(at);
        match &self.shared {
            Shared::Up(lab) if !case.disruptive => {
                self.together += 1;
                Some(Begin::Together(Arc::clone(lab), case))
            }
            _ => {
                self.alone += 1;
                let (first, needs) = (self.first.take(), self.needs(&case));
                if first.is_some() {
                    self.taken -= self.parts;
                }
                self.taken += needs;
                Some(Begin::Alone(first, case, needs))
            }
        }
    }

    /// Limit of concurrent cases while the machine has no room for more, for the waiting case at this index.
    fn without_room(&self, at: usize) -> usize {
        let is_again = self
            .waiting
            .get(at)
            .is_some_and(|case| self.again.contains(case.id));
        if is_again { 1 } else { self.always }
    }

    fn first_that_may(&self) -> Option<usize> {
        let kept = matches!(self.shared, Shared::None) && self.some_share();
        let kept = if kept { self.parts } else { 0 };
        let is_up = matches!(self.shared, Shared::Up(_));
        let may_begin = |case: &Case| match case.disruptive {
            true => self.first.is_some() || self.taken + kept + self.needs(case) <= self.most,
            false => is_up,
        };
        self.waiting.iter().position(may_begin)
    }

    fn some_share(&self) -> bool {
        self.waiting.iter().any(|case| !case.disruptive)
    }

    /// The lab of [`Begin::Share`] runs.
    pub(super) fn shared_is_up(&mut self, lab: Lab) {
        self.shared = Shared::Up(Arc::new(lab));
    }

    /// The lab of [`Begin::Share`] has failed to start. Returns the cases that needed it, which do not begin.
    pub(super) fn shared_is_not_up(&mut self) -> Vec<Case> {
        self.shared = Shared::None;
        self.taken -= self.parts;
        self.give_up(|case| !case.disruptive)
    }

    /// The lab of [`Begin::End`] is removed.
    pub(super) fn lab_ended(&mut self) {
        self.taken -= self.parts;
    }

    /// A case has ended in the shared lab, which is intact or dead.
    pub(super) fn shared_case_ended(&mut self, is_intact: bool) {
        self.together -= 1;
        if !is_intact && let Shared::Up(lab) = &self.shared {
            self.shared = Shared::Dead(Arc::clone(lab));
        }
    }

    /// A disruptive case has ended, and its lab or its parts are free.
    pub(super) fn lone_case_ended(&mut self, parts: usize) {
        self.alone -= 1;
        self.taken -= parts;
    }

    /// Starts an ended case once more, after the waiting ones.
    pub(super) fn once_more(&mut self, case: Case) {
        self.again.insert(case.id);
        self.waiting.push(case);
    }

    /// Starts an ended case again after the waiting ones, as if it had never begun.
    pub(super) fn anew(&mut self, case: Case) {
        self.waiting.push(case);
    }

    /// Removes and returns waiting cases, which will not begin.
    pub(super) fn give_up(&mut self, which: impl Fn(&Case) -> bool) -> Vec<Case> {
        self.waiting.extract_if(.., |case| which(case)).collect()
    }
}
