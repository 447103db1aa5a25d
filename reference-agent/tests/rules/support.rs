//! Objects in one line, and plans as text.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use reference_agent::{
    decode::Decoded,
    endpoint_address::{Backend, Range, TransportAddress},
    findings::Reason,
    model::{Endpoint, Event, Model, Service, Slice},
    names::NameSet,
    plan::{self, Perspective, ServicePlan},
    testing::objects::{name, service, slice},
};

/// This node's name.
pub(crate) const HERE: &str = "here";

/// From this node.
pub(crate) fn here() -> Perspective {
    Perspective {
        node: HERE.to_owned(),
        ..Perspective::default()
    }
}

/// Addresses, separated by blanks.
pub(crate) fn ips(texts: &str) -> Vec<IpAddr> {
    let texts = texts.split_whitespace();
    texts.map(|text| text.parse().expect("an address")).collect()
}

/// Ranges of addresses, separated by blanks.
pub(crate) fn ranges(texts: &str) -> Vec<Range> {
    let range = |text: &str| {
        let (address, length) = text.split_once('/')?;
        Range::new(address.parse().ok()?, length.parse().ok()?)
    };
    let texts = texts.split_whitespace();
    texts.map(|text| range(text).expect("a range")).collect()
}

/// `t/x` at 10.96.0.1, TCP 80, changed.
pub(crate) fn x(change: impl FnOnce(&mut Service)) -> Service {
    let mut service = service("t/x", "10.96.0.1", &["TCP 80"]);
    change(&mut service);
    service
}

/// The slice `t/NAME` of the Service `x`, with the port TCP 8080.
pub(crate) fn of_x(name: &str, endpoints: &[&str]) -> Slice {
    with_endpoints(slice(&format!("t/{name}"), "x", &["TCP 8080"], &[]), endpoints)
}

/// A slice with these endpoints: an [`endpoint`] each.
pub(crate) fn with_endpoints(slice: Slice, endpoints: &[&str]) -> Slice {
    let endpoints = endpoints.iter().map(|text| endpoint(text)).collect();
    Slice { endpoints, ..slice }
}

/// `1.1.1.1 on:NODE nodes:A,B zones:A,B` after `!`: neither ready nor serving; `?`: serving; `~`: serving and
/// terminating; `-`: terminating.
pub(crate) fn endpoint(text: &str) -> Endpoint {
    let mut parts = text.split_whitespace();
    let address = parts.next().expect("an address");
    let bare = address.trim_start_matches(['!', '?', '~', '-']);
    let mut endpoint = Endpoint::new(bare.parse().expect("an address"));
    (endpoint.ready, endpoint.serving, endpoint.terminating) = match &address[..1] {
        "!" => (false, false, false),
        "?" => (false, true, false),
        "~" => (false, true, true),
        "-" => (false, false, true),
        _ => (true, true, false),
    };
    for part in parts {
        let names = |list: &str| list.split(',').collect::<NameSet>();
        match part.split_once(':').expect("what:value") {
            ("on", node) => endpoint.node = Some(Arc::from(node)),
            ("nodes", list) => endpoint.for_nodes = names(list),
            ("zones", list) => endpoint.for_zones = names(list),
            (other, _) => panic!("{other} is nothing that an endpoint says"),
        }
    }
    endpoint
}

/// A model that was told this, in order.
pub(crate) fn model(events: impl IntoIterator<Item = Event>) -> Model {
    let mut model = Model::default();
    for event in events {
        model.apply(event);
    }
    model
}

/// A Service and its slices.
pub(crate) fn served(service: Service, slices: impl IntoIterator<Item = Slice>) -> Model {
    let slices = slices.into_iter().map(Event::SliceApplied);
    model(slices.chain([Event::ServiceApplied(service)]))
}

/// The plan of a Service that is there, from this node.
pub(crate) fn planned(model: &Model, service: &str) -> ServicePlan {
    let id = model.id(&name(service)).expect("is there");
    plan::plan_service(model, &here(), id)
}

/// One line for each frontend, as in a dump: `TCP 10.96.0.1:80 -> 1.1.1.1:8080 1.1.1.2:8080@`, `@` for local ones.
pub(crate) fn frontends(model: &Model) -> Vec<String> {
    let resolved = plan::resolve(&plan::plan(model, &here()));
    let lines = resolved.into_iter().map(|(frontend, serving)| {
        let (inside, outside) = (shown(&serving.internal), shown(&serving.external));
        let mut text = if inside == outside {
            format!("{frontend} -> {inside}")
        } else {
            format!("{frontend} -> inside {inside} | outside {outside}")
        };
        if serving.affinity_seconds > 0 {
            text += &format!(" (affinity {} s)", serving.affinity_seconds);
        }
        if let Some(sources) = serving.sources {
            let ranges: Vec<_> = sources.iter().map(ToString::to_string).collect();
            text += &format!(" (only from {})", ranges.join(" "));
        }
        if serving.silent {
            text += " (silent)";
        }
        text
    });
    lines.collect()
}

/// What one frontend is, of [`frontends`].
pub(crate) fn frontend(model: &Model, address: &str) -> Option<String> {
    let begin = format!("{address} -> ");
    let mut lines = frontends(model).into_iter();
    lines.find_map(|line| line.strip_prefix(&begin).map(ToOwned::to_owned))
}

fn shown<'a>(backends: impl IntoIterator<Item = &'a Backend>) -> String {
    let backends = backends.into_iter();
    let shown: Vec<_> = backends
        .map(|Backend { address, local }| {
            let TransportAddress { address, port, .. } = *address;
            let socket = std::net::SocketAddr::new(address, port);
            format!("{socket}{}", if *local { "@" } else { "" })
        })
        .collect();
    if shown.is_empty() {
        "refused".to_owned()
    } else {
        shown.join(" ")
    }
}

/// The sets of the only port of `t/x`: `cluster | local | serving`.
pub(crate) fn sets(model: &Model) -> String {
    let ports: Vec<_> = planned(model, "t/x").ports.into_values().collect();
    let [port] = ports.as_slice() else {
        panic!("{} ports, not one", ports.len())
    };
    [&port.cluster, &port.local, &port.serving].map(shown).join(" | ")
}

/// Findings of a Service, in order.
pub(crate) fn findings(model: &Model, service: &str) -> Vec<String> {
    let findings = planned(model, service).findings;
    findings.iter().map(ToString::to_string).collect()
}

/// The names of what is marked; the node's own is `node`.
pub(crate) fn marked(model: &Model, dirty: &reference_agent::model::Dirty) -> Vec<String> {
    let names = dirty.iter().map(|&id| match model.name(id) {
        Some(name) => name.to_string(),
        None if id == reference_agent::names::ObjectId::NODE => "node".to_owned(),
        None => "deleted".to_owned(),
    });
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// ADDRESSES of everything.
pub(crate) fn addresses(model: &Model) -> BTreeMap<IpAddr, u32> {
    plan::addresses(&plan::plan(model, &here()))
}

/// Defects, with their reasons.
pub(crate) fn told<T>(decoded: &Decoded<T>) -> Vec<String> {
    let defects = decoded.defects.iter();
    defects
        .map(|defect| format!("{}: {defect}", defect.reason))
        .collect()
}

/// Reasons and fields of defects.
pub(crate) fn reasons<T>(decoded: &Decoded<T>) -> Vec<(Reason, &str)> {
    let defects = decoded.defects.iter();
    defects
        .map(|defect| (defect.reason, defect.field.as_str()))
        .collect()
}
