//! The agent recomposed with one known bug each.
