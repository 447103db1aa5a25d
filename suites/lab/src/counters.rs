//! Counters of the network namespaces of nodes and pods: drops, retransmissions and resets by the kernel, which
//! probes alone can't tell from effects of a datapath.

use std::{fmt::Write as _, fs, io};

use super::netns::NetNs;

/// Files with pairs of lines, names and numbers (`TcpExt: … ListenDrops …`).
const IN_PAIRS: [&str; 2] = ["snmp", "netstat"];
/// A file with a name and its number in each line.
const BY_LINE: &str = "snmp6";

/// All counters of a network namespace that are not 0, a line each: `TcpExt ListenDrops 3`.
///
/// # Errors
/// The counters can't be read.
pub fn counters(network: &NetNs) -> io::Result<String> {
    network.inside(|| {
        // procfs shows the namespace of the reading thread.
        let read = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
        let mut text = String::new();
        for name in IN_PAIRS {
            text += &in_pairs(&read(name)?);
        }
        // The kernel may lack IPv6.
        Ok(text + &by_line(&read(BY_LINE).unwrap_or_default()))
    })
}

fn in_pairs(file: &str) -> String {
    let lines: Vec<&str> = file.lines().collect();
    let mut text = String::new();
    for pair in lines.chunks_exact(2) {
        let (mut names, mut numbers) = (pair[0].split_whitespace(), pair[1].split_whitespace());
        let (Some(of), Some(_)) = (names.next(), numbers.next()) else {
            continue;
        };
        for (name, number) in names.zip(numbers) {
            add(&mut text, &format!("{} {name}", of.trim_end_matches(':')), number);
        }
    }
    text
}

fn by_line(file: &str) -> String {
    let mut text = String::new();
    for line in file.lines() {
        if let Some((name, number)) = line.split_once(char::is_whitespace) {
            add(&mut text, name, number.trim());
        }
    }
    text
}

fn add(text: &mut String, name: &str, number: &str) {
    if number != "0" {
        // Writing into a String does not fail.
        let _ = writeln!(text, "{name} {number}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_are_not_0_are_told_by_name() {
        let netstat = "TcpExt: SyncookiesSent ListenDrops\nTcpExt: 0 3\nIpExt: InOctets\nIpExt: 12\n";
        assert_eq!(in_pairs(netstat), "TcpExt ListenDrops 3\nIpExt InOctets 12\n");
        assert_eq!(
            by_line("Ip6InReceives                   \t7\nIp6InDiscards                   \t0\n"),
            "Ip6InReceives 7\n"
        );
        assert_eq!(in_pairs("") + &by_line("\n"), "");
    }
}
