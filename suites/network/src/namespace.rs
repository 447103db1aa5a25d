//! Namespaces and their settings.

use std::{
    fs::{self, File},
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::PathBuf,
    sync::mpsc::{self, Sender},
    thread,
};

use nix::sched::{CloneFlags, setns, unshare};

use crate::{device::Device, error::NetworkError, links::Links};

/// Every namespace's, written below /proc/sys/net before it has devices. A new namespace inherits some from the host's
/// (`net.core.devconf_inherit_init_net`), so those that matter are written.
const SETTINGS: [(&str, &str); 8] = [
    ("ipv4/ip_forward", "1"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv6/conf/default/disable_ipv6", "0"),
    ("ipv6/conf/all/forwarding", "1"),
    // No duplicate address detection, and no address from a router.
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
    ("ipv4/ip_local_port_range", "32768 60999"),
];

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace with a thread in it, which ends with the value. The namespace ends with its last thread and
/// socket.
#[derive(Debug)]
pub struct Namespace {
    jobs: Sender<Job>,
    file: File,
}

impl Namespace {
    /// Makes a namespace that is [prepared](prepare).
    ///
    /// # Errors
    /// [`NetworkError`]
    pub fn create() -> Result<Self, NetworkError> {
        let (jobs, received) = mpsc::channel::<Job>();
        let (answer, answered) = mpsc::channel();
        thread::spawn(move || {
            if answer.send(isolate()).is_ok() {
                received.iter().for_each(|job| job());
            }
        });
        let file = answered.recv().expect("the new thread has not panicked")?;
        Ok(Self { jobs, file })
    }

    /// Runs a job on the namespace's thread. Threads and processes that it starts are in the namespace, too.
    ///
    /// # Panics
    /// As the job.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (answer, answered) = mpsc::channel();
        let job = move || {
            // The receiver is gone if the calling thread was unwound.
            let _ = answer.send(catch_unwind(AssertUnwindSafe(job)));
        };
        self.jobs
            .send(Box::new(job))
            .expect("the thread lives as long as the value");
        let result = answered.recv().expect("every job answers");
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Devices, addresses and routes of the namespace.
    ///
    /// # Errors
    /// [`NetworkError::Netlink`]
    pub fn links(&self) -> Result<Links, NetworkError> {
        Links::inside(&self.file)
    }

    /// An end of a veth pair that is to be in this namespace.
    #[must_use]
    pub fn device<'a>(&'a self, name: &'a str) -> Device<'a> {
        Device::inside(&self.file, name)
    }

    /// The namespace's file, for setns(2).
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }
}

/// Until this is dropped, the calling thread is in a network namespace of its own, which is [prepared](prepare).
#[derive(Debug)]
pub struct EnteredNamespace {
    back: File,
    /// A thread's namespace is its own.
    _thread: PhantomData<*const ()>,
}

impl EnteredNamespace {
    /// Makes the namespace and enters it.
    ///
    /// # Errors
    /// [`NetworkError`]; the thread is then where it was.
    pub fn enter() -> Result<Self, NetworkError> {
        let entered = Self {
            back: current_namespace()?,
            _thread: PhantomData,
        };
        isolate()?;
        Ok(entered)
    }
}

impl Drop for EnteredNamespace {
    fn drop(&mut self) {
        if let Err(errno) = setns(&self.back, CloneFlags::CLONE_NEWNET) {
            eprintln!("failed to leave a network namespace: {errno}");
        }
    }
}

/// Moves the calling thread to a new namespace.
fn isolate() -> Result<File, NetworkError> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| NetworkError::Namespace(errno.into()))?;
    prepare()?;
    current_namespace()
}

/// The calling thread's network namespace.
///
/// # Errors
/// [`NetworkError::Namespace`]
pub fn current_namespace() -> Result<File, NetworkError> {
    File::open("/proc/thread-self/ns/net").map_err(NetworkError::Namespace)
}

/// Prepares the calling thread's namespace: it forwards, does not filter by source addresses, has IPv6, and its
/// loopback device is up. It is no error to prepare it again.
///
/// # Errors
/// [`NetworkError`]
pub fn prepare() -> Result<(), NetworkError> {
    for (name, value) in SETTINGS {
        set_sysctl(name, value)?;
    }
    Links::here()?.up("lo")
}

/// Writes a setting below /proc/sys/net, which shows the calling thread's namespace.
///
/// # Errors
/// [`NetworkError::Setting`]
pub fn set_sysctl(name: &str, value: &str) -> Result<(), NetworkError> {
    let path = PathBuf::from("/proc/sys/net").join(name);
    fs::write(&path, value).map_err(|source| NetworkError::Setting {
        path,
        value: value.to_owned(),
        source,
    })
}
