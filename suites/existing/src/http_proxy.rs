//! Whether the environment's proxy applies to an API server: as kubectl decides it, by Go's rules for `NO_PROXY`
//! (<https://pkg.go.dev/golang.org/x/net/http/httpproxy>).
//!
//! kube 5 takes `HTTPS_PROXY` where a kubeconfig names no proxy, but compares `NO_PROXY` with the proxy's own
//! address.

use std::{env, net::IpAddr};

use http::Uri;
use ipnet::IpNet;

/// The first of these variables that is set and not empty.
fn variable(names: [&str; 2]) -> Option<String> {
    let mut all = names.into_iter().filter_map(|name| env::var(name).ok());
    all.find(|text| !text.is_empty())
}

/// The proxy for a server of a kubeconfig: `chosen` by kube is the kubeconfig's own, or that of the environment, if
/// it applies to this server.
pub(super) fn corrected(chosen: Option<Uri>, server: &Uri) -> Option<Uri> {
    let of_environment = variable(["HTTPS_PROXY", "https_proxy"]).and_then(|text| text.parse::<Uri>().ok());
    if chosen.is_some() && chosen != of_environment {
        return chosen;
    }
    let exceptions = variable(["NO_PROXY", "no_proxy"]).unwrap_or_default();
    of_environment.filter(|_| !is_excepted(server, &exceptions))
}

/// Whether a server is on this host, or one of the exceptions: `*`, addresses, networks, and domains. A domain with a
/// leading dot does not match itself.
fn is_excepted(server: &Uri, exceptions: &str) -> bool {
    let host = server.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']').to_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    let port = server.port_u16().unwrap_or(443).to_string();
    exceptions.split(',').map(str::trim).any(|exception| {
        if exception == "*" {
            return true;
        }
        if let (Some(address), Ok(network)) = (address, exception.parse::<IpNet>()) {
            return network.contains(&address);
        }
        if let (Some(address), Ok(other)) = (address, exception.parse::<IpAddr>()) {
            return address == other;
        }
        let (name, of_port) = match exception.rsplit_once(':') {
            Some((name, of_port)) if !name.contains(':') => (name, of_port == port),
            _ => (exception, true),
        };
        let name = name.trim_start_matches('*').to_lowercase();
        let domain = name.trim_start_matches('.');
        let is_below = host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
        !domain.is_empty() && of_port && (is_below || (host == name))
    })
}

#[cfg(test)]
mod tests {

    fn is_excepted(server: &str, exceptions: &str) -> bool {
        super::is_excepted(&server.parse().unwrap(), exceptions)
    }

    #[test]
    fn no_proxy_names_servers_as_kubectl_understands_it() {
        let server = "https://api.k8s.example:6443";
        for exceptions in [
            "*",
            "api.k8s.example",
            "k8s.example",
            ".k8s.example",
            "*.example",
            "a.b, api.k8s.example:6443",
        ] {
            assert!(is_excepted(server, exceptions), "{exceptions}");
        }
        for exceptions in [
            "",
            "a.b,",
            ".api.k8s.example",
            "8s.example",
            "api.k8s.example:443",
            "10.0.0.0/8",
        ] {
            assert!(!is_excepted(server, exceptions), "{exceptions}");
        }
        assert!(is_excepted("https://10.1.2.3", "10.0.0.0/8") && is_excepted("https://10.1.2.3", "10.1.2.3"));
        assert!(!is_excepted("https://10.1.2.3", "10.2.0.0/16"));
        assert!(is_excepted("https://[fd00::1]:6443", "fd00::/64"));
        assert!(is_excepted("https://127.0.0.1:6443", "") && is_excepted("https://[::1]:1", ""));
    }
}
