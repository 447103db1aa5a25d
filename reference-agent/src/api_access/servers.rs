//! Where API servers may answer, and in which order they are tried.

use std::{
    collections::{BTreeSet, HashSet},
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures::future::join_all;
use http::Uri;
use tokio::sync::watch;

use super::{
    configured::{Server, resolved, server},
    state::{Remembered, StateFile},
};
use crate::{readiness::Component, reports::Reports};

/// Most addresses that are tried for one connection, and that one name is taken to lead to.
pub const CANDIDATES: usize = 32;
/// Most endpoints that are remembered; those seen longest ago are forgotten first.
pub const REMEMBERED: usize = 16;
/// For how long what a name was resolved to is good.
pub const NAMES_FRESH: Duration = Duration::from_secs(30);
/// How long names may take to be resolved; then what they were resolved to before serves.
pub const NAME_LIMIT: Duration = Duration::from_secs(2);
/// With no address answering for this long, `/readyz` says so. Shorter is a restart of the API server.
pub const BLIND_LIMIT: Duration = Duration::from_secs(30);
/// What could not be stored for the next start is tried again after this time.
pub const STORE_AGAIN: Duration = Duration::from_secs(30);
/// How often [`ApiServers::watch`] looks.
const LOOK: Duration = Duration::from_secs(1);

/// What is wrong with the configuration of the way to the API server.
#[derive(Debug, thiserror::Error)]
pub enum OwnWayError {
    /// kube can't use its configuration.
    #[error("failed to use the configuration of the API server: {0}")]
    Config(kube::Error),
    /// The kubeconfig wants a proxy.
    #[error(
        "the kubeconfig's proxy-url {0:?}: API servers are only reached without a proxy; \
         remove it, and name an address that leads to one by --api-server if the kubeconfig's does not"
    )]
    Proxy(String),
    /// A server without a host, or with one that no certificate can have.
    #[error("the API server {0:?}: expected a URL such as https://10.0.0.1:6443 or https://api.example.org")]
    Host(String),
}

/// All ways to the API server; clones share what they learn.
#[derive(Clone, Debug)]
pub struct ApiServers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// As configured, in order: the kubeconfig's, then those given.
    configured: Vec<Server>,
    /// `None`: nothing is remembered from one start to the next.
    file: Option<StateFile>,
    /// Whether endpoints may be dialled: only where a certificate says who answers.
    verified: bool,
    state: Mutex<State>,
    /// [`ApiServers::addresses`], for who follows them.
    addresses: watch::Sender<BTreeSet<(IpAddr, u16)>>,
}

#[derive(Debug, Default)]
struct State {
    remembered: Remembered,
    asked: Option<Instant>,
    /// Where a connection ended in silence: tried last.
    distrusted: HashSet<SocketAddr>,
    /// Who answered last.
    answered: Option<SocketAddr>,
    /// When what is remembered could not be stored.
    unstored: Option<Instant>,
    /// Since when nobody answers, and what was said last.
    blind: Option<(Instant, Vec<String>)>,
}

impl ApiServers {
    /// Those of a configuration, `more` of the same cluster, and those that an earlier start has left in the folder
    /// `state`, where what is learned is left for the next one. Waits for names to be resolved, for at most
    /// [`NAME_LIMIT`].
    ///
    /// # Errors
    /// [`OwnWayError::Host`].
    pub async fn new(config: &kube::Config, more: &[Uri], state: Option<&Path>) -> Result<Self, OwnWayError> {
        let file = state.map(StateFile::new);
        let remembered = file.as_ref().map(StateFile::read).unwrap_or_default();
        Self::of(config, more, remembered, file).await
    }

    /// As [`new`](Self::new), and writes nothing: for whoever looks at a node on which an agent runs.
    ///
    /// # Errors
    /// [`OwnWayError::Host`].
    pub async fn looked_at(config: &kube::Config, more: &[Uri], state: &Path) -> Result<Self, OwnWayError> {
        Self::of(config, more, StateFile::new(state).read(), None).await
    }

