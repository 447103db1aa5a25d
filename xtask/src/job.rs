//! Jobs: each runs in a session of its own, so that all its processes can be killed together. Each line of output of CI
//! is marked with the lane, and wall and processor time are measured.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::{self, File},
    io::{BufRead as _, BufReader, PipeReader, Write as _},
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use nix::{
    sys::{
        prctl,
        signal::{SigSet, Signal, killpg},
        wait::{Id, WaitPidFlag, waitid},
    },
    unistd::{Pid, SysconfVar, setsid, sysconf},
};

use crate::steps;

/// Becomes a command in a session of its own, which ends with its parent.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Run only when all other sessions leave processors idle
    #[arg(long)]
    idle: bool,
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

pub(crate) fn become_it(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    setsid().context("failed to begin a session")?;
    prctl::set_pdeathsig(Signal::SIGTERM)
        .context("failed to ask for a signal at the end of the program that starts it")?;
    // The signals that CI waits for.
    SigSet::empty()
        .thread_set_mask()
        .context("failed to take signals")?;
    let [program, rest @ ..] = &*arguments.command else {
        bail!("expected a command");
    };
    let mut command = Command::new(program);
    if arguments.idle {
        // Without autogroups, processors are shared evenly: other sessions get slower, but nothing fails.
        let _ = fs::write("/proc/self/autogroup", "19");
        // Processors that such jobs use count as idle for the suite.
        command = Command::new("nice");
        command.args(["-n", "19"]).arg(program);
    }
    let error = command.args(rest).exec();
    Err(error).with_context(|| format!("failed to start {}", program.display()))
}

/// Wraps a command in such a job of this program. The caller redirects the output.
pub(crate) fn job(command: &Command, idle: bool) -> Command {
    // The program's file may be rebuilt meanwhile.
    let mut job = Command::new("/proc/self/exe");
    job.arg("job");
    if idle {
        job.arg("--idle");
    }
    job.arg("--").arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        job.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => job.env(name, value),
            None => job.env_remove(name),
        };
    }
    job
}

/// The same command, which ends with this program, however that ends: it gets SIGTERM. Through sudo it stays as it is: that asks
/// at the terminal, and what it starts gets no such signal.
pub(crate) fn bound(command: Command) -> Command {
    if steps::is_root() {
        job(&command, false)
    } else {
        command
    }
}

/// How a job ended.
pub(crate) struct Ended {
    pub(crate) success: bool,
    pub(crate) wall: Duration,
    /// Processor time of the job and of all processes that it has waited for, without daemons.
    pub(crate) processor: Duration,
}

/// Handles a line of output, without its end.
pub(crate) type OnLine = Arc<dyn Fn(&str) + Send + Sync>;

/// Running jobs.
#[derive(Default)]
pub(crate) struct Jobs(Mutex<Running>);

#[derive(Default)]
struct Running {
    sessions: BTreeSet<i32>,
    stopped: bool,
}

/// The rest of a job's output is in the pipe at its end; daemons may keep the pipe open.
const DRAINED: Duration = Duration::from_secs(2);

impl Jobs {
    /// Signals all running jobs, and prevents new ones.
    pub(crate) fn stop(&self, signal: Signal) {
        let mut running = self.running();
        running.stopped = true;
        for session in &running.sessions {
            // Some may have ended meanwhile.
            let _ = killpg(Pid::from_raw(*session), signal);
        }
    }

    /// Whether the jobs were stopped.
    pub(crate) fn are_stopped(&self) -> bool {
        self.running().stopped
    }

