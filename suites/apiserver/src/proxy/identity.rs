//! Identities of clients, for faults and for the server behind.

use std::net::IpAddr;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hyper::{
    header::{AUTHORIZATION, HeaderName, HeaderValue},
    http::HeaderMap,
};
use serde_json::Value;
use x509_parser::prelude::{AttributeTypeAndValue, FromDer as _, X509Certificate, X509Name};

use crate::faults::Client;

/// Headers by which Kubernetes' API server accepts a user from a client with the front proxy's certificate (kubeadm's
/// `--requestheader-*`).
const USER: HeaderName = HeaderName::from_static("x-remote-user");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const REMOTE: &str = "x-remote-";

/// Groups of certificates that are exempt from faults: administrators and kubelets.
const EXEMPT_GROUPS: [&str; 3] = ["system:masters", "kubeadm:cluster-admins", "system:nodes"];
/// User of the controllers in faults.
const CONTROLLERS: &str = "system:kube-controller-manager";
/// Faults treat it as a controller.
const SCHEDULER: &str = "system:kube-scheduler";
/// Prefix of the controllers' ServiceAccounts, and of some pods'.
const CONTROLLER_ACCOUNTS: &str = "system:serviceaccount:kube-system:";

/// The user and groups of a verified certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Certified {
    user: String,
    groups: Vec<String>,
}

impl Certified {
    /// Reads it as an API server does: the common name is the user, organizations are groups.
    ///
    /// # Errors
    /// It is no certificate, or has no common name.
    pub(super) fn read(der: &[u8]) -> Result<Self, String> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(|error| error.to_string())?;
        let subject: &X509Name<'_> = certificate.subject();
        let texts = |error: x509_parser::error::X509Error| error.to_string();
        let user = subject
            .iter_common_name()
            .next()
            .map(AttributeTypeAndValue::as_str);
        let user = user.ok_or("its subject has no common name")?.map_err(texts)?;
        let groups = subject.iter_organization();
        let groups = groups.map(|group| group.as_str().map(str::to_owned).map_err(texts));
        Ok(Self {
            user: user.to_owned(),
            groups: groups.collect::<Result<_, String>>()?,
        })
    }

    /// Whether it is an administrator's or a kubelet's, which are exempt from faults as in the embedded lab.
    pub(super) fn is_exempt(&self) -> bool {
        self.groups
            .iter()
            .any(|group| EXEMPT_GROUPS.contains(&group.as_str()))
    }

    fn names(&self) -> Vec<String> {
        let mut names = vec![self.user.clone()];
        if self.user == SCHEDULER {
            names.push(CONTROLLERS.to_owned());
        }
        names
    }
}

/// The client of a request, for faults.
pub(super) fn client(certified: Option<&Certified>, headers: &HeaderMap, source: IpAddr) -> Client {
    let users = match certified {
        Some(certified) => certified.names(),
        None => headers.get(AUTHORIZATION).map(names_in_token).unwrap_or_default(),
    };
    Client { users, source }
}

/// The user names in a token. It is not verified, since it only selects faults.
fn names_in_token(value: &HeaderValue) -> Vec<String> {
    let token = value.to_str().ok().and_then(|text| text.strip_prefix("Bearer "));
    let claims = token.and_then(|token| token.trim().split('.').nth(1));
    let claims = claims.and_then(|claims| URL_SAFE_NO_PAD.decode(claims).ok());
    let claims: Option<Value> = claims.and_then(|claims| serde_json::from_slice(&claims).ok());
    let Some(claims) = claims else {
        return Vec::new();
    };
    let mut names: Vec<String> = claims["sub"].as_str().map(str::to_owned).into_iter().collect();
    let bound = &claims["kubernetes.io"];
    if let Some(node) = bound["node"]["name"].as_str() {
        names.push(format!("system:node:{node}"));
    }
    let is_controller = names
        .first()
        .is_some_and(|name| name.starts_with(CONTROLLER_ACCOUNTS));
    if is_controller && bound["pod"].is_null() {
        names.push(CONTROLLERS.to_owned());
    }
    names
}

