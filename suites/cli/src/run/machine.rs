//! How many cases and labs a machine can run at once.
//!
//! Cases mostly wait, and clients limit their own rate. A processor's share depends on the case: one that creates pods
//! and runs controls takes half of it, one that holds for half a minute a hundredth. So two cases for each processor
//! always run, and each further one starts when a part of the machine has been idle for a moment. Otherwise limits
//! would judge the machine, especially one that is shared with other work.

use std::{fs, thread::available_parallelism, time::Duration};

use harness::limits::Profile;

/// Cases for each processor, however busy the machine is.
const CASES: usize = 2;
/// Limit of cases for each processor while the machine is idle: more labs would hardly be faster, and take memory.
const MOST_CASES: usize = 12;
/// Share of processor time that is idle, or used at a lower priority than cases, on a machine with room for one more
/// lab. With a fifth, one and a half of ten minutes of two processors were idle, and no case needed them.
const IDLE: f64 = 0.12;
/// The same on clusters, where pods take more to start: the share of a case that begins.
const IDLE_ON_CLUSTERS: f64 = 0.2;
/// Length of the measurement. A case that begins takes most of its processor time within its first seconds.
const WATCHED: Duration = Duration::from_secs(1);
/// Length of the measurement on clusters, where pods take so long to start.
const WATCHED_ON_CLUSTERS: Duration = Duration::from_secs(8);
/// Factor for concurrent cases while nodes of an existing cluster are idle. Own choice: they are others' too.
const WHERE_IDLE: usize = 3;
/// The same in a kind cluster. Eight on two processors left no case inconclusive, as each begins while the others wait;
/// with three, more than half of the time of both processors was idle.
const WHERE_KIND_IS_IDLE: usize = 8;
/// Cases that this machine runs on other machines' nodes, for each that it could run in labs.
const MORE_THAN_LABS: usize = 4;
/// Probes in a second that a processor can serve besides the kind cluster that it runs: half of what is answered when
/// no part of the cluster is idle (1,200, AMD EPYC, unoptimized programs; the pods' runtime handles every logged line
/// of a server). With twice as many, servers answered after five seconds, and half of the cases were inconclusive.
const PROBES_OF_KIND: usize = 600;
/// Memory that a lab with a case takes at most, in KiB.
const LAB_KIB: usize = 300 << 10;

/// Concurrent cases, however busy the machine is.
pub(super) fn jobs() -> usize {
    processors() * CASES
}

/// Concurrent cases for this profile, however busy the machine is: cases of a quick run make a fifteenth of the probes.
pub(super) fn always(profile: Profile) -> usize {
    match profile {
        Profile::Quick => jobs() * 2,
        _ => jobs(),
    }
}

/// Limit of concurrent cases while the machine has room.
pub(super) fn most_jobs() -> usize {
    processors() * MOST_CASES
}

pub(super) fn processors() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Returns when this machine has room for one more case.
pub(super) async fn room() {
    watched(WATCHED, IDLE, async || vec![Processors::now()]).await;
}

/// Returns when this machine has room for one more case on a cluster of kind.
pub(super) async fn room_of_kind() {
    watched(WATCHED_ON_CLUSTERS, IDLE_ON_CLUSTERS, async || {
        vec![Processors::now()]
    })
    .await;
}

/// Returns when each node of a cluster has room for one more case. `stat` returns the `/proc/stat` of each node; an
/// empty one could not be read, and counts as busy.
pub(super) async fn room_of_nodes(stat: impl AsyncFn() -> Vec<String>) {
    let now = async || stat().await.iter().map(|stat| Processors::of(stat)).collect();
    watched(WATCHED_ON_CLUSTERS, IDLE_ON_CLUSTERS, now).await;
}

/// Returns when all of these machines have been idle for long enough.
async fn watched(time: Duration, idle: f64, now: impl AsyncFn() -> Vec<Processors>) {
    let mut before = now().await;
    loop {
        tokio::time::sleep(time).await;
        let after = now().await;
        if have_room(&before, &after, idle) {
            return;
        }
        before = after;
    }
}

