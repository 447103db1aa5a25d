//! Certificates, tokens and kubeconfigs of the API servers' users.

use std::{
    collections::BTreeMap,
    fmt::Display,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
};

use cluster::{api_server_name, users};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use lab_apiserver::{Auth, Pki};

use crate::{IpFamilies, LabError, topology::MOST_API_SERVERS};

/// Certificates and tokens of one lab.
pub(super) struct Access {
    pki: Pki,
    names: Vec<String>,
    tokens: BTreeMap<String, String>,
}

impl Access {
    /// Makes new ones, for servers at all addresses that a lab of these families can have, and for these nodes.
    pub(super) fn new(families: IpFamilies, nodes: &[String]) -> Result<Self, LabError> {
        let names = [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ];
        let servers = (1..=MOST_API_SERVERS).flat_map(|number| families.api_server(number));
        let addresses = servers
            .chain(families.api_front())
            .chain(families.kubernetes_service())
            .chain([IpAddr::from(Ipv4Addr::LOCALHOST)]);
        let names: Vec<String> = addresses
            .map(|address| address.to_string())
            .chain(names.map(str::to_owned))
            .collect();
        let made = failed("make certificates for");
        let pki = Pki::new().map_err(&made)?;
        let users = [users::ADMIN, users::OUTSIDE, users::CONTROLLERS].map(str::to_owned);
        let tokens = users
            .into_iter()
            .chain(nodes.iter().map(|node| users::node(node)))
            .map(|user| (user, lab_apiserver::new_token()))
            .collect();
        Ok(Self { pki, names, tokens })
    }

    /// TLS configuration of the lab's own server of this number; `None`: of the administrator's server.
    pub(super) fn tls(&self, number: Option<u8>) -> Result<Arc<rustls::ServerConfig>, LabError> {
        let names = self.names_of(number);
        self.pki
            .server_tls(&names)
            .map_err(failed("make certificates for"))
    }

    /// Certificate and key for kube-apiserver with this number.
    pub(super) fn server_pem(&self, number: u8) -> Result<(String, String), LabError> {
        let names = self.names_of(Some(number));
        self.pki
            .server_pem(&names)
            .map_err(failed("make certificates for"))
    }

    /// All host names and addresses of a server, with one name that no other server has.
    fn names_of(&self, number: Option<u8>) -> Vec<String> {
        let own = number.map(api_server_name);
        self.names.iter().cloned().chain(own).collect()
    }

    /// The authority's certificate.
    pub(super) fn ca_pem(&self) -> &str {
        self.pki.ca_pem()
    }

    /// For `--token-auth-file`: token, user, id.
    pub(super) fn token_file(&self) -> String {
        let line = |(user, token): (&String, &String)| format!("{token},{user},{user}\n");
        self.tokens.iter().map(line).collect()
    }

    /// Authentication of the users.
    pub(super) fn auth(&self) -> Arc<Auth> {
        let all = self.tokens.iter();
        Arc::new(all.fold(Auth::new(), |auth, (user, token)| auth.with_user(token, user)))
    }

    /// Writes the kubeconfig of a user.
    pub(super) fn write(&self, path: &Path, server: SocketAddr, user: &str) -> Result<(), LabError> {
        let token = self.tokens.get(user).map_or("", String::as_str);
        let server = format!("https://{server}");
        lab_apiserver::write_kubeconfig(path, &server, self.pki.ca_pem(), token)
            .map_err(failed("write a kubeconfig for"))
    }
}

/// For `map_err`: an operation on the API servers has failed.
pub(super) fn failed<E: Display>(what: &'static str) -> impl Fn(E) -> LabError {
    move |why| LabError::Host {
        what: format!("{what} the API servers"),
        why: why.to_string(),
        remedy: "See the supervisor's log",
    }
}

/// A client of a kubeconfig.
pub(crate) async fn kube_client(path: &Path) -> Result<Client, LabError> {
    client(path, None, None).await
}

/// A client of a kubeconfig with another server address.
///
/// # Errors
/// The kubeconfig is invalid.
pub async fn kube_client_at(path: &Path, server: SocketAddr) -> Result<Client, LabError> {
    client(path, Some(server), None).await
}

/// As [`kube_client_at`], impersonating a user of one group: the kubeconfig's user needs the right to impersonate.
///
/// # Errors
/// The kubeconfig is invalid.
pub async fn kube_client_as(
    path: &Path,
    server: SocketAddr,
    user: &str,
    group: &str,
) -> Result<Client, LabError> {
    client(path, Some(server), Some((user, group))).await
}

async fn client(
    path: &Path,
    server: Option<SocketAddr>,
    taken_for: Option<(&str, &str)>,
) -> Result<Client, LabError> {
    let wrong = |why: String| LabError::Host {
        what: format!("use the kubeconfig {}", path.display()),
        why,
        remedy: "See the supervisor's log",
    };
    let mut kubeconfig = Kubeconfig::read_from(path).map_err(|error| wrong(error.to_string()))?;
    if let Some(server) = server {
        for cluster in kubeconfig
            .clusters
            .iter_mut()
            .filter_map(|named| named.cluster.as_mut())
        {
            cluster.server = Some(format!("https://{server}"));
        }
    }
    if let Some((user, group)) = taken_for {
        for info in kubeconfig
            .auth_infos
            .iter_mut()
            .filter_map(|named| named.auth_info.as_mut())
        {
            info.impersonate = Some(user.to_owned());
            info.impersonate_groups = Some(vec![group.to_owned()]);
        }
    }
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.map_err(|error| wrong(error.to_string()))?)
        .map_err(|error| wrong(error.to_string()))
}
