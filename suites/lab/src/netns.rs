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

/// Connections that may wait to be accepted; the kernel takes `net.core.somaxconn`, 4096, if that is less.
const WAITING: i32 = 4096;

/// Files below `/proc/sys/net` and what is written into each.
pub(crate) type Settings = Vec<(&'static str, &'static str)>;

/// A network namespace; it lives as long as this value, a process or a socket in it.
#[derive(Debug)]
pub struct NetNs {
    file: File,
}

impl NetNs {
    /// Makes one with these settings below `/proc/sys/net`, and its loopback up. [`Links`] acts in it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub async fn create(settings: &Settings) -> Result<(Self, Links), LabError> {
        let runtime = Runtime::current();
        let settings = settings.clone();
        // A thread's namespace is its own, and a thread that has changed it is used for nothing else.
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

    /// One that is there.
    pub fn of(file: File) -> Self {
        Self { file }
    }

    /// The descriptor that stands for it.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Does something inside it, on a thread of its own; sockets made there stay there.
    ///
    /// # Errors
    /// That of the action; the namespace can't be entered.
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

    /// Its links and routes. Needs a runtime.
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

    /// A listening socket inside it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn listen(&self, address: SocketAddr) -> Result<TcpListener, LabError> {
        self.inside(|| TcpListener::bind(address).and_then(roomy))
            .map_err(io_error(format!("listen on {address}")))
    }
}

/// Lets many connections wait to be accepted: std's own 128 overflow when the machine is busy, and then connections are silent
/// that no datapath has lost.
pub(crate) fn roomy(listener: TcpListener) -> io::Result<TcpListener> {
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
        // /proc/sys/net shows the namespace of the thread that looks.
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
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(roomy);
        let listener = listener.expect("a listener");
        let address = listener.local_addr().expect("its address");
        let connect = |_| TcpStream::connect_timeout(&address, Duration::from_secs(10));
        let waiting: Result<Vec<TcpStream>, _> = (0..200).map(connect).collect();
        assert_eq!(waiting.expect("nobody accepts, and all are connected").len(), 200);
    }
}
