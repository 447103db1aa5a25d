//! A server that knows one client certificate at a time.

use std::{net::SocketAddr, sync::Arc};

use http::{Request, Response, StatusCode};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{RootCertStore, ServerConfig, server::WebPkiClientVerifier};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::api_access::ApiServers;

/// Who signs, and what it is.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("a certificate").into();
        Self {
            issuer: Issuer::new(params, key),
            certificate,
        }
    }

    fn signs(&self, name: &str) -> (Certificate, KeyPair) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new([name.to_owned()]).expect("parameters");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        (certificate, key)
    }
}

/// The certificate that is accepted; others get 401.
type Accepted = Arc<Mutex<CertificateDer<'static>>>;

async fn serve(authority: &Authority, accepted: Accepted) -> SocketAddr {
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate.clone()).expect("an authority");
    let provider = Arc::new(default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let (certificate, key) = authority.signs("127.0.0.1");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(verifier.build().expect("a verifier"))
        .with_single_cert(vec![certificate.into()], key)
        .expect("a certificate");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, accepted) = (acceptor.clone(), Arc::clone(&accepted));
            tokio::spawn(async move {
                let stream = acceptor
                    .accept(stream)
                    .await
                    .expect("a client with a certificate");
                let seen = stream.get_ref().1.peer_certificates().expect("one")[0].clone();
                let answer = service_fn(|_: Request<hyper::body::Incoming>| {
                    let known = *accepted.lock().expect("no panic") == seen;
                    let code = if known {
                        StatusCode::OK
                    } else {
                        StatusCode::UNAUTHORIZED
                    };
                    let mut response = Response::new("{}".to_owned());
                    *response.status_mut() = code;
                    async { Ok::<_, std::convert::Infallible>(response) }
                });
                let http = hyper::server::conn::http1::Builder::new();
                // The client may go at any time.
                let _gone = http.serve_connection(TokioIo::new(stream), answer).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn a_certificate_that_is_replaced_counts_from_the_first_refusal_of_the_old_one() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().expect("a folder");
    let [certificate, key] = ["client.crt", "client.key"].map(|name| folder.path().join(name));
    let put = |(of, with): &(Certificate, KeyPair)| {
        fs::write(&certificate, of.pem()).expect("written");
        fs::write(&key, with.serialize_pem()).expect("written");
    };
    let (first, second) = (authority.signs("agent"), authority.signs("agent"));
    put(&first);
    let accepted: Accepted = Arc::new(Mutex::new(first.0.der().clone()));
    let address = serve(&authority, Arc::clone(&accepted)).await;
    let mut config = kube::Config::new(format!("https://{address}").parse().expect("a URL"));
    config.root_cert = Some(vec![authority.certificate.to_vec()]);
    config.auth_info.client_certificate = Some(certificate.display().to_string());
    config.auth_info.client_key = Some(key.display().to_string());
    let servers = ApiServers::new(&config, &[], None).await.expect("a server");
    let client = servers.client(&config).expect("a client");
    let ask = async || {
        let request = Request::get("/version").body(Vec::new()).expect("a request");
        client.request_text(request).await
    };
    ask().await.expect("accepted");

    *accepted.lock().expect("no panic") = second.0.der().clone();
    ask().await.expect_err("the old certificate is refused");
    // Half replaced: the old pair serves, and is refused again.
    fs::write(&key, second.1.serialize_pem()).expect("written");
    let error = ask()
        .await
        .expect_err("the old certificate is refused")
        .to_string();
    assert!(
        !error.contains("no API server answers"),
        "refused by its answer: {error}"
    );
    put(&second);
    ask().await.expect("the new one is accepted");
}

#[test]
fn what_the_kubeconfig_has_itself_counts_before_files() {
    let mut user = AuthInfo::default();
    assert!(Identity::of(&user).is_none());
    user.client_certificate = Some("/certificate".to_owned());
    assert!(Identity::of(&user).is_none(), "without a key");
    user.client_key = Some("/key".to_owned());
    assert!(Identity::of(&user).is_some());
    user.client_certificate_data = Some(String::new());
    assert!(Identity::of(&user).is_none());
}
