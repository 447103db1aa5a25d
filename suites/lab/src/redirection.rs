//! Kubeconfig of an agent that a case redirects to another API endpoint.
//!
//! The endpoint can be any address, also that of a Service, so the API servers' certificates do not contain it. The
//! file names the expected certificate instead (`tls-server-name`), as kubectl and client-go read it.

use std::{
    fs,
    io::Write as _,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use cluster::ApiEndpoint;
use serde_json::Value;

/// A name in the certificate of every API server.
const CERTIFICATE: &str = "kubernetes";

/// API endpoint of an agent's next start, if a case has set one.
#[derive(Clone, Debug, Default)]
pub(super) struct Redirection(Arc<Mutex<Option<ApiEndpoint>>>);

impl Redirection {
    /// The endpoint that was set last.
    pub(super) fn endpoint(&self) -> Option<ApiEndpoint> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the endpoint, and writes the kubeconfig of the next start: a copy of `own` at `redirected`.
    pub(super) fn set(&self, own: &Path, redirected: &Path, to: Option<ApiEndpoint>) -> Result<(), String> {
        if let Some(to) = &to {
            write(own, redirected, to.server)?;
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = to;
        Ok(())
    }
}

/// Writes a copy of a kubeconfig with another server, readable by its owner only.
///
/// # Errors
/// `from` can't be read, or `to` can't be written.
fn write(from: &Path, to: &Path, server: SocketAddr) -> Result<(), String> {
    let text = fs::read_to_string(from).map_err(|error| format!("can't read {}: {error}", from.display()))?;
    let text = redirected(&text, server).map_err(|why| format!("{}: {why}", from.display()))?;
    let mut options = fs::OpenOptions::new();
    options.create(true).truncate(true).write(true).mode(0o600);
    options
        .open(to)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| format!("can't write {}: {error}", to.display()))
}

/// A kubeconfig of the lab (JSON, which is also YAML) with another server.
fn redirected(kubeconfig: &str, server: SocketAddr) -> Result<String, String> {
    let mut config: Value = serde_json::from_str(kubeconfig).map_err(|error| error.to_string())?;
    let cluster = config
        .pointer_mut("/clusters/0/cluster")
        .and_then(Value::as_object_mut)
        .ok_or("expected a kubeconfig with a cluster, found none")?;
    cluster.insert("server".to_owned(), format!("https://{server}").into());
    cluster.insert("tls-server-name".to_owned(), CERTIFICATE.into());
    Ok(format!("{config:#}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_server_is_named_and_all_else_stays() {
        let text = lab_apiserver::kubeconfig("https://172.30.0.2:6443", "pem", "secret");
        let server = "[fd00:96::1]:443".parse().expect("an address");
        let found: Value =
            serde_json::from_str(&redirected(&text, server).expect("redirected")).expect("JSON");
        let mut expected: Value = serde_json::from_str(&text).expect("JSON");
        let cluster = &mut expected["clusters"][0]["cluster"];
        cluster["server"] = "https://[fd00:96::1]:443".into();
        cluster["tls-server-name"] = "kubernetes".into();
        assert_eq!(found, expected);
        let wrong = redirected("{}", server).expect_err("no cluster");
        assert!(wrong.contains("expected a kubeconfig with a cluster"), "{wrong}");
    }

    #[test]
    fn only_its_owner_can_read_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let text = lab_apiserver::kubeconfig("https://172.30.0.2:6443", "pem", "secret");
        fs::write(&from, text).expect("written");
        write(&from, &to, "10.96.0.1:443".parse().expect("an address")).expect("redirected");
        let mode = fs::metadata(&to).expect("written").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
