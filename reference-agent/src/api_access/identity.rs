//! The client certificate of a kubeconfig that names files, read again for each connection.
//!
//! Whoever issues such certificates replaces the files before they end. A connection is made with what is there then; one
//! that was made with an older certificate ends with the first answer that refuses it
//! ([`ApiServers::client`](super::ApiServers::client)).

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use kube::config::AuthInfo;
use rustls::{
    SignatureScheme,
    client::ResolvesClientCert,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    sign::CertifiedKey,
};

/// Certificate and key in files.
#[derive(Debug)]
pub(super) struct Identity {
    certificate: PathBuf,
    key: PathBuf,
    /// Serves while the files can't be used, as between the replacement of the one and of the other.
    last: Mutex<Option<Arc<CertifiedKey>>>,
}

impl Identity {
    /// `None`: there are no such files, or what is in the kubeconfig itself counts instead.
    pub(super) fn of(user: &AuthInfo) -> Option<Self> {
        if user.client_certificate_data.is_some() || user.client_key_data.is_some() {
            return None;
        }
        Some(Self {
            certificate: user.client_certificate.as_ref()?.into(),
            key: user.client_key.as_ref()?.into(),
            last: Mutex::default(),
        })
    }

    fn read(&self) -> io::Result<CertifiedKey> {
        let named = |path: &Path| {
            let path = path.display().to_string();
            move |error: String| io::Error::other(format!("{path}: {error}"))
        };
        let read = |path: &Path| fs::read(path).map_err(|error| named(path)(error.to_string()));
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&read(&self.certificate)?)
            .collect::<Result<_, _>>()
            .map_err(|error| named(&self.certificate)(error.to_string()))?;
        if chain.is_empty() {
            return Err(named(&self.certificate)(
                "expected a certificate in PEM, found none".to_owned(),
            ));
        }
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?)
            .map_err(|error| named(&self.key)(error.to_string()))?;
        // Also refuses a key that is not the certificate's.
        CertifiedKey::from_der(chain, key, &default_provider())
            .map_err(|error| named(&self.key)(error.to_string()))
    }
}

impl ResolvesClientCert for Identity {
    fn resolve(&self, _issuers: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let read = self.read();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(now) => *last = Some(Arc::new(now)),
            Err(error) => {
                tracing::warn!(%error, "the client certificate can't be read; the one before serves");
            }
        }
        last.clone()
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
