//! A virtual machine of QEMU, from its start to its end.

use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::mpsc::channel,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use guest::{Event, Plan};

use super::{archive::Kernel, expect_on_path, listener::Listener};

/// The program's name in all distributions.
const QEMU: &str = "qemu-system-x86_64";
/// Kills QEMU when this process ends, however that ends (PR_SET_PDEATHSIG of prctl(2)).
const WITH_PARENT: &str = "setpriv";
/// The device for hardware acceleration.
const KVM: &str = "/dev/kvm";
/// Memory for programs, the maps of a node, and two nodes.
const MEMORY: &str = "3G";
/// All features but one instruction, without which kernels work, too: after `cmpxchg16b`, QEMU 7.2 (Debian 12) has
/// invalid flags until the next instruction sets them, and an interrupt between the two causes a double fault. Kernels
/// since 6.5 use it in their allocator.
const MODEL: &str = "max,-cx16";
/// Tests read programs on one processor while these run on another.
const PROCESSORS: usize = 2;
/// Older versions of the emulator translate code while another processor writes it, and keep the old code ("accel/tcg:
/// Always lock pages before translation", QEMU 8.1). A kernel that patches its own text can then hit a breakpoint that
/// it has already removed: seen with 7.2 as "Oops: int3" in `inet_release`, whose static key cgroup programs switch.
const LOCKS_BEFORE_TRANSLATING: (u64, u64) = (8, 1);
/// Output files of the kernel, of programs and of QEMU.
const CONSOLE: &str = "console.txt";
const OUTPUT: &str = "output.txt";
const ERRORS: &str = "qemu.txt";
/// Folder for files of programs in the machine.
const LEFT: &str = "left";
/// Beginning of the line with the reason of a panic.
const PANIC: &str = "Kernel panic - not syncing";

/// Result of a machine.
pub(super) struct Outcome {
    /// All events.
    pub(super) events: Vec<Event>,
    /// How it ended.
    pub(super) stop: Stop,
    /// Whether it used KVM.
    pub(super) accelerated: bool,
    /// From its start to the first event.
    pub(super) boot: Option<Duration>,
}

/// How a machine ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// All programs have ended.
    Over,
    /// The first process could not continue.
    Failed(String),
    /// The kernel panicked.
    Panic(String),
    /// An event is overdue.
    Silent(String),
    /// QEMU ended before the machine did.
    Qemu(String),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Over => f.write_str("all programs have ended"),
            Self::Failed(why) => write!(f, "the first process could not go on: {why}"),
            Self::Panic(line) => write!(f, "the kernel gave up ({CONSOLE} has all it said): {line}"),
            Self::Silent(what) => write!(f, "the machine hangs: {what}"),
            Self::Qemu(why) => write!(f, "QEMU ended before the machine: {why}"),
        }
    }
}

/// Checks that the programs for a machine are installed.
pub(super) fn expect_programs() -> anyhow::Result<()> {
    expect_on_path(
        QEMU,
        "qemu-system-x86 (Debian, Ubuntu) or qemu-system-x86-core (Fedora)",
        "a virtual machine",
    )?;
    expect_on_path(
        WITH_PARENT,
        "util-linux",
        "a virtual machine that ends with this command",
    )
}

/// Runs a machine to its end, with KVM if that works.
pub(super) fn run(
    kernel: &Kernel,
    initial: &Path,
    folder: &Path,
    plan: &Plan,
    limit: Duration,
) -> anyhow::Result<Outcome> {
    let attempt = |kvm| attempt(kernel, initial, folder, plan, limit, kvm);
    if OpenOptions::new().read(true).write(true).open(KVM).is_ok() {
        let outcome = attempt(true)?;
        match &outcome.stop {
            // The device can exist on virtual machines where KVM does not work.
            Stop::Qemu(why) if outcome.boot.is_none() => {
                let release = &kernel.release;
                eprintln!("      {release}: {KVM} can't be used, so the processor is emulated: {why}");
            }
            _ => return Ok(outcome),
        }
    }
    attempt(false)
}

fn attempt(
    kernel: &Kernel,
    initial: &Path,
    folder: &Path,
    plan: &Plan,
    limit: Duration,
    kvm: bool,
) -> anyhow::Result<Outcome> {
    let errors = folder.join(ERRORS);
    let left = folder.join(LEFT);
    match fs::remove_dir_all(&left) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("failed to remove {}", left.display()));
        }
        _ => {}
    }
    let file = File::create(&errors).with_context(|| format!("failed to write {}", errors.display()))?;
    let accelerator = if kvm { "kvm" } else { emulation(version()?).0 };
    let mut command = command(kernel, initial, &folder.join(CONSOLE), accelerator);
    let started = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(file)
        .spawn()
        .with_context(|| format!("failed to start {QEMU}"))?;
    let Some(port) = child.stdout.take() else {
        bail!("{QEMU} has no output");
    };
    let (sender, events) = channel();
    let reader = thread::spawn(move || {
        for line in BufReader::new(port).split(b'\n').map_while(Result::ok) {
            // Any other line is not from the first process: the kernel has written to the second port.
            if let Ok(event) = serde_json::from_slice::<Event>(&line)
                && sender.send(event).is_err()
            {
                return;
            }
        }
    });
    let mut outcome = Outcome {
        events: Vec::new(),
        stop: Stop::Over,
        accelerated: kvm,
        boot: None,
    };
    let listened = Listener {
        events: &events,
        release: &kernel.release,
        plan,
        limit,
        started,
        output: &folder.join(OUTPUT),
        left: &left,
    }
    .listen(&mut outcome);
    // Otherwise it has closed its output, which is its last action.
    if !matches!(listened, Ok(None)) {
        child.kill().context("failed to end QEMU")?;
    }
    let ended = child.wait().context("failed to wait for QEMU")?.to_string();
    drop(events);
    let _ = reader.join();
    let silent = listened?;
    let said = fs::read_to_string(&errors).unwrap_or_default();
    outcome.stop = stop(&outcome.events, silent, &folder.join(CONSOLE), &ended, &said);
    Ok(outcome)
}

