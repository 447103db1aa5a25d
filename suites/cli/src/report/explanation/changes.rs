//! What came before a breakage, in words: writes that concern the broken Service, and faults.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use harness::names::{Key, Kind};
use serde_json::Value;

use super::{
    events::{Endpoint, Events, Frontend, Step, Write, all, ready, service_of},
    words::{distance, in_sentence, listed, servers},
};

/// Something that came before a breakage.
#[derive(Debug)]
pub(super) struct Before {
    pub(super) at_us: u64,
    words: String,
    about: About,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    /// A write to the broken Service or its slices.
    Own {
        /// Whether it is how the Service was made.
        is_new: bool,
        /// Whether it was a write to a slice.
        is_of_endpoints: bool,
    },
    /// A write to another one with which it shares a backend.
    Other {
        /// Whether that one lost endpoints.
        takes: bool,
    },
    /// Something done to an agent or an API server.
    Fault {
        /// Whether the sentence goes on with it, instead of a sentence of its own.
        is_clause: bool,
    },
}

impl About {
    /// Whether it explains a breakage that follows something else, too.
    fn is_telling(self) -> bool {
        match self {
            Self::Own { .. } => !self.is_making(),
            Self::Other { takes } => takes,
            Self::Fault { .. } => true,
        }
    }

    /// Whether it is how the broken Service was made, which explains nothing.
    fn is_making(self) -> bool {
        matches!(self, Self::Own { is_new: true, .. })
    }

    /// Whether what came before it explains no more: what became of the Service's own endpoints explains what its
    /// clients see, whatever became of those of others.
    fn outweighs(self, earlier: Self) -> bool {
        let is_of_endpoints = matches!(
            self,
            Self::Own {
                is_of_endpoints: true,
                ..
            }
        );
        let is_alike = std::mem::discriminant(&self) == std::mem::discriminant(&earlier);
        is_alike || (is_of_endpoints && matches!(earlier, Self::Other { .. }))
    }
}

/// The last thing before a breakage that concerns a Service and, if that is of another sort and tells more, the one
/// before; the earlier one first.
pub(super) fn before(events: &Events, frontend: Option<&Frontend>, at_us: u64) -> Vec<Before> {
    // What was done before there was the Service is of another axis.
    let created_us = frontend.map_or(0, |frontend| events.first_seen(&frontend.service));
    let all = events.before(at_us).filter_map(|(at_us, step)| match step {
        Step::Fault(_) if at_us < created_us => None,
        Step::Fault(what) => fault(at_us, what),
        Step::Write(write) => write_of(events, &frontend?.service, write),
    });
    let mut found: Vec<Before> = Vec::new();
    for one in all {
        match found.first() {
            None if one.about.is_making() => {}
            None => found.push(one),
            Some(last) if !last.about.outweighs(one.about) && one.about.is_telling() => {
                found.insert(0, one);
                return found;
            }
            Some(_) => {}
        }
    }
    found
}

/// `One second before, t (same backend) had been emptied.`
pub(super) fn sentence(before: &[Before], at_us: u64) -> Option<String> {
    let mut text = String::new();
    let mut last = String::new();
    for one in before {
        let distance = distance(at_us.saturating_sub(one.at_us));
        let is_clause = one.about != About::Fault { is_clause: false };
        if !text.is_empty() {
            text += "; ";
        }
        text += &match (distance == last, is_clause) {
            (true, true) => format!("then {}", one.words),
            (true, false) => format!("then: {}", one.words),
            (false, true) => format!("{distance}, {}", one.words),
            (false, false) => format!("{distance}: {}", one.words),
        };
        last = distance;
    }
    (!text.is_empty()).then(|| in_sentence(&text))
}

