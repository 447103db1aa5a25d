//! Agents that are stopped, or run in another configuration.

use std::time::Duration;

use cluster::{Stop, Variant};
use tokio::time::{Instant, sleep};

use crate::{
    FaultError, FaultInjector, Remains,
    commands::{self, BPFFS},
};

/// Limit until links whose pins were deleted have ended.
const LINKS_LIMIT: Duration = Duration::from_secs(30);
/// Between two counts of what is attached: long enough for the kernel to end several links.
const POLL: Duration = Duration::from_millis(250);

/// The agent of a node, stopped and kept from starting again.
///
/// Dropping it starts the agent, in a multi-threaded runtime. It does not expire: if the process of its case dies,
/// [`heal`](crate::heal) starts the agent.
#[must_use = "the agent starts again when this is dropped"]
pub struct StoppedAgent {
    injector: FaultInjector,
    node: String,
    is_down: bool,
}

impl StoppedAgent {
    /// Stops it.
    pub async fn stop(injector: &FaultInjector, node: &str, how: Stop) -> Result<Self, FaultError> {
        // Before the attempt: one that fails halfway must heal too.
        let fault = Self {
            injector: injector.clone(),
            node: node.to_owned(),
            is_down: true,
        };
        injector.cluster().agents()?.stop(node, how).await?;
        Ok(fault)
    }

    /// Deletes what the agent pins ([`AgentControl::pins`](cluster::AgentControl::pins)) from the node's bpffs, as if that had been a
    /// container's own. What only pins held ends; everything else stays attached, with its maps.
    ///
    /// Returns when the links have ended. The kernel ends them one after the other, about 20 ms per device, so on a node
    /// with a hundred pods some would otherwise serve for seconds.
    ///
    /// # Errors
    /// Deleting failed, links still end after 30 s, or the target file names no pins
    /// ([`Capability::AgentPins`](cluster::Capability)).
    pub async fn lose_pins(&self) -> Result<(), FaultError> {
        let Some(delete) = deletion(BPFFS, &self.injector.cluster().agents()?.pins()) else {
            return Err(FaultError::Refused {
                node: self.node.clone(),
                what: "take the agent's pins away".to_owned(),
                why: "they are not known: the target's file names none in `pins`".to_owned(),
            });
        };
        let delete: Vec<&str> = delete.iter().map(String::as_str).collect();
        commands::run(self.injector.cluster(), &self.node, &delete).await?;
        self.links_have_ended().await
    }

    /// Waits until the number of attachments no longer falls.
    async fn links_have_ended(&self) -> Result<(), FaultError> {
        until_same(|| self.attached())
            .await?
            .map_err(|[before, now]| FaultError::Refused {
                node: self.node.clone(),
                what: "take the agent's pins away".to_owned(),
                why: format!("links still end after {LINKS_LIMIT:?}: {now} are attached, after {before}"),
            })
    }

    async fn attached(&self) -> Result<Remains, FaultError> {
        Ok(Remains::of(self.injector.cluster(), &self.node).await?.attached())
    }

    /// Heals: starts it again.
    pub async fn start(mut self) -> Result<(), FaultError> {
        self.injector.cluster().agents()?.start(&self.node, None).await?;
        self.is_down = false;
        Ok(())
    }

    /// Starts it in another configuration.
    pub async fn start_as(mut self, variant: Variant) -> Result<ReconfiguredAgent, FaultError> {
        self.injector
            .cluster()
            .agents()?
            .start(&self.node, Some(variant))
            .await?;
        self.is_down = false;
        Ok(ReconfiguredAgent {
            injector: self.injector.clone(),
            node: self.node.clone(),
            is_reconfigured: true,
        })
    }
}

impl Drop for StoppedAgent {
    fn drop(&mut self) {
        if !self.is_down {
            return;
        }
        let fault = format!("the agent of {} stays down", self.node);
        self.injector.heal_in_drop(&fault, async {
            Ok(self.injector.cluster().agents()?.start(&self.node, None).await?)
        });
    }
}

/// The agent of a node, running in another configuration than its target's own.
///
/// Dropping it starts the agent as its target runs it, in a multi-threaded runtime. It does not expire: if the process of
/// its case dies, [`heal`](crate::heal) does the same.
#[must_use = "the agent gets its own configuration again when this is dropped"]
pub struct ReconfiguredAgent {
    injector: FaultInjector,
    node: String,
    is_reconfigured: bool,
}

