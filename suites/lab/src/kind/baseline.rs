//! What nodes have before their agents are installed: programs, pins and rules of their runtime and network.

use std::{collections::BTreeMap, path::Path};

use super::{KindError, LIMITS, PROGRAMS, containers::Container, placing};

/// Of each node by its name, how many there are of each kind.
pub(super) type Baseline = BTreeMap<String, BTreeMap<String, usize>>;

/// Looks at all nodes, as cases do later: by `plumbline node remains`, which is on them.
pub(super) async fn look(nodes: &[Container]) -> Result<Baseline, KindError> {
    let mut all = Baseline::new();
    for node in nodes {
        let what = format!("count what the node {} has without an agent", node.name);
        let program = Path::new(PROGRAMS).join("plumbline");
        let arguments = ["node", "remains", "--cgroup"].map(str::to_owned).into_iter();
        let arguments: Vec<String> = arguments
            .chain([node.cgroup_root.to_string_lossy().into_owned()])
            .collect();
        let said = placing::on_node(node, &program, &arguments, &what, LIMITS.count).await?;
        let counts = serde_json::from_str(&said).map_err(|error| KindError::Unexpected {
            what,
            why: format!("it said {said:?}: {error}"),
        })?;
        all.insert(node.name.clone(), counts);
    }
    Ok(all)
}
