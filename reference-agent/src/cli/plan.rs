//! Prints what the maps should say, and what they say differently.

use std::{collections::BTreeSet, time::Duration};

use clap::Args;
use tokio::task::JoinSet;

use super::{
    Bpffs, ConfigFile,
    plan_options::NodeFlags,
    source::{Source, SourceFlags},
};
use crate::{
    api_access::{ApiAccessFlags, StateAccess},
    control::{DesiredState as _, Planner},
    dump,
    endpoint_address::{Protocol, TransportAddress},
    feed,
    host::{self, HostFlags},
    maps::kernel,
    model::{Event, Probe},
    plan::Perspective,
    probe::ProbeFlags,
    reports::Reports,
};

/// The longest wait for all objects to be listed.
const LIST_LIMIT: Duration = Duration::from_secs(60);

/// What to plan, and what to compare it with.
#[derive(Debug, Args)]
pub struct Plan {
    #[command(flatten)]
    config: ConfigFile,
    /// Print only what differs from the pinned maps: lines with - are in the maps, lines with + should be
    ///
    /// What is kept for the agent's own sockets is left out: a plan has no memory. While objects change, what is on its
    /// way into the maps differs, too.
    #[arg(long)]
    diff: bool,
    #[command(flatten)]
    node: NodeFlags,
    #[command(flatten, next_help_heading = "Source of objects")]
    source: SourceFlags,
    #[command(flatten, next_help_heading = "The agent's own way to the API server")]
    own: ApiAccessFlags,
    #[command(flatten, next_help_heading = "Addresses and devices of this node")]
    host: HostFlags,
    #[command(flatten)]
    probe: ProbeFlags,
    #[command(flatten, next_help_heading = "Where programs and maps are")]
    bpffs: Bpffs,
}

/// Whether nothing differs.
#[tokio::main]
pub(super) async fn plan(plan: &Plan) -> anyhow::Result<bool> {
    let source = plan.source.open(&plan.own, StateAccess::ReadOnly).await?;
    let perspective = Perspective {
        node: plan.node.node.clone(),
        selection: plan.node.backend_selection,
        ..Perspective::default()
    };
    let mut planner = Planner::new(perspective);
    if let Source::Api { servers, .. } = &source {
        planner.apply(Event::ApiServers(servers.addresses()));
    }
    let reports = Reports::new(None);
    // No plan is made of ServiceCIDRs.
    let mut feeds = source.feeds(false, &reports);
    // The kernel chooses the port of the agent's probe at each start, so that its frontend is not compared.
    let probe = plan.probe.frontend().filter(|_| plan.diff).map(|frontend| {
        let at = TransportAddress {
            protocol: Protocol::Tcp,
            address: frontend.ip(),
            port: frontend.port(),
        };
        Probe {
            frontend: at,
            backend: at,
        }
    });
    let (feed, _host) = host::feed(plan.node.node.clone(), plan.host.options(), probe);
    feeds.push(feed);
    let (sender, mut events) = feed::queue();
    let mut tasks = JoinSet::new();
    for feed in feeds {
        tasks.spawn(feed.run(sender.clone()));
    }
    drop(sender);
    let listing = async {
        while !planner.model().synced() {
            let arrival = events.recv().await?;
            for event in arrival.events() {
                planner.apply(event);
            }
        }
        Some(())
    };
    let listed = tokio::time::timeout(LIST_LIMIT, listing).await;
    let missing: Vec<String> = planner
        .model()
        .unsynced()
        .map(|kind| format!("{kind:?}"))
        .collect();
    anyhow::ensure!(
        matches!(listed, Ok(Some(()))),
        "not everything could be listed in {LIST_LIMIT:?}; missing: {}{}",
        missing.join(", "),
        reports
            .readiness
            .reasons()
            .iter()
            .map(|reason| format!("; {reason}"))
            .collect::<String>()
    );
    eprint!("{}", reports.ledger.text());
    let planned = dump::planned(&planner.plan());
    if !plan.diff {
        print!("{planned}");
        return Ok(true);
    }
    let pinned = kernel::pinned_contents(&lb_loader::read_pinned(&plan.bpffs.bpffs)?)?;
    let probe = probe.map(|probe| format!("{} -> ", probe.frontend));
    let is_probe = |line: &str| probe.as_ref().is_some_and(|probe| line.starts_with(probe));
    let compared = |dump: &str| -> String {
        dump.lines()
            .filter(|line| !is_probe(line))
            .flat_map(|line| [line, "\n"])
            .collect()
    };
    let differences = differences(&compared(&dump::dump(&pinned)), &compared(&planned));
    print!("{differences}");
    Ok(differences.is_empty())
}

/// What the maps have and should not, and the other way round, by section.
fn differences(maps: &str, planned: &str) -> String {
    let (maps, planned) = (lines(maps), lines(planned));
    let mut both: Vec<_> = maps.symmetric_difference(&planned).copied().collect();
    // By section and line; of one line what is there before what should be.
    both.sort_by_key(|line| (*line, !maps.contains(line)));
    let mut text = String::new();
    let mut section = "";
    for (of, line) in both {
        if of != section {
            text += &format!("{of}\n");
            section = of;
        }
        let sign = if maps.contains(&(of, line)) { '-' } else { '+' };
        text += &format!("{sign} {line}\n");
    }
    text
}

/// Each line with its section.
fn lines(dump: &str) -> BTreeSet<(&str, &str)> {
    let mut section = "";
    let mut lines = BTreeSet::new();
    for line in dump.lines() {
        if dump::SECTIONS.contains(&line) {
            section = line;
        } else if section != "kept" {
            lines.insert((section, line));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_shown_by_section_and_what_is_kept_is_not_compared() {
        let maps = "frontends\nTCP 10.0.0.1:80 -> refused\nUDP 10.0.0.2:53 -> 10.1.0.1:53\naddresses\n\
                    10.0.0.1 -> other ports refused\nkept\nTCP 10.0.0.1:80 -> 10.1.0.2:80\n";
        let planned = "frontends\nTCP 10.0.0.1:80 -> 10.1.0.3:80\nUDP 10.0.0.2:53 -> 10.1.0.1:53\naddresses\n\
                       10.0.0.1 -> other ports refused\n10.0.0.2 -> other ports refused\n";
        assert_eq!(
            differences(maps, planned),
            "addresses\n+ 10.0.0.2 -> other ports refused\nfrontends\n\
             + TCP 10.0.0.1:80 -> 10.1.0.3:80\n- TCP 10.0.0.1:80 -> refused\n"
        );
        assert_eq!(differences(planned, planned), "");
        assert_eq!(differences(maps, maps), "");
    }
}
