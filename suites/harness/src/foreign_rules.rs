//! Rules, sets and routes of another owner on a node, and whether they stay what they were.
//!
//! They match nothing but addresses for documentation (RFC 5737, RFC 3849). A kind whose tool is not on the node, or that
//! its kernel refuses, is an axis that is not enabled, with that reason.

use std::time::Duration;

use cluster::{Family, Place};
use oracle::finding::{Finding, Weight};

use crate::{
    commands::{self, Lasting},
    context::Context,
    verdict::Halt,
};

/// A kind of them.
#[derive(Clone, Copy, Debug)]
struct Kind {
    axis: &'static str,
    tool: &'static str,
    /// Of a family alone.
    family: Option<Family>,
    make: &'static str,
    /// Does not fail where they are gone already.
    remove: &'static str,
    /// Prints them without their counters.
    dump: &'static str,
}

const KINDS: [Kind; 6] = [
    Kind {
        axis: "tables of nftables",
        tool: "nft",
        family: None,
        make: NFTABLES,
        remove: "nft delete table inet plumbline-foreign 2>/dev/null || true",
        dump: "nft --stateless list table inet plumbline-foreign",
    },
    Kind {
        axis: "chains of iptables",
        tool: "iptables-save",
        family: Some(Family::IPv4),
        make: "iptables -w -t nat -N PLUMBLINE-FOREIGN
iptables -w -t nat -A PLUMBLINE-FOREIGN -d 192.0.2.0/24 -p tcp --dport 9 -j DNAT --to-destination 198.51.100.7:9
iptables -w -t nat -A PREROUTING -d 192.0.2.0/24 -j PLUMBLINE-FOREIGN
iptables -w -t filter -N PLUMBLINE-FOREIGN
iptables -w -t filter -A PLUMBLINE-FOREIGN -s 203.0.113.0/24 -p udp -j DROP
iptables -w -t filter -I FORWARD -s 203.0.113.0/24 -j PLUMBLINE-FOREIGN",
        remove: "iptables -w -t nat -D PREROUTING -d 192.0.2.0/24 -j PLUMBLINE-FOREIGN 2>/dev/null || true
iptables -w -t filter -D FORWARD -s 203.0.113.0/24 -j PLUMBLINE-FOREIGN 2>/dev/null || true
for table in nat filter; do for what in F X; do iptables -w -t $table -$what PLUMBLINE-FOREIGN 2>/dev/null || true; done; done",
        dump: "for table in nat filter; do echo $table; iptables-save -t $table | sed -n -e \"s/ [[][0-9:]*[]]$//\" -e /PLUMBLINE-FOREIGN/p; done",
    },
    Kind {
        axis: "chains of ip6tables",
        tool: "ip6tables-save",
        family: Some(Family::IPv6),
        make: "ip6tables -w -t filter -N PLUMBLINE-FOREIGN
ip6tables -w -t filter -A PLUMBLINE-FOREIGN -s 2001:db8:1::/48 -p udp -j DROP
ip6tables -w -t filter -I FORWARD -s 2001:db8::/32 -j PLUMBLINE-FOREIGN",
        remove: "ip6tables -w -t filter -D FORWARD -s 2001:db8::/32 -j PLUMBLINE-FOREIGN 2>/dev/null || true
for what in F X; do ip6tables -w -t filter -$what PLUMBLINE-FOREIGN 2>/dev/null || true; done",
        dump: "ip6tables-save -t filter | sed -n -e \"s/ [[][0-9:]*[]]$//\" -e /PLUMBLINE-FOREIGN/p",
    },
    Kind {
        axis: "ipsets",
        tool: "ipset",
        family: None,
        make: "ipset create plumbline-foreign hash:net,port,net
ipset add plumbline-foreign 192.0.2.0/24,tcp:9,198.51.100.0/24
ipset create plumbline-foreign-6 hash:net family inet6
ipset add plumbline-foreign-6 2001:db8::/32",
        remove: "for set in plumbline-foreign plumbline-foreign-6; do ipset destroy $set 2>/dev/null || true; done",
        dump: "ipset save plumbline-foreign; ipset save plumbline-foreign-6",
    },
    Kind {
        axis: "routes of IPv4",
        tool: "ip",
        family: Some(Family::IPv4),
        make: "ip route add blackhole 192.0.2.0/24 table 4711 proto 99
ip route add 198.51.100.0/24 dev lo table 4711 proto 99
ip rule add to 192.0.2.0/24 lookup 4711 priority 4711",
        remove: "ip rule del priority 4711 2>/dev/null || true
ip route flush table 4711 2>/dev/null || true",
        dump: "ip rule show priority 4711; ip -details route show table 4711",
    },
    Kind {
        axis: "routes of IPv6",
        tool: "ip",
        family: Some(Family::IPv6),
        make: "ip -6 route add blackhole 2001:db8:1::/48 table 4711 proto 99
ip -6 route add 2001:db8:2::/48 dev lo table 4711 proto 99
ip -6 rule add to 2001:db8::/32 lookup 4711 priority 4711",
        remove: "ip -6 rule del priority 4711 2>/dev/null || true
ip -6 route flush table 4711 2>/dev/null || true",
        dump: "ip -6 rule show priority 4711; ip -6 -details route show table 4711",
    },
];

