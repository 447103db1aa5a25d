//! The programs of the machines: built as for `cargo xtask test`, without debug symbols, and with the libraries that
//! each needs.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use guest::Step;
use object::{
    LittleEndian,
    elf::{FileHeader64, PT_INTERP},
    read::elf::{FileHeader as _, ProgramHeader as _},
};
use serde_json::Value;

use super::{FOLDER, expect_on_path};
use crate::{e2e, ebpf, steps};

/// A part of the programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum Part {
    /// Features of the kernel, and its verifier's figures of each program
    Features,
    /// The packet tables (BPF_PROG_TEST_RUN)
    Packets,
    /// The loader's tests: hooks of sockets and devices, real connections
    Sockets,
    /// The doctor's tests: what is attached, what earlier loads leave, eviction
    Doctor,
    /// Cases of the suite, in a lab of two nodes
    Lab,
}

/// Cases that run in the lab: of each outage and of basic Services, as few as show that all parts work on the kernel; and SCTP,
/// which not every host has.
const CASES: [&str; 5] = [
    "clusterip-from-pod",
    "release-prefix-null-slice",
    "stale-sock-legacy-multi",
    "uninstall-leaves-nothing",
    "sctp-served",
];

/// Factor for the suite's limits: an emulated processor is ten to twenty times as slow.
const TIMEOUT_SCALE: &str = "10";

/// Probes of each client in a second, instead of the 400 of fast machines: with all of them, clients on an emulated
/// machine did not finish their plans.
const RATE: &str = "20";

/// As [`TIMEOUT_SCALE`], for the limits of tests.
const TEST_TIMEOUT_SCALE: (&str, &str) = ("PLUMBLINE_TEST_TIMEOUT_SCALE", TIMEOUT_SCALE);

/// The suite's report, and files that explain the results of cases.
const REPORT: &str = "/run/out/report.yaml";
const EVIDENCE: &str = "/run/out/evidence";

/// Counters of the kernel: packets that it dropped for lack of a processor, and why connections ended.
pub(super) const COUNTED: [&str; 3] = ["/proc/net/softnet_stat", "/proc/net/netstat", "/proc/net/snmp"];

/// Programs of this host that cases start on nodes: program and package.
const OF_NODES: [(&str, &str); 2] = [("cat", "coreutils"), ("find", "findutils")];

/// Programs of lb-loader that query the kernel.
const QUERIES: [&str; 2] = ["lb-features", "lb-verify"];

/// Test programs: part, package and name.
const TESTS: [(Part, &str, &str); 3] = [
    (Part::Packets, "lb-packets", "tables"),
    (Part::Sockets, "lb-loader", "kernel"),
    (Part::Doctor, "doctor", "kernel"),
];

/// Names of the steps.
pub(super) const FEATURES: &str = "features";
pub(super) const VERIFIER: &str = "verifier";

/// Files of the machine.
pub(super) struct Built {
    /// Path in the machine → path on this host.
    pub(super) files: BTreeMap<String, PathBuf>,
}

/// Builds the programs of these parts, all of them optimised, because an emulated processor is slow: a debug build of
/// the agent takes minutes there until it serves.
pub(super) fn build(parts: &[Part]) -> anyhow::Result<Built> {
    let mut wanted = QUERIES.map(|program| ("lb-loader", program)).to_vec();
    if parts.contains(&Part::Lab) {
        wanted.extend(e2e::PROGRAMS.map(|program| (program, program)));
    }
    ebpf::refresh()?;
    let mut programs = vec![("/init".to_owned(), steps::lightly_optimised("guest", "guest")?)];
    for (package, program) in wanted {
        programs.push((
            format!("/bin/{program}"),
            steps::lightly_optimised(package, program)?,
        ));
    }
    for (part, package, test) in TESTS {
        if parts.contains(&part) {
            programs.push((test_program(package, test), tests(package, test)?));
        }
    }
    if parts.contains(&Part::Lab) {
        for (program, package) in OF_NODES {
            expect_on_path(program, package, "what cases do on nodes of a virtual machine")?;
            programs.extend(steps::found_on_path(program).map(|file| (format!("/bin/{program}"), file)));
        }
    }
    expect_on_path("strip", "binutils", "making the machines' programs small")?;
    let folder = steps::root().join(FOLDER).join("programs");
    fs::create_dir_all(&folder).with_context(|| format!("failed to make {}", folder.display()))?;
    let mut files = BTreeMap::new();
    for (path, program) in programs {
        let stripped = folder.join(path.rsplit('/').next().unwrap_or_default());
        let mut strip = Command::new("strip");
        strip.arg("-o").arg(&stripped).arg(&program);
        let status = strip.status().context("failed to start strip")?;
        if !status.success() {
            bail!("strip failed on {}", program.display());
        }
        for library in libraries(&stripped)? {
            files.insert(library.display().to_string(), library);
        }
        files.insert(path, stripped);
    }
    Ok(Built { files })
}

