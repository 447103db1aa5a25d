//! The API servers of a kind cluster, for cases.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use cluster::{ApiFault, ApiServer, Capability, ClusterError, ControlPlaneFaults, FaultLease};
use lab::api_is_ready;
use tokio::time::{sleep, timeout};

use super::{
    LIMITS,
    access::DebugClient,
    api::{self, ApiServers},
    state::Folder,
};

/// Number of consecutive responses that prove that no connection goes to a stopped server any more.
const ANSWERS: u32 = 5;

/// The API servers, and the settings of their faults.
#[derive(Debug)]
pub(super) struct KindControlPlane {
    pub(super) client: DebugClient,
    pub(super) api: ApiServers,
    /// Whether admission policies are supported: Kubernetes 1.30 or later.
    pub(super) knows_policies: bool,
    pub(super) folder: Folder,
    /// The program `plumbline` of this host.
    pub(super) plumbline: PathBuf,
}

impl KindControlPlane {
    /// The administrator's connections close shortly after their API server, and when response faults begin. Waits
    /// for several consecutive responses of the other servers, if there are any, for a limited time.
    async fn is_answered_again(&self) {
        let (begin, mut answers) = (Instant::now(), 0);
        while answers < ANSWERS && begin.elapsed() < LIMITS.request {
            if !self.api.list().iter().any(|server| server.running) {
                return;
            }
            let asked = timeout(LIMITS.request, api_is_ready(&self.client.0)).await;
            answers = if asked.unwrap_or(false) { answers + 1 } else { 0 };
            sleep(LIMITS.look).await;
        }
    }
}

#[async_trait]
impl ControlPlaneFaults for KindControlPlane {
    fn capabilities(&self) -> BTreeSet<Capability> {
        let mut all = BTreeSet::new();
        if self.api.are_several() {
            all.extend([
                Capability::ApiFaults,
                Capability::SharedAddress,
                Capability::WrongAnswers,
            ]);
        }
        if self.knows_policies {
            all.insert(Capability::Unreconciled);
        }
        all
    }

    async fn servers(&self) -> Result<Vec<ApiServer>, ClusterError> {
        Ok(self.api.list())
    }

    async fn begin(&self, fault: &ApiFault, lasts: Duration) -> Result<FaultLease, ClusterError> {
        let lease = api::begin(&self.plumbline, &self.folder, fault, lasts).await?;
        // The balancer closes connections when requests begin to pass through proxies.
        if matches!(fault, ApiFault::Down { .. } | ApiFault::Answers { .. }) {
            self.is_answered_again().await;
        }
        Ok(lease)
    }

    async fn jump_versions(&self, _: u32) -> Result<(), ClusterError> {
        Err(ClusterError::unsupported("let the resourceVersion jump"))
    }
}