impl ReconfiguredAgent {
    /// Heals: ends it, and starts it in its target's own configuration.
    pub async fn heal(mut self) -> Result<(), FaultError> {
        self.injector.cluster().agents()?.start(&self.node, None).await?;
        self.is_reconfigured = false;
        Ok(())
    }
}

impl Drop for ReconfiguredAgent {
    fn drop(&mut self) {
        if !self.is_reconfigured {
            return;
        }
        let fault = format!("the agent of {} stays in another configuration", self.node);
        self.injector.heal_in_drop(&fault, async {
            Ok(self.injector.cluster().agents()?.start(&self.node, None).await?)
        });
    }
}

/// Calls `look` until two successive results are equal. Returns the last two if that takes longer than [`LINKS_LIMIT`].
async fn until_same<T: PartialEq, F: Future<Output = Result<T, FaultError>>>(
    look: impl Fn() -> F,
) -> Result<Result<(), [T; 2]>, FaultError> {
    let began = Instant::now();
    let mut before = look().await?;
    loop {
        sleep(POLL).await;
        let now = look().await?;
        if now == before {
            return Ok(Ok(()));
        }
        if began.elapsed() > LINKS_LIMIT {
            return Ok(Err([before, now]));
        }
        before = now;
    }
}

/// The find(1) command that deletes everything below a folder that matches a pattern, with its contents. Its `*` matches
/// slashes too.
fn deletion(folder: &str, pins: &[String]) -> Option<Vec<String>> {
    // Files with a dot in their name are the kernel's own.
    let mut words = vec!["find", folder, "-mindepth", "1", "!", "-name", "*.*", "("];
    let paths = pins
        .iter()
        .flat_map(|pattern| [format!("{folder}/{pattern}"), format!("{folder}/{pattern}/*")]);
    let paths: Vec<String> = paths.collect();
    let (first, others) = paths.split_first()?;
    words.extend(["-path", first]);
    words.extend(others.iter().flat_map(|other| ["-o", "-path", other]));
    words.extend([")", "-delete"]);
    Some(words.into_iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        future::ready,
        path::Path,
        process::Command,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use cluster::EVERY_PIN;

    use super::*;

    const ALL: [&str; 5] = [
        "maps.debug",
        "own/v1/maps/A",
        "ownership/B",
        "tc/globals/own_C",
        "tc/globals/D",
    ];

    /// What is left of [`ALL`] when these are deleted.
    fn left(pins: &[&str]) -> Vec<&'static str> {
        let folder = tempfile::tempdir().unwrap();
        for name in ALL {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let pins: Vec<String> = pins.iter().map(|&pattern| pattern.to_owned()).collect();
        let words = deletion(folder.path().to_str().unwrap(), &pins).unwrap();
        let ended = Command::new(&words[0]).args(&words[1..]).status().unwrap();
        assert!(ended.success());
        let is_left = |name: &&str| Path::exists(&folder.path().join(name));
        ALL.into_iter().filter(is_left).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_falling_count_is_awaited_but_not_for_ever() {
        let looks = AtomicUsize::new(0);
        let next = || looks.fetch_add(1, Ordering::Relaxed);
        let ends = || ready(Ok(5_usize.saturating_sub(next())));
        assert_eq!(until_same(ends).await.unwrap(), Ok(()));
        assert_eq!(looks.load(Ordering::Relaxed), 7, "0 was seen twice");
        let endless = || ready(Ok(next()));
        let [before, now] = until_same(endless).await.unwrap().unwrap_err();
        assert_eq!(now, before + 1);
    }

    #[test]
    fn only_pins_of_the_agent_are_deleted() {
        assert_eq!(
            left(&["own"]),
            ["maps.debug", "ownership/B", "tc/globals/own_C", "tc/globals/D"]
        );
        assert_eq!(
            left(&["own", "tc/globals/own_*"]),
            ["maps.debug", "ownership/B", "tc/globals/D"]
        );
        assert_eq!(left(&["not-there"]), ALL);
        assert_eq!(left(&[EVERY_PIN]), ["maps.debug"]);
        assert_eq!(deletion("/", &[]), None);
    }
}
