//! A fault of the API servers, while it lasts.

use std::fmt;

use async_trait::async_trait;

use crate::ClusterError;

/// What keeps a fault in force, as its provider has it. Letting go of it ends the fault, soon after.
#[async_trait]
pub trait Hold: fmt::Debug + Send + Sync {
    /// Ends the fault, as [`HeldApiFault::end`] has it.
    ///
    /// # Errors
    /// Those of [`HeldApiFault::end`].
    async fn end(self: Box<Self>) -> Result<(), ClusterError>;
}

/// A fault of the API servers that is in force.
///
/// It ends with [`HeldApiFault::end`], and soon after the value is dropped or its process ends, however that happens.
#[derive(Debug)]
#[must_use = "the fault ends when this is dropped"]
pub struct HeldApiFault(Box<dyn Hold>);

impl HeldApiFault {
    /// One that is in force as long as somebody holds this.
    pub fn new(hold: impl Hold + 'static) -> Self {
        Self(Box::new(hold))
    }

    /// Ends it; it is over when this returns.
    ///
    /// # Errors
    /// [`ClusterError::FaultLapsed`] if its time was over before: what was seen under it proves nothing. It could not be
    /// ended, such as an API server that does not start again.
    pub async fn end(self) -> Result<(), ClusterError> {
        self.0.end().await
    }
}
