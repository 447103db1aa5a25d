//! Stops a process before, or right after, the N-th system call that changes what outlives it, and kills it there.
//!
//! seccomp(2) stops the process at those calls only, ptrace(2) tells of it: the program is the unmodified one, and
//! between its steps it runs at full speed. What it writes to mapped memory lies between two calls; that it is killed
//! both before and after each makes a difference only there.

use std::{
    fs,
    io::Write as _,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use nix::{
    errno::Errno,
    libc,
    sys::{
        ptrace::{self, Options},
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// A kind of step: what it is called, its system call, and the argument that tells it from others of that call.
type Kind = (&'static str, libc::c_long, Option<(u8, u64)>);

/// An argument of bpf(2): its command, of `enum bpf_cmd`.
const fn command(number: u64) -> Option<(u8, u64)> {
    Some((0, number))
}

/// Every way in which the agent changes what outlives it. Reading, and making what goes with the process (maps,
/// programs, sockets), is no step.
const KINDS: &[Kind] = &[
    ("MAP_UPDATE_ELEM", libc::SYS_bpf, command(2)),
    ("MAP_DELETE_ELEM", libc::SYS_bpf, command(3)),
    ("OBJ_PIN", libc::SYS_bpf, command(6)),
    ("PROG_ATTACH", libc::SYS_bpf, command(8)),
    ("PROG_DETACH", libc::SYS_bpf, command(9)),
    ("MAP_LOOKUP_AND_DELETE_ELEM", libc::SYS_bpf, command(21)),
    ("MAP_FREEZE", libc::SYS_bpf, command(22)),
    ("MAP_LOOKUP_AND_DELETE_BATCH", libc::SYS_bpf, command(25)),
    ("MAP_UPDATE_BATCH", libc::SYS_bpf, command(26)),
    ("MAP_DELETE_BATCH", libc::SYS_bpf, command(27)),
    ("LINK_CREATE", libc::SYS_bpf, command(28)),
    ("LINK_UPDATE", libc::SYS_bpf, command(29)),
    ("LINK_DETACH", libc::SYS_bpf, command(34)),
    // Netlink, unless it only asks: without flags, in distinction from TCP's and UDP's, which have MSG_NOSIGNAL.
    ("sendto", libc::SYS_sendto, Some((3, 0))),
    ("mkdirat", libc::SYS_mkdirat, None),
    ("unlinkat", libc::SYS_unlinkat, None),
    ("renameat2", libc::SYS_renameat2, None),
    ("renameat", libc::SYS_renameat, None),
    #[cfg(target_arch = "x86_64")]
    ("mkdir", libc::SYS_mkdir, None),
    #[cfg(target_arch = "x86_64")]
    ("unlink", libc::SYS_unlink, None),
    #[cfg(target_arch = "x86_64")]
    ("rmdir", libc::SYS_rmdir, None),
    #[cfg(target_arch = "x86_64")]
    ("rename", libc::SYS_rename, None),
];

/// Where a process is killed. Steps are counted from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    /// The call is not made.
    Before(usize),
    /// The call has returned in the kernel, but not to the program.
    After(usize),
    /// Never: the steps are only written down.
    Never,
}

impl Moment {
    /// A moment of the same kind where there are this many steps.
    pub(crate) fn among(self, steps: usize) -> Self {
        let within = |step: usize| (step - 1) % steps.max(1) + 1;
        match self {
            Self::Before(step) => Self::Before(within(step)),
            Self::After(step) => Self::After(within(step)),
            Self::Never => Self::Never,
        }
    }
}

/// What became of a traced process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ended {
    /// The names of the steps that were counted, the last of them the one at which it was killed.
    pub(crate) steps: Vec<&'static str>,
    /// Whether the moment came.
    pub(crate) killed: bool,
}

/// A process that runs under the tracer.
pub(crate) struct Traced {
    /// Its process id.
    pub(crate) pid: Pid,
    counting: Arc<AtomicBool>,
    counted: Arc<AtomicUsize>,
    ended: mpsc::Receiver<Ended>,
    tracer: thread::JoinHandle<()>,
}

impl Traced {
    /// Starts a command that waits for a line on its stdin before it becomes the program. `counting`: from the
    /// beginning, not from [`count`](Self::count) on.
    pub(crate) fn start(command: Command, moment: Moment, counting: bool) -> Self {
        let counting = Arc::new(AtomicBool::new(counting));
        let counted = Arc::new(AtomicUsize::new(0));
        let (tell_pid, pid) = mpsc::channel();
        let (tell, ended) = mpsc::channel();
        // A tracer is a thread, and a filter is that of a thread and of the processes it starts.
        let tracer = {
            let tracer = Tracer {
                moment,
                counting: counting.clone(),
                counted: counted.clone(),
                steps: Vec::new(),
                killed: false,
            };
            thread::spawn(move || {
                let mut child = stoppable(command);
                let pid = Pid::from_raw(child.id().cast_signed());
                tell_pid.send(pid).expect("somebody waits for it");
                // The receiver may be gone.
                let _ = tell.send(tracer.follow(pid));
                // Reaped already, which std does not know.
                let _ = child.wait();
            })
        };
        Self {
            pid: pid.recv().expect("the program starts"),
            counting,
            counted,
            ended,
            tracer,
        }
    }

    /// Counts from now on.
    pub(crate) fn count(&self) {
        self.counting.store(true, Ordering::SeqCst);
    }

    /// How many steps were counted so far.
    pub(crate) fn counted(&self) -> usize {
        self.counted.load(Ordering::SeqCst)
    }

    /// Whether it has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.tracer.is_finished()
    }

    /// Ends it with a signal, if it has not ended yet, and says how it went.
    pub(crate) fn end(self, signal: Signal) -> Ended {
        if !self.is_over() {
            // It may end by itself just now; it is reaped by the tracer.
            let _ = kill(self.pid, signal);
        }
        let ended = self.ended.recv().expect("the tracer tells");
        self.tracer.join().expect("the tracer ends well");
        ended
    }
}

/// Starts the command under filters, seized, and lets it go on.
fn stoppable(mut command: Command) -> Child {
    for (number, kind) in KINDS.iter().enumerate() {
        seccompiler::apply_filter(&filter(number, kind)).expect("a filter");
    }
    let mut child = command.stdin(Stdio::piped()).spawn().expect("a process");
    let options = Options::PTRACE_O_TRACESECCOMP
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_EXITKILL;
    ptrace::seize(Pid::from_raw(child.id().cast_signed()), options).expect("seized");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(b"go\n").expect("it reads");
    child
}

/// Stops with the number of the kind. The kernel takes the strictest answer of all filters.
fn filter(number: usize, (_, call, argument): &Kind) -> BpfProgram {
    let rules = argument.map(|(index, value)| {
        let same = SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value);
        SeccompRule::new(vec![same.expect("an argument")]).expect("a rule")
    });
    SeccompFilter::new(
        [(*call, rules.into_iter().collect())].into(),
        SeccompAction::Allow,
        SeccompAction::Trace(u32::try_from(number).expect("few")),
        std::env::consts::ARCH.try_into().expect("a known architecture"),
    )
    .and_then(BpfProgram::try_from)
    .expect("a filter")
}