/// Whether this share of every machine was idle.
fn have_room(before: &[Processors], after: &[Processors], idle: f64) -> bool {
    let mut each = before.iter().zip(after);
    !after.is_empty()
        && before.len() == after.len()
        && each.all(|(before, after)| after.free_since(*before) >= idle)
}

/// USER_HZ: the unit of /proc, on every supported architecture.
const TICKS: f64 = 100.0;

/// Time of all processors since the machine started, in ticks of 1/[`TICKS`] s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Processors {
    all: u64,
    idle: u64,
    /// Time of programs with a positive nice value.
    nice: u64,
}

impl Processors {
    pub(super) fn now() -> Self {
        Self::of(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// Parses the first line of /proc/stat (proc(5)): user, nice, system, idle, iowait, irq, softirq, steal; the time
    /// of guests is part of user. Without this line, the machine counts as busy.
    fn of(stat: &str) -> Self {
        let numbers = stat.strip_prefix("cpu ").and_then(|rest| rest.lines().next());
        let numbers: Vec<u64> = numbers
            .into_iter()
            .flat_map(str::split_whitespace)
            .take(8)
            .filter_map(|number| number.parse().ok())
            .collect();
        Self {
            all: numbers.iter().sum(),
            idle: numbers.iter().skip(3).take(2).sum(),
            nice: numbers.get(1).copied().unwrap_or_default(),
        }
    }

    /// Seconds of all processors since then: busy, and idle.
    pub(super) fn since(self, before: Self) -> [f64; 2] {
        let idle = self.idle.saturating_sub(before.idle);
        let busy = self.all.saturating_sub(before.all).saturating_sub(idle);
        [busy, idle].map(|ticks| ticks as f64 / TICKS)
    }

    /// The share of the time since then that a case could have used.
    fn free_since(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        let free = self.idle.saturating_sub(before.idle) + self.nice.saturating_sub(before.nice);
        free as f64 / all as f64
    }
}

/// Concurrent cases in a kind cluster, however busy it is. The cluster takes most of a processor while pods start (API
/// servers, etcd, a kubelet for each node), and pods need as many processes as on a real node. Four cases that began at
/// once on two processors were all inconclusive.
pub(super) fn jobs_of_kind() -> usize {
    jobs().div_ceil(CASES * 2)
}

/// Limit of concurrent cases in a kind cluster while this machine is idle.
pub(super) fn jobs_of_idle_kind() -> usize {
    jobs_of_kind().saturating_mul(WHERE_KIND_IS_IDLE)
}

/// Limit of concurrent cases in an existing cluster whose nodes are idle; `always` cases run however busy they are.
pub(super) fn where_idle(always: usize) -> usize {
    always.saturating_mul(WHERE_IDLE)
}

/// Probes that each client of a case starts in a second in a kind cluster of so many nodes, which share this machine.
pub(super) fn rate_of_kind(nodes: usize) -> u32 {
    rate_of(processors(), nodes)
}

/// Divides by the clients: two on each node (host and pod), and one outside.
fn rate_of(processors: usize, nodes: usize) -> u32 {
    let clients = nodes * 2 + 1;
    u32::try_from(processors * PROBES_OF_KIND / clients)
        .unwrap_or(u32::MAX)
        .max(1)
}

/// Concurrent cases in an existing cluster: half of the processors of two nodes, since a case uses two; `weakest` is
/// the weakest node's capacity in thousandths of a processor (as in kind, nodes have other work, too). The reserve of a
/// kubelet, 70 thousandths of two processors on managed nodes, is rounded away. This machine only runs a process for
/// each case and one for each client, a twentieth of a processor together.
pub(super) fn jobs_of_cluster(weakest: u64) -> usize {
    let processors = usize::try_from((weakest.saturating_add(500)) / 1000).unwrap_or(usize::MAX);
    processors.clamp(1, jobs() * MORE_THAN_LABS)
}

/// Concurrent labs: one for each case, within half of the available memory.
pub(super) fn labs() -> usize {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    fitting(most_jobs(), &memory)
}

fn fitting(wanted: usize, meminfo: &str) -> usize {
    let available = available_kib(meminfo).map(|available| available / 2 / LAB_KIB);
    available.map_or(1, |labs| labs.clamp(1, wanted))
}

/// `MemAvailable` of /proc/meminfo (proc(5)).
fn available_kib(meminfo: &str) -> Option<usize> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_of_kind_has_a_quarter_of_the_cases_and_one_at_least() {
        assert_eq!(jobs_of_kind(), available_parallelism().unwrap().get().div_ceil(2));
        assert!(jobs_of_kind() >= 1);
    }

    #[test]
    fn nodes_have_room_if_each_of_them_has_and_all_can_be_read() {
        let at = |busy: u64, idle: u64| Processors::of(&format!("cpu  {busy} 0 0 {idle} 0 0 0 0\n"));
        let unread = Processors::of("");
        let before = [at(10, 10), at(10, 10)];
        for (after, expected) in [
            (vec![at(20, 50), at(90, 90)], true),
            (vec![at(20, 50), at(99, 11)], false),
            (vec![at(20, 50), unread], false),
            (vec![at(20, 50)], false),
            (vec![], false),
        ] {
            assert_eq!(have_room(&before, &after, IDLE), expected, "{after:?}");
        }
        assert!(!have_room(&[unread], &[unread], IDLE));
    }

    #[test]
    fn clients_in_a_cluster_of_kind_share_what_the_machine_bears() {
        assert_eq!(rate_of(2, 3), 171);
        assert_eq!(rate_of(1, 1000), 1);
        assert!(rate_of(16, 3) > 400, "as on machines of their own");
    }

    #[test]
    fn a_cluster_that_is_there_has_as_many_cases_as_its_own_nodes_bear() {
        assert_eq!(jobs_of_cluster(400), 1);
        assert_eq!(
            jobs_of_cluster(1930),
            2,
            "two processors, but for what the kubelet keeps"
        );
        assert_eq!(jobs_of_cluster(3920), 4);
        let most = available_parallelism().unwrap().get() * 8;
        assert_eq!(jobs_of_cluster(1_000_000), most, "this machine starts them");
    }

    #[test]
    fn a_machine_has_room_as_far_as_it_was_idle_or_nice() {
        let at = |busy: u64, nice: u64, idle: u64| {
            Processors::of(&format!(
                "cpu  {busy} {nice} 0 {idle} 5 0 0 0 7 0\ncpu0 1 2 3 4\n"
            ))
        };
        let (all, idle, nice) = (209, 105, 4);
        assert_eq!(at(100, 4, 100), Processors { all, idle, nice });
        assert!((at(130, 24, 150).free_since(at(100, 4, 100)) - 0.7).abs() < 1e-9);
        assert!(
            (Processors::of("").free_since(Processors::of(""))).abs() < 1e-9,
            "one that says nothing"
        );
        assert!(Processors::now().all > 0);
    }

    #[test]
    fn labs_are_as_many_as_cases_while_memory_lasts() {
        let with = |mib: usize| {
            format!(
                "MemTotal: 1 kB\nMemAvailable:   {} kB\nBuffers: 3 kB\n",
                mib << 10
            )
        };
        assert_eq!(fitting(6, &with(16 << 10)), 6);
        assert_eq!(fitting(6, &with(2 * 900)), 3);
        assert_eq!(fitting(6, &with(10)), 1, "one there must be");
        assert_eq!(fitting(6, ""), 1);
        assert!(available_kib(&fs::read_to_string("/proc/meminfo").unwrap()).is_some());
    }
}