/// What is done to agents or API servers. Cases note in the same way what they have read, and what they undo.
fn fault(at_us: u64, what: &str) -> Option<Before> {
    let is_done = |what: &str| what.contains("agent of") || what.contains("API");
    let is_undone = |what: &str| ["healed", "over"].iter().any(|start| what.starts_with(start));
    // What follows is a list of what was read, or an exact value.
    let lists = |character| matches!(character, '[' | '{' | ':' | ';' | '"');
    let end = [what.find(lists), what.find("Some("), what.find(", process")];
    let end = end.into_iter().flatten().min().unwrap_or(what.len());
    let words = what[..end].trim_end();
    let words = words.strip_suffix(" as").unwrap_or(words).trim_end_matches(',');
    if !is_done(words) || is_undone(words) {
        return None;
    }
    let of_agent = words
        .strip_prefix("agent of ")
        .and_then(|rest| rest.split_once(' '));
    Some(Before {
        at_us,
        words: match of_agent {
            Some((node, done)) => format!("the agent of {node} had been {done}"),
            None => words.replace("ApiEndpoint", "another API endpoint"),
        },
        about: About::Fault {
            is_clause: of_agent.is_some(),
        },
    })
}

/// A write, if it concerns the broken Service.
fn write_of(events: &Events, broken: &Key, write: &Write) -> Option<Before> {
    let (before, after) = events.around(write);
    let object = after.or(before)?;
    let service = match write.key.kind {
        Kind::Service => write.key.clone(),
        Kind::EndpointSlice => service_of(&write.key, object)?,
        Kind::Namespace | Kind::Pod => return None,
    };
    let is_own = service == *broken;
    let shared = shared(events, &service, broken, write, before);
    if !is_own && shared.is_none() {
        return None;
    }
    let mut name = if is_own || service.plain() != broken.plain() {
        service.plain().to_owned()
    } else {
        format!("{} of another namespace", service.plain())
    };
    if let Some(shared) = shared.filter(|_| !is_own) {
        name += &format!(" ({shared})");
    }
    let others = || {
        let mut slices = events.slices(&service, write.sent_us).into_iter();
        slices.any(|(key, slice)| *key != write.key && !ready(slice).is_empty())
    };
    let words = match write.key.kind {
        Kind::Service => of_service(before, after, &name),
        _ => of_slice(events, before, after, &name, others()),
    };
    let about = if is_own {
        About::Own {
            is_new: before.is_none() && !events.had_slices(&service, write.sent_us),
            is_of_endpoints: write.key.kind == Kind::EndpointSlice,
        }
    } else {
        let left = before.map(ready).unwrap_or_default();
        let stays = after.map(ready).unwrap_or_default();
        let is_deleted = write.key.kind == Kind::Service && after.is_none();
        About::Other {
            takes: is_deleted || !left.is_subset(&stays),
        }
    };
    Some(Before {
        at_us: write.sent_us,
        words,
        about,
    })
}

/// What two Services shared just before a write to one of them.
fn shared(
    events: &Events,
    service: &Key,
    broken: &Key,
    write: &Write,
    before: Option<&Value>,
) -> Option<&'static str> {
    let mut one = events.endpoints(service, write.sent_us);
    if write.key.kind == Kind::EndpointSlice {
        one.extend(before.map(ready).unwrap_or_default());
    }
    let other = events.endpoints(broken, write.sent_us);
    let addresses = |endpoints: &BTreeSet<Endpoint>| -> BTreeSet<IpAddr> {
        endpoints.iter().map(|endpoint| endpoint.address).collect()
    };
    let exactly: BTreeSet<Endpoint> = one.intersection(&other).cloned().collect();
    let pods = addresses(&one).intersection(&addresses(&other)).count();
    // Axes have ports of their own on the same pods.
    let is_of_its_axis = service.namespace == broken.namespace;
    match (addresses(&exactly).len(), pods) {
        (0, 0) => None,
        (0, _) if !is_of_its_axis => None,
        (0, 1) => Some("same pod, another port"),
        (0, _) => Some("same pods, other ports"),
        (1, _) => Some("same backend"),
        _ => Some("same backends"),
    }
}