/// The path there of a test program: packages have programs of one name.
fn test_program(package: &str, test: &str) -> String {
    format!("/bin/{package}-{test}")
}

/// Builds an optimised test program; returns its path.
fn tests(package: &str, test: &str) -> anyhow::Result<PathBuf> {
    let mut build = steps::cargo();
    build.args([
        "test",
        "--no-run",
        "--profile",
        steps::LIGHT,
        "--package",
        package,
        "--test",
        test,
    ]);
    build.args(["--message-format", "json-render-diagnostics"]);
    eprintln!("  ==> build: the tests {test} of {package}");
    let output = build
        .stderr(Stdio::inherit())
        .output()
        .context("failed to start cargo")?;
    if !output.status.success() {
        bail!("the tests {test} of {package} do not build; cargo's output above says why");
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let program = said.lines().find_map(|line| executable(line, test));
    program.with_context(|| format!("cargo does not say where the test program {test} is"))
}

/// The test program in a message of cargo.
fn executable(line: &str, test: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(line).ok()?;
    let is_it = message["target"]["name"] == test && message["profile"]["test"] == true;
    message["executable"]
        .as_str()
        .filter(|_| is_it)
        .map(PathBuf::from)
}

/// The libraries that a program loads, and its loader; none, if it is static.
fn libraries(program: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let bytes = fs::read(program).with_context(|| format!("failed to read {}", program.display()))?;
    let header = FileHeader64::<LittleEndian>::parse(&*bytes).context("not an ELF file of 64 bits")?;
    let segments = header.program_headers(LittleEndian, &*bytes)?;
    let Some(interpreter) = segments
        .iter()
        .find(|segment| segment.p_type(LittleEndian) == PT_INTERP)
    else {
        return Ok(Vec::new());
    };
    let path = interpreter
        .data(LittleEndian, &*bytes)
        .ok()
        .and_then(|path| std::str::from_utf8(path.strip_suffix(&[0])?).ok())
        .with_context(|| format!("{} names no interpreter", program.display()))?;
    let output = Command::new(path)
        .arg("--list")
        .arg(program)
        .output()
        .with_context(|| format!("failed to start {path}"))?;
    let mut libraries = listed(&String::from_utf8_lossy(&output.stdout));
    libraries.push(PathBuf::from(path));
    Ok(libraries)
}

/// The paths in lines such as `libc.so.6 => /lib/libc.so.6 (0x00007f)`.
fn listed(said: &str) -> Vec<PathBuf> {
    let paths = said.lines().filter_map(|line| {
        let (_, found) = line.split_once("=> ")?;
        found.split(" (").next()
    });
    paths.map(PathBuf::from).collect()
}

/// The steps of a machine, in this order.
///
/// # Errors
/// No case of the lab has a name that contains one of the filters.
pub(super) fn steps(parts: &[Part], filters: &[String], limit: Duration) -> anyhow::Result<Vec<Step>> {
    // Tests record those that they skip in a file, which is sent, as is the report.
    let step = |name: &str, command: &str| {
        let skips = format!("/run/skipped-{name}.txt");
        Step {
            name: name.to_owned(),
            command: command.split_whitespace().map(str::to_owned).collect(),
            environment: BTreeMap::from(
                [("PLUMBLINE_SKIPS", skips.as_str()), TEST_TIMEOUT_SCALE]
                    .map(|(name, value)| (name.to_owned(), value.to_owned())),
            ),
            limit_seconds: limit.as_secs(),
            files: [skips.as_str(), REPORT, EVIDENCE]
                .into_iter()
                .chain(COUNTED)
                .map(str::to_owned)
                .collect(),
        }
    };
    let named = filters.join(" ");
    let tested = |name: &str, package: &str, test: &str| {
        let program = test_program(package, test);
        step(name, &format!("{program} --test-threads=1 {named}"))
    };
    let mut steps = vec![
        step(FEATURES, "/bin/lb-features /sys/fs/cgroup"),
        step(VERIFIER, "/bin/lb-verify"),
    ];
    for part in parts {
        steps.push(match part {
            // This part always runs.
            Part::Features => continue,
            Part::Packets => tested("packets", "lb-packets", "tables"),
            Part::Sockets => tested("sockets", "lb-loader", "kernel"),
            Part::Doctor => tested("doctor", "doctor", "kernel"),
            Part::Lab => {
                let cases = cases(filters)?.join("|");
                let run = format!(
                    "/bin/plumbline run --filter ^({cases})$ --labs 1 --jobs 1 --timeout-scale {TIMEOUT_SCALE} --rate {RATE} \
                     --out /run/out"
                );
                step("lab", &run)
            }
        });
    }
    Ok(steps)
}

/// The cases whose names contain one of the filters, with the rule of test programs; all, if there is no filter.
fn cases(filters: &[String]) -> anyhow::Result<Vec<&'static str>> {
    let mut cases = CASES.to_vec();
    cases.retain(|case| filters.is_empty() || filters.iter().any(|filter| case.contains(filter)));
    ensure!(
        !cases.is_empty(),
        "--filter: no case of the lab has {} in its name; they are {}",
        filters.join(" or "),
        CASES.join(", ")
    );
    Ok(cases)
}

