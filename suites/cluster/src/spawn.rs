//! How a process gets to its place: in the namespaces and the cgroup of a node or a pod.
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
    process::{Command, ExitCode, Stdio},
    sync::{OnceLock, mpsc},
    thread,
};

use nix::{
    errno::Errno,
    fcntl::OFlag,
    libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sched::{CloneFlags, setns, unshare},
    sys::{
        prctl::set_pdeathsig,
        signal::{Signal, raise},
        wait::{WaitStatus, waitpid},
    },
    unistd::{ForkResult, Pid, fork, getpid, getppid, pipe2, setsid},
};
use tokio::{process::Child, runtime::Handle, sync::oneshot};

/// A program and where it is to be started: what [`spawn`] takes.
#[derive(Debug)]
pub struct Placed {
    /// What is started on this machine: the program itself, or what bridges its pipes and ends it when it is killed.
    pub command: Command,
    /// Where.
    pub placement: Placement,
}

/// Where a process runs: whatever is `None` stays the starter's.
#[derive(Debug, Default)]
pub struct Placement {
    /// Network namespace.
    pub net: Option<File>,
    /// Mount namespace; the working directory becomes its root.
    pub mnt: Option<File>,
    /// PID namespace, for whoever looks at `/proc/self` in that mount namespace. The starter then sees a process that waits
    /// for the program, ends it when it is killed, and ends as it does.
    pub pid: Option<File>,
    /// Cgroup namespace.
    pub cgroups: Option<File>,
    /// `cgroup.procs` of its cgroup, open for writing.
    pub cgroup: Option<File>,
}

impl Placement {
    /// Moves the calling process there, but for the PID and mount namespaces. Async-signal-safe: three system calls at most,
    /// no allocation.
    fn enter(&self) -> io::Result<()> {
        if let Some(cgroup) = &self.cgroup {
            // `0` is whoever writes it (cgroups(7)).
            write_once(cgroup.as_raw_fd(), b"0")?;
        }
        if let Some(net) = &self.net {
            setns(net.as_fd(), CloneFlags::CLONE_NEWNET)?;
        }
        if let Some(cgroups) = &self.cgroups {
            setns(cgroups.as_fd(), CloneFlags::CLONE_NEWCGROUP)?;
        }
        Ok(())
    }

    /// Moves it into the mount namespace: last, as what else it needs may not be seen there.
    fn enter_mounts(&self) -> io::Result<()> {
        match &self.mnt {
            Some(mnt) => Ok(setns(mnt.as_fd(), CloneFlags::CLONE_NEWNS)?),
            None => Ok(()),
        }
    }
}

fn write_once(fd: RawFd, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the pointer and length are those of a live slice; the descriptor is only used.
    let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
    Errno::result(written).map(drop).map_err(io::Error::from)
}

/// Starts a program with pipes for stdin, stdout and stderr, in a process group of its own: Ctrl-C is for whoever started it, who
/// ends it in an order of their own. Dropping the value kills it.
///
/// # Errors
/// As of [`spawn`].
pub async fn piped(placed: Placed) -> io::Result<Child> {
    let Placed {
        mut command,
        placement,
    } = placed;
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    spawn(command, placement).await
}

/// Starts a process in its place. It dies with this process, however that dies, and with the returned value.
///
/// # Errors
/// The kernel refuses; there is no such program.
pub async fn spawn(command: Command, placement: Placement) -> io::Result<Child> {
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
    if getppid() != parent {
        return Err(Errno::ESRCH.into());
    }
    if let Some(pid) = &placement.pid {
        enter_processes(pid)?;
    }
    placement.enter_mounts()
}

/// Goes on in a PID namespace, which only a new process can; the calling one becomes its waiter. Async-signal-safe.
fn enter_processes(namespace: &File) -> io::Result<()> {
    setns(namespace.as_fd(), CloneFlags::CLONE_NEWPID)?;
    let (waiter_lives, of_waiter) = pipe2(OFlag::O_CLOEXEC)?;
    // SAFETY: the process has one thread, and neither of the two goes on to allocate.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => wait_as(child, of_waiter.as_raw_fd()),
        ForkResult::Child => {
            set_pdeathsig(Signal::SIGKILL)?;
            drop(of_waiter);
            // As above; a parent outside of the namespace has no number here, but what it holds open ends with it.
            let mut end = [PollFd::new(waiter_lives.as_fd(), PollFlags::empty())];
            match poll(&mut end, PollTimeout::ZERO)? {
                0 => Ok(()),
                _ => Err(Errno::ESRCH.into()),
            }
        }
    }
}

/// Waits for a process, and ends as it does. Nothing is held open meanwhile but `kept`: whoever reads what the process writes
/// sees its end, not this one's.
fn wait_as(child: Pid, kept: RawFd) -> ! {
    let kept = u32::try_from(kept).unwrap_or_default();
    let beside = [(0, kept.checked_sub(1)), (kept.saturating_add(1), Some(u32::MAX))];
    for (first, last) in beside {
        if let Some(last) = last {
            // SAFETY: this process uses none of its descriptors any more. An old kernel without the call keeps them open.
            let _ = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    }
    let code = loop {
        match waitpid(child, None) {
            Ok(WaitStatus::Exited(_, code)) => break code,
            Ok(WaitStatus::Signaled(_, signal, _)) => {
                // A signal that is not deadly here has the code that shells give it.
                let _ = raise(signal);
                break 128_i32.saturating_add(signal as i32);
            }
            Err(Errno::EINTR) | Ok(_) => {}
            Err(_) => break 255,
        }
    };
    // SAFETY: it ends the process.
    unsafe { libc::_exit(code) }
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
///
/// # Errors
/// It is empty.
pub fn program(plumbline: &Path, argv: &[String]) -> io::Result<Command> {
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
///
/// # Errors
/// The kernel refuses; there is no such program.
pub fn leader(mut command: Command) -> io::Result<Child> {
    // SAFETY: the closure makes one system call.
    unsafe { command.pre_exec(|| setsid().map(drop).map_err(io::Error::from)) };
    tokio::process::Command::from(command).spawn()
}

/// Becomes a program in its place: terminal, process id and exit code are the program's. Returns only if that
/// fails.
///
/// # Errors
/// The kernel refuses; there is no such program.
pub fn become_program(mut command: Command, placement: Placement) -> io::Result<ExitCode> {
    // setns(2): a mount namespace can't be entered while the file system attributes are shared with other threads.
    unshare(CloneFlags::CLONE_FS)?;
    // SAFETY: as in `spawn`.
    unsafe { command.pre_exec(move || placement.enter().and_then(|()| placement.enter_mounts())) };
    Err(command.exec())
}
