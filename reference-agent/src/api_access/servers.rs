//! Addresses of API servers, and the order in which they are tried.

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

/// Most addresses that are tried for one connection, and most that a name is resolved to.
pub const CANDIDATES: usize = 32;
/// Most endpoints that are remembered, the latest ones.
pub const REMEMBERED: usize = 16;
/// How long the addresses of a name are valid.
pub const NAMES_FRESH: Duration = Duration::from_secs(30);
/// Time limit for resolving names. After it their last addresses are used.
pub const NAME_LIMIT: Duration = Duration::from_secs(2);
/// Time without an answer from any address after which `/readyz` reports it. A restart of the API server is shorter.
pub const UNANSWERED_LIMIT: Duration = Duration::from_secs(30);
/// Time after which a failed write of the state file is tried again.
pub const STORE_AGAIN: Duration = Duration::from_secs(30);
/// Interval of [`ApiServers::watch`].
const INTERVAL: Duration = Duration::from_secs(1);

/// Why the configuration of the API server can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ApiAccessError {
    /// kube can't use its configuration.
    #[error("failed to use the configuration of the API server")]
    Config(#[source] kube::Error),
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

/// All addresses of API servers. Clones are the same.
#[derive(Clone, Debug)]
pub struct ApiServers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// As configured, in order: the kubeconfig's, then those given.
    configured: Vec<Server>,
    /// `None`: nothing is stored for the next start.
    file: Option<StateFile>,
    /// Whether endpoints may be dialled: only with verified certificates.
    verified: bool,
    state: Mutex<State>,
    /// [`ApiServers::addresses`], for [`ApiServers::feed`].
    addresses: watch::Sender<BTreeSet<(IpAddr, u16)>>,
}

#[derive(Debug, Default)]
struct State {
    remembered: Remembered,
    /// When names were last resolved.
    resolved: Option<Instant>,
    /// Addresses at which a connection ended without a byte: tried last.
    distrusted: HashSet<SocketAddr>,
    /// The address that answered last.
    answered: Option<SocketAddr>,
    /// When the state file could not be written.
    unstored: Option<Instant>,
    /// Since when no address answers, and the last errors.
    unanswered: Option<(Instant, Vec<String>)>,
}

impl ApiServers {
    /// Servers of a configuration, `more` of the same cluster, and endpoints from the state file in the folder `state`,
    /// which is updated as endpoints are learned. Resolves names, for at most [`NAME_LIMIT`].
    ///
    /// # Errors
    /// [`ApiAccessError::Host`].
    pub async fn new(
        config: &kube::Config,
        more: &[Uri],
        state: Option<&Path>,
    ) -> Result<Self, ApiAccessError> {
        let file = state.map(StateFile::new);
        let remembered = file.as_ref().map(StateFile::read).unwrap_or_default();
        Self::of(config, more, remembered, file).await
    }

    /// As [`new`](Self::new), and writes nothing: for commands beside a running agent.
    ///
    /// # Errors
    /// [`ApiAccessError::Host`].
    pub async fn read_only(
        config: &kube::Config,
        more: &[Uri],
        state: &Path,
    ) -> Result<Self, ApiAccessError> {
        Self::of(config, more, StateFile::new(state).read(), None).await
    }

