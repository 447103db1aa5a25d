//! One program of the plan.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read},
    process::{Command, Stdio},
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use guest::{End, Event, Step};
use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, kill},
        wait::{WaitStatus, waitpid},
    },
    unistd::Pid,
};

/// Where programs are.
const PROGRAMS: &str = "/bin";

/// Runs a program to its end, or to its limit, and ends whatever it has left.
pub(crate) fn run(step: &Step, tell: &(impl Fn(Event) + Sync)) {
    let name = || step.name.clone();
    tell(Event::Begun { step: name() });
    let begun = Instant::now();
    let end = supervise(step, tell).unwrap_or_else(|why| {
        tell(Event::Line {
            step: name(),
            text: why,
        });
        End::Code(127)
    });
    for path in &step.files {
        if let Ok(bytes) = fs::read(path) {
            tell(Event::File {
                step: name(),
                path: path.clone(),
                text: String::from_utf8_lossy(&bytes).into_owned(),
            });
        }
    }
    tell(Event::Ended {
        step: name(),
        end,
        milliseconds: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
    });
}

fn supervise(step: &Step, tell: &(impl Fn(Event) + Sync)) -> Result<End, String> {
    let [program, arguments @ ..] = step.command.as_slice() else {
        return Err("the plan names no program".to_owned());
    };
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", PROGRAMS)
        .env("TMPDIR", "/tmp")
        .envs(&step.environment)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("failed to start {program}: {error}"))?;
    let outputs = [
        child
            .stdout
            .take()
            .map(|output| Box::new(output) as Box<dyn Read + Send>),
        child
            .stderr
            .take()
            .map(|output| Box::new(output) as Box<dyn Read + Send>),
    ];
    let process = Pid::from_raw(child.id().cast_signed());
    let (ended, until) = channel::<()>();
    let limit = Duration::from_secs(step.limit_seconds);
    thread::scope(|scope| {
        for output in outputs.into_iter().flatten() {
            scope.spawn(|| relay(step, output, tell));
        }
        let watch = scope.spawn(move || match until.recv_timeout(limit) {
            Err(RecvTimeoutError::Timeout) => {
                kill_all();
                true
            }
            _ => false,
        });
        let end = wait(process);
        drop(ended);
        let was_late = watch.join().unwrap_or(true);
        // So that nobody holds the outputs, and the next program has the machine to itself.
        kill_all();
        end.map(|end| if was_late { End::Limit } else { end })
    })
}

/// Tells each line of an output, until nobody holds it.
fn relay(step: &Step, output: impl Read, tell: &impl Fn(Event)) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        tell(Event::Line {
            step: step.name.clone(),
            text: String::from_utf8_lossy(&line).trim_end().to_owned(),
        });
        line.clear();
    }
}

/// Every process but this one.
fn kill_all() {
    // There may be none.
    let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
}

/// Waits for the program; others that end meanwhile, whose parents have ended before them, are this process's to bury.
fn wait(process: Pid) -> Result<End, String> {
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(ended, code)) if ended == process => return Ok(End::Code(code)),
            Ok(WaitStatus::Signaled(ended, signal, _)) if ended == process => {
                return Ok(End::Signal(signal as i32));
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(format!("failed to wait for the program: {error}")),
        }
    }
}
