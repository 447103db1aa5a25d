//! An agent whose writes to the kernel can fail, as they do where memory is short.
//!
//! ```text
//!  agent ─▶ bpf(2), socket(2), setsockopt(2) ─▶ filter of system calls ─▶ all but writes: the kernel
//!                                                    └─▶ a write ─▶ this process: go on, or ENOMEM
//! ```
//!
//! The filter asks by seccomp's user notification (seccomp_unotify(2), Linux 5.5 and later). A process can't get rid of
//! it, so the agent is started with it, and once more without it in the end. What it starts itself, such as nft, has it,
//! too.
#![expect(
    unsafe_code,
    reason = "seccomp(2) and the requests of its notification, which nix lacks"
)]

use std::{
    io,
    num::NonZeroU32,
    os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd},
    process::Command,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use cluster::spawn::{self, Placement};
use nix::{
    errno::Errno,
    libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use tokio::process::Child;

/// What the kernel says where it has no memory.
const ERROR: i32 = libc::ENOMEM;

/// The writes of one agent.
#[derive(Debug, Default)]
pub(super) struct KernelWrites {
    /// One of so many fails; 0: none.
    one_of: AtomicU32,
    failed: AtomicU64,
}

/// [`KernelWrites`] of an agent's next starts, if a case has asked for them.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch(Arc<Mutex<Option<Arc<KernelWrites>>>>);

impl Watch {
    pub(super) fn writes(&self) -> Option<Arc<KernelWrites>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set(&self, writes: Option<Arc<KernelWrites>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = writes;
    }
}

impl KernelWrites {
    /// Lets one of so many fail from now on; `None`: none. Returns how many have failed so far.
    pub(super) fn fail(&self, one_of: Option<NonZeroU32>) -> u64 {
        self.one_of
            .store(one_of.map_or(0, NonZeroU32::get), Ordering::SeqCst);
        self.failed.load(Ordering::SeqCst)
    }

    /// Starts the agent.
    pub(super) async fn spawn(self: Arc<Self>, command: Command, placement: Placement) -> io::Result<Child> {
        spawn::spawn_from_thread(command, placement, install, move |listener, ended| {
            if let Err(error) = self.answer(&listener, &ended) {
                tracing::error!(%error, "the writes of an agent are not answered any more, and it ends");
            }
        })
        .await
    }

    /// Answers for each write, until the agent has ended.
    fn answer(&self, listener: &OwnedFd, ended: &OwnedFd) -> io::Result<()> {
        loop {
            let mut ready = [listener, ended].map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN));
            match poll(&mut ready, PollTimeout::NONE) {
                Ok(_) => {}
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let [asked, has_ended] = ready.map(|fd| fd.any().unwrap_or(true));
            if has_ended {
                return Ok(());
            }
            if asked {
                self.answer_one(listener)?;
            }
        }
    }

    fn answer_one(&self, listener: &OwnedFd) -> io::Result<()> {
        // SAFETY: zeros are a value of it, as the kernel asks for.
        let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: a listener, and room for what it writes.
        let received = unsafe {
            libc::ioctl(
                listener.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_RECV,
                &raw mut asked,
            )
        };
        match Errno::result(received) {
            Ok(_) => {}
            // The caller has died, or got a signal and calls once more.
            Err(Errno::ENOENT | Errno::EINTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let one_of = self.one_of.load(Ordering::SeqCst);
        let fails = one_of > 0 && rand::random_ratio(1, one_of);
        let answer = libc::seccomp_notif_resp {
            id: asked.id,
            val: 0,
            error: if fails { -ERROR } else { 0 },
            flags: if fails { 0 } else { CONTINUE },
        };
        // SAFETY: a listener, and what it reads.
        let sent = unsafe {
            libc::ioctl(
                listener.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_SEND,
                &raw const answer,
            )
        };
        match Errno::result(sent) {
            Ok(_) => {
                self.failed.fetch_add(u64::from(fails), Ordering::SeqCst);
                Ok(())
            }
            Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`: the kernel does what it was asked for.
const CONTINUE: u32 = 1;

/// Installs the filter in the calling thread. Returns where it asks.
fn install() -> io::Result<OwnedFd> {
    let filter = filter();
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(io::Error::other)?,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: the filter outlives the call, which returns a new descriptor.
    let listener = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    let listener = Errno::result(listener)?;
    let listener = i32::try_from(listener).map_err(io::Error::other)?;
    // SAFETY: new, and owned by nothing else.
    Ok(unsafe { OwnedFd::from_raw_fd(listener) })
}

/// A kind of write: a system call and, by their places among its arguments, what these are one of.
type Write = (libc::c_long, &'static [(u32, &'static [i32])]);

/// Entries of maps are put or removed, one or several (`BPF_MAP_UPDATE_ELEM`, `…_DELETE_ELEM`, `…_UPDATE_BATCH`,
/// `…_DELETE_BATCH`); nfnetlink is opened, without which nft, iptables and conntrack write nothing; the older interface of
/// iptables is given its rules (`IPT_SO_SET_REPLACE`, and the same number for IPv6).
const WRITES: [Write; 3] = [
    (libc::SYS_bpf, &[(0, &[2, 3, 26, 27])]),
    (
        libc::SYS_socket,
        &[(0, &[libc::AF_NETLINK]), (2, &[libc::NETLINK_NETFILTER])],
    ),
    (
        libc::SYS_setsockopt,
        &[(1, &[libc::IPPROTO_IP, libc::IPPROTO_IPV6]), (2, &[64])],
    ),
];

/// The filter, in classic BPF: a write is asked for, all else goes on.
fn filter() -> Vec<libc::sock_filter> {
    let mut all = vec![
        load(ARCHITECTURE_AT),
        jump(ARCHITECTURE, 1, 0),
        give(libc::SECCOMP_RET_ALLOW),
    ];
    for (call, arguments) in WRITES {
        let mut rest = Vec::new();
        for (place, values) in arguments {
            rest.push(load(ARGUMENTS_AT + 8 * place));
            for (number, value) in values.iter().enumerate() {
                // Over the rest of them, and over what is given for none.
                rest.push(jump(value.cast_unsigned(), short(values.len() - number), 0));
            }
            rest.push(give(libc::SECCOMP_RET_ALLOW));
        }
        rest.push(give(libc::SECCOMP_RET_USER_NOTIF));
        let call = u32::try_from(call).unwrap_or(u32::MAX);
        all.extend([load(CALL_AT), jump(call, 0, short(rest.len()))]);
        all.extend(rest);
    }
    all.push(give(libc::SECCOMP_RET_ALLOW));
    all
}

/// Where `struct seccomp_data` has the call, the architecture, and the lower half of the first argument.
const CALL_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
const ARGUMENTS_AT: u32 = if cfg!(target_endian = "little") { 16 } else { 20 };

/// `AUDIT_ARCH_…` of `linux/audit.h`: the machine of ELF, with 64 bits, little-endian.
const ARCHITECTURE: u32 = 0xc000_0000 | if cfg!(target_arch = "x86_64") { 62 } else { 183 };

const fn load(at: u32) -> libc::sock_filter {
    // BPF_LD | BPF_W | BPF_ABS
    statement(0x20, 0, 0, at)
}

const fn jump(value: u32, same: u8, other: u8) -> libc::sock_filter {
    // BPF_JMP | BPF_JEQ | BPF_K
    statement(0x15, same, other, value)
}

const fn give(verdict: u32) -> libc::sock_filter {
    // BPF_RET | BPF_K
    statement(0x06, 0, 0, verdict)
}

const fn statement(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

fn short(statements: usize) -> u8 {
    u8::try_from(statements).unwrap_or(u8::MAX)
}
