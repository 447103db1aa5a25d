//! `cargo xtask dist`: static, stripped and reproducible programs for releases.

use std::{
    env,
    ffi::{OsStr, OsString},
    fmt::Write as _,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context as _, bail};
use object::{
    LittleEndian,
    elf::{FileHeader64, PT_INTERP},
    read::elf::{FileHeader as _, ProgramHeader as _},
};
use sha2::{Digest as _, Sha256};

use crate::{ebpf, steps};

/// Programs of a release, each from a package of its own name.
const PROGRAMS: [&str; 2] = ["reference-agent", "plumbline"];

/// Output folder below the root of the repository: the context of `reference-agent/deploy/Containerfile`.
const FOLDER: &str = "target/plumbline/dist";

/// The profile of Cargo.toml.
const PROFILE: &str = "dist";

/// Builds static programs that only need a kernel on the machine that they run on.
#[derive(clap::Args)]
#[command(after_help = "Exit codes: 0 built, 2 could not.")]
pub(crate) struct Arguments {
    /// Also build a copy of the sources in another folder, from scratch, and compare; then run the programs in a root
    /// that holds nothing else. Takes twice as long; needs git and root
    #[arg(long)]
    check: bool,
    /// Fail unless this is the tag of the sources' version: `v1.2.3`
    #[arg(long)]
    tag: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if let Some(tag) = &arguments.tag {
        expect_tag(tag)?;
    }
    ebpf::refresh()?;
    let target = format!("{}-unknown-linux-musl", env::consts::ARCH);
    expect_target(&target)?;
    let folder = steps::root().join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| format!("failed to make {}", folder.display()))?;
    // This program's folder belongs to a profile, in the target folder.
    let programs = steps::programs()?;
    let cargo = programs
        .parent()
        .context("this program is not in a target folder")?;
    let built = build(&steps::root(), cargo, &target)?;
    if arguments.check {
        let elsewhere = elsewhere()?;
        let again = build(&elsewhere, &elsewhere.join("target"), &target)?;
        for (first, second) in built.iter().zip(&again) {
            expect_same(first, second)?;
        }
    }
    let mut sums = String::new();
    for program in built {
        let bytes = fs::read(&program).with_context(|| format!("failed to read {}", program.display()))?;
        expect_static(&program, &bytes)?;
        let name = program
            .file_name()
            .context("a program without a name")?
            .to_string_lossy();
        fs::copy(&program, folder.join(&*name)).with_context(|| format!("failed to copy {name}"))?;
        let digest = Sha256::digest(&bytes)
            .iter()
            .fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            });
        writeln!(sums, "{digest}  {name}")?;
        println!(
            "{FOLDER}/{name}: {:.1} MiB, static",
            bytes.len() as f64 / f64::from(1 << 20)
        );
    }
    fs::write(folder.join("SHA256SUMS"), sums).context("failed to write SHA256SUMS")?;
    if arguments.check {
        run_alone(&folder)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds all programs from these sources; returns their paths.
fn build(sources: &Path, folder: &Path, target: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut command = steps::cargo();
    command.current_dir(sources);
    command.args(["build", "--locked", "--profile", PROFILE, "--target", target]);
    for program in PROGRAMS {
        command.args(["--package", program, "--bin", program]);
    }
    command.arg("--target-dir").arg(folder);
    command.env("CARGO_ENCODED_RUSTFLAGS", flags(sources)?);
    // musl comes with the target. The little C code (ring's) needs nothing of a C library, so the host's compiler
    // suffices if there is none for musl.
    let variable = format!("CC_{}", target.replace('-', "_"));
    let compilers = [
        format!("{}-linux-musl-gcc", env::consts::ARCH),
        "musl-gcc".to_owned(),
    ];
    if env::var_os(&variable).is_none() && !compilers.iter().any(|compiler| steps::on_path(compiler)) {
        command.env(variable, "cc");
    }
    steps::must("build", &mut command)?;
    let built = folder.join(target).join(PROFILE);
    Ok(PROGRAMS.iter().map(|program| built.join(program)).collect())
}

/// Copies the sources to a folder with another name and depth.
fn elsewhere() -> anyhow::Result<PathBuf> {
    let root = steps::root();
    let copy = root.join("target/plumbline/dist-check/a copy");
    if copy.exists() {
        fs::remove_dir_all(&copy).with_context(|| format!("failed to remove {}", copy.display()))?;
    }
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(&root)
        .stderr(Stdio::inherit())
        .output()
        .context("failed to start git, which lists the sources")?;
    if !listed.status.success() {
        bail!("git can't list the sources of {}", root.display());
    }
    for name in listed.stdout.split(|octet| *octet == 0) {
        let name = Path::new(OsStr::from_bytes(name));
        let from = root.join(name);
        // A file that is deleted, and whose deletion is not committed yet.
        if !from.is_file() {
            continue;
        }
        let to = copy.join(name);
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).with_context(|| format!("failed to make {}", folder.display()))?;
        }
        fs::copy(&from, &to).with_context(|| format!("failed to copy {}", from.display()))?;
    }
    Ok(copy)
}

