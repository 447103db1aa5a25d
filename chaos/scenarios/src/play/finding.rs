//! A difference that is none of those that are permitted.

use std::{collections::BTreeSet, fmt};

use crate::{
    compare::{Aspect, Difference},
    seen::{Outcome, Seen},
    step::Open,
    world::World,
};

/// A difference that nothing permits.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Number of the step after which it showed, from 0.
    pub step: usize,
    /// What was compared.
    pub subject: String,
    /// Of a socket that is kept: which.
    pub socket: Option<u8>,
    /// In what the two differ.
    pub aspect: Aspect,
    /// What they showed.
    pub shown: [String; 2],
    /// What is the same for one fault with other steps: who, how, whereto and what came of it.
    pub signature: String,
}

impl Finding {
    pub(super) fn new(
        step: usize,
        open: &Open,
        socket: Option<u8>,
        world: &World,
        difference: &Difference,
        seen: &[Vec<Seen>; 2],
    ) -> Self {
        let Open {
            from, protocol, to, ..
        } = open;
        let subject = match socket {
            Some(socket) => format!("socket {socket} of {} to {to}, {protocol}", from.name()),
            None => format!("{} to {to}, {protocol}", from.name()),
        };
        let front = world.front(*to).map(|(_, front)| front);
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
