//! Lists in pieces: `limit` and `continue` (`apiserver/pkg/storage/continue.go`).
//!
//! A token has the version of the first page and the last key of this one, so all pages show one state. If the history no
//! longer has that version, the response is 410 with a token that continues in the newest state.

use std::sync::Arc;

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    status::Status,
    store::{Listed, Object, Scope},
};

/// Version of the token's encoding.
const ENCODING: &str = "meta.k8s.io/v1";

/// A list, or a piece of one.
pub(super) struct Page {
    listed: Listed,
    /// Where the next one begins.
    next: Option<Token>,
    /// Objects beyond this page; not counted with a selector, as upstream does not.
    remaining: Option<usize>,
}

/// A parsed `continue` parameter.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Token {
    v: String,
    rv: i64,
    start: String,
}

/// The state that a page is cut from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// That of the first page.
    Version(u64),
    /// The newest: the client accepts that pages do not fit together.
    Newest,
}

impl Page {
    /// All of a list.
    pub(super) fn whole(listed: Listed) -> Self {
        Self {
            listed,
            next: None,
            remaining: None,
        }
    }

    /// The objects after a token, `limit` at most.
    pub(super) fn cut(
        mut listed: Listed,
        scope: &Scope,
        after: Option<&Token>,
        limit: Option<usize>,
    ) -> Self {
        if let Some(token) = after {
            listed
                .objects
                .retain(|object| position(scope, object) >= token.start);
        }
        let Some(limit) = limit.filter(|limit| *limit < listed.objects.len()) else {
            return Self::whole(listed);
        };
        let left = listed.objects.split_off(limit).len();
        let next = listed.objects.last().map(|last| Token {
            v: ENCODING.to_owned(),
            rv: i64::try_from(listed.version).unwrap_or(i64::MAX),
            // The smallest string after the last one.
            start: format!("{}\0", position(scope, last)),
        });
        Self {
            listed,
            next,
            remaining: scope.selector.is_empty().then_some(left),
        }
    }

    pub(super) fn objects(&self) -> &[Arc<Object>] {
        &self.listed.objects
    }

    /// The list's metadata.
    pub(super) fn metadata(&self) -> Value {
        let mut metadata = json!({"resourceVersion": self.listed.version.to_string()});
        if let Some(next) = &self.next {
            metadata["continue"] = next.encode().into();
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        metadata
    }
}

/// Where an object stands in a list: its key below what the scope names.
fn position(scope: &Scope, object: &Object) -> String {
    let text = |field: &str| object.meta()[field].as_str().unwrap_or_default();
    match (&scope.namespace, text("namespace")) {
        (None, namespace) if !namespace.is_empty() => format!("/{namespace}/{}", text("name")),
        _ => format!("/{}", text("name")),
    }
}

impl Token {
    /// Reads a `continue` parameter.
    ///
    /// # Errors
    /// 400 if it is not a server's token.
    pub(super) fn decode(text: &str) -> Result<Self, Status> {
        let invalid = |why: String| {
            Status::bad_request(format!(
                "invalid continue token: continue key is not valid: {why}"
            ))
        };
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text.trim_end_matches('='));
        let bytes = bytes.map_err(|error| invalid(error.to_string()))?;
        let token: Self = serde_json::from_slice(&bytes).map_err(|error| invalid(error.to_string()))?;
        if token.v != ENCODING {
            return Err(invalid(format!(
                "server does not recognize this encoded version {}",
                token.v
            )));
        }
        if token.rv == 0 {
            return Err(invalid(format!(
                "incorrect encoded start resourceVersion (version {ENCODING})"
            )));
        }
        if token.start.is_empty() {
            return Err(invalid(format!("encoded start key empty (version {ENCODING})")));
        }
        if token.start.split('/').any(|segment| segment == "..") {
            return Err(invalid(token.start));
        }
        Ok(Self {
            start: format!("/{}", token.start.trim_start_matches('/')),
            ..token
        })
    }

    pub(super) fn from(&self) -> From {
        u64::try_from(self.rv).map_or(From::Newest, From::Version)
    }

    /// 410 for a token whose version is lost, with a token that continues in the newest state.
    pub(super) fn expired(&self) -> Status {
        let newest = Self {
            rv: -1,
            ..self.clone()
        };
        Status::expired_continue(newest.encode())
    }

    fn encode(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(json!(self).to_string())
    }
}
