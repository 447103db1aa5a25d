//! Socket programs of an earlier load at a cgroup that was removed: they run for the sockets that were made in it.

use std::{fs, net::SocketAddrV4, path::Path, thread, time::Duration};

use doctor::{CgroupState, Evicted, EvictionError, Found, Inventory, LooseProgram, Place, disarm, evict};
use lb_loader::{ALLOW_MULTI, Datapath, Hook, Options, Ownership, attach_legacy, attach_link};
use socket2::{Domain, Socket, Type};

use super::left::{Earlier, below, enter, evict_all, leftovers, start};
use crate::support::{Node, isolated};

/// Sockets that were made in a cgroup below the node's, which is then removed.
fn sockets_of_a_removed_cgroup(node: &Node, leave: impl FnOnce(&Path)) -> [Socket; 3] {
    let pod = below(&node.options.cgroup, "pod");
    leave(&pod);
    enter(&pod);
    let sockets = [(); 3].map(|()| Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket"));
    enter(&node.options.cgroup);
    fs::remove_dir(&pod).expect("removed");
    sockets
}

/// Whom a socket comes to.
fn connect(socket: &Socket, to: SocketAddrV4) -> std::io::Result<SocketAddrV4> {
    use std::io::Read as _;
    socket.connect(&to.into())?;
    let mut said = String::new();
    (&*socket).read_to_string(&mut said)?;
    said.parse().map_err(std::io::Error::other)
}

#[test]
fn by_links_it_is_found_and_evicted() {
    isolated(|node| {
        let earlier = Earlier::load(&node.options, node);
        let mut links = Vec::new();
        let [first, second, third] = sockets_of_a_removed_cgroup(node, |pod| {
            for (hook, program) in &earlier.programs {
                links.push(attach_link(pod, *hook, program).expect("attached"));
            }
        });
        let (datapath, server) = start(&node.options, node);
        assert_eq!(connect(&first, earlier.vip).expect("connected"), earlier.trap);
        let evicted = evict_all(&datapath);
        assert_eq!(evicted.len(), Hook::ALL.len());
        for found in evicted {
            assert!(
                matches!(
                    found.place,
                    Place::Cgroup {
                        state: CgroupState::Dying,
                        path: None,
                        ..
                    }
                ),
                "{found:?}"
            );
        }
        assert_eq!(connect(&second, earlier.vip).expect("connected"), server);
        let error = connect(&third, earlier.forgotten).expect_err("no program knows it");
        assert_eq!(error.raw_os_error(), Some(libc::ENETUNREACH));
        drop(links);
    });
}

/// What can't be detached, as nothing leads to its cgroup.
fn loose(datapath: &Datapath) -> Vec<LooseProgram> {
    let seen = crate::leftovers(datapath);
    assert_eq!((seen.attachments, seen.blind), (Vec::new(), Vec::new()));
    seen.loose
}

#[test]
fn without_a_link_it_is_found_and_disarmed() {
    isolated(|node| {
        let earlier = Earlier::load(&node.options, node);
        let [first, second, third] = sockets_of_a_removed_cgroup(node, |pod| {
            for (hook, program) in &earlier.programs {
                attach_legacy(pod, *hook, program, ALLOW_MULTI).expect("attached");
            }
        });
        let Earlier {
            programs,
            vip,
            forgotten,
            trap,
        } = earlier;
        let count = programs.len();
        // Nothing but the removed cgroup keeps them.
        drop(programs);
        let (datapath, server) = start(&node.options, node);
        assert_eq!(connect(&first, vip).expect("connected"), trap);
        let found = loose(&datapath);
        assert_eq!(found.len(), count, "{found:?}");
        let listed = super::look(node).loose;
        for program in &found {
            let same = listed
                .iter()
                .find(|listed| listed.program.id == program.program.id);
            assert!(
                same.is_some_and(|same| same.is_unexplained()
                    && same.armed
                    && same.ownership == Ownership::Earlier),
                "{same:?}"
            );
        }
        let done: Vec<bool> = found
            .iter()
            .map(|program| disarm(program).expect("disarmed"))
            .collect();
        assert_eq!(
            done.iter().filter(|done| **done).count(),
            1,
            "they share META: {done:?}"
        );
        assert_eq!(loose(&datapath), []);
        // What runs for the removed cgroup is now the current load alone.
        assert_eq!(connect(&second, vip).expect("connected"), server);
        let error = connect(&third, forgotten).expect_err("no program knows it");
        assert_eq!(error.raw_os_error(), Some(libc::ENETUNREACH));
        drop((first, second, third));
    });
}

#[test]
fn what_is_just_going_is_not_told() {
    isolated(|node| {
        let elsewhere = Options {
            bpffs: node.options.bpffs.join("going"),
            ..node.options.clone()
        };
        fs::create_dir(&elsewhere.bpffs).expect("a folder");
        // Nobody can say whose it is. It must not stay: the tests beside this one see it too.
        let going = Earlier::load_unsaid(&elsewhere, node);
        let (datapath, _) = start(&node.options, node);
        let sockets = sockets_of_a_removed_cgroup(node, |pod| {
            let (hook, program) = &going.programs[0];
            attach_legacy(pod, *hook, program, ALLOW_MULTI).expect("attached");
        });
        drop(going);
        let closing = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            drop(sockets);
        });
        assert_eq!(crate::leftovers(&datapath), Inventory::default());
        closing.join().expect("closed");
    });
}

