//! A pod: a network namespace behind a veth. Its cgroup is that of the test's process, as cgroups hold processes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::sched::{CloneFlags, setns};
use test_network::{Device, IpNet, Links, Namespace, NetworkError, Route};

/// Its namespace.
pub(crate) struct Pod(Namespace);

/// The node's end, and the pod's.
const DEVICES: [&str; 2] = ["veth-pod", "eth0"];
/// Addresses of both ends, in the networks of these lengths.
const ENDS: [([IpAddr; 2], u8); 2] = [
    (
        [
            IpAddr::V4(Ipv4Addr::new(10, 0, 2, 1)),
            IpAddr::V4(Ipv4Addr::new(10, 0, 2, 2)),
        ],
        24,
    ),
    (
        [
            IpAddr::V6(Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 1)),
            IpAddr::V6(Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, 2)),
        ],
        64,
    ),
];

impl Pod {
    /// The one pod of this network namespace.
    pub(crate) fn new() -> Self {
        Self::behind_the_node().expect("a pod")
    }

    fn behind_the_node() -> Result<Self, NetworkError> {
        let namespace = Namespace::create()?;
        let (node, inside) = (Links::here()?, namespace.links()?);
        let [here, there] = DEVICES;
        node.veth(Device::named(here), namespace.device(there))?;
        for (ends, length) in ENDS {
            let [gateway, pod] = ends.map(|end| IpNet::new_assert(end, length));
            node.addresses(here, &[gateway])?;
            inside.addresses(there, &[pod])?;
            inside.add_route(Route::default_via(gateway.addr()))?;
        }
        Ok(Self(namespace))
    }

    /// Does something in it.
    pub(crate) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        self.0.run(job)
    }

    /// Moves the thread that calls it in.
    pub(crate) fn enter(&self) -> impl FnOnce() + Send + 'static {
        let net = self.0.file().try_clone().expect("a descriptor");
        move || setns(net, CloneFlags::CLONE_NEWNET).expect("entered")
    }
}
