//! Words of explanations: clients, backends, numbers of attempts and how they ended.

use std::{collections::BTreeSet, net::IpAddr};

use oracle::{
    breakage::Ending,
    check::{Permitted, REFUSALS},
    history::Transport,
};

use super::events::Events;
use crate::plural::counted;

/// How many names are listed; of more, the number.
const NAMES: usize = 3;

/// Numbers that are written as words.
const NUMBERS: [&str; 10] = [
    "no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
];

/// Where a client is: `pod@node1` is a pod on node1.
pub(super) fn client(name: &str) -> String {
    match name.split_once('@') {
        Some(("pod", node)) => format!("a pod on {node}"),
        Some(("host", node)) => format!("the host network of {node}"),
        None if name == "outside" => "outside the cluster".to_owned(),
        _ => name.to_owned(),
    }
}

/// The name of the backend with an identity or a server: `b01.p5a01c2-000/TCP/8000` is b01.
pub(super) fn backend(identity: &str) -> &str {
    let server = identity.split('/').next().unwrap_or(identity);
    server.split('.').next().unwrap_or(server)
}

/// Names of the backends at these addresses; empty where one is not known.
pub(super) fn servers(events: &Events, addresses: impl IntoIterator<Item = IpAddr>) -> Names {
    let addresses: Vec<IpAddr> = addresses.into_iter().collect();
    let named = addresses.iter().map(|address| events.server(*address));
    let named: Option<BTreeSet<String>> = named
        .map(|name| name.map(|name| backend(name).to_owned()))
        .collect();
    // A pod of two families has two addresses.
    Names {
        count: named.as_ref().map_or(addresses.len(), BTreeSet::len),
        names: named.unwrap_or_default(),
    }
}

/// Names of backends, and how many these are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    count: usize,
    names: BTreeSet<String>,
}

