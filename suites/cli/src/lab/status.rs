//! `plumbline lab status`.

use std::process::ExitCode;

use comfy_table::{Table, presets};
use lab::{
    cluster::AgentState,
    embedded::{LabCluster, Status},
};

pub(super) async fn run(name: &str) -> anyhow::Result<ExitCode> {
    let lab = LabCluster::attach(name).await?;
    print!("{}", render(&lab.status().await?));
    Ok(ExitCode::SUCCESS)
}

fn render(status: &Status) -> String {
    let Status {
        name,
        supervisor,
        api,
        target,
        nodes,
    } = status;
    let mut text =
        format!("lab {name}: API server {api}, target {target}, supervisor process {supervisor}\n\n");
    let heading = ["NODE", "ZONE", "ADDRESS", "PODS", "AGENT", "STARTS", "LAST EXIT"];
    let rows = nodes.iter().map(|node| {
        [
            node.name.clone(),
            node.zone.clone(),
            list(&node.addresses),
            list(&node.pod_cidrs),
            agent(&node.agent),
            node.agent.starts.to_string(),
            node.agent.last_exit.clone().unwrap_or_default(),
        ]
    });
    text += &table(heading, rows);
    let heading = [
        "NAMESPACE",
        "POD",
        "NODE",
        "ADDRESS",
        "READY",
        "RESTARTS",
        "REASON",
    ];
    let pods = nodes
        .iter()
        .flat_map(|node| node.pods.iter().map(move |pod| (node, pod)));
    let rows: Vec<_> = pods
        .map(|(node, pod)| {
            [
                pod.namespace.clone(),
                pod.name.clone(),
                node.name.clone(),
                list(&pod.addresses),
                if pod.ready { "yes" } else { "no" }.to_owned(),
                pod.restarts.to_string(),
                pod.reason.clone(),
            ]
        })
        .collect();
    if !rows.is_empty() {
        text.push('\n');
        text += &table(heading, rows.into_iter());
    }
    text
}

fn list<T: ToString>(all: &[T]) -> String {
    let all: Vec<String> = all.iter().map(T::to_string).collect();
    all.join(",")
}

fn agent(state: &AgentState) -> String {
    match (state.pid, state.ready) {
        (None, _) => "stopped".to_owned(),
        (Some(pid), Some(true)) => format!("ready, process {pid}"),
        (Some(pid), Some(false)) => format!("not ready, process {pid}"),
        (Some(pid), None) => format!("silent, process {pid}"),
    }
}

fn table<const N: usize>(heading: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(heading)
        .add_rows(rows);
    table.trim_fmt() + "\n"
}

#[cfg(test)]
mod tests {
    use lab::embedded::{NodeStatus, PodView};

    use super::*;

    #[test]
    fn a_lab_is_shown_as_two_tables() {
        let agent = AgentState {
            pid: Some(7),
            starts: 2,
            ready: Some(true),
            last_exit: Some("SIGKILL".to_owned()),
        };
        let pod = PodView {
            namespace: "default".to_owned(),
            name: "b1".to_owned(),
            addresses: vec!["10.244.1.2".parse().expect("address")],
            ready: true,
            restarts: 0,
            reason: String::new(),
        };
        let mut status = Status {
            name: "lab".to_owned(),
            supervisor: 6,
            api: "https://127.0.0.1:6443".to_owned(),
            target: "reference".to_owned(),
            nodes: vec![NodeStatus {
                name: "node1".to_owned(),
                zone: "zone-a".to_owned(),
                addresses: vec![
                    "172.30.0.101".parse().expect("address"),
                    "fd00:30::65".parse().expect("address"),
                ],
                pod_cidrs: vec!["10.244.1.0/24".to_owned()],
                agent,
                pods: vec![pod],
            }],
        };
        let shown = "\
lab lab: API server https://127.0.0.1:6443, target reference, supervisor process 6

 NODE   ZONE    ADDRESS                   PODS           AGENT             STARTS  LAST EXIT
 node1  zone-a  172.30.0.101,fd00:30::65  10.244.1.0/24  ready, process 7  2       SIGKILL

 NAMESPACE  POD  NODE   ADDRESS     READY  RESTARTS  REASON
 default    b1   node1  10.244.1.2  yes    0
";
        assert_eq!(render(&status), shown);
        status.nodes[0].pods.clear();
        assert!(!render(&status).contains("NAMESPACE"), "no pods, no table");
    }
}
