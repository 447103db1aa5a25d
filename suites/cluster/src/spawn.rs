//! Starts a process in the namespaces and the cgroup of a node or a pod.
//!
//! The child places itself between fork and exec, where only async-signal-safe calls are allowed: its descriptors are
//! opened before.
#![expect(
    unsafe_code,
    reason = "pre_exec: a process enters its namespaces and cgroup before it runs its program"
)]

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
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

/// A program and its placement: the argument of [`spawn`].
#[derive(Debug)]
pub struct Placed {
    /// The command on this machine: the program itself, or a bridge of its pipes that ends it when the bridge is
    /// killed.
    pub command: Command,
    /// Namespaces and cgroup of the process.
    pub placement: Placement,
}

/// Where a process runs: a field that is `None` keeps the parent's.
#[derive(Debug, Default)]
pub struct Placement {
    /// Network namespace.
    pub net: Option<File>,
    /// Mount namespace; the working directory becomes its root.
    pub mnt: Option<File>,
    /// PID namespace, which `/proc/self` in that mount namespace needs. The parent then has a waiter as its child,
    /// which ends the program when it is killed, and exits with the program's status.
    pub pid: Option<File>,
    /// Cgroup namespace.
    pub cgroups: Option<File>,
    /// `cgroup.procs` of its cgroup, open for writing.
    pub cgroup: Option<File>,
}

