//! `cargo xtask kernels`: the packet tables, the socket tests and a lab of two nodes on other kernels, in virtual machines.
//!
//! ```text
//!  archive ─▶ kernel + modules ─┐
//!                               ├─▶ image (initial file system) ─▶ machine (QEMU) ─▶ events ─▶ findings ─▶ table, README
//!  cargo ─▶ programs, libraries ┘
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `archive` | Debian's kernels: which there are, fetched and unpacked |
//! | `modules` | the modules that are wanted, each after those that it depends on |
//! | `programs` | what runs there: built, with the libraries that it needs |
//! | `image` | the initial file system |
//! | `machine` | QEMU, and what the first process tells |
//! | `findings` | what all of it says of a kernel |
//! | `table` | kernel × feature; and whether README says the same |

mod archive;
mod findings;
mod image;
mod machine;
mod modules;
mod programs;
mod table;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use clap::ValueEnum as _;
use guest::Step;

use self::{archive::Kernel, findings::Findings, programs::Part};
use crate::steps;

/// Where kernels and results go, from the root of the repository.
const FOLDER: &str = "target/plumbline/kernels";

/// What is tried if nobody says otherwise: those of Debian 12 and 13.
const DEFAULT: [&str; 2] = ["6.1", "6.12"];

/// Minutes that one program may take. The longest takes a tenth of that where there is KVM, and a processor.
const LIMIT_MINUTES: u64 = 60;

/// Boots other kernels in QEMU and runs the packet tables, the socket tests and a lab of two nodes on each.
///
/// Kernels are Debian's, for virtual machines (linux-image-…-cloud-amd64); apt fetches them and checks their signatures.
/// With KVM where it can be used, and ten to twenty times as slow without. Needs no root.
#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: 0 all ran and held, 1 something failed, or README says otherwise, 2 could not run.

Files in target/plumbline/kernels/RELEASE: console.txt (the kernel's own), output.txt (of all programs), table.txt"
)]
pub(crate) struct Arguments {
    /// The newest kernel of the archive of this release (5.10, 6.1, 6.12, …); several, if it is said several times.
    /// Default: 6.1 and 6.12
    #[arg(long, value_name = "RELEASE")]
    kernel: Vec<String>,
    /// A kernel of one's own (bzImage), in place of Debian's
    #[arg(long, value_name = "FILE", requires = "modules", conflicts_with = "kernel")]
    image: Option<PathBuf>,
    /// The folder of its modules, such as /lib/modules/6.18.0
    #[arg(long, value_name = "FOLDER", requires = "image")]
    modules: Option<PathBuf>,
    /// Say which kernels the archive has, and end
    #[arg(long)]
    list: bool,
    /// Only this part; several, if it is said several times. What a kernel offers is asked in any case
    #[arg(long, value_name = "PART")]
    only: Vec<Part>,
    /// Of these parts, only the tests and the lab's cases whose name contains this; several, if it is said several times
    #[arg(long, value_name = "NAME", requires = "only", value_parser = one_word)]
    filter: Vec<String>,
    /// A program that takes longer is killed, which is a failure; so is a machine that does not come up in a tenth of it
    #[arg(long, value_name = "MINUTES", default_value_t = LIMIT_MINUTES,
          value_parser = clap::value_parser!(u64).range(1..=24 * 60))]
    time_limit: u64,
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
    let kernels = kernels(arguments, &folder)?;
    let limit = Duration::from_secs(60 * arguments.time_limit);
    let parts = if arguments.only.is_empty() {
        Part::value_variants()
    } else {
        &arguments.only
    };
    let steps = programs::steps(parts, &arguments.filter, limit)?;
    let built = programs::build(parts)?;
    let mut findings = Vec::new();
    for kernel in &kernels {
        findings.push(try_one(kernel, &built, &steps, limit, &folder)?);
    }
    let text = table::of(&findings);
    print!("\n{text}");
    fs::write(folder.join("table.txt"), &text).context("failed to write table.txt")?;
    let readme = fs::read_to_string(steps::root().join("README.md")).context("failed to read README.md")?;
    let differences = table::differences(&readme, &findings)?;
    for difference in &differences {
        println!("{difference}");
    }
    let held = findings.iter().all(Findings::held) && differences.is_empty();
    Ok(ExitCode::from(u8::from(!held)))
}

/// A part of a test's or case's name: an argument of its own of the test programs, and nothing else to them.
fn one_word(text: &str) -> Result<String, String> {
    let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || b"_:-".contains(&byte);
    if text.is_empty() || text.starts_with('-') || !text.bytes().all(is_of_names) {
        return Err("expected letters, digits, _, : and -, such as devices::packets".to_owned());
    }
    Ok(text.to_owned())
}

/// Those that were asked for, unpacked.
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

/// One machine, from its image to what is to be said of it.
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

/// A program of the host that is needed.
fn expect_on_path(program: &str, package: &str, why: &str) -> anyhow::Result<()> {
    if !steps::on_path(program) {
        bail!("{why} needs {program}, which is not on the PATH: install {package}");
    }
    Ok(())
}
