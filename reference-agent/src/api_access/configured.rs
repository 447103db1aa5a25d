//! A server of the configuration, and the addresses of its name.

use std::net::{IpAddr, SocketAddr};

use http::Uri;
use tokio::{net::lookup_host, time::timeout};

use super::{ApiAccessError, CANDIDATES, NAME_LIMIT, client::host};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Server {
    At(SocketAddr),
    Named { host: String, port: u16 },
}

impl Server {
    /// The key of a name's addresses in the state file.
    pub(super) fn name(&self) -> Option<String> {
        match self {
            Self::At(_) => None,
            Self::Named { host, port } => Some(format!("{host}:{port}")),
        }
    }
}

/// The addresses of a name; empty if it can't be resolved now.
pub(super) async fn resolved(host: &str, port: u16) -> Vec<SocketAddr> {
    let mut resolved: Vec<SocketAddr> = match timeout(NAME_LIMIT, lookup_host((host, port))).await {
        Ok(Ok(found)) => found.collect(),
        Ok(Err(error)) => {
            tracing::debug!(host, %error, "the name of an API server is not resolved");
            Vec::new()
        }
        Err(_) => {
            tracing::debug!(host, "the name of an API server is not resolved in time");
            Vec::new()
        }
    };
    // Resolvers rotate their answers.
    resolved.sort_unstable();
    resolved.dedup();
    resolved.truncate(CANDIDATES);
    resolved
}

/// The server that a URL names.
pub(super) fn server(url: &Uri) -> Result<Server, ApiAccessError> {
    let wrong = || ApiAccessError::Host(url.to_string());
    let port = match (url.port_u16(), url.scheme_str()) {
        (Some(port), _) => port,
        (None, Some("https")) => 443,
        (None, Some("http")) => 80,
        (None, _) => return Err(wrong()),
    };
    let host = host(url).ok_or_else(wrong)?;
    Ok(host.parse::<IpAddr>().map_or_else(
        |_| Server::Named {
            host: host.to_owned(),
            port,
        },
        |address| Server::At((address, port).into()),
    ))
}
