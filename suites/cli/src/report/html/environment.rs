//! Where and how a run was made.

use maud::{Markup, html};

use super::super::{format::Report, software::AgentSoftware};

pub(super) fn render(report: &Report) -> Markup {
    let cluster = &report.cluster;
    let or_none = |all: &[String]| {
        if all.is_empty() {
            "none".to_owned()
        } else {
            all.join(", ")
        }
    };
    let nodes: Vec<String> = cluster
        .nodes
        .iter()
        .map(|(name, addresses)| {
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            format!("{name} ({})", addresses.join(", "))
        })
        .collect();
    html! {
        section aria-labelledby="where" {
            h2 id="where" { "Where and how" }
            dl {
                dt { "target" } dd { (cluster.target) }
                dt { "provider" } dd { (cluster.provider) }
                dt { "kernel" } dd { (cluster.kernel) }
                dt { "families" } dd { (or_none(&cluster.families)) }
                dt { "features" } dd { (or_none(&cluster.features)) }
                dt { "nodes" } dd { (nodes.join(", ")) }
                dt { "seed" } dd { (report.run.seed) @if report.run.shuffled { ", cases shuffled" } }
                dt { "limits" } dd { "profile " (report.run.profile) }
                @for axis in &cluster.axes_not_enabled { dt { "not" } dd { (axis) } }
                @for (name, text) in cluster.software.lines() { dt { (name) } dd { (text) } }
                @for words in &cluster.deviations_not_applied { dt { "no exemption" } dd { (words) } }
            }
            (configuration(report))
            details class="small" {
                summary { "All limits" }
                dl { @for (name, value) in &report.limits { dt { (name) } dd { (value) } } }
            }
        }
    }
}

/// How agents were configured.
fn configuration(report: &Report) -> Markup {
    let configured = |agent: &&AgentSoftware| !agent.arguments.is_empty() || !agent.environment.is_empty();
    html! {
        @for agent in report.cluster.software.agents.iter().filter(configured) {
            details class="small" {
                summary { "Configuration of " (agent.name) }
                pre {
                    @for argument in &agent.arguments { (argument) "\n" }
                    @for (name, value) in &agent.environment { (name) "=" (value) "\n" }
                }
            }
        }
    }
}