struct Tracer {
    moment: Moment,
    counting: Arc<AtomicBool>,
    counted: Arc<AtomicUsize>,
    steps: Vec<&'static str>,
    killed: bool,
}

impl Tracer {
    /// Until the process and all of its threads are gone.
    fn follow(mut self, process: Pid) -> Ended {
        // Only what this thread traces.
        let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        loop {
            let status = match waitpid(None, Some(flags)) {
                Err(Errno::ECHILD) => break,
                Err(Errno::EINTR) => continue,
                status => status.expect("children are waited for"),
            };
            match status {
                WaitStatus::PtraceEvent(thread, _, libc::PTRACE_EVENT_SECCOMP) => {
                    self.stopped(process, thread);
                }
                // The step was made.
                WaitStatus::PtraceSyscall(thread) => {
                    self.kill(process);
                    resume(ptrace::cont(thread, None));
                }
                WaitStatus::PtraceEvent(thread, ..) => resume(ptrace::cont(thread, None)),
                WaitStatus::Stopped(thread, signal) => resume(ptrace::cont(thread, signal)),
                _ => {}
            }
        }
        Ended {
            steps: self.steps,
            killed: self.killed,
        }
    }

    fn stopped(&mut self, process: Pid, thread: Pid) {
        if !self.killed && self.counting.load(Ordering::SeqCst) {
            let kind = ptrace::getevent(thread).ok();
            let kind = kind.and_then(|number| KINDS.get(usize::try_from(number).ok()?));
            if kind.is_some_and(|(name, ..)| *name == "sendto") && only_asks(thread).unwrap_or(false) {
                return resume(ptrace::cont(thread, None));
            }
            self.steps.push(kind.map_or("(gone)", |(name, ..)| name));
            let step = self.steps.len();
            self.counted.store(step, Ordering::SeqCst);
            if self.moment == Moment::Before(step) {
                self.kill(process);
            } else if self.moment == Moment::After(step) {
                return resume(ptrace::syscall(thread, None));
            }
        }
        resume(ptrace::cont(thread, None));
    }

    fn kill(&mut self, process: Pid) {
        self.killed = true;
        kill(process, Signal::SIGKILL).expect("a process that is not reaped can be killed");
    }
}

/// Whether what a stopped thread sends to rtnetlink is a question: types come in fours, the third of them asks
/// (rtnetlink(7)).
fn only_asks(thread: Pid) -> Option<bool> {
    // proc_pid_syscall(5): the call's number, then its arguments; the message is the second.
    let call = fs::read_to_string(format!("/proc/{thread}/syscall")).ok()?;
    let message = call.split(' ').nth(2)?.strip_prefix("0x")?;
    let message = usize::from_str_radix(message, 16).ok()?;
    // netlink(7): four octets of length, two of type.
    let header = ptrace::read(thread, message as ptrace::AddressType).ok()?;
    let [_, _, _, _, low, high, ..] = header.to_ne_bytes();
    Some(u16::from_ne_bytes([low, high]) % 4 == 2)
}

/// A thread that was killed meanwhile can't be resumed.
fn resume(result: nix::Result<()>) {
    assert!(
        matches!(result, Ok(()) | Err(Errno::ESRCH)),
        "a stopped thread goes on: {result:?}"
    );
}