fn expect_same(first: &Path, second: &Path) -> anyhow::Result<()> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("failed to read {}", path.display()));
    let (one, other) = (read(first)?, read(second)?);
    if one == other {
        return Ok(());
    }
    let differing = one.iter().zip(&other).filter(|(one, other)| one != other).count();
    bail!(
        "{} ({} octets) and {} ({} octets) differ in {differing} octets: the build is not reproducible",
        first.display(),
        one.len(),
        second.display(),
        other.len()
    )
}

/// The agent's own tests can build a root for it.
fn run_alone(folder: &Path) -> anyhow::Result<()> {
    let mut command = steps::cargo();
    command.args(["test", "--package", "reference-agent", "--test", "process"]);
    command.env("PLUMBLINE_DIST", folder);
    crate::test::with_root(&mut command)?;
    command.args([
        "--",
        "--ignored",
        "--exact",
        "alone::the_static_programs_need_nothing_else",
    ]);
    steps::must("alone in an empty root", &mut command)
}

/// Keeps paths of this machine out of the programs.
fn flags(sources: &Path) -> anyhow::Result<OsString> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
    let home = home.context("neither CARGO_HOME nor HOME is set")?;
    let mut flags = OsString::new();
    for (from, to) in [(sources, "plumbline"), (&home, "cargo")] {
        if !flags.is_empty() {
            // Separator of arguments: <https://doc.rust-lang.org/cargo/reference/environment-variables.html>.
            flags.push("\u{1f}");
        }
        flags.push("--remap-path-prefix=");
        flags.push(from);
        flags.push("=");
        flags.push(to);
    }
    Ok(flags)
}

/// All packages have the workspace's version, including this one.
fn expect_tag(tag: &str) -> anyhow::Result<()> {
    let expected = concat!("v", env!("CARGO_PKG_VERSION"));
    if tag != expected {
        bail!(
            "expected the tag {expected}, as the version in Cargo.toml, found {tag}: change the version in a commit, and tag that"
        );
    }
    Ok(())
}

fn expect_target(target: &str) -> anyhow::Result<()> {
    let output = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", target])
        .current_dir(steps::root())
        .stderr(Stdio::inherit())
        .output()
        .context("failed to start rustc")?;
    let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    if !output.status.success() || !folder.is_dir() {
        bail!("the compiler has no library for {target}: `rustup target add {target}`, in this folder");
    }
    Ok(())
}

/// Checks that the program has no interpreter: the kernel starts it, and it loads nothing.
fn expect_static(program: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let header = FileHeader64::<LittleEndian>::parse(bytes).context("not an ELF file of 64 bits")?;
    let segments = header.program_headers(LittleEndian, bytes)?;
    if segments
        .iter()
        .any(|segment| segment.p_type(LittleEndian) == PT_INTERP)
    {
        bail!("{} is not static: it names an interpreter", program.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_that_of_the_version() {
        let version = env!("CARGO_PKG_VERSION");
        assert!(expect_tag(&format!("v{version}")).is_ok());
        for tag in [version, "v99.0.0", ""] {
            let error = expect_tag(tag).unwrap_err().to_string();
            assert!(
                error.contains(&format!("v{version}")) && error.contains(tag),
                "{error}"
            );
        }
    }
}
