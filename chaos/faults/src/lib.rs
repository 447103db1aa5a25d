//! Faults as values that heal on drop.
