//! An agent that is down.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cluster::{Cluster, Place, Stop, Variant};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    time::{Instant, sleep, timeout},
};

use crate::{FaultError, Remains};

/// How long a drop waits for the start.
const START: Duration = Duration::from_secs(30);
/// How long a command on a node may take: none of them waits for anything.
const COMMAND: Duration = Duration::from_secs(30);
/// From one look at links that end to the next: time enough for several of them.
const LOOK: Duration = Duration::from_millis(250);
/// What drops could not undo, in words.
static UNHEALED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Where a node has its bpffs.
pub(crate) const BPFFS: &str = "/sys/fs/bpf";

/// The agent of a node, stopped and kept from starting again.
///
/// Drop starts it, if it happens in a multi-threaded runtime. Nobody on the node knows when it should be up again,
/// so it does not expire: whoever runs a case looks for agents that are down when its process has died.
#[must_use = "the agent starts again when this is dropped"]
pub struct StoppedAgent {
    cluster: Arc<Cluster>,
    node: String,
    is_down: bool,
}

impl StoppedAgent {
    /// Stops it.
    pub async fn stop(cluster: Arc<Cluster>, node: &str, how: Stop) -> Result<Self, FaultError> {
        // Before the attempt: one that fails halfway must heal too.
        let fault = Self {
            cluster,
            node: node.to_owned(),
            is_down: true,
        };
        fault.cluster.agents()?.stop(node, how).await?;
        Ok(fault)
    }

    /// Takes what the agent pins off the node's bpffs ([`Cluster::pins`]), as when that was a container's own and went with
    /// it: what only pins kept is gone, what is attached or held otherwise goes on with its maps as they are. (An agent's
    /// own clean-up may see to it that programs that somebody holds do nothing any more.) The kernel ends links one after the
    /// other, some twenty milliseconds for each device: those of a node with a hundred pods serve for seconds after their agent
    /// and its pins are gone, and none does when this returns.
    ///
    /// # Errors
    /// It can't be removed, or links still end after half a minute; nobody knows what the agent pins
    /// ([`Capability::AgentPins`](cluster::Capability)).
    pub async fn lose_pins(&self) -> Result<(), FaultError> {
        let Some(delete) = deletion(BPFFS, &self.cluster.agents()?.pins()) else {
            return Err(FaultError::Refused {
                node: self.node.clone(),
                what: "take the agent's pins away".to_owned(),
                why: "they are not known: the target's file names none in `pins`".to_owned(),
            });
        };
        let delete: Vec<&str> = delete.iter().map(String::as_str).collect();
        on_host(&self.cluster, &self.node, &delete).await?;
        self.links_have_ended().await
    }

    /// Returns when no more of what is attached goes.
    async fn links_have_ended(&self) -> Result<(), FaultError> {
        until_same(|| self.attached())
            .await?
            .map_err(|[before, now]| FaultError::Refused {
                node: self.node.clone(),
                what: "take the agent's pins away".to_owned(),
                why: format!("links still end after {COMMAND:?}: {now} are attached, after {before}"),
            })
    }

    async fn attached(&self) -> Result<Remains, FaultError> {
        Ok(Remains::of(&self.cluster, &self.node).await?.attached())
    }

    /// Heals: starts it again.
    pub async fn start(mut self) -> Result<(), FaultError> {
        self.cluster.agents()?.start(&self.node, None).await?;
        self.is_down = false;
        Ok(())
    }

    /// Starts it in another configuration.
    pub async fn start_as(mut self, variant: Variant) -> Result<OtherwiseConfigured, FaultError> {
        self.cluster.agents()?.start(&self.node, Some(variant)).await?;
        self.is_down = false;
        Ok(OtherwiseConfigured {
            cluster: Arc::clone(&self.cluster),
            node: self.node.clone(),
            is_on: true,
        })
    }
}

/// The agent of a node, which runs in another configuration than its target's own.
///
/// Drop starts it as it was, if it happens in a multi-threaded runtime. It does not expire: whoever runs a case looks for
/// such agents when its process has died.
#[must_use = "the agent gets its own configuration again when this is dropped"]
pub struct OtherwiseConfigured {
    cluster: Arc<Cluster>,
    node: String,
    is_on: bool,
}