    async fn of(
        config: &kube::Config,
        more: &[Uri],
        mut remembered: Remembered,
        file: Option<StateFile>,
    ) -> Result<Self, ApiAccessError> {
        let configured: Result<Vec<Server>, _> = [&config.cluster_url]
            .into_iter()
            .chain(more)
            .map(server)
            .collect();
        let verified = config.cluster_url.scheme_str() != Some("http") && !config.accept_invalid_certs;
        let configured = configured?;
        remembered.endpoints.truncate(REMEMBERED);
        // Other names are of an earlier configuration.
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

    /// Address and port of each configured server, names resolved. Backends of these frontends are kept for the agent.
    /// Endpoints are not among them, as they are dialled without a frontend. [`feed`](Self::feed) sends changes.
    pub fn addresses(&self) -> BTreeSet<(IpAddr, u16)> {
        let state = self.lock();
        self.known(&state)
            .into_iter()
            .map(|address| (address.ip(), address.port()))
            .collect()
    }

    /// Whether any address is known: configured, resolved, or remembered.
    pub fn has_addresses(&self) -> bool {
        let state = self.lock();
        !self.known(&state).is_empty() || !state.remembered.endpoints.is_empty()
    }

    /// Remembers endpoints of API servers. An empty list changes nothing: the remembered ones are for that time. Without
    /// verified certificates nothing is remembered: a written slice could make the agent send its token anywhere.
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

    /// The reason that the agent is not ready, if no address has answered for [`UNANSWERED_LIMIT`].
    pub fn reasons(&self, now: Instant) -> Vec<String> {
        let state = self.lock();
        let Some((since, errors)) = &state.unanswered else {
            return Vec::new();
        };
        let silent = now.saturating_duration_since(*since);
        if silent < UNANSWERED_LIMIT {
            return Vec::new();
        }
        vec![format!(
            "no API server has answered since {} s; Services are served as last known; tried {}; \
             name another address with --api-server if there is one",
            // Not a new sentence each second.
            silent.as_secs() / 30 * 30,
            errors.join("; ")
        )]
    }

    /// Reports whether an address answers, and which one; keeps names resolved and the state file written. Runs without
    /// end.
    pub async fn watch(
        self,
        Reports {
            readiness, metrics, ..
        }: Reports,
    ) {
        loop {
            let candidates = self.candidates().await;
            let answered = self.lock().answered;
            // Former addresses leave the metric.
            metrics.api_server.clear();
            for address in candidates {
                let used = i64::from(answered == Some(address));
                metrics.api_server.at([&address.to_string()]).set(used);
            }
            let now = Instant::now();
            readiness.set_reasons(Component::ApiAccess, self.reasons(now));
            self.store_again(now);
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// [`addresses`](Self::addresses), as they change.
    pub(super) fn follow(&self) -> watch::Receiver<BTreeSet<(IpAddr, u16)>> {
        self.0.addresses.subscribe()
    }

    /// The addresses in the order in which they are tried: configured ones, then endpoints; silent ones last.
    pub(super) async fn candidates(&self) -> Vec<SocketAddr> {
        self.resolve_stale().await;
        let state = self.lock();
        let mut candidates = self.known(&state);
        if self.0.verified {
            candidates.extend(&state.remembered.endpoints);
        }
        let mut once = HashSet::new();
        candidates.retain(|address| once.insert(*address));
        // A stable sort keeps the order otherwise.
        candidates.sort_by_key(|address| state.distrusted.contains(address));
        candidates.truncate(CANDIDATES);
        candidates
    }

    /// A connection was made.
    pub(super) fn answered(&self, address: SocketAddr) {
        let mut state = self.lock();
        state.answered = Some(address);
        if let Some((since, _)) = state.unanswered.take() {
            tracing::info!(%address, after = ?since.elapsed(), "an API server answers again");
        }
    }

    /// A server has sent a byte.
    pub(super) fn has_sent(&self, address: SocketAddr) {
        self.lock().distrusted.remove(&address);
    }

    /// A connection on which a request was sent ended without a byte.
    pub(super) fn was_silent(&self, address: SocketAddr) {
        let mut state = self.lock();
        if state.distrusted.len() >= CANDIDATES {
            state.distrusted.clear();
        }
        if state.distrusted.insert(address) {
            tracing::warn!(%address, "an API server accepted a connection and said nothing; it is tried last now");
        }
    }

    /// No address answered.
    pub(super) fn unanswered(&self, errors: &[String]) {
        let mut state = self.lock();
        match &mut state.unanswered {
            Some((_, before)) => errors.clone_into(before),
            None => {
                tracing::warn!(tried = ?errors, "no API server answers; Services are served as last known");
                state.unanswered = Some((Instant::now(), errors.to_vec()));
            }
        }
        // The next try resolves the names again.
        state.resolved = None;
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
            .resolved
            .is_none_or(|resolved| resolved.elapsed() > NAMES_FRESH);
        if stale {
            self.resolve().await;
        }
    }

    async fn resolve(&self) {
        self.lock().resolved = Some(Instant::now());
        let names = self.0.configured.iter().filter_map(|server| match server {
            Server::At(_) => None,
            Server::Named { host, port } => Some((server.name()?, host.as_str(), *port)),
        });
        let lookups = names.map(async |(name, host, port)| (name, resolved(host, port).await));
        let answers = join_all(lookups).await;
        let mut state = self.lock();
        let before = state.remembered.names.clone();
        // A name that is not resolved now keeps its last addresses.
        let answered = answers.into_iter().filter(|(_, addresses)| !addresses.is_empty());
        state.remembered.names.extend(answered);
        if state.remembered.names != before {
            self.store(&mut state);
        }
        drop(state);
        self.publish();
    }

    /// Publishes the addresses, if they have changed.
    fn publish(&self) {
        let addresses = self.addresses();
        self.0.addresses.send_if_modified(|before| {
            let differs = *before != addresses;
            if differs {
                *before = addresses;
            }
            differs
        });
    }

    /// Writes the state file. A failure is logged and tried again.
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

    /// Writes the state file again, if that failed.
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