    /// Runs a job to its end. Output goes to `on_line`; with `answers`, stdout goes there.
    ///
    /// # Errors
    /// The job could not be started, or all jobs were stopped before.
    pub(crate) fn run(
        &self,
        command: &mut Command,
        answers: Option<File>,
        on_line: OnLine,
    ) -> anyhow::Result<Ended> {
        let begin = Instant::now();
        let (reader, writer) = std::io::pipe().context("failed to make a pipe")?;
        command
            .stdin(Stdio::null())
            .stderr(writer.try_clone().context("failed to double a pipe")?);
        match answers {
            Some(file) => command.stdout(file),
            None => command.stdout(writer),
        };
        let mut child = {
            let mut running = self.running();
            if running.stopped {
                bail!("stopped");
            }
            let child = command
                .spawn()
                .with_context(|| format!("failed to start {command:?}"))?;
            running.sessions.insert(pid(child.id()));
            child
        };
        // Drops this process's copies of the writers.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let (drained, done) = mpsc::channel();
        thread::spawn(move || pass_on(reader, &on_line, drained));
        let id = pid(child.id());
        let processor = time_to_end(id)?;
        self.running().sessions.remove(&id);
        let status = child.wait().context("failed to wait for a job")?;
        let wall = begin.elapsed();
        if let Err(RecvTimeoutError::Timeout) = done.recv_timeout(DRAINED) {
            // A daemon's line.
        }
        let success = status.success();
        Ok(Ended {
            success,
            wall,
            processor,
        })
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A PID as system calls expect it.
pub(crate) fn pid(id: u32) -> i32 {
    id.cast_signed()
}

fn pass_on(reader: PipeReader, on_line: &OnLine, drained: Sender<()>) {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|octets| octets > 0) {
        on_line(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']));
        line.clear();
    }
    drop(drained);
}

/// Waits until a child ends. Returns the processor time of it and of the children that it has waited for. The child
/// stays a zombie, whose status is still to be read.
pub(crate) fn time_to_end(id: i32) -> anyhow::Result<Duration> {
    waitid(
        Id::Pid(Pid::from_raw(id)),
        WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT,
    )
    .with_context(|| format!("failed to wait for process {id}"))?;
    processor_time(id)
}

/// Processor time of a zombie, including the children that it has waited for.
fn processor_time(pid: i32) -> anyhow::Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
    let ticks_in_second = sysconf(SysconfVar::CLK_TCK)?.context("the kernel has no clock ticks")?;
    let ticks = ticks(&text).with_context(|| format!("{path} is not as expected: {text}"))?;
    Ok(Duration::from_millis(
        ticks * 1000 / u64::try_from(ticks_in_second)?,
    ))
}

/// utime, stime, cutime and cstime of proc_pid_stat(5), which are fields 14 to 17; field 2 is a name in parentheses.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let times: Vec<u64> = fields
        .split(' ')
        .skip(11)
        .take(4)
        .map_while(|field| field.parse().ok())
        .collect();
    (times.len() == 4).then(|| times.iter().sum())
}

/// Writes a whole line of a lane.
pub(crate) fn print(lane: &str, line: &str) {
    // Without a reader the work continues.
    let _ = writeln!(std::io::stdout().lock(), "[{lane}] {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_a_job_writes_is_passed_on_line_by_line() {
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let into = Arc::clone(&lines);
        let on_line: OnLine = Arc::new(move |line| into.lock().unwrap().push(line.to_owned()));
        let ended = Jobs::default()
            .run(
                &mut shell("echo one; echo two >&2; printf three; exit 3"),
                None,
                on_line,
            )
            .unwrap();
        assert!(!ended.success);
        assert_eq!(*lines.lock().unwrap(), ["one", "two", "three"]);
    }

    #[test]
    fn processor_time_is_that_of_children_too() {
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done";
        let ended = Jobs::default()
            .run(
                &mut shell(&format!("sh -c '{busy}'; true")),
                None,
                Arc::new(|_| {}),
            )
            .unwrap();
        assert!(
            ended.success && ended.processor > Duration::from_millis(20),
            "{:?}",
            ended.processor
        );
        assert_eq!(
            ticks("1 (a) b) Z 1 1 1 0 -1 4 5 6 7 8 10 20 300 4000 20 0"),
            Some(4330)
        );
        assert_eq!(ticks("1 (a"), None);
    }

    #[test]
    fn a_daemon_that_holds_the_pipe_holds_nothing_up() {
        let ended = Jobs::default().run(
            &mut shell("sleep 60 & echo $!"),
            None,
            Arc::new(|line| {
                // The daemon is in no job: it is killed here, once its PID is known.
                let _ = nix::sys::signal::kill(Pid::from_raw(line.parse().unwrap()), Signal::SIGKILL);
            }),
        );
        assert!(ended.unwrap().success);
    }

    #[test]
    fn what_is_stopped_ends_and_nothing_begins_after_it() {
        let jobs = Arc::new(Jobs::default());
        let stopping = Arc::clone(&jobs);
        let on_line: OnLine = Arc::new(move |_| stopping.stop(Signal::SIGTERM));
        let mut command = shell("echo begun; while :; do sleep 60; done");
        // In a process group of its own, as `become_it` makes it: jobs are killed by group.
        command.process_group(0);
        let ended = jobs.run(&mut command, None, on_line).unwrap();
        assert!(!ended.success && jobs.are_stopped());
        assert!(jobs.run(&mut shell("true"), None, Arc::new(|_| {})).is_err());
    }
}
