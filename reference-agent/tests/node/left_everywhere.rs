//! Programs of an earlier load wherever one can be left: above the node's cgroup, beside it, in a cgroup that was
//! removed, at every layer of a device, by links that another process holds; most of them where the agent's own mount,
//! or its cgroup namespace, shows nothing. All are gone or disarmed when the next agent is ready, and another owner's
//! programs stay.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    net::{SocketAddr, TcpListener},
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use doctor::{Inventory, Place as At, Scope, inventory};
use lb_loader::{
    ALLOW_MULTI, CraftedHook, Direction, HeldProgram, Hook, Layer, XdpMode, attach_filter, attach_legacy,
    attach_link, attach_tcx, attach_xdp, load_crafted, load_passing, programs_attached,
};
use nix::sys::signal::Signal;
use rstest::rstest;
use socket2::{Domain, Socket, Type};

use crate::{
    agent::Node,
    network::{FAMILIES, Network, UPLINK, device, pod},
    place::{Place, Shown, place},
};

const VIP: &str = "10.96.3.3:80";
/// The backend that only the earlier load knows, and the one of now.
const PORTS: [u16; 2] = [8080, 8081];

/// The Service has this backend.
fn write(folder: &Path, port: u16) {
    let backend = FAMILIES[0].node;
    let text = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\n\
         spec: {{clusterIP: 10.96.3.3, clusterIPs: [10.96.3.3], ports: [{{port: 80}}]}}\n---\n\
         apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: web-1, labels: {{kubernetes.io/service-name: web}}}}\n\
         addressType: IPv4\nports: [{{port: {port}}}]\nendpoints: [{{addresses: [{backend}]}}]\n"
    );
    fs::write(folder.join("web.yaml"), text).expect("written");
}

/// Answers every connection with the port.
fn serve(port: u16) {
    let listener = TcpListener::bind(SocketAddr::new(FAMILIES[0].node, port)).expect("a port");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // Who is gone wants no answer.
            let _ = io::Write::write_all(&mut stream, port.to_string().as_bytes());
        }
    });
}

/// The server that a socket reaches at the VIP.
fn met(socket: &Socket) -> io::Result<u16> {
    let vip: SocketAddr = VIP.parse().expect("an address");
    socket.connect_timeout(&vip.into(), Duration::from_secs(2))?;
    let mut said = String::new();
    (&*socket).read_to_string(&mut said)?;
    said.parse().map_err(io::Error::other)
}

fn socket() -> Socket {
    Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket")
}

fn enter(cgroup: &Path) {
    fs::write(cgroup.join("cgroup.procs"), "0").expect("to enter a cgroup");
}

/// A cgroup that is reached whatever is mounted.
struct Reached(File);

impl Reached {
    fn new(cgroup: &Path) -> Self {
        Self(File::open(cgroup).expect("a cgroup"))
    }

    fn programs(&self) -> Vec<u32> {
        let path = PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()));
        programs_attached(&path, Hook::Connect4, false).expect("the kernel says")
    }
}

/// The program at the hook, and the one that packets from the network meet.
fn programs_of(cgroup: &Path) -> (HeldProgram, HeldProgram) {
    let [socket] = programs_attached(cgroup, Hook::Connect4, false).expect("the kernel says")[..] else {
        panic!("one program at connect4")
    };
    let packet = at(UPLINK, cgroup)
        .first()
        .map(|(_, id)| *id)
        .expect("a program at the device");
    let held = |id| HeldProgram::by_id(id).expect("it is loaded");
    (held(socket), held(packet))
}

/// What runs for packets that come in by a device.
fn at(device: &str, cgroup: &Path) -> Vec<(Layer, u32)> {
    let scope = Scope {
        cgroup: cgroup.to_owned(),
        bpffs: None,
        current: Vec::new(),
    };
    let Inventory { attachments, .. } = inventory(&scope).expect("the kernel says");
    let here = attachments.into_iter().filter_map(|found| match found.place {
        At::Device {
            name: Some(name),
            layer,
            direction: Direction::Ingress,
            ..
        } if name == device => Some((layer, found.program.id)),
        _ => None,
    });
    here.collect()
}

/// What was left, and where it can be asked for.
struct Left {
    earlier: u32,
    packet: HeldProgram,
    /// Above, beside, and with a link that this process holds.
    cgroups: [Reached; 3],
    /// Of a cgroup that was removed.
    orphan: [Socket; 2],
    foreign: u32,
    foreign_xdp: u32,
    _link: OwnedFd,
}

