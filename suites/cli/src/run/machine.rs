//! What a machine can bear: how many cases and labs at once.
//!
//! Cases wait for most of their time, and clients pace themselves. How many a processor bears depends on what they do: one that
//! stages pods and controls takes half of it, one that holds for half a minute a hundredth. So two cases for each processor run
//! however busy it is, and each further one begins when the machine has been idle for a part of the last moments. On a machine
//! that others use, too, limits would otherwise judge the machine.

use std::{fs, thread::available_parallelism, time::Duration};

use harness::limits::Profile;

/// Cases for each processor, however busy it is.
const CASES: usize = 2;
/// The same at most, where it is idle: more labs than these would hardly be faster, and take memory.
const MOST_CASES: usize = 12;
/// The part of its processors' time that a machine with room for one more case is idle, or works on what has a lower priority than
/// cases: that of a case that begins.
const IDLE: f64 = 0.2;
/// How long it is watched. A case that begins takes most of what it takes within its first seconds.
const WATCHED: Duration = Duration::from_millis(1500);
/// The same on clusters, whose pods come up for so long.
const WATCHED_ON_CLUSTERS: Duration = Duration::from_secs(8);
/// Cases at once where nodes are idle, for each that runs however busy they are. Of those of kind three on two processors left
/// nothing undecided, as each begins where the others wait.
const WHERE_IDLE: usize = 3;
/// What this machine bears of cases whose nodes are others, in those of labs.
const MORE_THAN_LABS: usize = 4;
/// Probes in a second that a processor bears beside the cluster of kind of which it is: half of what is answered when nothing of it is
/// idle (1,200, AMD EPYC, unoptimized programs; the runtime of pods has every line that a server says). Asked for twice of
/// that, servers answered after five seconds, and half of the cases of a run were not decided.
const PROBES_OF_KIND: usize = 600;
/// What a lab with a case takes at most, in KiB of memory.
const LAB_KIB: usize = 300 << 10;

/// Cases at once, however busy the machine is.
pub(super) fn jobs() -> usize {
    processors() * CASES
}

/// The same in a run of this profile: cases of a quick one ask for a fifteenth of the probes.
pub(super) fn always(profile: Profile) -> usize {
    match profile {
        Profile::Quick => jobs() * 2,
        _ => jobs(),
    }
}

/// Cases at once where it has room.
pub(super) fn most_jobs() -> usize {
    processors() * MOST_CASES
}

pub(super) fn processors() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Returns when this machine has room for one more case.
pub(super) async fn room() {
    watched(WATCHED, async || vec![Processors::now()]).await;
}

/// Returns when this machine has room for one more case on a cluster of kind.
pub(super) async fn room_of_kind() {
    watched(WATCHED_ON_CLUSTERS, async || vec![Processors::now()]).await;
}

/// Returns when each node of a cluster has room for one more case; `stat`: the `/proc/stat` of each, empty where it can't be
/// read, which is no room.
pub(super) async fn room_of_nodes(stat: impl AsyncFn() -> Vec<String>) {
    let now = async || stat().await.iter().map(|stat| Processors::of(stat)).collect();
    watched(WATCHED_ON_CLUSTERS, now).await;
}

/// Returns when all of these machines have been idle for long enough.
async fn watched(time: Duration, now: impl AsyncFn() -> Vec<Processors>) {
    let mut before = now().await;
    loop {
        tokio::time::sleep(time).await;
        let after = now().await;
        if have_room(&before, &after) {
            return;
        }
        before = after;
    }
}

/// Whether each of them has.
fn have_room(before: &[Processors], after: &[Processors]) -> bool {
    let mut each = before.iter().zip(after);
    !after.is_empty()
        && before.len() == after.len()
        && each.all(|(before, after)| after.free_since(*before) >= IDLE)
}

/// USER_HZ: what /proc counts in, on every architecture that this runs on.
const TICKS: f64 = 100.0;

/// Time of all processors since the machine started, in ticks of [`TICKS`] a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Processors {
    all: u64,
    idle: u64,
    /// By programs with a positive nice value.
    nice: u64,
}

impl Processors {
    pub(super) fn now() -> Self {
        Self::of(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// The first line of /proc/stat (proc(5)): user, nice, system, idle, iowait, irq, softirq, steal; what guests take is part
    /// of user. A machine that does not say has no room.
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

    /// The part of the time since then that a case could have had.
    fn free_since(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        let free = self.idle.saturating_sub(before.idle) + self.nice.saturating_sub(before.nice);
        free as f64 / all as f64
    }
}

/// Cases at once in a cluster of kind, however busy it is: it takes most of a processor by itself while pods come up (API servers,
/// etcd, a kubelet for each node), and pods are made by as many processes as on a real node. Four that begin at once on two
/// processors left nothing decided.
pub(super) fn jobs_of_kind() -> usize {
    jobs().div_ceil(CASES * 2)
}

/// Cases at once on a cluster whose nodes are idle, of which `always` run however busy they are.
pub(super) fn where_idle(always: usize) -> usize {
    always.saturating_mul(WHERE_IDLE)
}

/// Probes that each client of a case begins in a second in a cluster of kind of so many nodes, all of which are this machine's.
pub(super) fn rate_of_kind(nodes: usize) -> u32 {
    rate_of(processors(), nodes)
}

/// On each node one of the host and one of a pod, and the one outside.
fn rate_of(processors: usize, nodes: usize) -> u32 {
    let clients = nodes * 2 + 1;
    u32::try_from(processors * PROBES_OF_KIND / clients)
        .unwrap_or(u32::MAX)
        .max(1)
}

/// Cases at once in a cluster that is there: half as many as the processors of two nodes, as cases use, of which this is the
/// weakest (in thousandths; as on kind, nodes have more to do than these). What a kubelet keeps of a processor for itself, 70
/// thousandths of two on managed nodes, makes it no processor less. This machine has but a process for each case and one for each
/// client, a twentieth of a processor together.
pub(super) fn jobs_of_cluster(weakest: u64) -> usize {
    let processors = usize::try_from((weakest.saturating_add(500)) / 1000).unwrap_or(usize::MAX);
    processors.clamp(1, jobs() * MORE_THAN_LABS)
}

/// Labs at once: one for each case, as far as half of the memory that is available lasts.
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
            assert_eq!(have_room(&before, &after), expected, "{after:?}");
        }
        assert!(!have_room(&[unread], &[unread]));
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
