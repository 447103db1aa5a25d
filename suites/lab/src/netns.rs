//! Network namespaces that exist only as file descriptors of the supervisor.

use std::{
    fs::{self, File},
    io,
    net::{SocketAddr, TcpListener},
    os::fd::AsFd,
    thread,
};

use nix::{
    sched::{CloneFlags, setns, unshare},
    sys::socket::{Backlog, listen},
};
use tokio::runtime::Handle as Runtime;

use super::{LabError, error::io_error, links::Links};

/// Listen backlog; the kernel caps it at `net.core.somaxconn`, 4096 by default.
const WAITING: i32 = 4096;

/// Files below `/proc/sys/net` with their contents.
pub(crate) type Settings = Vec<(&'static str, &'static str)>;

/// A network namespace, which lives as long as this value, a process or a socket in it.
#[derive(Debug)]
pub struct NetNs {
    file: File,
}

impl NetNs {
    /// Creates a namespace with these settings below `/proc/sys/net`, and its loopback up. [`Links`] changes it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub async fn create(settings: &Settings) -> Result<(Self, Links), LabError> {
        let runtime = Runtime::current();
        let settings = settings.clone();
        // Namespaces are those of a thread, and a thread that has changed its own is not reused.
        let made = tokio::task::spawn_blocking(move || {
            thread::spawn(move || make(&settings, &runtime))
                .join()
                .unwrap_or_else(|_| {
                    Err(LabError::Host {
                        what: "make a network namespace".to_owned(),
                        why: "the thread panicked".to_owned(),
                        remedy: "See the supervisor's log",
                    })
                })
        });
        let (file, links) = made.await.map_err(|error| LabError::Host {
            what: "make a network namespace".to_owned(),
            why: error.to_string(),
            remedy: "See the supervisor's log",
        })??;
        links.up("lo").await?;
        Ok((Self { file }, links))
    }

    /// An existing namespace.
    pub fn of(file: File) -> Self {
        Self { file }
    }

    /// The namespace's file descriptor.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Runs an action in the namespace, on a thread of its own; sockets keep their namespace.
    ///
    /// # Errors
    /// The action's error; the namespace can't be entered.
    pub fn inside<T: Send>(&self, action: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                setns(self.file.as_fd(), CloneFlags::CLONE_NEWNET)?;
                action()
            });
            inside
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a thread in a network namespace panicked")))
        })
    }

    /// Links and routes of the namespace. Needs a runtime.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn links(&self) -> Result<Links, LabError> {
        let runtime = Runtime::current();
        let open = || {
            let _reactor = runtime.enter();
            Links::here().map_err(io::Error::other)
        };
        self.inside(open)
            .map_err(io_error("look into a network namespace"))
    }

    /// Listens on a socket in the namespace.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn listen(&self, address: SocketAddr) -> Result<TcpListener, LabError> {
        self.inside(|| TcpListener::bind(address).and_then(with_long_backlog))
            .map_err(io_error(format!("listen on {address}")))
    }
}

/// Increases the backlog: std's 128 overflows on a busy machine, and dropped SYNs would look like losses of the
/// datapath.
pub(crate) fn with_long_backlog(listener: TcpListener) -> io::Result<TcpListener> {
    listen(&listener, Backlog::new(WAITING)?)?;
    Ok(listener)
}

fn make(settings: &Settings, runtime: &Runtime) -> Result<(File, Links), LabError> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| LabError::Host {
        what: "make a network namespace".to_owned(),
        why: errno.to_string(),
        remedy: "Run as root; in a container: privileged",
    })?;
    for (name, value) in settings {
        // /proc/sys/net shows the namespace of the reading thread.
        let path = format!("/proc/sys/net/{name}");
        fs::write(&path, value).map_err(|error| LabError::Host {
            what: format!("set {path} to {value}"),
            why: error.to_string(),
            remedy: "In a container: run it privileged, so that /proc/sys is writable",
        })?;
    }
    let file = File::open("/proc/thread-self/ns/net").map_err(io_error("open a network namespace"))?;
    let _reactor = runtime.enter();
    Ok((file, Links::here()?))
}

#[cfg(test)]
mod tests {
    use std::{
        net::{Ipv4Addr, TcpStream},
        time::Duration,
    };

    use super::*;

    #[test]
    fn more_connections_wait_than_std_lets() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(with_long_backlog);
        let listener = listener.expect("a listener");
        let address = listener.local_addr().expect("its address");
        let connect = |_| TcpStream::connect_timeout(&address, Duration::from_secs(10));
        let waiting: Result<Vec<TcpStream>, _> = (0..200).map(connect).collect();
        assert_eq!(waiting.expect("all connect without being accepted").len(), 200);
    }
}