impl OtherwiseConfigured {
    /// Heals: ends it, and starts it in its target's own configuration.
    pub async fn heal(mut self) -> Result<(), FaultError> {
        self.cluster.agents()?.start(&self.node, None).await?;
        self.is_on = false;
        Ok(())
    }
}

impl Drop for OtherwiseConfigured {
    fn drop(&mut self) {
        if !self.is_on {
            return;
        }
        let what = format!("the agent of {} stays in another configuration", self.node);
        heal_in_drop(&what, async {
            Ok(self.cluster.agents()?.start(&self.node, None).await?)
        });
    }
}

/// Looks until two looks see the same; after [`COMMAND`] the last two.
async fn until_same<T: PartialEq, F: Future<Output = Result<T, FaultError>>>(
    look: impl Fn() -> F,
) -> Result<Result<(), [T; 2]>, FaultError> {
    let began = Instant::now();
    let mut before = look().await?;
    loop {
        sleep(LOOK).await;
        let now = look().await?;
        if now == before {
            return Ok(Ok(()));
        }
        if began.elapsed() > COMMAND {
            return Ok(Err([before, now]));
        }
        before = now;
    }
}

/// Deletes what these patterns name below a folder, and what is below that: find(1), whose `*` also stands for slashes.
fn deletion(folder: &str, pins: &[String]) -> Option<Vec<String>> {
    // Files with a dot are the kernel's own.
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

/// Runs a command on a node, to its end; returns what it wrote to stdout.
pub(crate) async fn on_host(cluster: &Cluster, node: &str, command: &[&str]) -> Result<String, FaultError> {
    let refused = |why: String| FaultError::Refused {
        node: node.to_owned(),
        what: command.join(" "),
        why,
    };
    let place = Place::Host {
        node: node.to_owned(),
    };
    let argv: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
    let child = cluster.exec(&place, &argv).await?;
    let output = timeout(COMMAND, child.wait_with_output())
        .await
        .map_err(|_| refused(format!("it has not ended within {COMMAND:?}")))?
        .map_err(|error| refused(error.to_string()))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(refused(String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}

/// What could not be undone when faults of this process were dropped, in words: it is as they made it, until
/// [`heal`](crate::heal) undoes it.
#[must_use]
pub fn unhealed() -> Vec<String> {
    UNHEALED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Runs in a drop what heals a fault, for at most [`START`]; [`unhealed`] has what it could not.
pub(crate) fn heal_in_drop(what: &str, healing: impl Future<Output = Result<(), FaultError>>) {
    let why = match Handle::try_current() {
        Ok(handle) if handle.runtime_flavor() == RuntimeFlavor::MultiThread => {
            match tokio::task::block_in_place(|| handle.block_on(timeout(START, healing))) {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("not healed within {START:?}"),
            }
        }
        _ => "there is no runtime to heal it in".to_owned(),
    };
    tracing::error!("{what}: {why}");
    let mut all = UNHEALED.lock().unwrap_or_else(PoisonError::into_inner);
    all.push(format!("{what}: {why}"));
}

impl Drop for StoppedAgent {
    fn drop(&mut self) {
        if !self.is_down {
            return;
        }
        heal_in_drop(&format!("the agent of {} stays down", self.node), async {
            Ok(self.cluster.agents()?.start(&self.node, None).await?)
        });
    }
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
    async fn what_goes_step_by_step_is_waited_for_and_not_for_ever() {
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
    fn pins_that_are_lost_are_those_of_the_agent_and_the_kernels_own_stay() {
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

    #[tokio::test(flavor = "multi_thread")]
    async fn what_a_drop_could_not_undo_is_known_afterwards() {
        heal_in_drop("the agent of n1 stays down", async { Ok(()) });
        assert_eq!(unhealed(), [""; 0]);
        let refused = FaultError::Refused {
            node: "n2".to_owned(),
            what: "umount".to_owned(),
            why: "target is busy".to_owned(),
        };
        let expected = format!("the pins of n2 stay hidden: {refused}");
        heal_in_drop("the pins of n2 stay hidden", async { Err(refused) });
        assert_eq!(unhealed(), [expected]);
    }
}
