//! Certificates and kubeconfigs, by which clients trust a new server.

use std::{io, os::unix::fs::OpenOptionsExt, path::Path, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::json;

/// The certificate authority of one lab.
pub struct Pki {
    issuer: Issuer<'static, KeyPair>,
    ca_pem: String,
}

/// Why certificates or a kubeconfig could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// Key or certificate generation.
    #[error("failed to make a certificate for {what}: {source}")]
    Certificate {
        /// The certificate's names.
        what: String,
        /// The generator's reason.
        source: rcgen::Error,
    },
    /// The TLS library refused them.
    #[error("failed to set up TLS with a fresh certificate: {0}")]
    Tls(#[from] rustls::Error),
    /// The kubeconfig could not be written.
    #[error("failed to write the kubeconfig {path}: {source}")]
    Write {
        /// Where.
        path: String,
        /// The system's reason.
        source: io::Error,
    },
}

impl Pki {
    /// Makes a new authority.
    ///
    /// # Errors
    /// If keys can't be generated.
    pub fn new() -> Result<Self, PkiError> {
        let failed = |source| PkiError::Certificate {
            what: "the authority".into(),
            source,
        };
        let mut params = CertificateParams::new(Vec::new()).map_err(failed)?;
        params
            .distinguished_name
            .push(DnType::CommonName, "plumbline-lab-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().map_err(failed)?;
        let ca_pem = params.self_signed(&key).map_err(failed)?.pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            ca_pem,
        })
    }

    /// The authority's certificate, PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// TLS settings of a server reached under these names (DNS names or IP addresses).
    ///
    /// # Errors
    /// If a name is neither, or the certificate can't be made.
    pub fn server_tls(&self, names: &[String]) -> Result<Arc<rustls::ServerConfig>, PkiError> {
        let (certificate, key) = self.server(names)?;
        let chain = vec![CertificateDer::from(certificate)];
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut tls =
            rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()?
                .with_no_client_auth()
                .with_single_cert(chain, key)?;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(tls))
    }

    /// The certificate and key, PEM, of another program that serves under these names.
    ///
    /// # Errors
    /// As [`Pki::server_tls`].
    pub fn server_pem(&self, names: &[String]) -> Result<(String, String), PkiError> {
        let (certificate, key) = self.server(names)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    fn server(&self, names: &[String]) -> Result<(Certificate, KeyPair), PkiError> {
        let failed = |source| PkiError::Certificate {
            what: names.join(", "),
            source,
        };
        let mut params = CertificateParams::new(names).map_err(failed)?;
        params
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok((certificate, key))
    }
}

/// Text of a kubeconfig for a server at `https://ADDRESS:PORT`, JSON (and therefore YAML).
#[must_use]
pub fn kubeconfig(server: &str, ca_pem: &str, token: &str) -> String {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "plumbline", "cluster": {
            "server": server,
            "certificate-authority-data": STANDARD.encode(ca_pem),
        }}],
        "users": [{"name": "plumbline", "user": {"token": token}}],
        "contexts": [{"name": "plumbline", "context": {"cluster": "plumbline", "user": "plumbline"}}],
        "current-context": "plumbline",
    });
    format!("{config:#}\n")
}

/// Writes [`kubeconfig`] into a file that only its owner can read; an old file is replaced.
///
/// # Errors
/// If the file can't be written.
pub fn write_kubeconfig(path: &Path, server: &str, ca_pem: &str, token: &str) -> Result<(), PkiError> {
    let failed = |source| PkiError::Write {
        path: path.display().to_string(),
        source,
    };
    let fresh = path.with_extension("new");
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&fresh)
        .map_err(failed)?;
    io::Write::write_all(&mut file, kubeconfig(server, ca_pem, token).as_bytes()).map_err(failed)?;
    std::fs::rename(&fresh, path).map_err(failed)
}
