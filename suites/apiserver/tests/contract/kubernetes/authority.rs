//! An authority of servers and clients, as a cluster has one.

use std::net::SocketAddr;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use lab_apiserver::kubeconfig;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::{Value, json};

/// An authority of servers and clients.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(super) pem: String,
}

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("an authority").pem();
        let issuer = Issuer::new(params, key);
        Self { issuer, pem }
    }

    /// A certificate of one who serves at a name, or of a user in a group.
    pub(super) fn issue(&self, user: &str, group: &str, usage: ExtendedKeyUsagePurpose) -> (String, String) {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, user);
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    /// The kubeconfig of a user with a certificate.
    pub(super) fn kubeconfig(&self, server: SocketAddr, user: &str, group: &str) -> String {
        let (certificate, key) = self.issue(user, group, ExtendedKeyUsagePurpose::ClientAuth);
        let text = kubeconfig(&format!("https://{server}"), &self.pem, "");
        let mut config: Value = serde_json::from_str(&text).expect("JSON");
        config["users"][0]["user"] = json!({
            "client-certificate-data": STANDARD.encode(certificate), "client-key-data": STANDARD.encode(key),
        });
        config.to_string()
    }
}
