//! The lab's control plane.