#[test]
fn removed_between_being_found_and_evicted_it_says_so() {
    isolated(|node| {
        let earlier = Earlier::load(&node.options, node);
        let pod = below(&node.options.cgroup, "pod");
        let (hook, program) = &earlier.programs[0];
        attach_legacy(&pod, *hook, program, ALLOW_MULTI).expect("attached");
        let (datapath, _) = start(&node.options, node);
        let found: Vec<Found> = leftovers(&datapath);
        let [found] = &found[..] else {
            panic!("expected one: {found:?}");
        };
        enter(&pod);
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        enter(&node.options.cgroup);
        fs::remove_dir(&pod).expect("removed");
        match evict(found, false) {
            Err(EvictionError::NotEvicted { why, .. }) => {
                assert!(why.contains("its cgroup was removed"), "{why}");
            }
            other => panic!("expected NotEvicted, got {other:?}"),
        }
        let seen = crate::leftovers(&datapath);
        assert_eq!(seen.attachments, []);
        for program in &seen.loose {
            disarm(program).expect("disarmed");
        }
        assert_eq!(loose(&datapath), []);
        drop(socket);
    });
}

#[test]
fn what_is_current_is_neither_evicted_nor_disarmed() {
    isolated(|node| {
        let (datapath, _) = start(&node.options, node);
        let seen = super::look(node);
        let ours: Vec<u32> = datapath.programs().map(|(_, program)| program.id()).collect();
        let mut looked = 0;
        for found in seen
            .attachments
            .iter()
            .filter(|found| ours.contains(&found.program.id))
        {
            match evict(found, false) {
                Err(EvictionError::NotEarlier {
                    ownership: Ownership::Current,
                    ..
                }) => looked += 1,
                other => panic!("expected NotEarlier for {found:?}, got {other:?}"),
            }
            let loose = LooseProgram {
                program: found.program.clone(),
                ownership: found.ownership,
                called_from: Vec::new(),
                armed: true,
            };
            assert!(matches!(disarm(&loose), Err(EvictionError::NotEarlier { .. })));
        }
        assert_eq!(looked, ours.len());
        // Only by force.
        let [one, ..] = &seen
            .attachments
            .iter()
            .filter(|found| ours.contains(&found.program.id))
            .collect::<Vec<_>>()[..]
        else {
            panic!("nothing is attached");
        };
        assert_eq!(evict(one, true).expect("evicted"), Evicted::Detached);
    });
}
