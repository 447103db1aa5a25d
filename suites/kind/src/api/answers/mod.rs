//! What API servers of kind answer goes wrong: in the balancer in front of them, which lets requests pass for a while.
//!
//! ```text
//!  keeper ─ order: keys, clients, fault ─▶ SOCKET in the balancer's container ─▶ Answers ─▶ a Proxy for each server
//! ```
//!
//! A fault is in force as long as its connection to the socket lives, and no longer than it may last. So whoever dies, the
//! fault ends: with the keeper its connection does, with the balancer everything. The keys come with the order, and are
//! nowhere else in the container.
//!
//! Connections that pass when the first fault begins are cut, as a balancer cuts them that is started again: nobody can look
//! into them. Later ones pass through the proxies; those that are under way at the end of the last fault stay there, and meet
//! none. So a watch that has lost an event is told.

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

use super::{Server, share};
use crate::{KindError, error::io_error};

/// Where the balancer takes orders, in its container.
const SOCKET: &str = "/faults.sock";

/// What is to go wrong. It has no `Debug`, as keys are in it.
#[derive(Serialize, Deserialize)]
struct Order {
    /// For every server of the cluster.
    keys: BTreeMap<SocketAddr, Keys>,
    /// Those whose answers go wrong.
    servers: Vec<SocketAddr>,
    clients: Clients,
    fault: Fault,
    lasts: Duration,
}

/// What the balancer says to it, a line each.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Said {
    Begun,
    Refused(String),
    Over,
}

/// What a balancer lets go wrong.
#[derive(Default)]
pub(super) struct Answers {
    /// Those of the faults that are in force; connections pass through them.
    through: watch::Sender<Option<Arc<Proxies>>>,
    /// Held by connections that pass without.
    plain: Arc<RwLock<()>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Connections may be under way in them when no fault is any more.
    proxies: Option<Arc<Proxies>>,
    held: usize,
}

/// Faults that are in force as long as this lives.
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
    /// What connections pass through, while a fault is in force.
    pub(super) fn through(&self) -> Through {
        Through {
            now: self.through.subscribe(),
            plain: Arc::clone(&self.plain),
        }
    }

    fn begin(self: Arc<Self>, order: &Order) -> Result<InForce, String> {
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

    /// Takes orders, for ever.
    ///
    /// # Errors
    /// The socket can't be listened on.
    pub(super) fn listen(
        self: Arc<Self>,
        socket: &Path,
    ) -> io::Result<impl Future<Output = ()> + Send + use<>> {
        // Of the process before it, whose container has started again.
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
                        tracing::debug!(%error, "whoever wanted a fault is gone");
                    }
                    drop(permit);
                });
            }
        })
    }

    async fn keep(self: Arc<Self>, stream: UnixStream) -> io::Result<()> {
        let mut stream = BufReader::new(stream);
        let line = timeout(LIMITS.control, line(&mut stream)).await??;
        let begun = match serde_json::from_slice::<Order>(&line) {
            Ok(order) => {
                let (lasts, name) = (order.lasts, format!("{:?} for {:?}", order.fault, order.clients));
                Arc::clone(&self).begin(&order).map(|begun| (begun, lasts, name))
            }
            // What stands in it is not said: keys do.
            Err(error) => Err(format!(
                "an order that can't be read, at column {}",
                error.column()
            )),
        };
        let (begun, lasts, name) = match begun {
            Ok(begun) => begun,
            Err(why) => return say(&mut stream, &Said::Refused(why)).await,
        };
        // Until all are cut that pass without.
        drop(timeout(LIMITS.control, self.plain.write()).await);
        tracing::info!(fault = name, "a fault begins");
        let said = say(&mut stream, &Said::Begun).await;
        if said.is_ok() {
            // However it ends: the end of the connection, or of the time.
            drop(timeout(lasts, self::line(&mut stream)).await);
        }
        drop(begun);
        tracing::info!(fault = name, "the fault is over");
        say(&mut stream, &Said::Over).await
    }
}

async fn line(stream: &mut BufReader<UnixStream>) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut limited = stream.take(LIMITS.control_bytes);
    limited.read_until(b'\n', &mut line).await?;
    Ok(line)
}

async fn say(stream: &mut BufReader<UnixStream>, said: &Said) -> io::Result<()> {
    let mut line = serde_json::to_vec(said)?;
    line.push(b'\n');
    stream.write_all(&line).await
}

/// A listening balancer, in its container.
pub(super) fn socket() -> &'static Path {
    Path::new(SOCKET)
}

/// A fault that a balancer keeps up as long as this lives.
pub(super) struct Kept(BufReader<UnixStream>);

impl Kept {
    /// Has a balancer begin one, whose process this host sees as `process`. It is in force when this returns.
    pub(super) async fn begin(
        process: u32,
        all: &[Server],
        servers: &[&Server],
        (clients, fault): (&Clients, &Fault),
        lasts: Duration,
    ) -> Result<Self, KindError> {
        let keys = all
            .iter()
            .map(|server| Ok((server.address, share::keys(server)?)));
        let order = Order {
            keys: keys.collect::<Result<_, KindError>>()?,
            servers: servers.iter().map(|server| server.address).collect(),
            clients: clients.clone(),
            fault: fault.clone(),
            lasts,
        };
        let socket = PathBuf::from(format!("/proc/{process}/root{SOCKET}"));
        Self::ask(&socket, &order).await
    }

    async fn ask(socket: &Path, order: &Order) -> Result<Self, KindError> {
        let what = "have the balancer begin a fault";
        let stream = UnixStream::connect(socket).await.map_err(io_error(format!(
            "{what}: expected that it takes orders; one of an earlier program doesn't, so make the cluster anew"
        )))?;
        let mut kept = Self(BufReader::new(stream));
        let mut text = serde_json::to_vec(order).map_err(|error| unexpected(what, error.to_string()))?;
        text.push(b'\n');
        kept.0.write_all(&text).await.map_err(io_error(what))?;
        match kept.said(what).await? {
            Said::Begun => Ok(kept),
            Said::Refused(why) => Err(unexpected(what, why)),
            Said::Over => Err(unexpected(what, "it was over before it began".to_owned())),
        }
    }

    /// Ends it; it is over when this returns.
    pub(super) async fn end(mut self) -> Result<(), KindError> {
        let what = "have the balancer end a fault";
        // One whose time is over has answered already.
        drop(self.0.write_all(b"\n").await);
        match self.said(what).await? {
            Said::Over => Ok(()),
            Said::Refused(why) => Err(unexpected(what, why)),
            Said::Begun => Err(unexpected(what, "it has begun once more".to_owned())),
        }
    }

    async fn said(&mut self, what: &str) -> Result<Said, KindError> {
        let said = timeout(LIMITS.control, line(&mut self.0)).await;
        let said = said.map_err(|_| unexpected(what, format!("no answer within {:?}", LIMITS.control)))?;
        let said = said.map_err(io_error(what))?;
        if said.is_empty() {
            return Err(unexpected(
                what,
                "it is gone, and the fault with it: `docker logs` says why".to_owned(),
            ));
        }
        serde_json::from_slice(&said).map_err(|error| unexpected(what, error.to_string()))
    }
}

fn unexpected(what: &str, why: String) -> KindError {
    KindError::Unexpected {
        what: what.to_owned(),
        why,
    }
}
