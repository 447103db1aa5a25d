//! What could not be looked at, so that nothing is left out in silence.

use std::fmt;

/// Something that could not be looked at.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Blind {
    /// What.
    pub what: String,
    /// Why not.
    pub why: String,
    /// What to do about it.
    pub remedy: String,
}

impl fmt::Display for Blind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, why, remedy } = self;
        write!(f, "{what} can't be looked at: {why}; {remedy}")
    }
}
