//! The type of a part of CI, and files that no single part reads. `table.rs` lists the parts.

/// One part of CI. Parts of a lane run in turn, lanes run concurrently.
pub(crate) struct Part {
    /// Name on the command line, in the output and in records.
    pub(crate) name: &'static str,
    pub(crate) lane: Lane,
    /// Parts that must have ended without failure before this one begins. Parts outside the run are not awaited.
    pub(crate) after: &'static [&'static str],
    pub(crate) needs: Vec<Need>,
    pub(crate) inputs: Inputs,
    /// Whether the nightly run has it, too. Then only its own files decide, without [`COMMON`]; where nothing is recorded, as
    /// on a new machine, it is left out if [`SETTLED`] commits have not touched these.
    pub(crate) nightly: bool,
    pub(crate) work: Work,
}

/// So many commits in a row were judged, and some nights with them.
pub(crate) const SETTLED: u32 = 20;

impl Part {
    /// Whether the part is more than preparation for others.
    pub(crate) const fn is_judged(&self) -> bool {
        !matches!(self.inputs, Inputs::OfParts(_))
    }
}

/// The lanes, which run concurrently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lane {
    /// The tests, and the set-up that they need on a new machine.
    Tests,
    /// Set-ups for other parts on a new machine, at the lowest priority.
    SetUps,
    /// Checks without a cluster, at the lowest priority.
    Checks,
    /// The suite in labs, one run at a time: on a slow machine, two concurrent runs with other work beside them get no
    /// answers in time, and cases are inconclusive.
    Suite,
    /// The suite on kind, which mostly waits.
    Clusters,
}

impl Lane {
    pub(crate) const ALL: [Self; 5] = [
        Self::Tests,
        Self::SetUps,
        Self::Checks,
        Self::Suite,
        Self::Clusters,
    ];

    /// Whether the jobs only use idle processors.
    pub(crate) const fn is_idle(self) -> bool {
        matches!(self, Self::SetUps | Self::Checks)
    }

    /// The mark of the lane's output lines.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Tests => "tests",
            Self::SetUps => "set-ups",
            Self::Checks => "checks",
            Self::Suite => "suite",
            Self::Clusters => "clusters",
        }
    }
}

/// Something that a part needs from a set-up.
#[derive(Clone, Copy)]
pub(crate) struct Need {
    /// The part that provides it.
    pub(crate) from: &'static str,
    /// Its name in `.ci/setup`.
    pub(crate) thing: &'static str,
    /// Whether the whole part is left out without it; otherwise only what uses it.
    pub(crate) strict: bool,
}

/// The files that a part reads, in addition to [`COMMON`].
pub(crate) enum Inputs {
    /// All files: the part always runs.
    Everything,
    /// No files of its own: the part runs if one of these parts runs.
    OfParts(&'static [&'static str]),
    /// These packages with all packages that they are built from, and these paths.
    Of {
        packages: &'static [&'static str],
        /// Whether the packages' tests run, so that dev-dependencies count.
        tests: bool,
        paths: &'static [&'static str],
    },
}

/// The work of a part.
pub(crate) enum Work {
    /// A function of `.ci/setup`.
    Setup,
    /// A command of cargo.
    Cargo(&'static [&'static str]),
    /// All tests.
    Tests,
    /// The suite.
    Suite(Suite),
    /// The suite against mutants, with the verdicts of the part `e2e` if that ran.
    Mutants,
}

/// A run of the suite.
pub(crate) struct Suite {
    /// `None`: the reference agent.
    pub(crate) target: Option<&'static str>,
    pub(crate) provider: &'static str,
    /// Folder of the report, below `target`.
    pub(crate) out: &'static str,
    /// With Kubernetes' own control plane.
    pub(crate) control_plane: bool,
    /// A regular expression for names of cases; empty for all.
    pub(crate) filter: &'static str,
}

/// Inputs of every part: dependencies, compiler, CI itself.
pub(crate) const COMMON: [&str; 6] = [
    "Cargo.lock",
    "Cargo.toml",
    "rust-toolchain.toml",
    ".cargo",
    ".ci",
    "xtask",
];

/// Files that only lint, docs and tests read, which always run. Any other file without a package or part makes everything
/// run.
pub(crate) const CHECKED_ALWAYS: [&str; 10] = [
    ".config",
    ".github",
    ".gitignore",
    "LICENSE",
    "clippy.toml",
    "deny.toml",
    "docs",
    "install.sh",
    "rustfmt.toml",
    "suites/reports",
];

/// Files that packages read outside their own folder. A test compares the list with the sources.
pub(crate) const OUTSIDE: [(&str, &[&str]); 5] = [
    // The object is embedded, and is rebuilt if it does not match its sources.
    (
        "lb-loader",
        &["ebpf/abi", "ebpf/flow", "ebpf/programs", "ebpf/prebuilt"],
    ),
    ("cluster", &["suites/targets"]),
    ("kind", &["reference-agent/deploy"]),
    ("existing", &["reference-agent/deploy"]),
    ("plumbline", &["suites/reports"]),
];

/// What tests of packages are compiled with outside their own folder.
pub(crate) const OUTSIDE_OF_TESTS: [(&str, &[&str]); 1] = [
    // A node for a test, which the loader's tests have too.
    ("doctor", &["ebpf/loader/tests"]),
];

/// Documents that programs or tests embed. Other `.md` files are no inputs of a part.
pub(crate) const COMPILED_DOCUMENTS: [&str; 1] = ["reference-agent/METRICS.md"];

/// Name of the milestone at which the tests have been built; it can stand in `after`. One cargo builds at a time, and
/// the tests come first.
pub(crate) const BUILT: &str = "built";
