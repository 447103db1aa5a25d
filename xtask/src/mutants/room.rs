//! Whether the machine has room for one more run.

use std::{fs, thread, time::Duration};

/// Share of processor time that is idle, or used at the lowest priority, on a machine with room for one more run:
/// programs that wait for limits get that share, too.
const IDLE: f64 = 0.2;
/// Length of the measurement: a run that begins takes most of its processor time within its first seconds.
const WATCHED: Duration = Duration::from_secs(4);

/// Waits for room.
pub(super) fn wait() {
    let mut before = times();
    loop {
        thread::sleep(WATCHED);
        let now = times();
        if idle(before, now) >= IDLE {
            return;
        }
        before = now;
    }
}

fn times() -> [u64; 2] {
    of(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// All time, and the idle part, from the first line of /proc/stat (proc(5)): user, nice, system, idle, iowait, irq,
/// softirq, steal.
fn of(stat: &str) -> [u64; 2] {
    let numbers = stat.strip_prefix("cpu ").and_then(|rest| rest.lines().next());
    let numbers = numbers.into_iter().flat_map(str::split_whitespace).take(8);
    let numbers: Vec<u64> = numbers.filter_map(|number| number.parse().ok()).collect();
    match &*numbers {
        [_, nice, _, idle, waiting, ..] => [numbers.iter().sum(), nice + idle + waiting],
        _ => [0, 0],
    }
}

fn idle([all_before, idle_before]: [u64; 2], [all, idle]: [u64; 2]) -> f64 {
    idle.saturating_sub(idle_before) as f64 / all.saturating_sub(all_before).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_room_as_far_as_it_was_idle_or_nice() {
        let before = of("cpu  100 10 0 200 5 0 0 0 7 0\ncpu0 1 2 3 4\n");
        assert_eq!(before, [315, 215]);
        let after = of("cpu  130 20 10 240 5 0 0 0 7 0\n");
        assert!((idle(before, after) - 50.0 / 90.0).abs() < 1e-9);
        assert_eq!(of(""), [0, 0], "one that does not say has none");
        assert!(times()[0] > 0);
    }
}
