//! What a case is made of.