/// How processors are emulated: concurrently, or in turn if the version has the bug; and how many of this machine's
/// processors that uses.
fn emulation(version: (u64, u64)) -> (&'static str, usize) {
    if version < LOCKS_BEFORE_TRANSLATING {
        ("tcg,thread=single", 1)
    } else {
        ("tcg", PROCESSORS)
    }
}

/// Processors of this machine that an emulated machine keeps busy; with KVM it mostly waits.
pub(super) fn processors_at_once() -> anyhow::Result<usize> {
    Ok(emulation(version()?).1)
}

/// The version of QEMU.
fn version() -> anyhow::Result<(u64, u64)> {
    let output = Command::new(QEMU)
        .arg("--version")
        .output()
        .with_context(|| format!("failed to start {QEMU}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    version_in(&said).with_context(|| format!("expected {QEMU} --version to say which it is, found {said:?}"))
}

/// The first two numbers of `QEMU emulator version 7.2.22 (Debian …)`.
fn version_in(said: &str) -> Option<(u64, u64)> {
    let (_, version) = said.split_once("version ")?;
    let mut numbers = version.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn command(kernel: &Kernel, initial: &Path, console: &Path, accelerator: &str) -> Command {
    let mut command = Command::new(WITH_PARENT);
    command.args(["--pdeathsig", "KILL", QEMU]);
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    command.args([
        "-accel",
        accelerator,
        "-cpu",
        MODEL,
        "-smp",
        &PROCESSORS.to_string(),
        "-m",
        MEMORY,
    ]);
    command.arg("-kernel").arg(&kernel.image);
    command.arg("-initrd").arg(initial);
    // After a panic, the kernel restarts the machine at once, which ends QEMU.
    command.args(["-append", "console=ttyS0 panic=-1 loglevel=7"]);
    command.arg("-serial").arg(format!("file:{}", console.display()));
    command.args(["-serial", "stdio"]);
    command
}

/// Why the machine has stopped.
fn stop(events: &[Event], silent: Option<String>, console: &Path, ended: &str, said: &str) -> Stop {
    let console = fs::read(console).unwrap_or_default();
    let console = String::from_utf8_lossy(&console);
    let panic = console.lines().find(|line| line.contains(PANIC));
    match (events.last(), panic) {
        (Some(Event::Over), _) => Stop::Over,
        (Some(Event::Failed { why }), _) => Stop::Failed(why.clone()),
        (_, Some(line)) => Stop::Panic(line.trim().to_owned()),
        _ => match silent {
            Some(what) => Stop::Silent(what),
            None => Stop::Qemu(format!("{ended}; {}", said.trim().replace('\n', " / "))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_of_an_emulator_that_keeps_old_code_take_turns() {
        let said = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\nCopyright (c) 2003-2022\n";
        let how = |said: &str| version_in(said).map(|version| emulation(version).0);
        assert_eq!(how(said), Some("tcg,thread=single"));
        assert_eq!(how("QEMU emulator version 8.0.5\n"), Some("tcg,thread=single"));
        assert_eq!(how("QEMU emulator version 8.1.0\n"), Some("tcg"));
        assert_eq!(how("QEMU emulator version 10.0.2 (x)\n"), Some("tcg"));
        assert_eq!(how("QEMU\n"), None);
    }

    #[test]
    fn a_machine_that_ends_early_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let console = folder.path().join(CONSOLE);
        let booted = [Event::Booted {
            kernel: "6.1".to_owned(),
        }];
        let stop = |events: &[Event], silent: Option<&str>| {
            stop(
                events,
                silent.map(str::to_owned),
                &console,
                "exit status: 1",
                "no memory\n",
            )
            .to_string()
        };
        assert_eq!(stop(&[Event::Over], None), "all programs have ended");
        let said = stop(&booted, None);
        assert!(said.contains("exit status: 1; no memory"), "{said}");
        let said = stop(&booted, Some("nothing came of sockets in time"));
        assert!(said.contains("hangs: nothing came of sockets"), "{said}");
        fs::write(
            &console,
            "[1.0] x\n[2.0] Kernel panic - not syncing: Attempted to kill init!\n",
        )
        .unwrap();
        let said = stop(&booted, None);
        assert!(
            said.contains("gave up") && said.contains("Attempted to kill init"),
            "{said}"
        );
        let failed = [Event::Failed {
            why: "no plan".to_owned(),
        }];
        assert!(stop(&failed, None).contains("no plan"));
    }
}
