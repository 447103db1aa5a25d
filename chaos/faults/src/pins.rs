//! Pins that the agent does not see.

use cluster::{Cluster, Stop};

use crate::{
    FaultError, FaultInjector,
    commands::{self, BPFFS},
};

/// Source of the new mount, which tells it from the node's own bpffs.
const SOURCE: &str = "plumbline-cover";
/// Most mounts that are removed at once.
const MOST_MOUNTS: usize = 16;

/// A new bpffs, mounted over the node's: what is pinned stays pinned, but is not found.
///
/// Dropping it unmounts it, in a multi-threaded runtime, and starts the agent, which then finds its pins. It does not
/// expire: if the process of its case dies, [`heal`](crate::heal) does the same.
#[must_use = "the pins are seen again when this is dropped"]
pub struct HiddenPins {
    injector: FaultInjector,
    node: String,
    is_hidden: bool,
}

impl HiddenPins {
    /// Hides them. The node's agent must be down.
    pub async fn hide(injector: &FaultInjector, node: &str) -> Result<Self, FaultError> {
        // Before the attempt: one that fails halfway must heal too.
        let fault = Self {
            injector: injector.clone(),
            node: node.to_owned(),
            is_hidden: true,
        };
        let mount = ["mount", "-t", "bpf", SOURCE, BPFFS];
        commands::run(injector.cluster(), node, &mount).await?;
        Ok(fault)
    }

    /// Heals: stops the agent, unmounts the new bpffs with all that is pinned there, and starts the agent.
    pub async fn heal(mut self) -> Result<(), FaultError> {
        uncover(self.injector.cluster(), &self.node).await?;
        self.is_hidden = false;
        Ok(())
    }
}

impl Drop for HiddenPins {
    fn drop(&mut self) {
        if self.is_hidden {
            let fault = format!("the pins of {} stay hidden", self.node);
            self.injector
                .heal_in_drop(&fault, uncover(self.injector.cluster(), &self.node));
        }
    }
}

/// Whether such a bpffs covers that of a node.
///
/// # Errors
/// The node can't be reached.
pub(crate) async fn covered(cluster: &Cluster, node: &str) -> Result<bool, FaultError> {
    let mounts = commands::run(cluster, node, &["cat", "/proc/self/mountinfo"]).await?;
    Ok(is_covered(&mounts))
}

/// Stops the agent, which has files open there, unmounts what covers the node's bpffs, and starts the agent even if
/// unmounting failed.
///
/// # Errors
/// The agent does not stop or start, or unmounting failed.
pub(crate) async fn uncover(cluster: &Cluster, node: &str) -> Result<(), FaultError> {
    cluster.agents()?.stop(node, Stop::Term).await?;
    let unmounted = unmount(cluster, node).await;
    cluster.agents()?.start(node, None).await?;
    unmounted
}

async fn unmount(cluster: &Cluster, node: &str) -> Result<(), FaultError> {
    for _ in 0..MOST_MOUNTS {
        if !covered(cluster, node).await? {
            break;
        }
        commands::run(cluster, node, &["umount", BPFFS]).await?;
    }
    Ok(())
}

/// Whether the last mount at the node's bpffs, which is the one that is seen (proc(5)), is one of ours.
fn is_covered(mountinfo: &str) -> bool {
    let at_bpffs = |line: &&str| line.split(' ').nth(4) == Some(BPFFS);
    let top = mountinfo.lines().rfind(at_bpffs);
    let source = top.and_then(|line| line.split_once(" - ")?.1.split(' ').nth(1));
    source == Some(SOURCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "61 50 0:40 / /sys/fs/bpf rw,nosuid - bpf bpf rw,mode=700\n";
    const COVER: &str = "70 61 0:44 / /sys/fs/bpf rw,relatime - bpf plumbline-cover rw\n";
    const ELSEWHERE: &str = "71 50 0:45 / /mnt rw,relatime - bpf plumbline-cover rw\n";

    #[test]
    fn only_our_own_bpffs_on_top_hides_pins() {
        assert!(is_covered(&[OWN, COVER].concat()));
        assert!(!is_covered(OWN), "the node's own");
        assert!(!is_covered(&[OWN, OWN].concat()), "another owner's");
        assert!(
            !is_covered(&[OWN, COVER, OWN].concat()),
            "another owner's, on ours"
        );
        assert!(!is_covered(&[OWN, ELSEWHERE].concat()), "at another path");
        assert!(!is_covered(""));
    }
}
