//! `cargo xtask kernels`: the packet tables, the socket tests and a lab of two nodes on other kernels, in virtual machines.
//!
//! ```text
//!  archive ─▶ kernel + modules ─┐
//!                               ├─▶ image (initial file system) ─▶ machine (QEMU) ─▶ events ─▶ findings ─▶ table, docs
//!  cargo ─▶ programs, libraries ┘
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `archive` | Debian's kernels: listed, fetched and unpacked |
//! | `modules` | the needed modules, each after its dependencies |
//! | `programs` | the programs of the machines: built, with their libraries |
//! | `image` | the initial file system |
//! | `machine` | QEMU, from its start to its end |
//! | `listener` | receives and shows the events of the first process |
//! | `findings` | results for a kernel |
//! | `table` | kernel × feature; and whether the documentation agrees |

mod archive;
mod findings;
mod image;
mod listener;
mod machine;
mod modules;
mod programs;
mod table;

use std::{
    fs::{self, File, TryLockError},
    num::NonZero,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use clap::ValueEnum as _;
use guest::Step;

use self::{archive::Kernel, findings::Findings, programs::Part};
use crate::steps;

/// Folder of kernels and results, below the root of the repository.
const FOLDER: &str = "target/plumbline/kernels";

/// Default kernels: those of Debian 12 and 13.
const DEFAULT: [&str; 2] = ["6.1", "6.12"];

/// Default limit of one program in minutes. With KVM and an idle processor, the longest takes a tenth of it.
const LIMIT_MINUTES: u64 = 60;

/// Boots other kernels in QEMU and runs the packet tables, the socket tests and a lab of two nodes on each.
///
/// Kernels are Debian's, for virtual machines (linux-image-…-cloud-amd64); apt fetches them and checks their signatures.
/// Uses KVM if possible; without, it is ten to twenty times as slow. Needs no root.
#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: 0 all ran and passed, 1 something failed, or docs/kernels.md disagrees, 2 could not run.

Files in target/plumbline/kernels/RELEASE: console.txt (the kernel's own), output.txt (of all programs), left (a folder
of what they left: the lab's report.yaml and evidence); for all kernels table.txt"
)]
pub(crate) struct Arguments {
    /// The newest kernel of this release in the archive (5.10, 6.1, 6.12, …); repeatable [default: 6.1 and 6.12]
    #[arg(long, value_name = "RELEASE")]
    kernel: Vec<String>,
    /// Your own kernel (bzImage), instead of Debian's
    #[arg(long, value_name = "FILE", requires = "modules", conflicts_with = "kernel")]
    image: Option<PathBuf>,
    /// Folder of its modules, such as /lib/modules/6.18.0
    #[arg(long, value_name = "FOLDER", requires = "image")]
    modules: Option<PathBuf>,
    /// List the kernels of the archive, and exit
    #[arg(long)]
    list: bool,
    /// Only this part; repeatable. The features of the kernel are always probed
    #[arg(long, value_name = "PART")]
    only: Vec<Part>,
    /// Only tests and lab cases of these parts whose name contains this; repeatable
    #[arg(long, value_name = "NAME", requires = "only", value_parser = one_word)]
    filter: Vec<String>,
    /// Limit of a program, after which it is killed and counts as failed; a tenth of it is the limit of the boot
    #[arg(long, value_name = "MINUTES", default_value_t = LIMIT_MINUTES,
          value_parser = clap::value_parser!(u64).range(1..=24 * 60))]
    time_limit: u64,
    /// Number of concurrent machines; the default is the number of processors, divided by those that one machine uses
    #[arg(long, value_name = "N")]
    jobs: Option<NonZero<usize>>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    ensure!(
        cfg!(target_arch = "x86_64"),
        "the kernels and programs are for x86-64: run this on such a machine"
    );
    let folder = steps::root().join(FOLDER);
    if arguments.list {
        print!("{}", archive::list(&folder)?);
        return Ok(ExitCode::SUCCESS);
    }
    machine::expect_programs()?;
    let _lock = lock(&folder)?;
    let kernels = kernels(arguments, &folder)?;
    let limit = Duration::from_secs(60 * arguments.time_limit);
    let parts = if arguments.only.is_empty() {
        Part::value_variants()
    } else {
        &arguments.only
    };
    let steps = programs::steps(parts, &arguments.filter, limit)?;
    let built = programs::build(parts)?;
    let jobs = match arguments.jobs {
        Some(jobs) => jobs.get(),
        None => thread::available_parallelism().map_or(1, NonZero::get) / machine::processors_at_once()?,
    };
    let findings = side_by_side(&kernels, jobs, |kernel| {
        try_one(kernel, &built, &steps, limit, &folder)
    })?;
    let text = table::of(&findings);
    print!("\n{text}");
    fs::write(folder.join("table.txt"), &text).context("failed to write table.txt")?;
    let page = fs::read_to_string(steps::root().join(table::PAGE))
        .with_context(|| format!("failed to read {}", table::PAGE))?;
    let differences = table::differences(&page, &findings)?;
    for difference in &differences {
        println!("{difference}");
    }
    let is_clean = findings.iter().all(Findings::is_clean) && differences.is_empty();
    Ok(ExitCode::from(u8::from(!is_clean)))
}