impl Names {
    pub(super) fn of<'a>(identities: impl IntoIterator<Item = &'a String>) -> Self {
        let names: BTreeSet<String> = identities
            .into_iter()
            .map(|identity| backend(identity).to_owned())
            .collect();
        Self {
            count: names.len(),
            names,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether all are known by name.
    pub(super) fn are_known(&self) -> bool {
        self.names.len() == self.count
    }

    pub(super) fn has_all(&self, others: &Self) -> bool {
        self.names.is_superset(&others.names)
    }

    pub(super) fn has_any(&self, others: &Self) -> bool {
        !self.names.is_disjoint(&others.names)
    }
}

/// `b1, b2 and b3`; of more, or of unknown ones, their number.
pub(super) fn listed(names: &Names) -> String {
    joined(names, "and")
}

/// `b1, b2 and b3`; of more, that these are all.
pub(super) fn all_of(names: &Names) -> String {
    match names.count {
        ..=NAMES => listed(names),
        count => format!("all {count} backends"),
    }
}

/// `b1, b2 or b3`; of more, their number.
pub(super) fn any_of(names: &Names) -> String {
    match names.names.len() {
        0..=NAMES if names.are_known() => joined(names, "or"),
        _ => format!("one of {} backends", names.count),
    }
}

fn joined(names: &Names, and: &str) -> String {
    let all: Vec<&str> = names.names.iter().map(String::as_str).collect();
    match all.as_slice() {
        _ if !names.are_known() || all.len() > NAMES => counted(names.count, "backend", "backends"),
        [] => "no backend".to_owned(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} {and} {last}", first.join(", ")),
    }
}

/// What a client makes by a transport: one, and several.
pub(super) fn attempts(transport: Transport) -> (&'static str, &'static str) {
    match transport {
        Transport::Tcp => ("connection", "connections"),
        Transport::Sctp => ("SCTP association", "SCTP associations"),
        Transport::Http => ("HTTP request", "HTTP requests"),
        Transport::Tls => ("TLS connection", "TLS connections"),
        Transport::Udp | Transport::UdpConnected => ("datagram", "datagrams"),
    }
}

/// What stays open by a transport: one, and several.
pub(super) fn flows(transport: Transport) -> (&'static str, &'static str) {
    match transport {
        Transport::Udp | Transport::UdpConnected => ("open UDP socket", "open UDP sockets"),
        _ => ("open connection", "open connections"),
    }
}

/// `3 of 200 connections`, `all 200 connections`.
pub(super) fn some_of(outside: usize, of: usize, (one, more): (&str, &str)) -> String {
    match (outside, of) {
        (1, 1) => format!("the only {one}"),
        (2, 2) => format!("both {more}"),
        _ if outside == of => format!("all {of} {more}"),
        _ => format!("{outside} of {}", counted(of, one, more)),
    }
}

/// How attempts ended: `were refused`, or `failed: 150 were refused, 51 timed out`.
pub(super) fn ended(endings: &[(Ending, usize)], permitted: Option<&Permitted>, still: bool) -> String {
    let by: BTreeSet<&String> = endings
        .iter()
        .filter_map(|(ending, _)| match ending {
            Ending::Answered { by } => Some(by),
            _ => None,
        })
        .collect();
    let by = Names::of(by.iter().copied());
    let mut verbs: Vec<(String, usize)> = Vec::new();
    let all: usize = endings.iter().map(|(_, count)| count).sum();
    for (ending, count) in endings {
        let verb = verb(ending, &by, permitted, all == 1, still);
        match verbs.iter_mut().find(|(known, _)| *known == verb) {
            Some((_, known)) => *known += count,
            None => verbs.push((verb, *count)),
        }
    }
    match verbs.as_slice() {
        [] => "failed".to_owned(),
        [(verb, _)] => verb.clone(),
        several => {
            let several: Vec<String> = several
                .iter()
                .map(|(verb, count)| format!("{count} {verb}"))
                .collect();
            format!("failed: {}", several.join(", "))
        }
    }
}

fn verb(ending: &Ending, by: &Names, permitted: Option<&Permitted>, is_one: bool, still: bool) -> String {
    let were = if is_one { "was" } else { "were" };
    let other = match permitted {
        Some(Permitted::None | Permitted::Refuse) | None => "",
        Some(_) if still => "",
        Some(_) => " instead",
    };
    let still = if still { "still " } else { "" };
    match ending {
        Ending::Answered { .. } => format!("{were} {still}answered by {}{other}", listed(by)),
        Ending::Misdelivered { by } => {
            format!("{were} {still}answered by {} at a wrong port", backend(by))
        }
        Ending::Shown { peer, is_backends } if *is_backends => {
            format!("{still}came from a backend's own address ({peer})")
        }
        Ending::Shown { peer, .. } => format!("{still}came from {peer}"),
        Ending::Seen { source } => format!("{still}reached backends from {source}"),
        Ending::Foreign => format!("{were} {still}answered by something that is no backend"),
        Ending::Closed => format!("{were} {still}closed without an answer"),
        Ending::NoSocket => "got no socket".to_owned(),
        Ending::Refused => format!("{were} {still}refused"),
        Ending::RefusedLate => format!("{were} {still}refused too late"),
        Ending::NotConnected { errno } | Ending::Ended { errno } => match errno.as_str() {
            "ECONNRESET" | "EPIPE" => format!("{were} {still}reset"),
            "ECONNABORTED" | "EDESTADDRREQ" => format!("{were} {still}closed"),
            "ETIMEDOUT" => format!("{still}timed out"),
            errno if REFUSALS.contains(&errno) => format!("{were} {still}refused"),
            errno => format!("{still}failed with {errno}"),
        },
        Ending::Silent => format!("{still}timed out"),
        Ending::Unanswered => format!("{still}got no answer"),
        Ending::Delivered => format!("{still}reached a backend, without an answer"),
    }
}

/// What may happen to each attempt: `is answered by b01`.
pub(super) fn may(permitted: &Permitted) -> String {
    match permitted {
        Permitted::Serves(identities) if identities.len() > 1 => {
            let names = Names::of(identities);
            let all = if identities.len() == 2 { "both" } else { "all" };
            format!("is answered by {}, and {all} of them are reached", any_of(&names))
        }
        Permitted::Serves(identities) | Permitted::ServesOneOf(identities) => {
            format!("is answered by {}", any_of(&Names::of(identities)))
        }
        Permitted::ServesOrRefuses(identities) => {
            format!("is refused, or answered by {}", any_of(&Names::of(identities)))
        }
        Permitted::ServesOrNone(identities) => {
            format!(
                "is answered by {}, or reaches no backend",
                any_of(&Names::of(identities))
            )
        }
        Permitted::Delivered(identities) => format!("reaches {}", any_of(&Names::of(identities))),
        Permitted::Certified(name) => format!("is answered with a certificate for {name}"),
        Permitted::CertifiedOrCut(name) => {
            format!("is answered with a certificate for {name}, but for the few that a stopping server ends")
        }
        Permitted::Refuse => "is refused at once".to_owned(),
        Permitted::None => "reaches no backend".to_owned(),
    }
}

/// `one second before`.
pub(super) fn distance(us: u64) -> String {
    let seconds = us as f64 / 1e6;
    let whole = seconds.round() as usize;
    match seconds {
        ..0.1 => "immediately before".to_owned(),
        ..0.95 => "less than a second before".to_owned(),
        ..1.5 => "one second before".to_owned(),
        _ => match NUMBERS.get(whole) {
            Some(number) => format!("{number} seconds before"),
            None => format!("{whole} seconds before"),
        },
    }
}

/// With a capital at its beginning and a full stop at its end.
pub(super) fn in_sentence(words: &str) -> String {
    let mut characters = words.chars();
    let first = characters.next().map(|first| first.to_uppercase().to_string());
    let text = first.unwrap_or_default() + characters.as_str();
    match text.chars().last() {
        None | Some('.' | '?' | '!') => text,
        Some(_) => text + ".",
    }
}

/// The suite's own words for clients, backends and axes in plain ones, for findings that are only told as text.
pub(super) fn plain(text: &str) -> String {
    let (before, rest) = text.split_once('[').unwrap_or((text, ""));
    let text = match rest.split_once("] ") {
        Some((_axis, rest)) => format!("{before}{rest}"),
        None => text.to_owned(),
    };
    let words: Vec<String> = text
        .split(' ')
        .map(plain_word)
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ")
}

fn plain_word(word: &str) -> String {
    let bare = word.trim_matches(|edge: char| "{}(),;:".contains(edge));
    let is_address = bare.parse::<std::net::SocketAddr>().is_ok() && word.starts_with('(');
    if is_address {
        return String::new();
    }
    let is_identity = ["/TCP/", "/UDP/", "/SCTP/"]
        .iter()
        .any(|part| bare.contains(part));
    let plain = if is_identity {
        backend(bare).to_owned()
    } else if bare.starts_with("pod@") || bare.starts_with("host@") {
        client(bare)
    } else {
        return word.replace(['{', '}'], "");
    };
    word.replacen(bare, &plain, 1).replace(['{', '}'], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_is_as_exact_as_people_say_it() {
        for (milliseconds, words) in [
            (20, "immediately before"),
            (400, "less than a second before"),
            (1_100, "one second before"),
            (1_700, "two seconds before"),
            (9_400, "nine seconds before"),
            (14_400, "14 seconds before"),
        ] {
            assert_eq!(distance(milliseconds * 1_000), words);
        }
    }

    #[test]
    fn what_is_only_told_as_text_loses_the_suites_own_codes() {
        for (text, words) in [
            (
                "[IPv6, 1 shared] t-ext ([fd00::7]:80) UDP from host@node1",
                "t-ext UDP from the host network of node1",
            ),
            (
                "3 flows, [IPv4] t (10.0.0.1:80) TCP from pod@n",
                "3 flows, t TCP from a pod on n",
            ),
            (
                "every probe served by exactly {b1.p5a01c2-000/TCP/80, b2.p/UDP/80}",
                "every probe served by exactly b1, b2",
            ),
            ("detached", "detached"),
        ] {
            assert_eq!(plain(text), words);
        }
    }

    #[test]
    fn several_endings_are_counted_each() {
        let answered = |by: &str| Ending::Answered { by: by.to_owned() };
        let ended = |endings: &[(Ending, usize)]| ended(endings, Some(&Permitted::Refuse), false);
        assert_eq!(
            ended(&[(Ending::Refused, 150), (Ending::Silent, 51)]),
            "failed: 150 were refused, 51 timed out"
        );
        let by = [(answered("b2.p/TCP/80"), 2), (answered("b1.p/TCP/80"), 1)];
        assert_eq!(ended(&by), "were answered by b1 and b2");
        assert_eq!(ended(&[(Ending::Refused, 1)]), "was refused");
    }
}
