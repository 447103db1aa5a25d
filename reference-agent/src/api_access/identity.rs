//! The client certificate of a kubeconfig that names files, read again for each connection.
//!
//! The files are replaced before a certificate expires. A connection uses the current files. One with an older
//! certificate ends with the first answer that refuses it ([`ApiServers::client`](super::ApiServers::client)).

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
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject as _},
    },
    sign::CertifiedKey,
};

/// Certificate and key in files.
#[derive(Debug)]
pub(super) struct Identity {
    certificate: PathBuf,
    key: PathBuf,
    /// Used while the files can't be, as between the replacement of the one and of the other.
    last: Mutex<Option<Arc<CertifiedKey>>>,
}

impl Identity {
    /// `None`: there are no such files, or the kubeconfig has the certificate itself.
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

    fn read(&self) -> Result<CertifiedKey, IdentityError> {
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&read(&self.certificate)?)
            .collect::<Result<_, _>>()
            .map_err(|source| IdentityError::pem(&self.certificate, source))?;
        if chain.is_empty() {
            let path = self.certificate.clone();
            return Err(IdentityError::Empty { path });
        }
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?)
            .map_err(|source| IdentityError::pem(&self.key, source))?;
        // Also refuses a key that is not the certificate's.
        CertifiedKey::from_der(chain, key, &default_provider()).map_err(|source| IdentityError::Key {
            path: self.key.clone(),
            source,
        })
    }
}

/// Why a client certificate can't be used.
#[derive(Debug, thiserror::Error)]
enum IdentityError {
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Pem { path: PathBuf, source: pem::Error },
    #[error("{}: expected a certificate in PEM, found none", path.display())]
    Empty { path: PathBuf },
    #[error("{}: {source}", path.display())]
    Key { path: PathBuf, source: rustls::Error },
}

impl IdentityError {
    fn pem(path: &Path, source: pem::Error) -> Self {
        let path = path.to_owned();
        Self::Pem { path, source }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, IdentityError> {
    fs::read(path).map_err(|source| IdentityError::Read {
        path: path.to_owned(),
        source,
    })
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
