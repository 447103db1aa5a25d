//! What a part of CI is, and which files no single part reads. `table.rs` lists the parts.

/// One part of CI. Parts of a lane run one after another, lanes beside each other.
pub(crate) struct Part {
    /// What it is called on the command line, in the output and in records.
    pub(crate) name: &'static str,
    pub(crate) lane: Lane,
    /// Parts that must have ended, and not failed, before this one begins. One that is not in the run is not waited for.
    pub(crate) after: &'static [&'static str],
    pub(crate) needs: Vec<Need>,
    pub(crate) inputs: Inputs,
    pub(crate) work: Work,
}

impl Part {
    /// Whether it is more than help for others.
    pub(crate) const fn is_judged(&self) -> bool {
        !matches!(self.inputs, Inputs::OfParts(_))
    }
}

/// What runs beside what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lane {
    /// The tests, and what a new machine needs for them.
    Tests,
    /// What other parts need and a new machine lacks, at the lowest priority, which takes what the others leave.
    SetUps,
    /// What needs no cluster, at the lowest priority.
    Checks,
    /// The suite in labs. One run after another: two at once, and what is not idle beside them, leave a slow machine no answer
    /// in time, and cases are inconclusive.
    Suite,
    /// The suite on kind, which waits for most of its time.
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

    /// Whether its jobs get what all others leave of the processors.
    pub(crate) const fn is_idle(self) -> bool {
        matches!(self, Self::SetUps | Self::Checks)
    }

    /// As lines of output are marked.
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

/// Something that a set-up provides.
#[derive(Clone, Copy)]
pub(crate) struct Need {
    /// The part that provides it.
    pub(crate) from: &'static str,
    /// What `.ci/setup` calls it.
    pub(crate) thing: &'static str,
    /// Without it the whole part is left out; otherwise only what uses it.
    pub(crate) strict: bool,
}

/// What a part reads of the repository, beside [`COMMON`].
pub(crate) enum Inputs {
    /// Everything: it always runs.
    Everything,
    /// Nothing of its own: it runs when a part runs that it is for.
    OfParts(&'static [&'static str]),
    /// These packages with all packages that they are built from, and these paths.
    Of {
        packages: &'static [&'static str],
        /// The packages' tests run, so their dev-dependencies count.
        tests: bool,
        paths: &'static [&'static str],
    },
}

/// What a part does.
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
    /// A regular expression of the cases' names; empty: all.
    pub(crate) filter: &'static str,
}

/// What every part depends on: dependencies, compiler, how CI itself works.
pub(crate) const COMMON: [&str; 6] = [
    "Cargo.lock",
    "Cargo.toml",
    "rust-toolchain.toml",
    ".cargo",
    ".ci",
    "xtask",
];

/// What only lint and tests read, which always run. Any other file that no package holds and no part names makes
/// everything run.
pub(crate) const CHECKED_ALWAYS: [&str; 8] = [
    ".config",
    ".github",
    ".gitignore",
    "LICENSE",
    "clippy.toml",
    "deny.toml",
    "rustfmt.toml",
    "suites/reports",
];

/// What packages read outside their own folder. A test compares it with what their sources include.
pub(crate) const OUTSIDE: [(&str, &[&str]); 5] = [
    // The object is embedded. It is built again where it is not that of its sources.
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

/// Documents that programs or their tests are compiled with. No other `.md` file is an input of a part.
pub(crate) const COMPILED_DOCUMENTS: [&str; 1] = ["reference-agent/METRICS.md"];

/// Name of the moment when the tests have been built; it can stand in `after`. One cargo builds at a time, and the tests
/// come first.
pub(crate) const BUILT: &str = "built";