/// The cases in a step's command: the suite may also judge rows over them, which were not requested.
pub(super) fn requested_cases(step: &Step) -> Vec<&'static str> {
    let words: Vec<&str> = step
        .command
        .iter()
        .flat_map(|word| word.split(['(', '|', ')']))
        .collect();
    let mut cases = CASES.to_vec();
    cases.retain(|case| words.contains(case));
    cases
}

/// The names of the plan's steps, as text.
pub(super) fn named(plan: &guest::Plan) -> String {
    let names: Vec<&str> = plan.steps.iter().map(|step| step.name.as_str()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_what_the_loader_lists() {
        let said = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1b)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f1c)\n";
        assert_eq!(listed(said), [PathBuf::from("/lib/x86_64-linux-gnu/libc.so.6")]);
    }

    #[test]
    fn the_test_program_is_found_among_cargos_messages() {
        let message = |name: &str, test: bool| {
            format!(
                r#"{{"target":{{"name":"{name}"}},"profile":{{"test":{test}}},"executable":"/t/{name}-1"}}"#
            )
        };
        assert_eq!(
            executable(&message("kernel", true), "kernel"),
            Some("/t/kernel-1".into())
        );
        assert_eq!(executable(&message("kernel", false), "kernel"), None);
        assert_eq!(executable(&message("tables", true), "kernel"), None);
        assert_eq!(executable("not JSON", "kernel"), None);
    }

    #[test]
    fn what_the_kernel_offers_is_asked_whatever_else_runs() {
        let names = |parts: &[Part]| {
            let steps = steps(parts, &[], Duration::from_secs(60)).unwrap();
            steps.into_iter().map(|step| step.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&[Part::Lab]), ["features", "verifier", "lab"]);
        assert_eq!(names(&[Part::Features]), ["features", "verifier"]);
    }

    #[test]
    fn a_filter_is_of_tests_and_of_cases() {
        let last = |part, filter: &str| {
            let steps = steps(&[part], &[filter.to_owned()], Duration::from_secs(60));
            steps.map(|steps| steps.last().unwrap().command.join(" "))
        };
        let said = last(Part::Sockets, "devices::packets").unwrap();
        assert_eq!(said, "/bin/lb-loader-kernel --test-threads=1 devices::packets");
        let said = last(Part::Lab, "stale").unwrap();
        assert!(said.contains(" ^(stale-sock-legacy-multi)$ "), "{said}");
        let asked = |filters: &[String]| {
            let steps = steps(&[Part::Lab], filters, Duration::from_secs(60)).unwrap();
            steps.last().map(requested_cases).unwrap()
        };
        assert_eq!(asked(&[]), CASES);
        assert_eq!(asked(&["stale".to_owned()]), ["stale-sock-legacy-multi"]);
        let error = last(Part::Lab, "nothing-of-it").unwrap_err().to_string();
        assert!(error.contains("they are clusterip-from-pod, "), "{error}");
    }
}