/// Types that proxies have failed to read in tables of others: sets of concatenated ranges, maps of verdicts, sets by the type of
/// an expression, and sets that packets fill.
const NFTABLES: &str = "nft -f - <<END
table inet plumbline-foreign {
  counter seen { }
  map zones {
    type ipv4_addr . inet_service : mark
    flags interval
    elements = { 192.0.2.0/24 . 1000-2000 : 0x1, 198.51.100.7 . 53 : 0x2 }
  }
  set named {
    typeof ip saddr . tcp dport
    elements = { 203.0.113.5 . 9 }
  }
  set ranges {
    type ipv6_addr
    flags interval
    auto-merge
    elements = { 2001:db8::/48, 2001:db8:5::1-2001:db8:5::ff }
  }
  set recent {
    type ipv4_addr . inet_proto . inet_service
    size 64
    flags dynamic, timeout
    timeout 1h
  }
  map verdicts {
    type ipv4_addr . inet_proto . inet_service : verdict
    elements = { 192.0.2.1 . tcp . 9 : goto refused, 192.0.2.1 . udp . 9 : accept }
  }
  chain refused {
    counter reject with tcp reset
  }
  chain first {
    type filter hook prerouting priority -310; policy accept;
    ip daddr . meta l4proto . th dport vmap @verdicts
    ip daddr 192.0.2.2 meta mark set ip daddr . tcp dport map @zones counter name seen
    ip saddr 203.0.113.9 update @recent { ip saddr . meta l4proto . th dport }
    ip6 saddr @ranges counter drop
    ip saddr . tcp dport @named drop
  }
}
END";

/// Those that were made. They go when this is dropped.
#[derive(Debug)]
#[must_use = "they go when this is dropped"]
pub struct ForeignRules {
    place: Place,
    made: Vec<Made>,
}

#[derive(Debug)]
struct Made {
    kind: Kind,
    lasting: Lasting,
    dump: String,
}

impl ForeignRules {
    /// Makes those of all kinds on a node, for so long at most.
    ///
    /// # Errors
    /// They can't be read, or the node has none of the tools.
    pub async fn make(cx: &Context, node: &str, longest: Duration) -> Result<Self, Halt> {
        let place = Place::Host {
            node: node.to_owned(),
        };
        let families = cx.cluster().describe().families();
        let mut made = Vec::new();
        for kind in KINDS {
            if kind.family.is_some_and(|family| !families.contains(&family)) {
                continue;
            }
            if commands::output(cx, &place, &format!("command -v {}", kind.tool))
                .await
                .is_err()
            {
                cx.axes()
                    .not_enabled(kind.axis, &format!("the node has no {}", kind.tool));
                continue;
            }
            let lasting = match Lasting::begin(cx, &place, [kind.make, kind.remove], longest).await {
                Ok(lasting) => lasting,
                Err(Halt::Harness(why)) => {
                    cx.axes().not_enabled(kind.axis, &why);
                    continue;
                }
                Err(halt) => return Err(halt),
            };
            let dump = commands::output(cx, &place, kind.dump).await?;
            cx.record(kind.axis, format!("{} lines", dump.lines().count()));
            made.push(Made { kind, lasting, dump });
        }
        if made.is_empty() {
            let why = "the node can make no rules of another owner".to_owned();
            return Err(Halt::Inconclusive(why));
        }
        Ok(Self { place, made })
    }

    /// Verdict: each is what it was.
    ///
    /// # Errors
    /// The node can't be reached.
    pub async fn judge(&self, cx: &Context, after: &str) -> Result<(), Halt> {
        for Made { kind, dump, .. } in &self.made {
            // What is gone altogether can't be listed.
            let now = match commands::output(cx, &self.place, kind.dump).await {
                Err(Halt::Harness(why)) => why,
                now => now?,
            };
            let finding = changed(dump, &now).map(|[expected, found]| Finding {
                weight: Weight::Violation,
                subject: format!("{} of another owner, after {after}", kind.axis),
                expected,
                found,
                first: Vec::new(),
                counted: None,
            });
            cx.axes().judged(kind.axis, finding.into_iter().collect());
        }
        Ok(())
    }

    /// Removes them.
    ///
    /// # Errors
    /// They can't be removed, or their time was over before.
    pub async fn end(self, cx: &Context) -> Result<(), Halt> {
        for made in self.made {
            made.lasting.end(cx).await?;
        }
        Ok(())
    }
}

/// The first line that differs, before and now.
fn changed(before: &str, now: &str) -> Option<[String; 2]> {
    if before == now {
        return None;
    }
    let (mut before, mut now) = (before.lines(), now.lines());
    loop {
        let line = |line: Option<&str>| {
            line.map_or_else(|| "no further line".to_owned(), |line| line.trim().to_owned())
        };
        match (before.next(), now.next()) {
            (None, None) => return Some(["the same end of line".to_owned(), "another one".to_owned()]),
            (one, other) if one == other => {}
            (one, other) => return Some([line(one), line(other)]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_differs_is_shown() {
        assert_eq!(changed("a\nb\n", "a\nb\n"), None);
        assert_eq!(
            changed("a\nb\n", "a\n c\n"),
            Some(["b".to_owned(), "c".to_owned()])
        );
        assert_eq!(
            changed("a\nb\n", "a\n"),
            Some(["b".to_owned(), "no further line".to_owned()])
        );
        assert!(changed("a\n", "a").is_some());
    }

    #[test]
    fn what_removes_them_is_fit_for_a_trap() {
        for kind in KINDS {
            assert!(!kind.remove.contains('\''), "{}", kind.axis);
        }
    }
}