/// Leaves programs everywhere.
fn leave(place: &Place, node: &Path) -> Left {
    let (earlier, packet) = programs_of(node);
    let [beside, linked, removed] = ["beside", "linked", "removed"].map(|name| place.cgroup(name));
    for cgroup in [&place.cgroup, &beside, &removed] {
        attach_legacy(cgroup, Hook::Connect4, &earlier, ALLOW_MULTI).expect("attached");
    }
    let link = attach_link(&linked, Hook::Connect4, &earlier).expect("attached");
    enter(&removed);
    let orphan = [socket(), socket()];
    enter(&place.cgroup.join("clients"));
    fs::remove_dir(&removed).expect("removed");
    attach_filter(UPLINK, Direction::Ingress, 3, &packet).expect("attached as a filter");
    let xdp = load_passing("earlier", CraftedHook::Xdp, packet.map_ids(), None).expect("loaded");
    attach_xdp(UPLINK, XdpMode::Generic, &xdp).expect("attached to the device");
    attach_xdp(device(0), XdpMode::Native, &xdp).expect("attached in its driver");
    let foreign_xdp = load_passing("theirs", CraftedHook::Xdp, &[], None).expect("loaded");
    attach_xdp(device(1), XdpMode::Generic, &foreign_xdp).expect("attached");
    // r0 = 1; exit: it lets everything pass.
    let foreign = load_crafted("connect4", Hook::Connect4, &[0xb7 | 1 << 32, 0x95]).expect("loaded");
    attach_legacy(&beside, Hook::Connect4, &foreign, ALLOW_MULTI).expect("attached");
    Left {
        earlier: earlier.id(),
        packet,
        cgroups: [&place.cgroup, &beside, &linked].map(|cgroup| Reached::new(cgroup)),
        orphan,
        foreign: foreign.id(),
        foreign_xdp: foreign_xdp.id(),
        _link: link,
    }
}

#[rstest]
#[case::whose_mount_shows_only_its_cgroup(Shown::Bound)]
#[case::in_a_cgroup_namespace(Shown::Namespace)]
fn what_an_earlier_load_left_anywhere_is_gone_for_the_next_agent(#[case] shown: Shown) {
    let Some(place) = place() else { return };
    let _network = Network::new();
    let _pods = [pod(0), pod(1)];
    PORTS.into_iter().for_each(serve);
    let folder = place.folder.join("objects");
    fs::create_dir(&folder).expect("a folder");
    write(&folder, PORTS[0]);
    let mut node = Node::new(&place, false);
    let agent = node.start_from("--from", &folder, &[]);
    agent.ready();
    let cgroup = place.cgroup.join("node");
    let left = leave(&place, &cgroup);
    agent.end(Signal::SIGKILL);
    fs::remove_dir_all(node.bpffs().join("plumbline")).expect("the pins are removed");
    // Once the kernel has ended the link that attaches it there.
    node.eventually(|| {
        attach_tcx(UPLINK, Direction::Ingress, &left.packet).map_err(|error| error.to_string())
    });
    assert_eq!(
        met(&socket()).expect("connected"),
        PORTS[0],
        "the one above decides"
    );
    assert_eq!(met(&left.orphan[0]).expect("connected"), PORTS[0]);
    write(&folder, PORTS[1]);

    // The next one sees the node's cgroup and nothing above or beside it.
    let clients = place.cgroup.join("clients/cgroup.procs");
    let mut clients = File::options().write(true).open(clients).expect("it is shown");
    node.move_to(place.show_only(&cgroup, shown));
    let agent = node.start_from("--from", &folder, &[]);
    agent.ready();
    io::Write::write_all(&mut clients, b"0").expect("to leave the node's cgroup");
    let [above, beside, linked] = left.cgroups.each_ref().map(Reached::programs);
    assert_eq!((above, linked), (Vec::new(), Vec::new()));
    assert_eq!(beside, [left.foreign], "somebody else's stays");
    // No program at their cgroups: packets are translated, to what serves now. An earlier program would send them where it did.
    for socket in [&socket(), &left.orphan[1]] {
        assert_eq!(met(socket).expect("connected"), PORTS[1]);
    }
    for device in [UPLINK, device(0)] {
        let here = at(device, node.cgroup());
        assert!(
            matches!(here[..], [(Layer::Tcx | Layer::Clsact, id)] if id != left.packet.id()),
            "{here:?} at {device}, where {} was left, and one at XDP",
            left.packet.id()
        );
    }
    let here = at(device(1), node.cgroup());
    assert!(here.contains(&(Layer::Xdp, left.foreign_xdp)), "{here:?}");
    let own = programs_attached(node.cgroup(), Hook::Connect4, false).expect("the kernel says");
    assert!(own.len() == 1 && own[0] != left.earlier, "{own:?}");
    enter(node.cgroup());
    assert_eq!(met(&socket()).expect("connected"), PORTS[1]);
}
