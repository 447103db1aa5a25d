//! The cases, one file each.