/// What a write has changed of a Service.
fn of_service(before: Option<&Value>, after: Option<&Value>, name: &str) -> String {
    let (Some(before), Some(after)) = (before, after) else {
        let what = if after.is_none() { "deleted" } else { "created" };
        return format!("{name} had been {what}");
    };
    let differs = |at: &str| before.pointer(at) != after.pointer(at);
    let changed = [
        ("/spec/ports", "the ports"),
        ("/spec/type", "the type"),
        ("/spec/externalIPs", "the external IPs"),
        ("/spec/sessionAffinity", "the session affinity"),
        ("/spec/selector", "the selector"),
        ("/spec", "the spec"),
        ("/status/loadBalancer", "the load balancer address"),
        ("/metadata/annotations", "an annotation"),
        ("/metadata/labels", "a label"),
    ];
    match changed.into_iter().find(|(at, _)| differs(at)) {
        Some((_, what)) => format!("{what} of {name} had been changed"),
        None => format!("{name} had been written without a change"),
    }
}

/// What a write has changed of a slice of a Service, which may have others with endpoints.
fn of_slice(
    events: &Events,
    before: Option<&Value>,
    after: Option<&Value>,
    name: &str,
    has_others: bool,
) -> String {
    let addresses = |slice: Option<&Value>| -> BTreeSet<IpAddr> {
        let endpoints = slice.map(ready).unwrap_or_default();
        endpoints.iter().map(|endpoint| endpoint.address).collect()
    };
    let names = |addresses: &BTreeSet<IpAddr>| listed(&servers(events, addresses.iter().copied()));
    let (had, has) = (addresses(before), addresses(after));
    let (Some(before), Some(after)) = (before, after) else {
        let had_one = if has_others { "an" } else { "the" };
        return match (after, has.is_empty()) {
            (None, _) => format!("{had_one} EndpointSlice of {name} had been deleted"),
            (_, true) => format!("an empty EndpointSlice of {name} had been created"),
            (_, false) => format!("an EndpointSlice of {name} with {} had been created", names(&has)),
        };
    };
    let left: BTreeSet<IpAddr> = had.difference(&has).copied().collect();
    let joined: BTreeSet<IpAddr> = has.difference(&had).copied().collect();
    let condition = |addresses: &BTreeSet<IpAddr>| {
        let mut conditions: BTreeMap<IpAddr, bool> = BTreeMap::new();
        for endpoint in after["endpoints"].as_array().into_iter().flatten() {
            let is_ending = endpoint["conditions"]["terminating"].as_bool() == Some(true);
            for address in endpoint["addresses"].as_array().into_iter().flatten() {
                if let Some(address) = address.as_str().and_then(|text| text.parse().ok()) {
                    conditions.insert(address, is_ending);
                }
            }
        }
        let ending: Option<Vec<bool>> = addresses.iter().map(|one| conditions.get(one).copied()).collect();
        ending.map(|ending| {
            if ending.iter().all(|is| *is) {
                "terminating"
            } else {
                "unready"
            }
        })
    };
    match (left.is_empty(), joined.is_empty()) {
        (false, false) => format!("{} had replaced {} in {name}", names(&joined), names(&left)),
        (false, true) => match condition(&left) {
            Some(condition) => format!("{} had become {condition} in {name}", names(&left)),
            None if has.is_empty() && has_others => format!("an EndpointSlice of {name} had been emptied"),
            None if has.is_empty() => format!("{name} had been emptied"),
            None => format!("{} had left {name}", names(&left)),
        },
        (true, false) if all(before).is_superset(&joined) => {
            format!("{} had become ready in {name}", names(&joined))
        }
        (true, false) => format!("{} had joined {name}", names(&joined)),
        (true, true) if before["ports"] != after["ports"] => {
            format!("the ports in the EndpointSlice of {name} had been changed")
        }
        (true, true) => format!("the EndpointSlice of {name} had been written again"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(endpoints: &[(&str, &str)], port: u16) -> Value {
        let endpoint = |(address, condition): &(&str, &str)| {
            json!({
                "addresses": [address],
                "conditions": { "ready": *condition == "ready", "terminating": *condition == "terminating" },
            })
        };
        let endpoints: Vec<Value> = endpoints.iter().map(endpoint).collect();
        json!({ "endpoints": endpoints, "ports": [{ "port": port, "protocol": "TCP" }] })
    }

    #[test]
    fn a_write_to_a_slice_is_told_by_what_became_of_its_endpoints() {
        let [one, other] = ["10.0.0.1", "10.0.0.2"];
        let both = slice(&[(one, "ready"), (other, "ready")], 80);
        let first = slice(&[(one, "ready")], 80);
        let null = json!({ "endpoints": null, "ports": null });
        for (before, after, has_others, words) in [
            (Some(&both), Some(&null), false, "t had been emptied"),
            (
                Some(&both),
                Some(&null),
                true,
                "an EndpointSlice of t had been emptied",
            ),
            (
                Some(&both),
                None,
                false,
                "the EndpointSlice of t had been deleted",
            ),
            (Some(&both), None, true, "an EndpointSlice of t had been deleted"),
            (Some(&both), Some(&first), false, "1 backend had left t"),
            (Some(&first), Some(&both), false, "1 backend had joined t"),
            (Some(&null), Some(&both), false, "2 backends had joined t"),
            (
                Some(&first),
                Some(&slice(&[(other, "ready")], 80)),
                false,
                "1 backend had replaced 1 backend in t",
            ),
            (
                Some(&first),
                Some(&slice(&[(one, "unready")], 80)),
                false,
                "1 backend had become unready in t",
            ),
            (
                Some(&first),
                Some(&slice(&[(one, "terminating")], 80)),
                false,
                "1 backend had become terminating in t",
            ),
            (
                Some(&slice(&[(one, "unready")], 80)),
                Some(&first),
                false,
                "1 backend had become ready in t",
            ),
            (
                Some(&first),
                Some(&slice(&[(one, "ready")], 81)),
                false,
                "the ports in the EndpointSlice of t had been changed",
            ),
            (
                Some(&first),
                Some(&first),
                false,
                "the EndpointSlice of t had been written again",
            ),
            (
                None,
                Some(&first),
                false,
                "an EndpointSlice of t with 1 backend had been created",
            ),
            (
                None,
                Some(&null),
                false,
                "an empty EndpointSlice of t had been created",
            ),
        ] {
            assert_eq!(
                of_slice(&Events::default(), before, after, "t", has_others),
                words
            );
        }
    }

    #[test]
    fn a_write_to_a_service_is_told_by_what_it_changed() {
        let service = json!({ "spec": { "ports": [], "type": "ClusterIP" }, "metadata": {} });
        let with = |at: &str, value: Value| {
            let mut service = service.clone();
            let (part, field) = at.split_once('.').unwrap();
            service[part][field] = value;
            service
        };
        for (after, words) in [
            (with("spec.ports", json!([1])), "the ports of t had been changed"),
            (
                with("spec.type", "NodePort".into()),
                "the type of t had been changed",
            ),
            (with("spec.other", 1.into()), "the spec of t had been changed"),
            (
                with("status.loadBalancer", 1.into()),
                "the load balancer address of t had been changed",
            ),
            (
                with("metadata.annotations", 1.into()),
                "an annotation of t had been changed",
            ),
            (service.clone(), "t had been written without a change"),
        ] {
            assert_eq!(of_service(Some(&service), Some(&after), "t"), words);
        }
        assert_eq!(of_service(Some(&service), None, "t"), "t had been deleted");
        assert_eq!(of_service(None, Some(&service), "t"), "t had been created");
    }

    #[test]
    fn faults_are_told_without_what_was_read_and_what_was_undone() {
        let told = |what: &str| fault(0, what).map(|before| before.words);
        for (what, words) in [
            (
                "agent of n1 killed, its pins lost, [7] attached by a link",
                "the agent of n1 had been killed, its pins lost",
            ),
            (
                "agent of n1 killed, process Some(7)",
                "the agent of n1 had been killed",
            ),
            (
                "agent of n1 killed, and started as \"none\"",
                "the agent of n1 had been killed, and started",
            ),
            (
                "connections of the agent of n1 to the API reset: []",
                "connections of the agent of n1 to the API reset",
            ),
        ] {
            assert_eq!(told(what).as_deref(), Some(words));
        }
        for note in [
            "attached before generation 2: [Attached { hook: \"connect4\" }]",
            "held on n1: [HeldProgram { id: 7 }]",
            "healed: the agent of n1 has its own configuration",
            "over: API server 1 is stopped",
            "left on n1: 24 links, 21 maps",
        ] {
            assert_eq!(told(note), None);
        }
    }
}
