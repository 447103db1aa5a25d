//! Why a list or watch ended, and how it goes on.

use std::time::Duration;

use kube::core::Status;

use crate::feed::Closed;

/// Why a list or watch ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum WatchError {
    #[error(transparent)]
    Closed(#[from] Closed),
    #[error("the request failed: {}", describe(.0))]
    Refused(#[source] kube::Error),
    #[error("the connection broke: {}", describe(.0))]
    Broken(#[source] kube::Error),
    #[error("the API server sent a line that is no event: {}", describe(.0))]
    Unreadable(#[source] kube::Error),
    #[error("the watch ended: {}", describe_status(.0))]
    Status(Box<Status>),
    #[error("nothing came for {0:?}")]
    Silent(Duration),
    #[error("the API server ended the watch at once, and sent nothing")]
    AtOnce,
    #[error("the API server ended the stream before the end of the list")]
    Early,
    #[error("the API server does not stream lists: {0}")]
    NotStreamed(String),
    #[error("{0} has no resourceVersion")]
    NoVersion(&'static str),
}

impl WatchError {
    /// Whether no watch can begin at the last version.
    pub(super) fn needs_list(&self) -> bool {
        match self {
            Self::Status(status) => status.code == 410,
            Self::Refused(kube::Error::Api(status)) => status.code == 410,
            Self::Unreadable(_) | Self::NoVersion(_) | Self::NotStreamed(_) => true,
            Self::Closed(_)
            | Self::Refused(_)
            | Self::Broken(_)
            | Self::Silent(_)
            | Self::AtOnce
            | Self::Early => false,
        }
    }

    /// Whether the API server does not know this kind of object.
    pub(super) fn is_unknown_kind(&self) -> bool {
        matches!(self, Self::Refused(kube::Error::Api(status)) if status.code == 404)
    }

    /// Its name in metrics.
    pub(super) fn cause(&self) -> &'static str {
        match self {
            _ if matches!(self, Self::Status(_) | Self::Refused(_)) && self.needs_list() => "expired",
            Self::Refused(_) | Self::NotStreamed(_) => "refused",
            Self::Closed(_) | Self::Broken(_) | Self::Status(_) | Self::AtOnce | Self::Early => "broken",
            Self::Unreadable(_) | Self::NoVersion(_) => "unreadable",
            Self::Silent(_) => "silent",
        }
    }
}

/// Servers without streamed lists answer 400 or 422.
pub(super) fn not_streamed(error: kube::Error) -> WatchError {
    match error {
        kube::Error::Api(status) if matches!(status.code, 400 | 422) => {
            WatchError::NotStreamed(status.message)
        }
        error => WatchError::Refused(error),
    }
}

pub(super) fn broken(error: kube::Error) -> WatchError {
    match error {
        // From the last version the same line would come again.
        kube::Error::SerdeError(_) => WatchError::Unreadable(error),
        error => WatchError::Broken(error),
    }
}

/// A failed request; with the server's own message if it answered.
fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => describe_status(status),
        kube::Error::Service(error) => chain(error.as_ref()),
        error => chain(error),
    }
}

/// The message says which permission is missing, which no code does.
fn describe_status(status: &Status) -> String {
    format!(
        "the API server answers {} {}: {}",
        status.code, status.reason, status.message
    )
}

/// An error with all its sources.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Some of kube's errors repeat their source.
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
