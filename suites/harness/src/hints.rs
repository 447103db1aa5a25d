//! Endpoints with hints, and which of them serve the clients of a node (KEP-2433, KEP-3015, KEP-4444).

use std::collections::BTreeMap;

use cluster::{Family, ZONE_LABEL};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt as _, api::ListParams};
use serde_json::{Value, json};

use crate::{
    context::Context,
    pods::Backend,
    requests::{answered, refused},
    verdict::Halt,
};

/// A backend as an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hinted {
    backend: Backend,
    is_ready: bool,
    zone: Option<String>,
    node: Option<String>,
}

impl Hinted {
    /// A ready endpoint without hints.
    #[must_use]
    pub fn new(backend: &Backend) -> Self {
        Self {
            backend: backend.clone(),
            is_ready: true,
            zone: None,
            node: None,
        }
    }

    /// With a hint for a zone.
    #[must_use]
    pub fn for_zone(self, zone: &str) -> Self {
        let zone = Some(zone.to_owned());
        Self { zone, ..self }
    }

    /// With a hint for a node.
    #[must_use]
    pub fn for_node(self, node: &str) -> Self {
        let node = Some(node.to_owned());
        Self { node, ..self }
    }

    /// No longer ready.
    #[must_use]
    pub fn unready(self) -> Self {
        let is_ready = false;
        Self { is_ready, ..self }
    }

    /// Its entry in a slice.
    pub fn entry(&self, family: Family) -> Result<Value, Halt> {
        let mut entry = self.backend.endpoint(family, self.is_ready)?;
        if let Some(zone) = &self.zone {
            entry["hints"]["forZones"] = json!([{ "name": zone }]);
        }
        if let Some(node) = &self.node {
            entry["hints"]["forNodes"] = json!([{ "name": node }]);
        }
        Ok(entry)
    }
}

/// Entries of a slice.
pub fn entries(endpoints: &[Hinted], family: Family) -> Result<Value, Halt> {
    endpoints.iter().map(|endpoint| endpoint.entry(family)).collect()
}

/// The backends that serve clients of a node in a zone: if every ready endpoint has a hint for a node and one names
/// this one, those that do; otherwise the same by zones; otherwise all that are ready.
#[must_use]
pub fn serving<'a>(endpoints: &'a [Hinted], node: &str, zone: Option<&str>) -> Vec<&'a Backend> {
    let ready: Vec<&Hinted> = endpoints.iter().filter(|endpoint| endpoint.is_ready).collect();
    let hinted = |hint: fn(&Hinted) -> Option<&str>, own: Option<&str>| -> Option<Vec<&'a Backend>> {
        let own = own?;
        let are_all = ready.iter().all(|endpoint| hint(endpoint).is_some());
        let of_it = ready.iter().filter(|endpoint| hint(endpoint) == Some(own));
        let of_it: Vec<&Backend> = of_it.map(|endpoint| &endpoint.backend).collect();
        (are_all && !of_it.is_empty()).then_some(of_it)
    };
    hinted(|endpoint| endpoint.node.as_deref(), Some(node))
        .or_else(|| hinted(|endpoint| endpoint.zone.as_deref(), zone))
        .unwrap_or_else(|| ready.iter().map(|endpoint| &endpoint.backend).collect())
}

/// Zones of the nodes, by their labels.
///
/// # Errors
/// The API does not list nodes, or a node that the case uses has no zone.
pub async fn zones(cx: &Context) -> Result<BTreeMap<String, String>, Halt> {
    let api: Api<Node> = Api::all(cx.cluster().client());
    let params = ListParams::default();
    let nodes = answered(|| api.list(&params)).await;
    let nodes = nodes.map_err(|error| refused("list nodes", error))?;
    let zone_of = |name: &String| {
        let node = nodes.items.iter().find(|node| node.name_any() == *name);
        let zone = node.and_then(|node| node.labels().get(ZONE_LABEL).cloned());
        let none = || Halt::Harness(format!("node {name} has no label {ZONE_LABEL}"));
        Ok((name.clone(), zone.ok_or_else(none)?))
    };
    cx.nodes().iter().map(zone_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(name: &str) -> Hinted {
        Hinted::new(&Backend {
            namespace: "p5a01c2-000".to_owned(),
            in_api: format!("p5a01c2-000-{name}"),
            node: "n1".to_owned(),
            addresses: Vec::new(),
        })
    }

    #[test]
    fn hints_count_where_all_ready_endpoints_have_one_and_one_is_for_the_client() {
        let [a, b] = ["a", "b"].map(endpoint);
        let (in_a, in_b) = (a.clone().for_zone("za"), b.clone().for_zone("zb"));
        let rows = [
            ("no hints", vec![a.clone(), b.clone()], "ab"),
            ("one is for the zone", vec![in_a.clone(), in_b.clone()], "a"),
            ("one has none", vec![in_a.clone(), b.clone()], "ab"),
            (
                "no hint for the zone",
                vec![a.clone().for_zone("zc"), in_b.clone()],
                "ab",
            ),
            (
                "that for the zone is unready",
                vec![in_a.clone().unready(), in_b.clone()],
                "b",
            ),
            (
                "the one without a hint is unready",
                vec![in_a.clone(), b.clone().unready()],
                "a",
            ),
            (
                "nodes come before zones",
                vec![in_b.clone().for_node("n1"), in_a.clone().for_node("n2")],
                "b",
            ),
            (
                "zones count where no hint is for the node",
                vec![in_b.clone().for_node("n2"), in_a.clone().for_node("n2")],
                "a",
            ),
            (
                "one has none for a node",
                vec![in_b.clone().for_node("n1"), in_a.clone()],
                "a",
            ),
        ];
        for (row, endpoints, expected) in rows {
            let mut found: Vec<&str> = serving(&endpoints, "n1", Some("za"))
                .into_iter()
                .map(Backend::plain)
                .collect();
            found.sort_unstable();
            assert_eq!(found.concat(), expected, "{row}");
        }
        assert_eq!(
            serving(&[in_a, in_b], "n1", None).len(),
            2,
            "a node without a zone"
        );
    }
}
