//! The kinds this server has.

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    EndpointSlice,
    Event,
    Namespace,
    Node,
    Pod,
    Service,
}

/// Its names in discovery and in messages.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) short: &'static [&'static str],
    pub(crate) categories: &'static [&'static str],
    pub(crate) namespaced: bool,
    /// There is a `/status` subresource.
    pub(crate) status: bool,
    /// `metadata.generation` is kept.
    pub(crate) generation: bool,
    /// A PUT of an object that is not there creates it.
    pub(crate) create_on_update: bool,
    /// A DELETE answers with the object, not with a Status.
    pub(crate) delete_returns_object: bool,
}

impl Facts {
    /// `v1`, `discovery.k8s.io/v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

const PLAIN: Facts = Facts {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    singular: "",
    short: &[],
    categories: &[],
    namespaced: true,
    status: false,
    generation: false,
    create_on_update: false,
    delete_returns_object: false,
};

static ENDPOINT_SLICE: Facts = Facts {
    group: "discovery.k8s.io",
    kind: "EndpointSlice",
    plural: "endpointslices",
    singular: "endpointslice",
    generation: true,
    ..PLAIN
};
static EVENT: Facts = Facts {
    kind: "Event",
    plural: "events",
    singular: "event",
    short: &["ev"],
    create_on_update: true,
    ..PLAIN
};
static NAMESPACE: Facts = Facts {
    kind: "Namespace",
    plural: "namespaces",
    singular: "namespace",
    short: &["ns"],
    namespaced: false,
    status: true,
    delete_returns_object: true,
    ..PLAIN
};
static NODE: Facts = Facts {
    kind: "Node",
    plural: "nodes",
    singular: "node",
    short: &["no"],
    namespaced: false,
    status: true,
    ..PLAIN
};
static POD: Facts = Facts {
    kind: "Pod",
    plural: "pods",
    singular: "pod",
    short: &["po"],
    categories: &["all"],
    status: true,
    generation: true,
    delete_returns_object: true,
    ..PLAIN
};
static SERVICE: Facts = Facts {
    kind: "Service",
    plural: "services",
    singular: "service",
    short: &["svc"],
    create_on_update: true,
    categories: &["all"],
    status: true,
    delete_returns_object: true,
    ..PLAIN
};

impl Kind {
    /// Every kind.
    pub(crate) const ALL: [Self; 6] = [
        Self::EndpointSlice,
        Self::Event,
        Self::Namespace,
        Self::Node,
        Self::Pod,
        Self::Service,
    ];

    pub(crate) fn facts(self) -> &'static Facts {
        match self {
            Self::EndpointSlice => &ENDPOINT_SLICE,
            Self::Event => &EVENT,
            Self::Namespace => &NAMESPACE,
            Self::Node => &NODE,
            Self::Pod => &POD,
            Self::Service => &SERVICE,
        }
    }

    /// The kind behind a path.
    pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| {
            let facts = kind.facts();
            (facts.group, facts.version, facts.plural) == (group, version, plural)
        })
    }
}
