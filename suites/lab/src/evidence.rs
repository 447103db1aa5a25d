//! Evidence of a failure: logs, objects, network counters, and the agents' programmed state.

use std::{fs, io, path::Path};

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
    let agent = &lab.about.config.agent;
    let values = Values {
        kubeconfig: &lab.dir.node_kubeconfig(node),
        node,
        cgroup: CGROUPS,
        bpffs: BPFFS,
        state: &lab.dir.agent_state(node),
    };
    let argv = [agent.argv.clone(), values.fill(agent.program.dump.as_ref()?)].concat();
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
    Some(match timeout(LIMITS.agent_cleanup, run).await {
        Ok(Ok(output)) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(Ok(output)) => Err(format!(
            "`{line}` ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )),
        Ok(Err(error)) => Err(format!("`{line}`: {error}")),
        Err(_) => Err(format!("`{line}` did not end within {:?}", LIMITS.agent_cleanup)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
