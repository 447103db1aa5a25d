//! Evidence of a failure: logs, objects, network counters, and the agents' programmed state.

use std::{fs, io, path::Path, process::Output};

use cluster::{ClusterError, Place, command_line, spawn, target::program::Values};
use k8s_openapi::api::{
    core::v1::{Node, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{Api, Resource, ResourceExt as _, api::ListParams};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::timeout;

use super::{
    LIMITS, LabError,
    access::LabAccess,
    counters::counters,
    error::io_error,
    mounts::{BPFFS, CGROUPS},
    netns::NetNs,
};

/// Fills a folder. A file that can't be filled contains the reason; only a folder that can't be written is an error.
pub(super) async fn of_cluster(lab: &LabAccess, folder: &Path) -> Result<(), ClusterError> {
    let failed = unwritten(folder);
    fs::create_dir_all(folder.join("logs")).map_err(failed)?;
    let pods = living(lab).await;
    let uids: Option<Vec<String>> = pods.as_ref().map(|pods| {
        let uids = pods.iter().filter_map(|pod| pod.metadata.uid.clone());
        uids.collect()
    });
    copy_logs(&lab.dir.logs(), &folder.join("logs"), uids.as_deref()).map_err(failed)?;

    let networks = folder.join("networks");
    fs::create_dir_all(&networks).map_err(failed)?;
    for (name, place) in places(lab, &pods.unwrap_or_default()) {
        fs::write(networks.join(format!("{name}.txt")), counted(lab, &place).await).map_err(failed)?;
    }

    let objects = folder.join("objects");
    fs::create_dir_all(&objects).map_err(failed)?;
    let texts = [
        ("nodes.json", list::<Node>(lab).await),
        ("pods.json", list::<Pod>(lab).await),
        ("services.json", list::<Service>(lab).await),
        ("endpointslices.json", list::<EndpointSlice>(lab).await),
    ];
    for (name, text) in texts {
        fs::write(objects.join(name), text).map_err(failed)?;
    }
    Ok(())
}

/// The agents' programmed state. Their logs are in the cluster's log folder, as those of supervisor and pods.
pub(super) async fn of_agents(lab: &LabAccess, folder: &Path) -> Result<(), ClusterError> {
    for node in &lab.about.description.nodes {
        let Some(dump) = dump(lab, &node.name).await else {
            continue;
        };
        let dump = dump.unwrap_or_else(|why| format!("{why}\n"));
        fs::write(folder.join(format!("dump-{}.txt", node.name)), dump).map_err(unwritten(folder))?;
    }
    Ok(())
}

fn unwritten(folder: &Path) -> impl Fn(io::Error) -> ClusterError + Copy {
    move |error| ClusterError::failed(format!("write evidence into {}", folder.display()), error)
}

/// All pods, if they can be listed.
async fn living(lab: &LabAccess) -> Option<Vec<Pod>> {
    let api: Api<Pod> = Api::all(lab.client.clone());
    let pods = timeout(LIMITS.control, api.list(&ListParams::default())).await;
    Some(pods.ok()?.ok()?.items)
}

/// Nodes, and pods with a network of their own.
fn places(lab: &LabAccess, pods: &[Pod]) -> Vec<(String, Place)> {
    let of_node = |node: &str| {
        (
            node.to_owned(),
            Place::Host {
                node: node.to_owned(),
            },
        )
    };
    let of_pod = |pod: &Pod| {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        (format!("{namespace}_{name}"), Place::Pod { namespace, name })
    };
    let has_own = |pod: &&Pod| {
        let spec = pod.spec.as_ref();
        spec.is_some_and(|spec| spec.host_network != Some(true))
    };
    let nodes = lab.about.description.nodes.iter().map(|node| of_node(&node.name));
    nodes.chain(pods.iter().filter(has_own).map(of_pod)).collect()
}

/// Network counters of a place.
async fn counted(lab: &LabAccess, place: &Place) -> String {
    let read = async {
        let located = lab.locate(place).await?;
        let network = NetNs::of(lab.namespace(located.net)?);
        counters(&network).map_err(io_error("read counters"))
    };
    let counted: Result<String, LabError> = read.await;
    counted.unwrap_or_else(|error| format!("what the network has counted could not be read: {error}\n"))
}

/// Whether a log belongs to a pod that still exists, by the uid in its name. Logs of deleted pods belong to earlier
/// cases, and each case would copy all of them.
fn is_wanted(log: &str, living: Option<&[String]>) -> bool {
    let is_pods = log.contains('_');
    !is_pods || living.is_none_or(|living| living.iter().any(|uid| log.contains(uid.as_str())))
}

fn copy_logs(from: &Path, to: &Path, living: Option<&[String]>) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        // The symlinks to the newest pod of a name are for users of a running lab.
        if entry.file_type()?.is_file() && is_wanted(&name.to_string_lossy(), living) {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

async fn list<T>(lab: &LabAccess) -> String
where
    T: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let api: Api<T> = Api::all(lab.client.clone());
    let listed = match timeout(LIMITS.control, api.list(&ListParams::default())).await {
        Ok(Ok(listed)) => serde_json::to_string_pretty(&listed.items).map_err(|error| error.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {:?}", LIMITS.control)),
    };
    listed.unwrap_or_else(|error| format!("could not be listed: {error}\n"))
}

/// What the agent of a node has programmed, or why that can't be had; `None`: its target has no command for it.
pub(super) async fn dump(lab: &LabAccess, node: &str) -> Option<Result<String, String>> {
    let arguments = lab.about.config.agent.program.dump.as_ref()?;
    let output = printed(lab, node, arguments).await;
    Some(output.and_then(|(line, output)| text(&line, &output, false)))
}

/// How that differs from what the API lists, likewise.
pub(super) async fn differences(lab: &LabAccess, node: &str) -> Option<Result<String, String>> {
    let arguments = lab.about.config.agent.program.differences.as_ref()?;
    let output = printed(lab, node, arguments).await;
    Some(output.and_then(|(line, output)| text(&line, &output, true)))
}

/// What the target's program prints on a node, with its command line.
async fn printed(lab: &LabAccess, node: &str, arguments: &[String]) -> Result<(String, Output), String> {
    let agent = &lab.about.config.agent;
    let values = Values {
        kubeconfig: &lab.dir.node_kubeconfig(node),
        node,
        cgroup: CGROUPS,
        bpffs: BPFFS,
        state: &lab.dir.agent_state(node),
    };
    let argv = [agent.argv.clone(), values.fill(arguments)].concat();
    let line = command_line(&argv);
    let place = Place::Host {
        node: node.to_owned(),
    };
    let run = async {
        let placed = lab
            .place(&place, &argv)
            .await
            .map_err(|error| error.to_string())?;
        let child = spawn::piped(placed).await.map_err(|error| error.to_string())?;
        child.wait_with_output().await.map_err(|error| error.to_string())
    };
    match timeout(LIMITS.agent_cleanup, run).await {
        Ok(Ok(output)) => Ok((line, output)),
        Ok(Err(error)) => Err(format!("`{line}`: {error}")),
        Err(_) => Err(format!("`{line}` did not end within {:?}", LIMITS.agent_cleanup)),
    }
}

/// Stdout of a program that has succeeded. One that compares may also end with 1, if it has printed something.
fn text(line: &str, output: &Output, compares: bool) -> Result<String, String> {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    let differs = compares && output.status.code() == Some(1) && !out.is_empty();
    if output.status.success() || differs {
        return Ok(out);
    }
    Err(format!("`{line}` ended with {}: {err}", output.status))
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::ExitStatusExt as _, process::ExitStatus};

    use super::*;

    #[test]
    fn a_program_that_compares_may_end_with_1_where_it_prints_something() {
        let ended = |compares: bool, code: i32, out: &str| {
            let output = Output {
                status: ExitStatus::from_raw(code << 8),
                stdout: out.into(),
                stderr: b"why".to_vec(),
            };
            text("agent plan --diff", &output, compares)
        };
        assert_eq!(ended(true, 0, "").as_deref(), Ok(""));
        assert_eq!(ended(true, 0, "- a\n").as_deref(), Ok("- a\n"));
        assert_eq!(ended(true, 1, "- a\n").as_deref(), Ok("- a\n"));
        let none = "`agent plan --diff` ended with exit status: ";
        assert_eq!(ended(true, 1, ""), Err(format!("{none}1: why")));
        assert_eq!(ended(true, 2, "- a\n"), Err(format!("{none}2: why")));
        assert_eq!(ended(false, 1, "half a dump\n"), Err(format!("{none}1: why")));
    }

    #[test]
    fn logs_of_pods_that_are_gone_are_left_out() {
        let living = ["1-2".to_owned()];
        let is = |log| is_wanted(log, Some(&living));
        assert!(is("agent-node1.log"));
        assert!(is("ns_b1_1-2.log"));
        assert!(!is("ns_b1_3-4.log"));
        assert!(is_wanted("ns_b1_3-4.log", None), "the pods are unknown");
    }
}
