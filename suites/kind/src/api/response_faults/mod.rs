//! Response faults of kind's API servers: in the balancer in front of them, which otherwise forwards connections
//! unchanged.
//!
//! ```text
//!  keeper ─ order: keys, clients, fault ─▶ SOCKET in the balancer's container ─▶ Answers ─▶ a Proxy for each server
//! ```
//!
//! A fault lasts as long as its connection to the socket, and no longer than its time limit. The end of the keeper
//! closes its connection, and the end of the balancer ends all faults. Keys are sent with the order, and are stored
//! nowhere in the container.
//!
//! Direct connections are closed when the first fault begins, as by a restarted balancer: the balancer can't decrypt
//! them. Later ones pass through the proxies, also beyond the end of the last fault. So the client of a watch that
//! has lost an event notices a closed connection.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fs, io,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cluster::{Clients, Fault};
use lab::{LIMITS, Proxies, Through};
use lab_apiserver::{
    Keys, Proxy,
    faults::{FaultGuard, MOST_ACTIVE},
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixListener, UnixStream},
    sync::{RwLock, Semaphore, watch},
    time::{sleep, timeout},
};

use super::{Server, second_server};
use crate::{KindError, error::io_error};

/// The balancer's socket for orders, in its container.
const SOCKET: &str = "/faults.sock";

/// A fault to begin. It contains keys, so it has no `Debug`.
#[derive(Serialize, Deserialize)]
struct BalancerOrder {
    /// Keys of every server of the cluster.
    keys: BTreeMap<SocketAddr, Keys>,
    /// The faulty servers.
    servers: Vec<SocketAddr>,
    clients: Clients,
    fault: Fault,
    lasts: Duration,
}

/// Responses of the balancer, a line each.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Reply {
    Begun,
    Refused(String),
    Over,
}

/// Response faults of a balancer.
#[derive(Default)]
pub(super) struct Answers {
    /// The proxies while faults are active; connections pass through them.
    through: watch::Sender<Option<Arc<Proxies>>>,
    /// Read-locked by direct connections.
    plain: Arc<RwLock<()>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The proxies, which may have open connections when no fault is active any more.
    proxies: Option<Arc<Proxies>>,
    held: usize,
}

/// Active faults, which end with this value.
struct InForce {
    answers: Arc<Answers>,
    _guards: Vec<FaultGuard>,
}

impl Drop for InForce {
    fn drop(&mut self) {
        let mut state = self.answers.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.held -= 1;
        if state.held == 0 {
            self.answers.through.send_replace(None);
        }
    }
}

impl Answers {
    /// Proxies for connections while a fault is active.
    pub(super) fn through(&self) -> Through {
        Through {
            now: self.through.subscribe(),
            plain: Arc::clone(&self.plain),
        }
    }

    fn begin(self: Arc<Self>, order: &BalancerOrder) -> Result<InForce, String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let proxies = match &state.proxies {
            Some(proxies) => Arc::clone(proxies),
            None => {
                let made = order.keys.iter().map(|(server, keys)| {
                    let proxy = Proxy::new(keys).map_err(|error| format!("{server}: {error}"))?;
                    Ok((*server, proxy))
                });
                Arc::new(made.collect::<Result<Proxies, String>>()?)
            }
        };
        let begin = |server: &SocketAddr| {
            let proxy = proxies
                .get(server)
                .ok_or_else(|| format!("found no keys of {server}"))?;
            let begun = proxy.begin(order.clients.clone(), order.fault.clone());
            begun.map_err(|error| error.to_string())
        };
        let guards = order.servers.iter().map(begin).collect::<Result<_, String>>()?;
        state.proxies = Some(Arc::clone(&proxies));
        state.held += 1;
        self.through.send_if_modified(|through| {
            let is_first = through.is_none();
            *through = Some(proxies);
            is_first
        });
        drop(state);
        Ok(InForce {
            answers: self,
            _guards: guards,
        })
    }

    /// Serves orders forever.
    ///
    /// # Errors
    /// The socket can't be created.
    pub(super) fn listen(
        self: Arc<Self>,
        socket: &Path,
    ) -> io::Result<impl Future<Output = ()> + Send + use<>> {
        // The socket of the previous process, if the container has restarted.
        match fs::remove_file(socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(socket)?;
        fs::set_permissions(socket, fs::Permissions::from_mode(0o600))?;
        Ok(async move {
            let room = Arc::new(Semaphore::new(MOST_ACTIVE));
            loop {
                // The semaphore is never closed.
                let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
                    return;
                };
                let stream = match listener.accept().await {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        tracing::warn!(%error, "the balancer could not take an order");
                        sleep(LIMITS.api_retry).await;
                        continue;
                    }
                };
                let answers = Arc::clone(&self);
                tokio::spawn(async move {
                    if let Err(error) = answers.keep(stream).await {
                        tracing::debug!(%error, "the user of a fault is gone");
                    }
                    drop(permit);
                });
            }
        })
    }

    async fn keep(self: Arc<Self>, stream: UnixStream) -> io::Result<()> {
        let mut stream = BufReader::new(stream);
        let line = timeout(LIMITS.control, line(&mut stream)).await??;
        let begun = match serde_json::from_slice::<BalancerOrder>(&line) {
            Ok(order) => {
                let (lasts, name) = (order.lasts, format!("{:?} for {:?}", order.fault, order.clients));
                Arc::clone(&self).begin(&order).map(|begun| (begun, lasts, name))
            }
            // The error leaves the order out, as that contains keys.
            Err(error) => Err(format!(
                "an order that can't be read, at column {}",
                error.column()
            )),
        };
        let (begun, lasts, name) = match begun {
            Ok(begun) => begun,
            Err(why) => return send(&mut stream, &Reply::Refused(why)).await,
        };
        // Until all direct connections are closed.
        drop(timeout(LIMITS.control, self.plain.write()).await);
        tracing::info!(fault = name, "a fault begins");
        let reply = send(&mut stream, &Reply::Begun).await;
        if reply.is_ok() {
            // Returns at the end of the connection, or of the time.
            drop(timeout(lasts, self::line(&mut stream)).await);
        }
        drop(begun);
        tracing::info!(fault = name, "the fault is over");
        send(&mut stream, &Reply::Over).await
    }
}

