//! The kinds this server has.

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    ConfigMap,
    EndpointSlice,
    Event,
    Lease,
    Namespace,
    Node,
    Pod,
    Secret,
    Service,
    ServiceAccount,
    ServiceCidr,
}

/// Its names in discovery and in messages.
#[derive(Debug)]
pub(crate) struct KindInfo {
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
    /// A DELETE answers with the object, not with a Status.
    pub(crate) delete_returns_object: bool,
}

impl KindInfo {
    /// `v1`, `discovery.k8s.io/v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

const PLAIN: KindInfo = KindInfo {
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
    delete_returns_object: false,
};

static CONFIG_MAP: KindInfo = KindInfo {
    kind: "ConfigMap",
    plural: "configmaps",
    singular: "configmap",
    short: &["cm"],
    ..PLAIN
};
static ENDPOINT_SLICE: KindInfo = KindInfo {
    group: "discovery.k8s.io",
    kind: "EndpointSlice",
    plural: "endpointslices",
    singular: "endpointslice",
    generation: true,
    ..PLAIN
};
static EVENT: KindInfo = KindInfo {
    kind: "Event",
    plural: "events",
    singular: "event",
    short: &["ev"],
    ..PLAIN
};
static LEASE: KindInfo = KindInfo {
    group: "coordination.k8s.io",
    kind: "Lease",
    plural: "leases",
    singular: "lease",
    ..PLAIN
};
static NAMESPACE: KindInfo = KindInfo {
    kind: "Namespace",
    plural: "namespaces",
    singular: "namespace",
    short: &["ns"],
    namespaced: false,
    status: true,
    delete_returns_object: true,
    ..PLAIN
};
static NODE: KindInfo = KindInfo {
    kind: "Node",
    plural: "nodes",
    singular: "node",
    short: &["no"],
    namespaced: false,
    status: true,
    ..PLAIN
};
static POD: KindInfo = KindInfo {
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
static SECRET: KindInfo = KindInfo {
    kind: "Secret",
    plural: "secrets",
    singular: "secret",
    ..PLAIN
};
static SERVICE: KindInfo = KindInfo {
    kind: "Service",
    plural: "services",
    singular: "service",
    short: &["svc"],
    categories: &["all"],
    status: true,
    delete_returns_object: true,
    ..PLAIN
};

static SERVICE_ACCOUNT: KindInfo = KindInfo {
    kind: "ServiceAccount",
    plural: "serviceaccounts",
    singular: "serviceaccount",
    short: &["sa"],
    delete_returns_object: true,
    ..PLAIN
};

static SERVICE_CIDR: KindInfo = KindInfo {
    group: "networking.k8s.io",
    kind: "ServiceCIDR",
    plural: "servicecidrs",
    singular: "servicecidr",
    namespaced: false,
    status: true,
    ..PLAIN
};

impl Kind {
    /// Every kind, in the order of discovery.
    pub(crate) const ALL: [Self; 11] = [
        Self::ConfigMap,
        Self::EndpointSlice,
        Self::Event,
        Self::Lease,
        Self::Namespace,
        Self::Node,
        Self::Pod,
        Self::Secret,
        Self::ServiceAccount,
        Self::Service,
        Self::ServiceCidr,
    ];

    pub(crate) fn info(self) -> &'static KindInfo {
        match self {
            Self::ConfigMap => &CONFIG_MAP,
            Self::EndpointSlice => &ENDPOINT_SLICE,
            Self::Event => &EVENT,
            Self::Lease => &LEASE,
            Self::Namespace => &NAMESPACE,
            Self::Node => &NODE,
            Self::Pod => &POD,
            Self::Secret => &SECRET,
            Self::Service => &SERVICE,
            Self::ServiceAccount => &SERVICE_ACCOUNT,
            Self::ServiceCidr => &SERVICE_CIDR,
        }
    }

    /// The kind behind a path.
    pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| {
            let info = kind.info();
            (info.group, info.version, info.plural) == (group, version, plural)
        })
    }
}
