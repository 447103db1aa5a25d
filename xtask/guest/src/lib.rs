//! The protocol between `cargo xtask kernels` and the first process of its virtual machines.
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

/// Path of the plan.
pub const PLAN: &str = "/plan.json";

/// The port for events: the second serial port.
pub const PORT: &str = "/dev/ttyS1";

/// Limit of bytes that are sent of the files in a program's folders: a serial port transfers about a megabyte in a
/// second.
pub const MOST_SENT: usize = 64 << 20;

/// What the machine does, in this order; then it powers off.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Plan {
    /// Files of modules, each after those that it depends on.
    pub modules: Vec<String>,
    /// Programs.
    pub steps: Vec<Step>,
}

/// One program, alone on the machine: when it ends, all processes that it has started are killed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// Name of the step in events.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The environment, in addition to `PATH` and `TMPDIR`.
    pub environment: BTreeMap<String, String>,
    /// Limit in seconds, after which the program is killed.
    pub limit_seconds: u64,
    /// Files, and folders of files, that are sent after the program's end if they exist; files of folders only up to
    /// [`MOST_SENT`].
    pub files: Vec<String>,
}

/// An event of the machine, sent at once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The first process runs, and the file systems are mounted.
    Booted {
        /// The kernel's release.
        kernel: String,
    },
    /// The kernel refused a module.
    ModuleRefused {
        /// File of the module.
        module: String,
        /// The kernel's error.
        why: String,
    },
    /// A program begins.
    Begun {
        /// The program's step.
        step: String,
    },
    /// A program wrote a line to stdout or stderr.
    Line {
        /// The program's step.
        step: String,
        /// The line without its end.
        text: String,
    },
    /// Contents of a file after a program's end.
    File {
        /// The program's step.
        step: String,
        /// Path of the file.
        path: String,
        /// The file, which may be compressed; base64 in the event.
        #[serde(with = "as_base64")]
        bytes: Vec<u8>,
    },
    /// A program has ended.
    Ended {
        /// The program's step.
        step: String,
        /// How it ended.
        end: End,
        /// Duration of the program.
        milliseconds: u64,
    },
    /// The machine can't continue.
    Failed {
        /// The reason.
        why: String,
    },
    /// All programs have ended; the machine powers off. Without this event, something else ended the machine.
    Over,
}

/// How a program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It exited with this code.
    Code(i32),
    /// A signal from another process killed it.
    Signal(i32),
    /// It was killed at its limit.
    Limit,
}

mod as_base64 {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        BASE64_STANDARD.decode(text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_one_line_each_whatever_they_hold() {
        let told = Event::File {
            step: "lab".to_owned(),
            path: "/run/report.yaml".to_owned(),
            bytes: b"two\nlines \x1b[0m \xff\0".to_vec(),
        };
        let line = serde_json::to_string(&told).unwrap();
        assert!(!line.contains('\n'), "{line}");
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), told);
    }
}