/// Sets the headers that name a user to the server. Those of the client are removed.
///
/// # Errors
/// A name can't be in a header.
pub(super) fn set_remote_user(certified: Option<&Certified>, headers: &mut HeaderMap) -> Result<(), String> {
    let remote: Vec<HeaderName> = headers
        .keys()
        .filter(|name| name.as_str().starts_with(REMOTE))
        .cloned()
        .collect();
    for name in remote {
        headers.remove(name);
    }
    let Some(certified) = certified else {
        return Ok(());
    };
    let value = |text: &String| {
        HeaderValue::from_str(text)
            .map_err(|_| format!("a certificate names {text:?}, which no header can have"))
    };
    headers.insert(USER, value(&certified.user)?);
    for group in &certified.groups {
        headers.append(GROUP, value(group)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SOURCE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn with_token(claims: &Value) -> HeaderMap {
        let text = format!("Bearer e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()));
        HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(&text).expect("a header"))])
    }

    fn certified(user: &str, groups: &[&str]) -> Certified {
        Certified {
            user: user.to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
        }
    }

    #[test]
    fn a_token_is_its_subjects_its_nodes_and_a_controllers() {
        let agent = json!({"sub": "system:serviceaccount:kube-system:agent", "kubernetes.io": {
            "node": {"name": "worker"}, "pod": {"name": "agent-1"}}});
        let controller = json!({"sub": "system:serviceaccount:kube-system:endpointslice-controller",
            "kubernetes.io": {"serviceaccount": {"name": "endpointslice-controller"}}});
        let other = json!({"sub": "system:serviceaccount:default:web"});
        let rows = [
            (
                agent,
                vec!["system:serviceaccount:kube-system:agent", "system:node:worker"],
            ),
            (
                controller,
                vec![
                    "system:serviceaccount:kube-system:endpointslice-controller",
                    CONTROLLERS,
                ],
            ),
            (other, vec!["system:serviceaccount:default:web"]),
            (json!({}), vec![]),
        ];
        for (claims, expected) in rows {
            assert_eq!(
                client(None, &with_token(&claims), SOURCE).users,
                expected,
                "{claims}"
            );
        }
        let opaque = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("Bearer opaque"))]);
        assert!(client(None, &opaque, SOURCE).users.is_empty());
    }

    #[test]
    fn a_certificate_is_whose_it_says_and_that_of_an_administrator_or_kubelet_is_exempt() {
        let scheduler = certified(SCHEDULER, &[]);
        let token = with_token(&json!({"sub": "another"}));
        assert_eq!(
            client(Some(&scheduler), &token, SOURCE).users,
            [SCHEDULER, CONTROLLERS]
        );
        let rows = [
            (certified("kubernetes-admin", &["kubeadm:cluster-admins"]), true),
            (certified("anybody", &["a", "system:masters"]), true),
            (certified("system:node:worker", &["system:nodes"]), true),
            (certified("system:node:worker", &[]), false),
            (scheduler, false),
        ];
        for (certified, expected) in rows {
            assert_eq!(certified.is_exempt(), expected, "{certified:?}");
        }
    }

    #[test]
    fn nobody_names_himself() {
        let sent = [
            "x-remote-user",
            "x-remote-group",
            "x-remote-extra-scopes",
            "x-remote-uid",
        ];
        let forged = || {
            HeaderMap::from_iter(sent.map(|name| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static("system:masters"),
                )
            }))
        };
        let mut headers = forged();
        set_remote_user(None, &mut headers).expect("removed");
        assert!(headers.is_empty(), "{headers:?}");
        let mut headers = forged();
        set_remote_user(Some(&certified("me", &["a", "b"])), &mut headers).expect("named");
        let groups: Vec<&HeaderValue> = headers.get_all(GROUP).iter().collect();
        assert_eq!((headers.len(), headers[USER].as_bytes()), (3, &b"me"[..]));
        assert_eq!(groups, ["a", "b"]);
        assert!(set_remote_user(Some(&certified("a\nb", &[])), &mut headers).is_err());
    }

    #[test]
    fn what_is_no_certificate_is_nobodys() {
        assert!(Certified::read(b"").is_err());
    }
}
