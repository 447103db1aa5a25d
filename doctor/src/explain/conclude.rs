//! What an explanation comes to, in words.

use std::{collections::BTreeSet, fmt::Write as _, net::SocketAddr};

use super::{End, Explanation, Request, Step, Way};
use crate::resolution::Answer;

/// Fills in conclusion, culprits, and whether the programs agree.
pub(super) fn conclude(explanation: &mut Explanation, request: &Request) {
    let own = SocketAddr::new(request.destination.address, request.destination.port);
    let verb = if request.outside {
        "sends packets to"
    } else {
        "connects to"
    };
    let mut sentences = Vec::new();
    let mut culprits = BTreeSet::new();
    let mut consistent = true;
    let mut rewritten_before = false;
    for way in &explanation.ways {
        let is_device = way.name.contains(" of ");
        let quiet = way
            .steps
            .iter()
            .all(|step| matches!(step.answer, Answer::NotAService));
        if is_device && quiet {
            continue;
        }
        let who = if is_device {
            format!("At {}, a packet", way.name)
        } else {
            {
                let verb = if way.name.starts_with("sendmsg") {
                    "sends to"
                } else {
                    "connects to"
                };
                format!(
                    "By {}, a client that {verb} {}",
                    way.name, explanation.destination
                )
            }
        };
        sentences.push(format!("{who} {}", end(way, own)));
        for (decider, loser) in disagreements(way, own, is_device && rewritten_before) {
            // A stale program that comes too late misleads no client here.
            if decider.stale.is_some() || loser.stale.is_none() {
                consistent = false;
                culprits.extend(decider.stale.as_ref().map(|_| decider.program));
            }
            sentences.push(disagreement(decider, loser));
        }
        for step in &way.steps {
            if step.stale.is_some() && decides(way, step) {
                consistent = false;
                culprits.insert(step.program);
            }
        }
        rewritten_before |= matches!(way.end, End::Reaches { by: Some(_), .. });
        sentences.extend(unknown(way));
    }
    if explanation.ways.iter().all(|way| way.steps.is_empty()) {
        sentences.push(format!(
            "No program runs on the way: a client that {verb} {} gets to that address itself, as the kernel routes it",
            explanation.destination
        ));
    } else if sentences.is_empty() {
        sentences.push(format!(
            "To none of the programs on the way is {} a service: they leave it alone",
            explanation.destination
        ));
    }
    explanation.conclusion = sentences.join(". ") + ".";
    explanation.consistent = consistent;
    explanation.culprits = culprits.into_iter().collect();
}

fn title(step: &Step) -> String {
    let maps: Vec<String> = step.by_maps.iter().map(ToString::to_string).collect();
    let reads = match maps.len() {
        0 => String::new(),
        1 => format!(", which reads map {}", maps.join("")),
        _ => format!(", which reads maps {}", maps.join(" and ")),
    };
    let stale = if step.stale.is_some() { "stale " } else { "" };
    format!("{stale}program {} ({}{reads})", step.program, step.name)
}

fn step_of(way: &Way, program: u32) -> Option<&Step> {
    way.steps.iter().find(|step| step.program == program)
}

fn listed(addresses: &BTreeSet<SocketAddr>) -> String {
    Answer::Backends {
        backends: addresses.clone(),
        holes: 0,
        only_if: None,
    }
    .to_string()
}

fn end(way: &Way, own: SocketAddr) -> String {
    match &way.end {
        End::Reaches {
            addresses,
            by: Some(by),
            only_if,
        } => {
            let by = step_of(way, *by).map_or_else(|| format!("program {by}"), title);
            let mut text = format!("reaches {}: {by} sends it there", listed(addresses));
            for condition in only_if {
                let _ = write!(text, ", if {condition}");
            }
            text
        }
        End::Reaches {
            addresses, by: None, ..
        } => {
            let left = way
                .steps
                .iter()
                .find(|step| matches!(step.answer, Answer::LeftToPackets { .. }));
            match left {
                Some(step) => format!("is not sent elsewhere by {}: {}", title(step), step.answer),
                None if addresses.contains(&own) => "is sent nowhere else: no program changes it".to_owned(),
                None => format!("goes on to {}", listed(addresses)),
            }
        }
        End::Stopped { by, answer } => {
            let by = step_of(way, *by).map_or_else(|| format!("program {by}"), title);
            match answer {
                Answer::Dropped { because } => format!("is dropped by {by}: {because}"),
                Answer::Refused { because } => format!("is refused by {by}: {because}"),
                other => format!("is stopped by {by}: {other}"),
            }
        }
    }
}

/// Whether it is this program that decides where the way ends.
fn decides(way: &Way, step: &Step) -> bool {
    match &way.end {
        End::Reaches { by, .. } => *by == Some(step.program),
        End::Stopped { by, .. } => *by == step.program,
    }
}

/// Pairs of who decides, and who would have decided otherwise of the client's own destination.
fn disagreements(way: &Way, own: SocketAddr, rewritten_before: bool) -> Vec<(&Step, &Step)> {
    // What sockets have sent elsewhere, packet programs never see as a service's: that is no disagreement.
    if rewritten_before {
        return Vec::new();
    }
    let Some(decider) = way.steps.iter().find(|step| decides(way, step)) else {
        return Vec::new();
    };
    let otherwise = |step: &&Step| {
        let knows = matches!(
            step.alone,
            Answer::Backends { .. } | Answer::Refused { .. } | Answer::Dropped { .. }
        );
        knows && step.program != decider.program && !crate::judge::agree(&step.alone, &decider.alone)
    };
    let sees_own = |step: &Step| step.sees.contains(&own);
    way.steps
        .iter()
        .filter(otherwise)
        // One that ran before, saw the destination and let it pass has had its say.
        .filter(|step| !sees_own(step) || decider.sees.contains(&own))
        .map(|step| (decider, step))
        .collect()
}

fn disagreement(decider: &Step, loser: &Step) -> String {
    let sees = if loser.sees == decider.sees {
        "runs too, and can't undo it".to_owned()
    } else {
        format!("sees only {}, which is no service to it", listed(&loser.sees))
    };
    let mut title = title(loser);
    if let Some(first) = title.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    format!("{title} would make it {}, but {sees}", loser.alone)
}

fn unknown(way: &Way) -> Option<String> {
    let unknown: Vec<String> = way
        .steps
        .iter()
        .filter_map(|step| match &step.answer {
            Answer::Unknown { because } => Some(format!("{} ({because})", title(step))),
            _ => None,
        })
        .collect();
    (!unknown.is_empty()).then(|| {
        format!(
            "What these do can't be known, and they are taken to let it pass: {}",
            unknown.join("; ")
        )
    })
}
