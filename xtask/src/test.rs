//! `cargo xtask test`: all tests that need no cluster.
//!
//! Cargo builds all test programs and lists them. Then several run concurrently, as most of their tests mostly wait;
//! the output of each stays together. Result lines have the format of cargo test. There are no documentation tests:
//! `tidy` refuses examples. (Even to find none, rustdoc builds every crate.)

use std::{
    collections::VecDeque,
    env,
    ffi::OsString,
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    num::NonZero,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use serde_json::Value;

use crate::{ebpf, job, steps};

/// Set without root for tests that need it: they then record that they were skipped.
pub(crate) const UNPRIVILEGED: &str = "PLUMBLINE_UNPRIVILEGED";

/// File to which skipped tests append a line.
const SKIPS: &str = "PLUMBLINE_SKIPS";
/// Number of concurrent tests in one program, unless the user has set it.
const THREADS: &str = "RUST_TEST_THREADS";

/// Test programs that take minutes, in the order in which they begin: some compute, some wait.
const LONGEST: [&str; 11] = [
    "kernel", "agent", "run", "lab", "datapath", "process", "node", "names", "tables", "watch", "contract",
];

/// Runs every test of the workspace.
#[derive(clap::Args)]
#[command(after_help = "Exit codes: 0 all passed, 1 a test failed, 2 could not run.")]
pub(crate) struct Arguments {
    /// Leave out tests that need root; each is listed as skipped
    #[arg(long)]
    unprivileged: bool,
    /// Number of concurrent test programs; the default is one more than the processors
    #[arg(long, value_name = "NUMBER")]
    jobs: Option<NonZero<usize>>,
    /// Arguments for the tests, for example a filter: `cargo xtask test -- prefix`
    #[arg(last = true, value_name = "ARGS")]
    rest: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    // Tests of the lab start programs: those of packages with integration tests, which are built with them before any
    // test runs.
    ebpf::refresh()?;
    let mut programs = built()?;
    programs.sort_by_key(Program::turn);
    let folder = steps::root().join("target/tests");
    let skips = folder.join("skipped.txt");
    fs::create_dir_all(&folder)?;
    fs::write(&skips, "")?;
    if !arguments.unprivileged {
        steps::ask_for_root("kernel tests")?;
    }
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let jobs = arguments.jobs.map_or(processors + 1, NonZero::get);
    let each = Each {
        folder: &folder,
        skips: &skips,
        unprivileged: arguments.unprivileged,
        threads: env::var_os(THREADS).unwrap_or_else(|| (2 * processors).to_string().into()),
        arguments: &arguments.rest,
    };
    let passed = side_by_side(programs, jobs, &each)?;
    report_skips(&fs::read_to_string(&skips)?);
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

/// Lets cargo start test programs by `runner`, unless this process is root.
pub(crate) fn with_root(command: &mut Command) -> anyhow::Result<()> {
    if !steps::is_root() {
        let own = env::current_exe()?;
        command.env(
            format!("CARGO_TARGET_{}_RUNNER", host_triple()),
            format!("{} runner", own.display()),
        );
    }
    Ok(())
}

/// A test program that cargo has built.
struct Program {
    package: String,
    /// Folder of its package: the working folder of its tests.
    folder: PathBuf,
    /// `lib`, `bin` or `test`.
    kind: String,
    target: String,
    executable: PathBuf,
}

impl Program {
    /// A program from a message of cargo; `None`, if the message is about something else.
    fn of(message: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        if message["profile"]["test"] != true {
            return None;
        }
        Some(Self {
            package: package(message["package_id"].as_str()?)?.to_owned(),
            folder: Path::new(message["manifest_path"].as_str()?).parent()?.to_owned(),
            kind: text(&message["target"]["kind"][0])?,
            target: text(&message["target"]["name"])?,
            executable: text(&message["executable"])?.into(),
        })
    }

    /// Arguments for cargo that select the program.
    fn arguments(&self) -> String {
        let Self {
            package,
            kind,
            target,
            ..
        } = self;
        match kind.as_str() {
            "lib" => format!("-p {package} --lib"),
            kind => format!("-p {package} --{kind} {target}"),
        }
    }

    /// Position in the order: the longest first, so that none runs alone at the end.
    fn turn(&self) -> (usize, bool) {
        let place = LONGEST
            .iter()
            .position(|target| self.kind == "test" && *target == self.target);
        (place.unwrap_or(LONGEST.len()), self.kind != "test")
    }
}

/// The name in a package id: `path+file:///folder#name@1.0.0`, or `path+file:///name#1.0.0` if folder and name are
/// equal.
fn package(id: &str) -> Option<&str> {
    let (place, fragment) = id.split_once('#')?;
    match fragment.split_once('@') {
        Some((name, _)) => Some(name),
        None => place.rsplit('/').next(),
    }
}

/// Builds all test programs, and the programs that they start. This package has no integration tests, for which cargo
/// would replace this running program.
fn built() -> anyhow::Result<Vec<Program>> {
    let arguments = ["test", "--workspace", "--no-run", "--lib", "--bins", "--tests"];
    eprintln!("  ==> build: cargo {}", arguments.join(" "));
    let begin = Instant::now();
    let mut cargo = steps::cargo()
        .args(arguments)
        .arg("--message-format=json-render-diagnostics")
        .stdout(Stdio::piped())
        .spawn()
        .context("failed to start cargo")?;
    let said = BufReader::new(cargo.stdout.take().context("cargo has no stdout")?);
    let mut programs = Vec::new();
    for line in said.lines() {
        let message = serde_json::from_str(&line?).context("cargo said something that is no JSON")?;
        programs.extend(Program::of(&message));
    }
    anyhow::ensure!(
        cargo.wait()?.success(),
        "the tests can't be built; cargo's output above says why"
    );
    eprintln!("  <== build: done after {:.1} s", begin.elapsed().as_secs_f64());
    Ok(programs)
}

/// Common settings of all programs.
struct Each<'a> {
    /// Folder for a file of output for each.
    folder: &'a Path,
    skips: &'a Path,
    unprivileged: bool,
    threads: OsString,
    arguments: &'a [String],
}

impl Each<'_> {
    /// Runs a program to its end.
    fn run(&self, program: &Program) -> anyhow::Result<Ended> {
        let begin = Instant::now();
        let name = format!("{}-{}-{}.log", program.package, program.kind, program.target);
        let said = self.folder.join(name);
        let file = File::create(&said).with_context(|| format!("failed to write {}", said.display()))?;
        // The runner adds root where needed.
        let mut command = Command::new(env::current_exe()?);
        command
            .arg("runner")
            .arg(&program.executable)
            .args(self.arguments)
            .current_dir(&program.folder)
            .env("CARGO_PKG_NAME", &program.package)
            .env("CARGO_MANIFEST_DIR", &program.folder)
            .env(SKIPS, self.skips)
            .env(THREADS, &self.threads)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file);
        if self.unprivileged {
            command.env(UNPRIVILEGED, "1");
        }
        let mut child = command.spawn().with_context(|| {
            format!(
                "failed to start this program for {}",
                program.executable.display()
            )
        })?;
        let processor = job::time_to_end(job::pid(child.id()))?;
        let passed = child.wait()?.success();
        Ok(Ended {
            passed,
            wall: begin.elapsed(),
            processor,
            said: fs::read(&said)?,
        })
    }
}

