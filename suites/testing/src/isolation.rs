//! A process of its own for a test, because cgroups contain processes, and namespaces are left most safely by ending.

use std::{env, path::PathBuf, process::Command, time::Duration};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::{prctl, signal::Signal},
    unistd::alarm,
};

use crate::{
    cgroup::OwnCgroup,
    patience::{WHOLE, scaled},
    root_or_skip,
};

/// Variable with the cgroup, for the inner process.
const CGROUP: &str = "PLUMBLINE_TEST_CGROUP";
/// Variable with an empty folder, for the inner process.
const FOLDER: &str = "PLUMBLINE_TEST_FOLDER";

/// What a test's process has for itself. Both are removed after its end.
#[derive(Clone, Debug)]
pub struct Own {
    /// A cgroup, which the process has not joined yet.
    pub cgroup: PathBuf,
    /// An empty folder.
    pub folder: PathBuf,
}

impl Own {
    /// Runs a test in a process of its own: this same program with that test selected. `None`: this is the outer
    /// process, and the inner one has passed or was skipped.
    ///
    /// The process dies with its parent, and by SIGALRM after [`WHOLE`]. Its thread is in a network namespace, where no
    /// device is up, and in a mount namespace with private mounts; threads that it starts inherit both.
    ///
    /// # Panics
    /// The inner process has not passed; and as [`root_or_skip`].
    #[must_use]
    #[track_caller]
    pub fn of(test: &str) -> Option<Self> {
        Self::within(test, WHOLE)
    }

    /// As [`Own::of`] for a longer test: `limit` is [`scaled`].
    ///
    /// # Panics
    /// As [`Own::of`].
    #[must_use]
    #[track_caller]
    pub fn within(test: &str, limit: Duration) -> Option<Self> {
        let limit = scaled(limit);
        let Some(own) = Self::told() else {
            if root_or_skip(test) {
                outside(test, limit);
            }
            return None;
        };
        prctl::set_pdeathsig(Signal::SIGKILL).expect("a signal");
        alarm::set(u32::try_from(limit.as_secs()).expect("not for ever"));
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).expect("namespaces");
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("private mounts");
        Some(own)
    }

    /// The settings that the outer process has passed; `None` in the outer process itself.
    #[must_use]
    pub fn told() -> Option<Self> {
        let told = |name| env::var_os(name).map(PathBuf::from);
        Some(Self {
            cgroup: told(CGROUP)?,
            folder: told(FOLDER)?,
        })
    }
}

/// The name of the test in which a closure is written, which must be the test function itself:
/// `kernel::traffic::some_test::{{closure}}` → `traffic::some_test`.
///
/// # Panics
/// The type is no closure.
#[must_use]
pub fn name_of<F>() -> &'static str {
    let full = std::any::type_name::<F>();
    full.strip_suffix("::{{closure}}")
        .and_then(|path| path.split_once("::"))
        .map_or_else(
            || panic!("the body of a test is a closure in it, not {full}"),
            |(_, name)| name,
        )
}

/// A command that runs one test of this program.
///
/// # Panics
/// The program's path is not known any more.
#[must_use]
pub fn again(test: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("this program's path"));
    command.args([
        "--exact",
        test,
        "--include-ignored",
        "--nocapture",
        "--test-threads=1",
    ]);
    command
}

#[track_caller]
fn outside(test: &str, limit: Duration) {
    let cgroup = OwnCgroup::create();
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let output = again(test)
        .env(CGROUP, cgroup.path())
        .env(FOLDER, folder.path())
        .output()
        .expect("this program runs itself");
    let [said, errors] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(
        output.status.success() && said.contains("1 passed"),
        "the test's own process ended with {} (SIGALRM: it took more than {limit:?})\n{said}{errors}",
        output.status
    );
    // Shows measurements of the inner process.
    print!("{said}");
}
