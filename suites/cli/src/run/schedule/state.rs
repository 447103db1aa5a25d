//! What may begin next: pure, so that every bound shows in a test.

use std::{collections::BTreeSet, sync::Arc};

use harness::case::Case;

/// What waits and what is under way.
#[derive(Debug)]
pub(super) struct State<Lab> {
    /// Parts of labs at once, at most.
    most: usize,
    /// Parts of one lab, as many as its nodes where cases may have one each: one is a whole lab.
    parts: usize,
    /// Cases at once, at most.
    most_cases: usize,
    /// Cases at once, as long as the machine has no room for more.
    always: usize,
    /// Cases in the order in which they begin where they may.
    waiting: Vec<Case>,
    /// Those that have begun before, by id: beside others they were inconclusive, so each begins alone, or where there is room.
    again: BTreeSet<&'static str>,
    /// The lab that was made before the first case, until a disruptive case takes it.
    first: Option<Lab>,
    shared: Shared<Lab>,
    /// Cases under way in it.
    together: usize,
    /// Disruptive cases under way, each with a lab.
    alone: usize,
    /// Parts of labs that are there, coming up or going down.
    taken: usize,
}

/// The lab that cases share.
#[derive(Debug)]
enum Shared<Lab> {
    /// There is none.
    None,
    Coming,
    Up(Arc<Lab>),
    /// It has died, and what is under way in it ends.
    Dead(Arc<Lab>),
}

/// What begins.
#[derive(Debug)]
pub(super) enum Begin<Lab> {
    /// A lab to be shared.
    Share,
    /// A case in the lab that is shared.
    Together(Arc<Lab>, Case),
    /// A disruptive case in this lab, or in a new one; it has so many parts of it.
    Alone(Option<Lab>, Case, usize),
    /// The end of a lab.
    End(Lab),
}

impl<Lab> State<Lab> {
    /// Of cases in their order, none of which has begun. `first` is a lab that nothing has run in, and has so many parts; of such
    /// there are `labs` at most.
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

    /// Parts of a lab that a disruptive case has: all, or one node's.
    fn needs(&self, case: &Case) -> usize {
        if case.needs.nodes <= 1 { 1 } else { self.parts }
    }

    /// What begins now, if anything may; it has begun when this returns. With `room`, one case more than the machine's room is
    /// known to be enough for.
    pub(super) fn next(&mut self, room: bool) -> Option<Begin<Lab>> {
        self.end_of_a_lab()
            .or_else(|| self.share())
            .or_else(|| self.case(room))
    }

    /// Whether a case waits for nothing but room.
    pub(super) fn waits_for_room(&self) -> bool {
        let without_room = |at| self.without_room(at)..self.most_cases;
        self.first_that_may()
            .is_some_and(|at| without_room(at).contains(&(self.together + self.alone)))
    }

    /// A lab that nobody needs any more.
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
            // Nobody else has it: no case is under way in it.
            Shared::Up(lab) | Shared::Dead(lab) => Arc::into_inner(lab).map(Begin::End),
            Shared::None | Shared::Coming => None,
        }
    }

    /// A lab for cases that share one, if they have none.
    fn share(&mut self) -> Option<Begin<Lab>> {
        let lacks = matches!(self.shared, Shared::None) && self.some_share();
        if !lacks || self.taken + self.parts > self.most {
            return None;
        }
        self.taken += self.parts;
        self.shared = Shared::Coming;
        Some(Begin::Share)
    }

    /// The first case whose lab may be there.
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

    /// Cases at once, this one of those that wait among them, where the machine has no room for more.
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

    /// What [`Begin::Share`] has brought up.
    pub(super) fn shared_is_up(&mut self, lab: Lab) {
        self.shared = Shared::Up(Arc::new(lab));
    }

    /// [`Begin::Share`] has brought up nothing: cases that share a lab do not begin. Returns them.
    pub(super) fn shared_is_not_up(&mut self) -> Vec<Case> {
        self.shared = Shared::None;
        self.taken -= self.parts;
        self.give_up(|case| !case.disruptive)
    }

    /// What [`Begin::End`] named is gone.
    pub(super) fn lab_ended(&mut self) {
        self.taken -= self.parts;
    }

    /// A case has ended in the lab that is shared, which is intact, or dead.
    pub(super) fn shared_case_ended(&mut self, is_intact: bool) {
        self.together -= 1;
        if !is_intact && let Shared::Up(lab) = &self.shared {
            self.shared = Shared::Dead(Arc::clone(lab));
        }
    }

    /// A disruptive case has ended, and its lab with it, or so many parts of one.
    pub(super) fn lone_case_ended(&mut self, parts: usize) {
        self.alone -= 1;
        self.taken -= parts;
    }

    /// A case that has ended begins once more, after those that wait.
    pub(super) fn once_more(&mut self, case: Case) {
        self.again.insert(case.id);
        self.waiting.push(case);
    }

    /// A case that has ended begins again as if it never had, after those that wait.
    pub(super) fn anew(&mut self, case: Case) {
        self.waiting.push(case);
    }

    /// Cases of those that wait which will not begin.
    pub(super) fn give_up(&mut self, which: impl Fn(&Case) -> bool) -> Vec<Case> {
        self.waiting.extract_if(.., |case| which(case)).collect()
    }
}
