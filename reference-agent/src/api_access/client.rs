//! A Kubernetes client whose connections go to whichever API server answers.
//!
//! The same layers as kube's own client has, but for two: how a connection is made differs, and no answer is hidden by
//! trying again. Whoever asks does that by itself, counts it and says it; kube's layer would for minutes. A server that
//! says when to come back (`Retry-After`) is obeyed for up to [`RETRY_AFTER_LIMIT`]: its answer is passed on only then.
//! Requests name the host of the configuration, wherever they go. A connection on which a request was answered with 401
//! is not used again: whom the agent says to be may belong to the connection, and be out of date.

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
    dial::{Dialler, Security},
    identity::Identity,
    servers::{ApiServers, OwnWayError},
};

/// A connection on which nothing arrives for this long is given up. Longer than the API server lets a watch last: a
/// quiet watch is none.
pub const READ_LIMIT: Duration = Duration::from_secs(75);
/// A connection on which nothing happens for this long is asked whether anybody is there, and again every third of it;
/// after three questions it is over. So a machine that is gone is noticed long before [`READ_LIMIT`].
pub const KEEPALIVE: Duration = Duration::from_secs(9);
/// Data that is not acknowledged for this long ends the connection (`TCP_USER_TIMEOUT`, RFC 5482).
pub const UNACKNOWLEDGED: Duration = Duration::from_secs(15);
/// An answer with `Retry-After` is held back for as long as it says, and for no longer than this.
pub const RETRY_AFTER_LIMIT: Duration = Duration::from_secs(1);

impl ApiServers {
    /// A client by which any of the addresses is reached.
    ///
    /// # Errors
    /// The configuration can't be used: a certificate that is none, or a proxy.
    pub fn client(&self, config: &kube::Config) -> Result<Client, OwnWayError> {
        let said = ["HTTPS_PROXY", "https_proxy"].map(|name| env::var(name).ok());
        if let Some(proxy) = proxy(config, &said) {
            return Err(OwnWayError::Proxy(proxy));
        }
        let mut connector = TimeoutConnector::new(Dialler::new(self.clone(), security(config)?));
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
            .option_layer(config.auth_layer().map_err(OwnWayError::Config)?)
            .layer(config.extra_headers_layer().map_err(OwnWayError::Config)?)
            .map_err(BoxError::from)
            .service(patient);
        Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
    }
}

/// How a connection is made safe: whoever answers must be who the configuration says, at whatever address.
fn security(config: &kube::Config) -> Result<Option<Security>, OwnWayError> {
    if config.cluster_url.scheme_str() == Some("http") {
        return Ok(None);
    }
    // Which TLS provider is used must not depend on what else is compiled in. Chosen already is as good.
    let _chosen = rustls::crypto::ring::default_provider().install_default();
    let mut tls = config.rustls_client_config().map_err(OwnWayError::Config)?;
    if let Some(identity) = Identity::of(&config.auth_info) {
        tls.client_auth_cert_resolver = Arc::new(identity);
        // A resumed session is that of the certificate that it began with.
        tls.resumption = Resumption::disabled();
    }
    let host = config
        .tls_server_name
        .as_deref()
        .or_else(|| host(&config.cluster_url));
    let name = host
        .and_then(|host| ServerName::try_from(host.to_owned()).ok())
        .ok_or_else(|| OwnWayError::Host(config.cluster_url.to_string()))?;
    Ok(Some(Security {
        connector: Arc::new(tls).into(),
        name,
    }))
}

/// The proxy that the kubeconfig itself wants. kube takes the environment's where it wants none, in this order; that one
/// is for other servers than the cluster's own.
fn proxy(config: &kube::Config, environment: &[Option<String>]) -> Option<String> {
    let proxy = config.proxy_url.as_ref()?;
    let others = environment
        .iter()
        .flatten()
        .filter_map(|text| text.parse::<Uri>().ok());
    let of_kubeconfig = others.into_iter().all(|other| other != *proxy);
    of_kubeconfig.then(|| proxy.to_string())
}

/// For how long to stay away, if the answer says so in seconds, which is how API servers say it.
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
