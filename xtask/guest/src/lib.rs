//! What `cargo xtask kernels` and the first process of its virtual machines say to each other.
//!
//! ```text
//!  xtask ─▶ plan.json, in the initial file system ─▶ guest (process 1) ─▶ modules, programs one after another
//!    ▲                                                 │
//!    └── one event a line, of JSON, on the second serial port ◀──────────┘   (the first is the kernel's own console)
//! ```
//!
//! `main.rs`: the first process. `place.rs`: the file systems and modules that programs find. `step.rs`: one program.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Where the plan lies.
pub const PLAN: &str = "/plan.json";

/// Where events go: the second serial port.
pub const PORT: &str = "/dev/ttyS1";

/// Of the files of a program's folders, so many bytes are told: a serial port takes about a megabyte in a second.
pub const MOST_TOLD: usize = 64 << 20;

/// What the machine is to do, in this order; then it powers off.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Plan {
    /// Files of modules, each after those that it depends on.
    pub modules: Vec<String>,
    /// Programs.
    pub steps: Vec<Step>,
}

/// One program, alone on the machine: when it ends, whatever it started ends too.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// What it is called in events.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Its environment, beside `PATH` and `TMPDIR`.
    pub environment: BTreeMap<String, String>,
    /// It is killed after this many seconds.
    pub limit_seconds: u64,
    /// Files, and folders of files, that are told after its end, if they are there; of folders' files as many as
    /// [`MOST_TOLD`] allows.
    pub files: Vec<String>,
}

/// What happens, as it happens.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The first process runs, the file systems are there.
    Booted {
        /// The kernel's release.
        kernel: String,
    },
    /// The kernel did not take a module.
    ModuleRefused {
        /// Its file.
        module: String,
        /// What the kernel said.
        why: String,
    },
    /// A program begins.
    Begun {
        /// Which.
        step: String,
    },
    /// A program wrote a line, to its output or its errors.
    Line {
        /// Which.
        step: String,
        /// Without its end.
        text: String,
    },
    /// What a file of a program holds after its end.
    File {
        /// Which program's.
        step: String,
        /// Its path.
        path: String,
        /// What is in it.
        text: String,
    },
    /// A program has ended.
    Ended {
        /// Which.
        step: String,
        /// How.
        end: End,
        /// How long it ran.
        milliseconds: u64,
    },
    /// The machine can't go on.
    Failed {
        /// Why.
        why: String,
    },
    /// All programs have ended; the machine powers off. Without this, something else ended it.
    Over,
}

/// How a program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// By itself, with this exit code.
    Code(i32),
    /// By a signal of somebody.
    Signal(i32),
    /// It was killed at its limit.
    Limit,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_one_line_each_whatever_they_hold() {
        let told = Event::File {
            step: "lab".to_owned(),
            path: "/run/report.yaml".to_owned(),
            text: "two\nlines \u{1b}[0m".to_owned(),
        };
        let line = serde_json::to_string(&told).unwrap();
        assert!(!line.contains('\n'), "{line}");
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), told);
    }
}
