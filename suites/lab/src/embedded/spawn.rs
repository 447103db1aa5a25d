//! Starting processes in namespaces and cgroups.
//!
//! The child places itself between fork and exec, where only async-signal-safe calls are allowed: everything
//! that it needs is opened before.
#![expect(
    unsafe_code,
    reason = "pre_exec: a process enters its namespaces and cgroup before it runs its program"
)]

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd, RawFd},
        unix::process::CommandExt,
    },
    path::Path,
    process::{Command, ExitCode},
    sync::{OnceLock, mpsc},
    thread,
};

use nix::{
    errno::Errno,
    libc,
    sched::{CloneFlags, setns, unshare},
    sys::{prctl::set_pdeathsig, signal::Signal},
    unistd::{Pid, getpid, getppid, setsid},
};
use tokio::{process::Child, runtime::Handle, sync::oneshot};

/// Where a process runs: whatever is `None` stays the starter's.
#[derive(Debug, Default)]
pub(super) struct Placement {
    /// Network namespace.
    pub(super) net: Option<File>,
    /// Mount namespace; the working directory becomes its root.
    pub(super) mnt: Option<File>,
    /// `cgroup.procs` of its cgroup, open for writing.
    pub(super) cgroup: Option<File>,
}

impl Placement {
    /// Moves the calling process there. Async-signal-safe: four system calls at most, no allocation.
    fn enter(&self) -> io::Result<()> {
        if let Some(cgroup) = &self.cgroup {
            // `0` is whoever writes it (cgroups(7)).
            write_once(cgroup.as_raw_fd(), b"0")?;
        }
        if let Some(net) = &self.net {
            setns(net.as_fd(), CloneFlags::CLONE_NEWNET)?;
        }
        if let Some(mnt) = &self.mnt {
            setns(mnt.as_fd(), CloneFlags::CLONE_NEWNS)?;
        }
        Ok(())
    }
}

fn write_once(fd: RawFd, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the pointer and length are those of a live slice; the descriptor is only used.
    let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
    Errno::result(written).map(drop).map_err(io::Error::from)
}

/// Starts a process in its place. It dies with this process, however that dies, and with the returned value.
pub(super) async fn spawn(command: Command, placement: Placement) -> io::Result<Child> {
    let mut command = command;
    let parent = getpid();
    // SAFETY: the closure makes system calls only, on descriptors that it owns.
    unsafe { command.pre_exec(move || enter_and_follow(&placement, parent)) };
    let (tell, told) = oneshot::channel();
    let job = Job {
        command,
        runtime: Handle::current(),
        tell,
    };
    spawner()
        .send(job)
        .map_err(|_| io::Error::other("the spawning thread is gone"))?;
    told.await
        .map_err(|_| io::Error::other("the spawning thread is gone"))?
}

fn enter_and_follow(placement: &Placement, parent: Pid) -> io::Result<()> {
    placement.enter()?;
    set_pdeathsig(Signal::SIGKILL)?;
    // The parent may have died before the line above: nobody would end this process then.
    if getppid() == parent {
        Ok(())
    } else {
        Err(Errno::ESRCH.into())
    }
}

struct Job {
    command: Command,
    runtime: Handle,
    tell: oneshot::Sender<io::Result<Child>>,
}

/// The thread that forks: a parent's death signal is sent when the *thread* that forked ends (prctl(2)), and the
/// threads of a runtime come and go. This one stays as long as the process.
fn spawner() -> &'static mpsc::Sender<Job> {
    static SPAWNER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    SPAWNER.get_or_init(|| {
        let (sender, jobs) = mpsc::channel::<Job>();
        thread::spawn(move || {
            for Job {
                command,
                runtime,
                tell,
            } in jobs
            {
                let _reactor = runtime.enter();
                let child = tokio::process::Command::from(command).kill_on_drop(true).spawn();
                // Whoever asked may be gone: the child goes with its value.
                drop(tell.send(child));
            }
        });
        sender
    })
}

/// A command line; `probe` and `plumbline` as its first word stand for these programs.
pub(super) fn program(plumbline: &Path, argv: &[String]) -> io::Result<Command> {
    let (program, arguments) = argv
        .split_first()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "its command line is empty"))?;
    let mut command = match program.as_str() {
        "plumbline" => Command::new(plumbline),
        "probe" => {
            let mut command = Command::new(plumbline);
            command.arg("probe");
            command
        }
        other => Command::new(other),
    };
    command.args(arguments);
    Ok(command)
}

/// Starts a process that leads a session of its own and does not die with this one.
pub(super) fn leader(mut command: Command) -> io::Result<Child> {
    // SAFETY: the closure makes one system call.
    unsafe { command.pre_exec(|| setsid().map(drop).map_err(io::Error::from)) };
    tokio::process::Command::from(command).spawn()
}

/// Becomes a program in its place: terminal, process id and exit code are the program's. Returns only if that
/// fails.
pub(super) fn become_program(mut command: Command, placement: Placement) -> io::Result<ExitCode> {
    // setns(2): a mount namespace can't be entered while the file system attributes are shared with other threads.
    unshare(CloneFlags::CLONE_FS)?;
    // SAFETY: as in `spawn`.
    unsafe { command.pre_exec(move || placement.enter()) };
    Err(command.exec())
}
