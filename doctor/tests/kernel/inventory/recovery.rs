//! No connection is cut by an eviction, and a clean-up leaves nothing.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddrV4, TcpListener, TcpStream},
    thread,
};

use caps::{CapSet, Capability};
use doctor::{Cleanup, Place, cleanup, evict};
use lb_loader::{ALLOW_MULTI, Hook, Options, attach_legacy, attach_link};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use socket2::{Domain, Socket, Type};

use super::{
    left::{Earlier, below, enter, evict_all, hide_what_is_above, leftovers, start},
    ours,
};
use crate::support::{Protocol, dial, isolated};

/// A server that says back what it hears; ends with the process.
fn echo() -> SocketAddrV4 {
    let listener = TcpListener::bind("127.0.0.3:0").expect("a listener");
    let address = match listener.local_addr().expect("its address") {
        std::net::SocketAddr::V4(address) => address,
        std::net::SocketAddr::V6(address) => panic!("an IPv4 listener at {address}"),
    };
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || {
                let (mut from, mut to) = (&client, &client);
                // Until the client goes.
                let _ = std::io::copy(&mut from, &mut to);
            });
        }
    });
    address
}

#[track_caller]
fn goes_on(connection: &mut TcpStream) {
    connection.write_all(b"still there?").expect("said");
    let mut heard = [0; 12];
    connection.read_exact(&mut heard).expect("heard");
    assert_eq!(&heard, b"still there?");
}

#[test]
fn connections_that_are_healthy_survive_and_new_ones_are_right_at_once() {
    isolated(|node| {
        let earlier = Earlier::load(&node.options, node);
        for (hook, program) in &earlier.programs {
            attach_legacy(&node.options.cgroup, *hook, program, ALLOW_MULTI).expect("attached");
        }
        let (datapath, server) = start(&node.options, node);
        // Only the current load knows it, so that the leftover lets it pass.
        let healthy = node.service(&datapath, Protocol::Tcp, 82, &[echo()]);
        let mut connection = TcpStream::connect(healthy).expect("connected");
        connection
            .set_read_timeout(Some(testing::patience::LIMIT))
            .expect("a limit");
        goes_on(&mut connection);
        for found in leftovers(&datapath) {
            let is_connect = matches!(found.place, Place::Cgroup { attach_type, .. } if attach_type == Hook::Connect4.attach_type());
            if is_connect {
                earlier.misleads(earlier.vip);
            }
            evict(&found, false).expect("evicted");
            if is_connect {
                assert_eq!(dial(earlier.vip).expect("a connection").0, server, "at once");
            }
            goes_on(&mut connection);
            assert_eq!(connection.peer_addr().expect("a peer"), healthy.into());
        }
        assert_eq!(leftovers(&datapath), []);
    });
}

#[test]
fn pins_under_a_new_mount_are_no_hindrance() {
    isolated(|node| {
        let mut earlier = node.open();
        let trap = crate::support::TcpServer::start(66).address;
        let vip = node.service(&earlier, Protocol::Tcp, 80, &[trap]);
        earlier.attach().expect("attached");
        drop(earlier);
        let (kind, none) = (Some("bpf"), None::<&str>);
        mount(kind, &node.options.bpffs, kind, MsFlags::empty(), none).expect("a bpffs over the other");
        let (datapath, server) = start(&node.options, node);
        assert_eq!(
            dial(vip).expect("a connection").0,
            trap,
            "the leftover runs first"
        );
        assert_eq!(evict_all(&datapath).len(), Hook::ALL.len());
        assert_eq!(dial(vip).expect("a connection").0, server);
        umount2(&node.options.bpffs, MntFlags::MNT_DETACH).expect("unmounted");
    });
}

#[test]
fn a_clean_up_ends_what_other_options_have_attached_and_does_so_once() {
    isolated(|node| {
        let earlier = Earlier::load(&node.options, node);
        let (_, first) = &earlier.programs[0];
        let first = first.id();
        let (pod, other) = (
            below(&node.options.cgroup, "pod"),
            below(&node.options.cgroup, "other"),
        );
        let mut links = Vec::new();
        for (hook, program) in &earlier.programs {
            attach_legacy(&pod, *hook, program, ALLOW_MULTI).expect("attached");
            links.push(attach_link(&other, *hook, program).expect("attached"));
        }
        // An agent of another cgroup, which is gone, with its sockets and its link.
        let gone = below(&node.options.cgroup, "gone");
        for (hook, program) in &earlier.programs {
            attach_legacy(&gone, *hook, program, 0).expect("attached");
        }
        enter(&gone);
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        enter(&node.options.cgroup);
        fs::remove_dir(&gone).expect("removed");
        let lower = Options {
            cgroup: below(&node.options.cgroup, "node"),
            ..node.options.clone()
        };
        let (datapath, _) = start(&lower, node);
        drop(datapath);

        // A third set of options: the cgroup above all of these.
        let done = cleanup(&node.options.bpffs, &node.options.cgroup).expect("cleaned up");
        assert_eq!(done.detached.len(), 3 * Hook::ALL.len(), "{done:?}");
        let disarmed: Vec<u32> = done.disarmed.iter().map(|program| program.id).collect();
        assert_eq!(disarmed.len(), Hook::ALL.len(), "{done:?}");
        assert!(disarmed.contains(&first), "{disarmed:?}");
        assert_eq!(done.blind, []);
        assert_eq!(ours(node), []);
        assert!(!node.options.bpffs.join("plumbline").exists());
        let refused = socket
            .connect(&earlier.vip.into())
            .expect_err("nobody translates it");
        assert_eq!(refused.raw_os_error(), Some(libc::ENETUNREACH), "{refused}");
        let again = cleanup(&node.options.bpffs, &node.options.cgroup).expect("again");
        assert_eq!(again, Cleanup::default());
        drop(links);
    });
}

#[test]
fn what_no_mount_shows_is_found_or_said_to_be_out_of_sight() {
    isolated(|node| {
        let earlier = Earlier::load(&node.options, node);
        let (hook, program) = &earlier.programs[0];
        attach_legacy(&node.options.cgroup, *hook, program, ALLOW_MULTI).expect("attached");
        let cgroup = below(&node.options.cgroup, "node");
        enter(&cgroup);
        let options = Options {
            cgroup: hide_what_is_above(node),
            ..node.options.clone()
        };
        let (datapath, _) = start(&options, node);
        // Kernels since 6.11 open what is above without it too, for whoever has CAP_SYS_ADMIN in the first place.
        caps::drop(None, CapSet::Effective, Capability::CAP_DAC_READ_SEARCH).expect("dropped");
        let seen = crate::leftovers(&datapath);
        match (&seen.attachments[..], &seen.blind[..]) {
            ([found], []) => assert_eq!(found.program.id, program.id()),
            ([], [blind]) => assert!(blind.remedy.contains("CAP_DAC_READ_SEARCH"), "{blind}"),
            _ => panic!("expected it, or that it can't be seen: {seen:?}"),
        }
        caps::raise(None, CapSet::Effective, Capability::CAP_DAC_READ_SEARCH).expect("raised");
        let seen = crate::leftovers(&datapath);
        assert_eq!((seen.attachments.len(), seen.blind.len()), (1, 0), "{seen:?}");
    });
}
