//! Bearer tokens. A client with a token may do everything; one without may read health and version.

use std::collections::BTreeMap;

use hyper::http::{HeaderMap, header::AUTHORIZATION};

use crate::status::Status;

/// Bearer tokens and the users they stand for (`--token-auth-file`).
#[derive(Clone, Debug, Default)]
pub struct Auth {
    users: BTreeMap<String, String>,
}

impl Auth {
    /// No users: every request is anonymous.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a user.
    #[must_use]
    pub fn with_user(mut self, token: impl Into<String>, user: impl Into<String>) -> Self {
        self.users.insert(token.into(), user.into());
        self
    }

    /// The user of a request: `None` is anonymous, and so is an empty token or another scheme. A token that
    /// is unknown is 401, as upstream.
    pub(crate) fn user(&self, headers: &HeaderMap) -> Result<Option<&str>, Status> {
        let value = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = value
            .and_then(|text| text.strip_prefix("Bearer "))
            .map_or("", str::trim);
        if token.is_empty() {
            return Ok(None);
        }
        let user = self.users.get(token).map(String::as_str);
        user.map(Some).ok_or_else(Status::unauthorized)
    }
}

/// A new token from the operating system's random numbers (122 bits).
#[must_use]
pub fn new_token() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}
