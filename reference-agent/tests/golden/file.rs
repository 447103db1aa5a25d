//! The format of a golden file.
//!
//! A comment that says what the file shows, then a list of steps. Everything is named; what is not known is an
//! error, and so is a step after the last expectation, which would show nothing.

use std::{collections::BTreeSet, net::IpAddr};

use anyhow::{Context as _, bail, ensure};
use reference_agent::{endpoint_address::TransportAddress, model::Kind, plan::Perspective};
use serde::Deserialize;
use serde_json::Value;

/// What happens, or what is then expected.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Step {
    /// An agent starts, over the maps as they are. It is told everything that is there, unless it is `unsynced`.
    Agent(Agent),
    /// This machine is like this.
    Host(Host),
    /// An object is added or modified; or, before `synced`, is one of the first list.
    Apply(Value),
    /// An object (kind, namespace and name) is deleted.
    Delete(Value),
    /// The watch breaks, and a complete list follows.
    List(List),
    /// The watch breaks, and a list follows that breaks off.
    ListBreaksOff(List),
    /// The first lists of these kinds are complete.
    Synced(Vec<String>),
    /// Of the next writes so many succeed, then so many fail.
    Fail(Fail),
    /// Maps have room for so many entries.
    Capacities(Capacities),
    /// What is in the maps, and what was left out.
    Expect(Expect),
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Agent {
    #[serde(default)]
    node: Option<String>,
    #[serde(default)]
    selection: Option<String>,
    #[serde(default)]
    api_servers: BTreeSet<std::net::SocketAddr>,
    /// Nothing is told until the steps do.
    #[serde(default)]
    pub(super) unsynced: bool,
}

impl Agent {
    pub(super) fn perspective(&self) -> anyhow::Result<Perspective> {
        let selection = match self.selection.as_deref() {
            None => reference_agent::plan::Selection::Random,
            Some("maglev") => reference_agent::plan::Selection::Maglev,
            Some(other) => bail!("agent: selection is `maglev` or left out, found `{other}`"),
        };
        Ok(Perspective {
            node: self.node.clone().unwrap_or_else(|| "here".to_owned()),
            selection,
            ..Perspective::default()
        })
    }

    /// Where it reaches its API servers.
    pub(super) fn api_servers(&self) -> BTreeSet<(IpAddr, u16)> {
        self.api_servers
            .iter()
            .map(|one| (one.ip(), one.port()))
            .collect()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Host {
    pub(super) addresses: BTreeSet<IpAddr>,
    #[serde(default)]
    pub(super) probe: Option<Probe>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Probe {
    frontend: String,
    backend: String,
}

impl Probe {
    pub(super) fn addresses(&self) -> (TransportAddress, TransportAddress) {
        let read = reference_agent::testing::objects::address;
        (read(&self.frontend), read(&self.backend))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct List {
    kind: String,
    pub(super) items: Vec<Value>,
}

impl List {
    /// The kind of its items.
    pub(super) fn kind(&self) -> anyhow::Result<Kind> {
        let item = self
            .kind
            .strip_suffix("List")
            .context("a list's kind ends with List")?;
        kind(item)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fail {
    pub(super) pass: usize,
    pub(super) fail: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Capacities {
    pub(super) slots: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Expect {
    /// The dump, whole.
    pub(super) dump: String,
    /// All findings, sorted: `Service t/x FrontendRefused spec.externalIPs[0]`, where the last part is one of the
    /// sentence.
    #[serde(default)]
    pub(super) findings: Vec<String>,
    /// All health check node ports, sorted: `t/x 32000 -> 1`, where the last number is that of local endpoints.
    #[serde(default)]
    pub(super) health_checks: Vec<String>,
}

/// A kind by its name.
pub(super) fn kind(name: &str) -> anyhow::Result<Kind> {
    Ok(match name {
        "Service" => Kind::Service,
        "EndpointSlice" => Kind::EndpointSlice,
        "Node" => Kind::Node,
        "ServiceCIDR" => Kind::ServiceCidr,
        other => bail!("the agent knows Service, EndpointSlice, Node and ServiceCIDR, found `{other}`"),
    })
}

/// The kind of an object.
pub(super) fn kind_of(object: &Value) -> anyhow::Result<Kind> {
    kind(object["kind"].as_str().context("an object has a kind")?)
}

/// Reads a file.
pub(super) fn read(text: &str) -> anyhow::Result<Vec<Step>> {
    ensure!(
        text.starts_with("# "),
        "a golden file opens with a comment that says what it shows"
    );
    let steps: Vec<Step> = serde_saphyr::from_str(text).context("failed to read the steps")?;
    ensure!(
        matches!(steps.last(), Some(Step::Expect(_))),
        "the last step is no expectation: it would show nothing"
    );
    Ok(steps)
}

/// The text of a file with these dumps in the place of its own.
pub(super) fn with_dumps(text: &str, dumps: &[String]) -> anyhow::Result<String> {
    const OPENS: &str = "    dump: |";
    const INDENT: &str = "      ";
    let mut dumps = dumps.iter();
    let mut lines = text.lines().peekable();
    let mut new = String::new();
    while let Some(line) = lines.next() {
        new.push_str(line);
        new.push('\n');
        if line == OPENS {
            while lines.next_if(|line| line.starts_with(INDENT)).is_some() {}
            for line in dumps
                .next()
                .context("more dumps are expected than were made")?
                .lines()
            {
                new.push_str(INDENT);
                new.push_str(line);
                new.push('\n');
            }
        }
    }
    ensure!(dumps.next().is_none(), "a dump does not begin with `{OPENS}`");
    Ok(new)
}
