//! A Kubernetes client that connects to the first API server that answers.
//!
//! It has the layers of kube's own client, with two differences: connections are made by [`Dialler`], and requests are not
//! retried. The callers retry, and count and report it; kube's layer would hide failures for minutes. An answer with
//! `Retry-After` is passed on after that time, at most [`RETRY_AFTER_LIMIT`]. Requests have the host of the configuration,
//! whatever address they go to. A connection on which a request was answered with 401 is not used again: its client
//! certificate may be out of date.

use std::{env, sync::Arc, time::Duration};

use http::{HeaderMap, Request, StatusCode, Uri, header::RETRY_AFTER};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{self, connect::capture_connection},
    rt::TokioExecutor,
};
use kube::{
    Client,
    client::{Body, ClientBuilder, ConfigExt as _},
};
use rustls::{client::Resumption, pki_types::ServerName};
use tower::{BoxError, Service as _, ServiceBuilder};

use super::{
    dial::{Dialler, ServerTls},
    identity::Identity,
    servers::{ApiAccessError, ApiServers},
};

/// A connection without a byte for this long is given up. A quiet watch lasts less: the API server ends it.
pub const READ_LIMIT: Duration = Duration::from_secs(75);
/// Idle time before the first TCP keepalive probe; two more follow a third of it apart. So a machine that is gone is
/// noticed long before [`READ_LIMIT`].
pub const KEEPALIVE: Duration = Duration::from_secs(9);
/// Data that is not acknowledged for this long ends the connection (`TCP_USER_TIMEOUT`, RFC 5482).
pub const UNACKNOWLEDGED: Duration = Duration::from_secs(15);
/// Longest time for which an answer with `Retry-After` is delayed.
pub const RETRY_AFTER_LIMIT: Duration = Duration::from_secs(1);

impl ApiServers {
    /// A client that uses all addresses.
    ///
    /// # Errors
    /// The configuration can't be used: an invalid certificate, or a proxy.
    pub fn client(&self, config: &kube::Config) -> Result<Client, ApiAccessError> {
        let environment = ["HTTPS_PROXY", "https_proxy"].map(|name| env::var(name).ok());
        if let Some(proxy) = proxy(config, &environment) {
            return Err(ApiAccessError::Proxy(proxy));
        }
        let mut connector = TimeoutConnector::new(Dialler::new(self.clone(), server_tls(config)?));
        connector.set_read_timeout(Some(READ_LIMIT));
        connector.set_write_timeout(config.write_timeout);
        connector.set_reset_reader_on_write(true);
        let client: legacy::Client<_, Body> = legacy::Builder::new(TokioExecutor::new()).build(connector);
        let patient = tower::service_fn(move |mut request: Request<Body>| {
            let captured = capture_connection(&mut request);
            // Always ready.
            let answer = client.clone().call(request);
            async move {
                let response = answer.await?;
                if response.status() == StatusCode::UNAUTHORIZED
                    && let Some(connection) = &*captured.connection_metadata()
                {
                    connection.poison();
                }
                if let Some(pause) = retry_after(response.headers()) {
                    tokio::time::sleep(pause).await;
                }
                Ok::<_, legacy::Error>(response)
            }
        });
        let service = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .option_layer(config.auth_layer().map_err(ApiAccessError::Config)?)
            .layer(config.extra_headers_layer().map_err(ApiAccessError::Config)?)
            .map_err(BoxError::from)
            .service(patient);
        Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
    }
}

/// TLS for all addresses: each must have a certificate for the configuration's host. `None`: without TLS.
fn server_tls(config: &kube::Config) -> Result<Option<ServerTls>, ApiAccessError> {
    if config.cluster_url.scheme_str() == Some("http") {
        return Ok(None);
    }
    // The TLS provider must not depend on what else is compiled in. It may be installed already.
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let mut tls = config.rustls_client_config().map_err(ApiAccessError::Config)?;
    if let Some(identity) = Identity::of(&config.auth_info) {
        tls.client_auth_cert_resolver = Arc::new(identity);
        // A resumed session would keep the certificate that it began with.
        tls.resumption = Resumption::disabled();
    }
    let host = config
        .tls_server_name
        .as_deref()
        .or_else(|| host(&config.cluster_url));
    let name = host
        .and_then(|host| ServerName::try_from(host.to_owned()).ok())
        .ok_or_else(|| ApiAccessError::Host(config.cluster_url.to_string()))?;
    Ok(Some(ServerTls {
        connector: Arc::new(tls).into(),
        name,
    }))
}

/// The proxy of the kubeconfig itself. Without one, kube takes the environment's, which is for other servers.
fn proxy(config: &kube::Config, environment: &[Option<String>]) -> Option<String> {
    let proxy = config.proxy_url.as_ref()?;
    let others = environment
        .iter()
        .flatten()
        .filter_map(|text| text.parse::<Uri>().ok());
    let of_kubeconfig = others.into_iter().all(|other| other != *proxy);
    of_kubeconfig.then(|| proxy.to_string())
}

/// `Retry-After` of an answer, in seconds, as API servers send it.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_LIMIT))
}

/// The host of a URL; an IPv6 address without its brackets.
pub(super) fn host(url: &Uri) -> Option<&str> {
    let host = url.host()?;
    Some(
        host.strip_prefix('[')
            .and_then(|inner| inner.strip_suffix(']'))
            .unwrap_or(host),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_of_the_kubeconfig_is_told_from_the_environments() {
        let mut config = kube::Config::new(Uri::from_static("https://10.96.0.1"));
        let environment = [None, Some("http://192.0.2.1:3128".to_owned())];
        assert_eq!(proxy(&config, &environment), None, "there is none");
        config.proxy_url = Some(Uri::from_static("http://192.0.2.1:3128"));
        assert_eq!(
            proxy(&config, &environment),
            None,
            "kube has it from the environment"
        );
        let wanted = Some("http://192.0.2.1:3128/".to_owned());
        assert_eq!(proxy(&config, &[None, None]), wanted);
        let another = Some("http://192.0.2.2:3128".to_owned());
        assert_eq!(proxy(&config, &[another, None]), wanted);
    }

    #[tokio::test]
    async fn a_kubeconfig_with_a_proxy_is_refused_by_name() {
        let mut config = kube::Config::new(Uri::from_static("https://10.96.0.1"));
        config.proxy_url = Some(Uri::from_static("http://proxy.invalid:3128"));
        let servers = ApiServers::new(&config, &[], None).await.expect("a server");
        let error = servers.client(&config).err().expect("refused").to_string();
        assert!(
            error.contains("http://proxy.invalid:3128/") && error.contains("remove it"),
            "{error}"
        );
    }

    #[test]
    fn an_answer_is_held_back_for_as_long_as_it_says_and_no_longer_than_the_limit() {
        let after = |text: &'static str| {
            let value = text.parse().expect("a header");
            retry_after(&HeaderMap::from_iter([(RETRY_AFTER, value)]))
        };
        assert_eq!(retry_after(&HeaderMap::new()), None);
        assert_eq!(after("0"), Some(Duration::ZERO));
        assert_eq!(after("1"), Some(Duration::from_secs(1)));
        assert_eq!(after("3600"), Some(RETRY_AFTER_LIMIT));
        assert_eq!(after("Wed, 21 Oct 2015 07:28:00 GMT"), None);
    }
}
