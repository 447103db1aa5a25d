//! Pins that the agent does not see.

use std::sync::Arc;

use cluster::{Cluster, Stop};

use crate::{
    FaultError,
    agent::{BPFFS, heal_in_drop, on_host},
};

/// What the new one is named as its source: by it, whoever comes after a killed process knows it from a node's own.
const SOURCE: &str = "plumbline-cover";
/// Most that are taken away.
const COVERS: usize = 16;

/// A new bpffs, mounted over the node's: what is pinned stays pinned, and nobody finds it.
///
/// Drop takes it away, if it happens in a multi-threaded runtime, and starts the agent again, which then finds its pins. Nobody
/// on the node knows when that should be, so it does not expire: [`heal`](crate::heal) does it for a process that has died.
#[must_use = "the pins are seen again when this is dropped"]
pub struct HiddenPins {
    cluster: Arc<Cluster>,
    node: String,
    hidden: bool,
}

impl HiddenPins {
    /// Hides them. The node's agent must be down.
    pub async fn hide(cluster: Arc<Cluster>, node: &str) -> Result<Self, FaultError> {
        // Before the attempt: one that is broken off halfway must heal too.
        let fault = Self {
            cluster,
            node: node.to_owned(),
            hidden: true,
        };
        on_host(&fault.cluster, node, &["mount", "-t", "bpf", SOURCE, BPFFS]).await?;
        Ok(fault)
    }

    /// Heals: stops the agent, takes the new bpffs away with all that is pinned there, and starts the agent.
    pub async fn heal(mut self) -> Result<(), FaultError> {
        self.uncover().await?;
        self.hidden = false;
        Ok(())
    }

    async fn uncover(&self) -> Result<(), FaultError> {
        uncover(&self.cluster, &self.node).await
    }
}

/// Whether such a bpffs covers that of a node.
///
/// # Errors
/// The node can't be reached.
pub(crate) async fn covered(cluster: &Cluster, node: &str) -> Result<bool, FaultError> {
    let mounts = on_host(cluster, node, &["cat", "/proc/self/mountinfo"]).await?;
    Ok(is_covered(&mounts))
}

/// Stops the agent, which holds what it has opened there, takes away what covers the node's bpffs, and starts it whatever
/// became of that.
///
/// # Errors
/// The agent does not stop or start; what covers the bpffs stays.
pub(crate) async fn uncover(cluster: &Cluster, node: &str) -> Result<(), FaultError> {
    cluster.agents()?.stop(node, Stop::Term).await?;
    let gone = async {
        for _ in 0..COVERS {
            if !covered(cluster, node).await? {
                break;
            }
            on_host(cluster, node, &["umount", BPFFS]).await?;
        }
        Ok(())
    };
    let gone = gone.await;
    cluster.agents()?.start(node, None).await?;
    gone
}

/// Whether what is seen at the node's bpffs is one of ours: of several mounts there, the last (proc(5)).
fn is_covered(mountinfo: &str) -> bool {
    let at_bpffs = |line: &&str| line.split(' ').nth(4) == Some(BPFFS);
    let top = mountinfo.lines().rfind(at_bpffs);
    let source = top.and_then(|line| line.split_once(" - ")?.1.split(' ').nth(1));
    source == Some(SOURCE)
}

impl Drop for HiddenPins {
    fn drop(&mut self) {
        if self.hidden {
            heal_in_drop(&format!("the pins of {} stay hidden", self.node), self.uncover());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "61 50 0:40 / /sys/fs/bpf rw,nosuid - bpf bpf rw,mode=700\n";
    const COVER: &str = "70 61 0:44 / /sys/fs/bpf rw,relatime - bpf plumbline-cover rw\n";
    const ELSEWHERE: &str = "71 50 0:45 / /mnt rw,relatime - bpf plumbline-cover rw\n";

    #[test]
    fn pins_are_covered_by_a_bpffs_of_ours_on_top_and_by_none_of_somebody_elses() {
        assert!(is_covered(&[OWN, COVER].concat()));
        assert!(!is_covered(OWN), "the node's own");
        assert!(!is_covered(&[OWN, OWN].concat()), "somebody else's");
        assert!(
            !is_covered(&[OWN, COVER, OWN].concat()),
            "somebody else's, on ours"
        );
        assert!(!is_covered(&[OWN, ELSEWHERE].concat()), "somewhere else");
        assert!(!is_covered(""));
    }
}
