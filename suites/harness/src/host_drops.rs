//! What the kernel that runs the clients could not do in time: packets that it dropped before any datapath had them.

use std::fs;

/// A line for each processor, of hexadecimal numbers; the second is how many packets its queue had no room for
/// (`net.core.netdev_max_backlog`, `Documentation/admin-guide/sysctl/net.rst`). The same in every network namespace.
const QUEUES: &str = "/proc/net/softnet_stat";

/// Packets that the queues of all processors had no room for since the kernel was started. 0 if it does not say.
pub(crate) fn dropped() -> u64 {
    dropped_in(&fs::read_to_string(QUEUES).unwrap_or_default())
}

fn dropped_in(queues: &str) -> u64 {
    let of_processor = |line: &str| {
        let number = line.split_whitespace().nth(1)?;
        u64::from_str_radix(number, 16).ok()
    };
    queues.lines().filter_map(of_processor).sum()
}

/// What is to be said of so many.
pub(crate) fn warning(dropped: u64) -> Option<String> {
    (dropped > 0).then(|| {
        format!(
            "this machine's kernel had no room for {dropped} packets while the case ran (netdev_max_backlog): probes that were \
             silent, or reset after a packet was lost, may be the machine's, which is asked for more than it can do: fewer \
             cases (--jobs, --labs) or probes (--rate)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_of_all_processors_are_summed() {
        let queues = "000504b4 000006d1 000008ad 00000000\n0004aaec 0000000a 00000869 00000000\n";
        assert_eq!(dropped_in(queues), 0x6d1 + 10);
        assert_eq!(dropped_in("\n\nx y\n1\n"), 0);
    }

    #[test]
    fn nothing_is_said_of_none() {
        assert_eq!(warning(0), None);
        assert!(warning(12).is_some_and(|text| text.contains("12 packets")));
    }
}