impl Placement {
    /// Moves the calling process, except into the PID and mount namespaces. Async-signal-safe: at most three system
    /// calls, no allocation.
    fn enter(&self) -> io::Result<()> {
        if let Some(cgroup) = &self.cgroup {
            // `0` is the writing process (cgroups(7)).
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

    /// Enters the mount namespace. This comes last, as the other files may not be visible there.
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

/// Starts a program with pipes for stdin, stdout and stderr, in a process group of its own: Ctrl-C reaches only this
/// process, which ends its children in order. Dropping the value kills the program.
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

/// Starts a process in its place. It dies with this process, in any case, and with the returned value.
///
/// # Errors
/// The kernel refuses; the program does not exist.
pub async fn spawn(command: Command, placement: Placement) -> io::Result<Child> {
    let mut command = command;
    let parent = getpid();
    // SAFETY: the closure makes system calls only, on descriptors that it owns.
    unsafe { command.pre_exec(move || enter_and_follow(&placement, parent)) };
    let (result_sender, result) = oneshot::channel();
    let job = Job {
        command,
        runtime: Handle::current(),
        result_sender,
    };
    spawner()
        .send(job)
        .map_err(|_| io::Error::other("the spawning thread is gone"))?;
    result
        .await
        .map_err(|_| io::Error::other("the spawning thread is gone"))?
}

/// As [`spawn`], from a thread of its own: `before` prepares the thread, of which the program inherits what it does to it.
/// Then `meanwhile` runs there, and is given what can be read from once the program has ended (pidfd_open(2)). The program
/// ends when it returns.
///
/// # Errors
/// As of [`spawn`]; `before` fails.
pub async fn spawn_from_thread<T>(
    command: Command,
    placement: Placement,
    before: impl FnOnce() -> io::Result<T> + Send + 'static,
    meanwhile: impl FnOnce(T, OwnedFd) + Send + 'static,
) -> io::Result<Child> {
    let mut command = command;
    let parent = getpid();
    // SAFETY: as in `spawn`.
    unsafe { command.pre_exec(move || enter_and_follow(&placement, parent)) };
    let runtime = Handle::current();
    let (result_sender, result) = oneshot::channel();
    thread::spawn(move || {
        let started = before().and_then(|prepared| {
            let _reactor = runtime.enter();
            let child = tokio::process::Command::from(command)
                .kill_on_drop(true)
                .spawn()?;
            let ended = end_of(&child)?;
            Ok((child, prepared, ended))
        });
        match started {
            Ok((child, prepared, ended)) => {
                drop(result_sender.send(Ok(child)));
                meanwhile(prepared, ended);
            }
            Err(error) => drop(result_sender.send(Err(error))),
        }
    });
    result
        .await
        .map_err(|_| io::Error::other("the spawning thread is gone"))?
}

/// What can be read from once a process has ended.
fn end_of(child: &Child) -> io::Result<OwnedFd> {
    let id = child.id().ok_or_else(|| io::Error::from(Errno::ESRCH))?;
    // SAFETY: no addresses; returns a new descriptor.
    let end = unsafe { libc::syscall(libc::SYS_pidfd_open, id, 0) };
    let end = RawFd::try_from(Errno::result(end)?).map_err(io::Error::other)?;
    // SAFETY: new, and owned by nothing else.
    Ok(unsafe { OwnedFd::from_raw_fd(end) })
}

fn enter_and_follow(placement: &Placement, parent: Pid) -> io::Result<()> {
    placement.enter()?;
    set_pdeathsig(Signal::SIGKILL)?;
    // If the parent died before the line above, no signal would end this process.
    if getppid() != parent {
        return Err(Errno::ESRCH.into());
    }
    if let Some(pid) = &placement.pid {
        enter_processes(pid)?;
    }
    placement.enter_mounts()
}

/// Enters a PID namespace, which only a new process can; the calling process becomes its waiter. Async-signal-safe.
fn enter_processes(namespace: &File) -> io::Result<()> {
    setns(namespace.as_fd(), CloneFlags::CLONE_NEWPID)?;
    let (waiter_lives, of_waiter) = pipe2(OFlag::O_CLOEXEC)?;
    // SAFETY: the process has one thread, and neither of the two goes on to allocate.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => wait_as(child, of_waiter.as_raw_fd()),
        ForkResult::Child => {
            set_pdeathsig(Signal::SIGKILL)?;
            drop(of_waiter);
            // As above; a parent outside of the namespace has no number here, but its end closes the pipe.
            let mut end = [PollFd::new(waiter_lives.as_fd(), PollFlags::empty())];
            match poll(&mut end, PollTimeout::ZERO)? {
                0 => Ok(()),
                _ => Err(Errno::ESRCH.into()),
            }
        }
    }
}

/// Waits for a process, and exits with its status. Only `kept` stays open meanwhile, so that readers of the program's
/// output see the end of the program and not of the waiter.
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
                // A signal that does not end this process: exit with the code that shells use.
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
    result_sender: oneshot::Sender<io::Result<Child>>,
}

/// The thread that forks. The parent death signal is sent when the *thread* that forked ends (prctl(2)), and the
/// threads of a runtime come and go; this one stays as long as the process.
fn spawner() -> &'static mpsc::Sender<Job> {
    static SPAWNER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    SPAWNER.get_or_init(|| {
        let (sender, jobs) = mpsc::channel::<Job>();
        thread::spawn(move || {
            for Job {
                command,
                runtime,
                result_sender,
            } in jobs
            {
                let _reactor = runtime.enter();
                let child = tokio::process::Command::from(command).kill_on_drop(true).spawn();
                // If the caller is gone, dropping the value kills the child.
                drop(result_sender.send(child));
            }
        });
        sender
    })
}

/// A command line; `probe` and `plumbline` as its first word stand for the project's program.
///
/// # Errors
/// The command line is empty.
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

/// Starts a process in a session of its own that survives this one.
///
/// # Errors
/// The kernel refuses; the program does not exist.
pub fn leader(mut command: Command) -> io::Result<Child> {
    // SAFETY: the closure makes one system call.
    unsafe { command.pre_exec(|| setsid().map(drop).map_err(io::Error::from)) };
    tokio::process::Command::from(command).spawn()
}

/// Replaces this process by a program in its place, with its terminal and process id. Returns only if that fails.
///
/// # Errors
/// The kernel refuses; the program does not exist.
pub fn become_program(mut command: Command, placement: Placement) -> io::Result<ExitCode> {
    // setns(2): a mount namespace can't be entered while threads share file system attributes.
    unshare(CloneFlags::CLONE_FS)?;
    // SAFETY: as in `spawn`.
    unsafe { command.pre_exec(move || placement.enter().and_then(|()| placement.enter_mounts())) };
    Err(command.exec())
}