async fn line(stream: &mut BufReader<UnixStream>) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut limited = stream.take(LIMITS.control_bytes);
    limited.read_until(b'\n', &mut line).await?;
    Ok(line)
}

async fn send(stream: &mut BufReader<UnixStream>, reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    stream.write_all(&line).await
}

/// The balancer's socket, in its container.
pub(super) fn socket() -> &'static Path {
    Path::new(SOCKET)
}

/// A fault that a balancer keeps active as long as this lives.
pub(super) struct BalancerFault(BufReader<UnixStream>);

impl BalancerFault {
    /// Begins a fault in a balancer whose process this host knows as `process`. The fault is active when this
    /// returns.
    pub(super) async fn begin(
        process: u32,
        all: &[Server],
        servers: &[&Server],
        (clients, fault): (&Clients, &Fault),
        lasts: Duration,
    ) -> Result<Self, KindError> {
        let keys = all
            .iter()
            .map(|server| Ok((server.address, second_server::keys(server)?)));
        let order = BalancerOrder {
            keys: keys.collect::<Result<_, KindError>>()?,
            servers: servers.iter().map(|server| server.address).collect(),
            clients: clients.clone(),
            fault: fault.clone(),
            lasts,
        };
        let socket = PathBuf::from(format!("/proc/{process}/root{SOCKET}"));
        Self::ask(&socket, &order).await
    }

    async fn ask(socket: &Path, order: &BalancerOrder) -> Result<Self, KindError> {
        let what = "have the balancer begin a fault";
        let stream = UnixStream::connect(socket).await.map_err(io_error(format!(
            "{what}: expected that it takes orders; one of an earlier program doesn't, so make the cluster anew"
        )))?;
        let mut kept = Self(BufReader::new(stream));
        let mut text = serde_json::to_vec(order).map_err(|error| unexpected(what, error.to_string()))?;
        text.push(b'\n');
        kept.0.write_all(&text).await.map_err(io_error(what))?;
        match kept.reply(what).await? {
            Reply::Begun => Ok(kept),
            Reply::Refused(why) => Err(unexpected(what, why)),
            Reply::Over => Err(unexpected(what, "it was over before it began".to_owned())),
        }
    }

    /// Ends the fault; it is over when this returns.
    pub(super) async fn end(mut self) -> Result<(), KindError> {
        let what = "have the balancer end a fault";
        // A fault whose time is over has already sent its end.
        drop(self.0.write_all(b"\n").await);
        match self.reply(what).await? {
            Reply::Over => Ok(()),
            Reply::Refused(why) => Err(unexpected(what, why)),
            Reply::Begun => Err(unexpected(what, "it has begun once more".to_owned())),
        }
    }

    async fn reply(&mut self, what: &str) -> Result<Reply, KindError> {
        let reply = timeout(LIMITS.control, line(&mut self.0)).await;
        let reply = reply.map_err(|_| unexpected(what, format!("no answer within {:?}", LIMITS.control)))?;
        let reply = reply.map_err(io_error(what))?;
        if reply.is_empty() {
            return Err(unexpected(
                what,
                "it is gone, and the fault with it: `docker logs` says why".to_owned(),
            ));
        }
        serde_json::from_slice(&reply).map_err(|error| unexpected(what, error.to_string()))
    }
}

fn unexpected(what: &str, why: String) -> KindError {
    KindError::Unexpected {
        what: what.to_owned(),
        why,
    }
}
