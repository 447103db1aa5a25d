//! The differential fuzzing in the tests: ten thousand cases, and the proof that they would find something.
//!
//! | module | holds |
//! |---|---|
//! | `agree` | programs and model agree, on every counter that packets can reach |
//! | `wrong` | models that are wrong in one rule each, every one of which is found |
//! | `support` | what they share |
//! | `generations` | packets while the backends of a service are changed a thousand times |

mod agree;
mod generations;
mod support;
mod wrong;