    async fn of(
        config: &kube::Config,
        more: &[Uri],
        mut remembered: Remembered,
        file: Option<StateFile>,
    ) -> Result<Self, OwnWayError> {
        let configured: Result<Vec<Server>, _> = [&config.cluster_url]
            .into_iter()
            .chain(more)
            .map(server)
            .collect();
        let verified = config.cluster_url.scheme_str() != Some("http") && !config.accept_invalid_certs;
        let configured = configured?;
        remembered.endpoints.truncate(REMEMBERED);
        // Others are of another configuration: nothing leads there any more.
        let names: HashSet<String> = configured.iter().filter_map(Server::name).collect();
        remembered.names.retain(|name, _| names.contains(name));
        for addresses in remembered.names.values_mut() {
            addresses.truncate(CANDIDATES);
        }
        let servers = Self(Arc::new(Inner {
            configured,
            file,
            verified,
            state: Mutex::new(State {
                remembered,
                ..State::default()
            }),
            addresses: watch::Sender::default(),
        }));
        servers.resolve().await;
        Ok(servers)
    }

    /// Address and port of each server of the configuration, names resolved: a frontend that is one of these is kept
    /// for the agent. Not the endpoints: those are reached without a frontend. Other ones follow ([`feed`](Self::feed)).
    pub fn addresses(&self) -> BTreeSet<(IpAddr, u16)> {
        let state = self.lock();
        self.known(&state)
            .into_iter()
            .map(|address| (address.ip(), address.port()))
            .collect()
    }

    /// Takes endpoints of API servers as they were seen last. None at all is no news: these are for when there are
    /// none. Without a verified certificate nothing is remembered, or whoever writes slices would be told the agent's
    /// token.
    pub fn learn(&self, endpoints: impl IntoIterator<Item = SocketAddr>) {
        if !self.0.verified {
            return;
        }
        let mut state = self.lock();
        let seen: Vec<SocketAddr> = endpoints.into_iter().collect();
        let mut now: Vec<SocketAddr> = Vec::new();
        for address in seen.iter().chain(&state.remembered.endpoints) {
            if now.len() < REMEMBERED && !now.contains(address) {
                now.push(*address);
            }
        }
        if now != state.remembered.endpoints {
            tracing::info!(?seen, "endpoints of API servers, remembered");
            state.remembered.endpoints = now;
            self.store(&mut state);
        }
    }

    /// Why the agent is blind, if it is: no address has answered for [`BLIND_LIMIT`].
    pub fn reasons(&self, now: Instant) -> Vec<String> {
        let state = self.lock();
        let Some((since, said)) = &state.blind else {
            return Vec::new();
        };
        let silent = now.saturating_duration_since(*since);
        if silent < BLIND_LIMIT {
            return Vec::new();
        }
        vec![format!(
            "no API server has answered since {} s; Services are served as last known; tried {}; \
             name another address with --api-server if there is one",
            // Not a new sentence each second.
            silent.as_secs() / 30 * 30,
            said.join("; ")
        )]
    }