/// Locks the folder: two concurrent runs would write the same programs, packages and results.
fn lock(folder: &Path) -> anyhow::Result<File> {
    fs::create_dir_all(folder).with_context(|| format!("failed to make {}", folder.display()))?;
    let path = folder.join("lock");
    let file = File::create(&path).with_context(|| format!("failed to write {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!(
            "another `cargo xtask kernels` runs in this checkout (it holds {}): wait for its end, or give one command all \
             kernels, which it runs side by side",
            path.display()
        ),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("failed to lock {}", path.display()))
        }
    }
}

/// Processes all items, `at_once` of them concurrently; results are in their order. After an error no further one is
/// started.
fn side_by_side<T: Sync, R: Send>(
    all: &[T],
    jobs: usize,
    work: impl Fn(&T) -> anyhow::Result<R> + Sync,
) -> anyhow::Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, anyhow::Result<R>)>> = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, all.len().max(1)) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(one) = all.get(index) else { return };
                    let result = work(one);
                    if result.is_err() {
                        next.fetch_max(all.len(), Ordering::Relaxed);
                    }
                    done.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push((index, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// A part of a test's or case's name: test programs take it as one filter, and never as an option.
fn one_word(text: &str) -> Result<String, String> {
    let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || b"_:-".contains(&byte);
    if text.is_empty() || text.starts_with('-') || !text.bytes().all(is_of_names) {
        return Err("expected letters, digits, _, : and -, such as devices::packets".to_owned());
    }
    Ok(text.to_owned())
}

/// The requested kernels, unpacked.
fn kernels(arguments: &Arguments, folder: &Path) -> anyhow::Result<Vec<Kernel>> {
    if let (Some(image), Some(modules)) = (&arguments.image, &arguments.modules) {
        for path in [image, modules] {
            ensure!(path.exists(), "there is no {}", path.display());
        }
        let name = modules
            .file_name()
            .context("--modules is a folder of a release")?;
        return Ok(vec![Kernel {
            release: name.to_string_lossy().into_owned(),
            image: image.clone(),
            modules: modules.clone(),
        }]);
    }
    if arguments.kernel.is_empty() {
        archive::fetch(folder, &DEFAULT.map(str::to_owned))
    } else {
        archive::fetch(folder, &arguments.kernel)
    }
}

/// One machine, from its image to its findings.
fn try_one(
    kernel: &Kernel,
    built: &programs::Built,
    steps: &[Step],
    limit: Duration,
    folder: &Path,
) -> anyhow::Result<Findings> {
    let begun = Instant::now();
    let folder = folder.join(&kernel.release);
    fs::create_dir_all(&folder).with_context(|| format!("failed to make {}", folder.display()))?;
    let modules = modules::wanted(&kernel.modules)?;
    for missing in &modules.missing {
        eprintln!("      {} has no module {missing}", kernel.release);
    }
    let plan = guest::Plan {
        modules: modules.found.iter().map(modules::Module::path).collect(),
        steps: steps.to_vec(),
    };
    let file = folder.join("initial.cpio");
    image::write(&file, built, &modules.found, &plan)?;
    eprintln!("  ==> {}: {}", kernel.release, programs::named(&plan));
    let outcome = machine::run(kernel, &file, &folder, &plan, limit)?;
    fs::remove_file(&file).with_context(|| format!("failed to remove {}", file.display()))?;
    eprintln!(
        "  <== {}: {} after {:.1} s",
        kernel.release,
        outcome.stop,
        begun.elapsed().as_secs_f64()
    );
    Ok(findings::of(kernel, &plan, &outcome))
}

/// Checks that a program of the host is installed.
fn expect_on_path(program: &str, package: &str, why: &str) -> anyhow::Result<()> {
    if !steps::on_path(program) {
        bail!("{why} needs {program}, which is not on the PATH: install {package}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn machines_run_side_by_side_and_are_told_of_in_their_order() {
        let both = Barrier::new(2);
        let work = |number: &usize| {
            both.wait();
            Ok(10 * number)
        };
        assert_eq!(side_by_side(&[1, 2, 3, 4], 2, work).unwrap(), [10, 20, 30, 40]);
        assert_eq!(
            side_by_side(&[1, 2], 0, |number| Ok(*number)).unwrap(),
            [1, 2],
            "at least one"
        );
        let begun = AtomicUsize::new(0);
        let failing = |number: &usize| {
            begun.fetch_add(1, Ordering::Relaxed);
            bail!("{number} does not start")
        };
        let failed: anyhow::Result<Vec<usize>> = side_by_side(&[1, 2], 1, failing);
        assert_eq!(failed.unwrap_err().to_string(), "1 does not start");
        assert_eq!(begun.into_inner(), 1, "after an error none is begun");
    }

    #[test]
    fn a_second_run_in_the_same_folder_is_told_of_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let first = lock(folder.path()).unwrap();
        let refused = lock(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("another `cargo xtask kernels`"), "{refused}");
        drop(first);
        lock(folder.path()).unwrap();
    }
}
