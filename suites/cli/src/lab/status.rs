//! `plumbline lab status`.

use std::process::ExitCode;

use cluster::AgentState;
use comfy_table::{Table, presets};
use lab::{ActiveApiFault, LabCluster, Status};

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
        api_servers,
        api_faults,
        target,
        nodes,
    } = status;
    let mut text =
        format!("lab {name}: API server {api}, target {target}, supervisor process {supervisor}\n\n");
    if api_servers.len() > 1 || api_servers.iter().any(|server| !server.running) {
        let rows = api_servers.iter().map(|server| {
            let state = if server.running { "runs" } else { "down" };
            [
                server.number.to_string(),
                server.address.to_string(),
                state.to_owned(),
            ]
        });
        text += &table(["API SERVER", "ADDRESS", "STATE"], rows);
        text.push('\n');
    }
    for ActiveApiFault { fault, age, left } in api_faults {
        let (age, left) = (age.as_secs(), left.as_secs());
        text += &format!("fault: {fault}, since {age} s, for {left} s more at most\n");
    }
    if !api_faults.is_empty() {
        text.push('\n');
    }
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
    use std::time::Duration;

    use cluster::{ApiFault, ApiServer, Stop};
    use lab::{NodeStatus, PodView};

    use super::*;

    fn server(number: u8, running: bool) -> ApiServer {
        ApiServer {
            number,
            address: ([172, 30, 0, 1 + number], 6443).into(),
            running,
        }
    }

    #[test]
    fn a_lab_is_shown_as_two_tables() {
        let agent = AgentState {
            pid: Some(7),
            starts: 2,
            ready: Some(true),
            last_exit: Some("SIGKILL".to_owned()),
            way: None,
            variant: None,
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
            api_servers: vec![server(1, true)],
            api_faults: Vec::new(),
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
        status.api_servers = vec![server(1, true), server(2, false)];
        status.api_faults = vec![ActiveApiFault {
            fault: ApiFault::Down {
                server: 2,
                how: Stop::Kill,
            },
            age: Duration::from_millis(3500),
            left: Duration::from_secs(26),
        }];
        let servers = "

 API SERVER  ADDRESS          STATE
 1           172.30.0.2:6443  runs
 2           172.30.0.3:6443  down

fault: API server 2 is killed, since 3 s, for 26 s more at most

 NODE";
        assert!(render(&status).contains(servers), "{}", render(&status));
        status.nodes[0].pods.clear();
        assert!(!render(&status).contains("NAMESPACE"), "no pods, no table");
    }
}