/// How a test program ended.
struct Ended {
    passed: bool,
    wall: Duration,
    /// Of the program and of the processes that it has waited for.
    processor: Duration,
    /// Its stdout and stderr, in order.
    said: Vec<u8>,
}

/// Runs all programs, `jobs` at a time, and prints the output of each at its end. Returns whether all passed.
fn side_by_side(programs: Vec<Program>, jobs: usize, each: &Each<'_>) -> anyhow::Result<bool> {
    eprintln!("  ==> tests: {} programs, {jobs} at a time", programs.len());
    let begin = Instant::now();
    let waiting = Mutex::new(VecDeque::from(programs));
    // Held while one prints.
    let failed = Mutex::new(Vec::new());
    let work = || -> anyhow::Result<()> {
        loop {
            let next = waiting.lock().expect("no worker panics").pop_front();
            let Some(program) = next else { return Ok(()) };
            let what = program.arguments();
            eprintln!("     Running {what}");
            let ended = each.run(&program)?;
            let mut failed = failed.lock().expect("no worker panics");
            print(&what, &ended)?;
            if !ended.passed {
                failed.push(what);
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("no worker panics"))
    })?;
    let failed = failed.into_inner().expect("no worker panics");
    let seconds = begin.elapsed().as_secs_f64();
    eprintln!(
        "  <== tests: {} programs failed, after {seconds:.1} s",
        failed.len()
    );
    for what in &failed {
        eprintln!("      failed: cargo test {what}");
    }
    Ok(failed.is_empty())
}

fn print(what: &str, ended: &Ended) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let (wall, processor) = (ended.wall.as_secs_f64(), ended.processor.as_secs_f64());
    writeln!(
        out,
        "\n     Ended {what}, after {wall:.1} s, {processor:.1} s of processor time"
    )?;
    out.write_all(&ended.said)?;
    if !ended.passed {
        // cargo's format.
        writeln!(out, "error: test failed, to rerun pass `{what}`")?;
    }
    Ok(out.flush()?)
}

/// A skip is never a pass: every skipped test is named.
fn report_skips(lines: &str) {
    let mut lines: Vec<&str> = lines.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    eprintln!("  {} skipped", lines.len());
    for line in lines {
        eprintln!("      skipped: {line}");
    }
}

/// The host's name as cargo spells it in names of variables.
fn host_triple() -> String {
    format!(
        "{}_UNKNOWN_LINUX_{}",
        env::consts::ARCH,
        if cfg!(target_env = "musl") { "MUSL" } else { "GNU" }
    )
    .to_uppercase()
}
