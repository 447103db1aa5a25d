//! Query parameters.

use std::time::Duration;

use super::page::Token;
use crate::{
    kinds::Kind,
    selector::Selector,
    status::{FieldError, Status},
};

/// The parameters of one request, as sent.
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

/// Where a list or a watch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// Unset: the newest state.
    Newest,
    /// "0": any state.
    Any,
    /// This version, or a later one.
    NotOlderThan(u64),
    /// Exactly this one.
    Exact(u64),
}

/// `fieldValidation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = form_urlencoded::parse(text.as_bytes());
        Self {
            pairs: pairs
                .map(|(key, value)| (key.into_owned(), value.into_owned()))
                .collect(),
        }
    }

    pub(crate) fn get(&self, name: &str) -> &str {
        self.pairs
            .iter()
            .find(|(key, _)| key == name)
            .map_or("", |(_, value)| value)
    }

    /// All values of a parameter, in their order.
    pub(super) fn all(&self, name: &str) -> Vec<String> {
        let named = self.pairs.iter().filter(|(key, _)| key == name);
        named.map(|(_, value)| value.clone()).collect()
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        // As upstream's conversion: present and not a word for no.
        self.pairs
            .iter()
            .any(|(key, value)| key == name && !matches!(value.as_str(), "false" | "0" | "False"))
    }

    pub(crate) fn watch(&self) -> bool {
        self.flag("watch")
    }

    pub(super) fn bookmarks(&self) -> bool {
        self.flag("allowWatchBookmarks")
    }

    pub(super) fn selector(&self, kind: Kind) -> Result<Selector, Status> {
        Selector::parse(kind, self.get("labelSelector"), self.get("fieldSelector"))
    }

    /// `timeoutSeconds`; zero is unset.
    pub(super) fn timeout(&self) -> Result<Option<Duration>, Status> {
        let seconds = self.number("timeoutSeconds")?.filter(|seconds| *seconds > 0);
        Ok(seconds.map(Duration::from_secs))
    }

    /// A parameter that is a number, if it is there.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Status> {
        match self.get(name) {
            "" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|_| Status::bad_request(format!("{name}: expected a number, found {text:?}"))),
        }
    }

    /// `limit`: `None` is no limit, as is none above zero.
    pub(super) fn limit(&self) -> Result<Option<usize>, Status> {
        let text = self.get("limit");
        let found: i64 = match text {
            "" => return Ok(None),
            _ => text
                .parse()
                .map_err(|_| Status::bad_request(format!("limit: expected a number, found {text:?}")))?,
        };
        Ok(usize::try_from(found).ok().filter(|limit| *limit > 0))
    }

    pub(super) fn dry_run(&self) -> Result<bool, Status> {
        match self.get("dryRun") {
            "" => Ok(false),
            "All" => Ok(true),
            other => Err(Status::bad_request(format!(
                "dryRun: expected \"All\", found {other:?}"
            ))),
        }
    }

    pub(super) fn field_validation(&self) -> Result<FieldValidation, Status> {
        match self.get("fieldValidation") {
            "" | "Warn" => Ok(FieldValidation::Warn),
            "Ignore" => Ok(FieldValidation::Ignore),
            "Strict" => Ok(FieldValidation::Strict),
            other => Err(Status::bad_request(format!(
                "fieldValidation: expected \"Ignore\", \"Warn\" or \"Strict\", found {other:?}"
            ))),
        }
    }

    /// Where a list starts.
    pub(super) fn list_at(&self) -> Result<At, Status> {
        let version = self.version()?;
        let limited = self.limit()?.is_some();
        match (self.get("resourceVersionMatch"), version) {
            ("", None) => Ok(At::Newest),
            (_, None) => Err(list_options(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            )),
            ("" | "NotOlderThan", Some(0)) => Ok(At::Any),
            // Older than resourceVersionMatch, and kept.
            ("", Some(version)) if limited => Ok(At::Exact(version)),
            ("" | "NotOlderThan", Some(version)) => Ok(At::NotOlderThan(version)),
            ("Exact", Some(0)) => Err(list_options(
                "resourceVersionMatch",
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            )),
            ("Exact", Some(version)) => Ok(At::Exact(version)),
            (other, Some(_)) => {
                let found = FieldError::unsupported(
                    "resourceVersionMatch",
                    &other.into(),
                    &["Exact", "NotOlderThan", ""],
                );
                Err(Status::invalid("meta.k8s.io", "ListOptions", "", &[found]))
            }
        }
    }

    /// Where the next piece of a list starts.
    pub(super) fn continued(&self) -> Result<Option<Token>, Status> {
        let text = self.get("continue");
        if text.is_empty() {
            return Ok(None);
        }
        if !self.get("resourceVersionMatch").is_empty() {
            let at = "resourceVersionMatch";
            let with_continue = "resourceVersionMatch is forbidden when continue is provided";
            let mut errors = vec![FieldError::forbidden(at, with_continue)];
            if self.version()?.is_none() {
                let alone = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                errors.insert(0, FieldError::forbidden(at, alone));
            }
            return Err(Status::invalid("meta.k8s.io", "ListOptions", "", &errors));
        }
        let token = Token::decode(text)?;
        if self.version()?.is_some_and(|version| version != 0) {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        Ok(Some(token))
    }

    /// Where a watch starts, and whether it wants the state as events first.
    pub(super) fn watch_at(&self) -> Result<(At, Option<bool>), Status> {
        let version = self.version()?;
        let initial = match self.get("sendInitialEvents") {
            "" => None,
            text => Some(text == "true" || text == "1"),
        };
        let matching = self.get("resourceVersionMatch");
        match (initial, matching) {
            (None, "") => {}
            (None, _) => {
                return Err(list_options(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                ));
            }
            (Some(_), "NotOlderThan") => {}
            (Some(_), _) => {
                return Err(list_options(
                    "resourceVersionMatch",
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                ));
            }
        }
        let at = match version {
            None => At::Newest,
            Some(0) => At::Any,
            Some(version) => At::NotOlderThan(version),
        };
        Ok((at, initial))
    }

    fn version(&self) -> Result<Option<u64>, Status> {
        match self.get("resourceVersion") {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                Status::bad_request(format!(
                    "invalid resource version: resourceVersion: Invalid value: {text:?}: expected a value that \
                     this server returned, or 0"
                ))
            }),
        }
    }
}

fn list_options(field: &str, why: &str) -> Status {
    Status::invalid(
        "meta.k8s.io",
        "ListOptions",
        "",
        &[FieldError::forbidden(field, why)],
    )
}