    /// Tells the board whether the agent is blind, counts who is in use, and keeps names resolved and what is learned
    /// stored. For ever.
    pub async fn watch(
        self,
        Reports {
            readiness, metrics, ..
        }: Reports,
    ) {
        loop {
            let candidates = self.candidates().await;
            let answered = self.lock().answered;
            // Addresses that are known no more are shown no more.
            metrics.api_server.clear();
            for address in candidates {
                let used = i64::from(answered == Some(address));
                metrics.api_server.at([&address.to_string()]).set(used);
            }
            let now = Instant::now();
            readiness.set_reasons(Component::ApiAccess, self.reasons(now));
            self.store_again(now);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// [`addresses`](Self::addresses), as they change.
    pub(super) fn follow(&self) -> watch::Receiver<BTreeSet<(IpAddr, u16)>> {
        self.0.addresses.subscribe()
    }

    /// Where to try, in this order: as configured, then endpoints; what was silent last.
    pub(super) async fn candidates(&self) -> Vec<SocketAddr> {
        self.resolve_stale().await;
        let state = self.lock();
        let mut candidates = self.known(&state);
        if self.0.verified {
            candidates.extend(&state.remembered.endpoints);
        }
        let mut once = HashSet::new();
        candidates.retain(|address| once.insert(*address));
        // Stable: otherwise in order.
        candidates.sort_by_key(|address| state.distrusted.contains(address));
        candidates.truncate(CANDIDATES);
        candidates
    }

    /// A connection was made.
    pub(super) fn answered(&self, address: SocketAddr) {
        let mut state = self.lock();
        state.answered = Some(address);
        if let Some((since, _)) = state.blind.take() {
            tracing::info!(%address, after = ?since.elapsed(), "an API server answers again");
        }
    }

    /// An API server has sent something.
    pub(super) fn spoke(&self, address: SocketAddr) {
        self.lock().distrusted.remove(&address);
    }

    /// A connection ended without a byte.
    pub(super) fn silent(&self, address: SocketAddr) {
        let mut state = self.lock();
        if state.distrusted.len() >= CANDIDATES {
            state.distrusted.clear();
        }
        if state.distrusted.insert(address) {
            tracing::warn!(%address, "an API server accepted a connection and said nothing; it is tried last now");
        }
    }

    /// Nobody answered.
    pub(super) fn unanswered(&self, said: &[String]) {
        let mut state = self.lock();
        match &mut state.blind {
            Some((_, before)) => said.clone_into(before),
            None => {
                tracing::warn!(tried = ?said, "no API server answers; Services are served as last known");
                state.blind = Some((Instant::now(), said.to_vec()));
            }
        }
        // The next try asks for the names again.
        state.asked = None;
    }

    /// The configured servers in their order, names resolved.
    fn known(&self, state: &State) -> Vec<SocketAddr> {
        let of = |server: &Server| match server {
            Server::At(address) => vec![*address],
            Server::Named { .. } => {
                let name = server.name();
                let resolved = name.and_then(|name| state.remembered.names.get(&name));
                resolved.cloned().unwrap_or_default()
            }
        };
        self.0.configured.iter().flat_map(of).collect()
    }

    async fn resolve_stale(&self) {
        let stale = self
            .lock()
            .asked
            .is_none_or(|asked| asked.elapsed() > NAMES_FRESH);
        if stale {
            self.resolve().await;
        }
    }

    async fn resolve(&self) {
        self.lock().asked = Some(Instant::now());
        let names = self.0.configured.iter().filter_map(|server| match server {
            Server::At(_) => None,
            Server::Named { host, port } => Some((server.name()?, host.as_str(), *port)),
        });
        let asking = names.map(async |(name, host, port)| (name, resolved(host, port).await));
        let answers = join_all(asking).await;
        let mut state = self.lock();
        let before = state.remembered.names.clone();
        // What a name led to before serves until it leads to something else.
        let answered = answers.into_iter().filter(|(_, addresses)| !addresses.is_empty());
        state.remembered.names.extend(answered);
        if state.remembered.names != before {
            self.store(&mut state);
        }
        drop(state);
        self.tell();
    }

    /// Tells who follows the addresses, if they are others.
    fn tell(&self) {
        let addresses = self.addresses();
        self.0.addresses.send_if_modified(|before| {
            let differs = *before != addresses;
            if differs {
                *before = addresses;
            }
            differs
        });
    }

    /// Failing is no reason to stop: the next start has one way less until trying again succeeds.
    fn store(&self, state: &mut State) {
        let Some(file) = &self.0.file else { return };
        state.unstored = None;
        if let Err(error) = file.write(&state.remembered) {
            tracing::warn!(
                file = %file.path().display(), %error,
                "can't remember the addresses of API servers for the next start; is the folder of --state writable?"
            );
            state.unstored = Some(Instant::now());
        }
    }

    /// Tries again what could not be stored.
    fn store_again(&self, now: Instant) {
        let mut state = self.lock();
        let tried = state.unstored;
        if tried.is_some_and(|tried| now.saturating_duration_since(tried) >= STORE_AGAIN) {
            self.store(&mut state);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
