//! A difference that is not permitted.

use std::{collections::BTreeSet, fmt};

use crate::{
    compare::{Aspect, Difference},
    observation::{Observation, Outcome},
    state::State,
    step::Open,
};

/// A difference that is not permitted.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Number of the step after which it was seen, from 0.
    pub step: usize,
    /// The compared exchange.
    pub subject: String,
    /// Number of the kept socket, if there is one.
    pub socket: Option<u8>,
    /// The aspect that differs.
    pub aspect: Aspect,
    /// The results of the two clusters.
    pub shown: [String; 2],
    /// Text that is the same for one bug in other steps: client, socket, destination and result.
    pub signature: String,
}

impl Finding {
    pub(super) fn new(
        step: usize,
        open: &Open,
        socket: Option<u8>,
        state: &State,
        difference: &Difference,
        seen: &[Vec<Observation>; 2],
    ) -> Self {
        let Open {
            from, protocol, to, ..
        } = open;
        let subject = match socket {
            Some(socket) => format!("socket {socket} of {} to {to}, {protocol}", from.name()),
            None => format!("{} to {to}, {protocol}", from.name()),
        };
        let front = state.front(*to).map(|(_, front)| front);
        let outcomes = seen.each_ref().map(|side| {
            let all: BTreeSet<Outcome> = side.iter().map(|one| one.outcome).collect();
            all
        });
        let kept = if socket.is_some() { "kept" } else { "fresh" };
        Self {
            step,
            subject,
            socket,
            aspect: difference.aspect,
            shown: difference.shown.clone(),
            signature: format!(
                "{kept} {} {protocol:?} {front:?} {:?} {outcomes:?}",
                from.name(),
                difference.aspect
            ),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} differs: {} | {}",
            self.subject, self.aspect, self.shown[0], self.shown[1]
        )
    }
}
