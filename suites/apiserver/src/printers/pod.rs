//! Pods: a status in one word.

use serde_json::Value;

use super::{NONE, name_and_age, or, text};

pub(super) fn cells(pod: &Value) -> Vec<String> {
    let (name, age) = name_and_age(pod);
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let total = spec["containers"].as_array().map_or(0, Vec::len);
    let containers = || status["containerStatuses"].as_array().into_iter().flatten();
    let ready = containers()
        .filter(|container| container["ready"] == true)
        .count();
    let restarts: u64 = containers()
        .filter_map(|container| container["restartCount"].as_u64())
        .sum();
    let gates = spec["readinessGates"].as_array().map(|gates| {
        let holds = |gate: &&Value| {
            let conditions = status["conditions"].as_array();
            conditions
                .into_iter()
                .flatten()
                .any(|condition| condition["type"] == gate["conditionType"] && condition["status"] == "True")
        };
        format!("{}/{}", gates.iter().filter(holds).count(), gates.len())
    });
    vec![
        name,
        format!("{ready}/{total}"),
        word(pod),
        restarts.to_string(),
        age,
        or(&text(&status["podIPs"][0]["ip"]), NONE),
        or(&text(&spec["nodeName"]), NONE),
        or(&text(&status["nominatedNodeName"]), NONE),
        gates.unwrap_or_else(|| NONE.to_owned()),
    ]
}

fn word(pod: &Value) -> String {
    let status = &pod["status"];
    let phase = text(&status["phase"]);
    let mut reason = or(&text(&status["reason"]), &phase);
    let conditions = status["conditions"].as_array();
    let gated = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated");
    if gated {
        reason = "SchedulingGated".to_owned();
    }
    let mut running = false;
    // As upstream, the reason of the first container has precedence.
    for container in status["containerStatuses"].as_array().into_iter().flatten().rev() {
        let state = &container["state"];
        let terminated = &state["terminated"];
        if let Some(waiting) = state["waiting"]["reason"]
            .as_str()
            .filter(|reason| !reason.is_empty())
        {
            reason = waiting.to_owned();
        } else if !terminated.is_null() {
            reason = match (
                terminated["reason"].as_str().unwrap_or_default(),
                terminated["signal"].as_i64(),
            ) {
                ("", Some(signal)) if signal != 0 => format!("Signal:{signal}"),
                ("", _) => format!("ExitCode:{}", text(&terminated["exitCode"])),
                (reason, _) => reason.to_owned(),
            };
        } else if container["ready"] == true && !state["running"].is_null() {
            running = true;
        }
    }
    if reason == "Completed" && running {
        let ready = status["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        reason = if ready {
            "Running".to_owned()
        } else {
            "NotReady".to_owned()
        };
    }
    match (
        pod["metadata"]["deletionTimestamp"].is_null(),
        status["reason"].as_str(),
    ) {
        (true, _) => reason,
        (false, Some("NodeLost")) => "Unknown".to_owned(),
        (false, _) if matches!(phase.as_str(), "Failed" | "Succeeded") => reason,
        (false, _) => "Terminating".to_owned(),
    }
}
