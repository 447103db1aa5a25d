//! What a process leaves that is killed between any two steps, and that the next start puts it in order.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::SocketAddrV4,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use lb_loader::{Datapath, Hook, programs_attached};

use crate::{
    restart::{attached_alone, one_service, pins_in_order},
    support::{Node, Protocol, TcpServer, dial, frontend, isolated, pin_array, switch},
};

/// What a killed process may leave, from a running datapath; the next start adopts the maps and has the service.
fn check_recovers(node: &Node, leave: impl FnOnce(&Node)) {
    let datapath = node.start();
    let (cluster_ip, server) = one_service(node, &datapath);
    drop(datapath);
    leave(node);
    let datapath = node.start();
    assert!(datapath.adopted());
    assert_eq!(dial(cluster_ip).expect("a connection").0, server);
    attached_alone(node, &datapath);
    pins_in_order(node);
}

#[test]
fn killed_while_making_a_second_set() {
    isolated(|node| {
        check_recovers(node, |node| {
            fs::create_dir(node.pins("maps-next")).expect("a folder");
            pin_array(&node.pins("maps-next/SLOTS"), 1);
        });
    });
}

#[test]
fn killed_between_the_renames() {
    isolated(|node| {
        check_recovers(node, |node| {
            fs::rename(node.pins("maps"), node.pins("maps-next")).expect("renamed");
            fs::create_dir(node.pins("maps-old")).expect("a folder");
            pin_array(&node.pins("maps-old/SLOTS"), 1);
        });
    });
}

#[test]
fn killed_before_the_replaced_set_was_gone() {
    isolated(|node| {
        check_recovers(node, |node| {
            fs::create_dir(node.pins("maps-old")).expect("a folder");
            pin_array(&node.pins("maps-old/SLOTS"), 1);
        });
    });
}

#[test]
fn killed_while_pinning_a_link() {
    isolated(|node| {
        check_recovers(node, |node| {
            fs::rename(node.pins("links/connect4"), node.pins("links/connect4-next")).expect("renamed");
        });
    });
}

#[test]
fn killed_between_attaching_and_pinning_a_link() {
    isolated(|node| {
        let datapath = node.start();
        let (cluster_ip, server) = one_service(node, &datapath);
        // The link of the process that was killed is gone with it.
        fs::remove_file(node.pins("links/connect4")).expect("unpinned");
        drop(datapath);
        assert_eq!(
            programs_attached(&node.options.cgroup, Hook::Connect4, false).expect("the kernel says"),
            []
        );
        let datapath = node.start();
        assert_eq!(dial(cluster_ip).expect("a connection").0, server);
        attached_alone(node, &datapath);
        pins_in_order(node);
    });
}

#[test]
fn killed_while_making_the_first_set() {
    isolated(|node| {
        fs::create_dir_all(node.pins("maps-next")).expect("a folder");
        pin_array(&node.pins("maps-next/SLOTS"), 1);
        let datapath = node.start();
        assert!(!datapath.adopted());
        attached_alone(node, &datapath);
        pins_in_order(node);
    });
}

#[test]
fn killed_before_the_set_beside_programs_without_pins_was_filled() {
    isolated(|node| {
        let datapath = node.start();
        one_service(node, &datapath);
        drop(datapath);
        // Whole, and who knows what is in it: nothing was renamed for it.
        fs::rename(node.pins("maps"), node.pins("maps-next")).expect("renamed");
        let datapath = node.start();
        assert!(!datapath.adopted());
        attached_alone(node, &datapath);
        pins_in_order(node);
    });
}

/// Puts the one service into whatever maps there are, in a generation of its own.
fn serve(datapath: &Datapath, cluster_ip: SocketAddrV4, server: SocketAddrV4) {
    const SERVICE: u32 = 80;
    let before = datapath
        .maps()
        .services
        .get(&SERVICE)
        .expect("the service is read");
    switch(
        datapath,
        Protocol::Tcp,
        SERVICE,
        before.map_or(1, |before| before.generation + 1),
        &[server],
    );
    frontend(datapath, Protocol::Tcp, cluster_ip, SERVICE);
}

/// Said by the victim before it opens the datapath, and when it has: between the two it makes a set of maps, if there
/// is none to adopt, and loads the programs; after the second it attaches them.
const PHASES: [&str; 2] = ["opening", "opened"];

/// Restarts without end, and says how far it is.
fn restart_for_ever(node: &Node, cluster_ip: SocketAddrV4) -> ! {
    // Who answers at the ClusterIP is the one backend.
    let (server, _) = dial(cluster_ip).expect("the test has set it up");
    let say = |phase: &str| {
        println!("{phase}");
        std::io::stdout().flush().expect("said");
    };
    let [opening, opened] = PHASES;
    loop {
        say(opening);
        let mut datapath = node.open();
        say(opened);
        serve(&datapath, cluster_ip, server);
        datapath.attach().expect("attached");
    }
}

#[test]
fn killed_at_any_moment_the_next_start_serves_and_no_client_notices() {
    /// How often the process is killed in each phase, with a set of maps to adopt and with one to replace.
    const KILLS: u32 = 4;
    /// Each time, this much later in the phase. What changes on disk does so in its first milliseconds; the seconds that
    /// the verifier takes are between the two.
    const STEP: Duration = Duration::from_millis(4);
    isolated(|node| {
        let cluster_ip = SocketAddrV4::new(Node::CLUSTER_IP, 80);
        if node.is_victim() {
            restart_for_ever(node, cluster_ip);
        }
        let server = TcpServer::start(1).address;
        let datapath = node.start();
        serve(&datapath, cluster_ip, server);
        drop(datapath);
        let done = AtomicBool::new(false);
        let moments = (0..KILLS).flat_map(|kill| {
            PHASES
                .into_iter()
                .flat_map(move |phase| [false, true].map(|replace| (kill, phase, replace)))
        });
        thread::scope(|scope| {
            let client = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(dial(cluster_ip).expect("a connection").0, server);
                }
            });
            for (kill, phase, replace) in moments {
                if replace {
                    pin_array(&node.pins("maps/SLOTS"), 1);
                }
                let mut victim = node.start_victim();
                let said = BufReader::new(victim.stdout.take().expect("a pipe"));
                assert!(
                    said.lines()
                        .any(|line| line.is_ok_and(|line| line.contains(phase))),
                    "kill {kill}: the process ended before it was {phase}"
                );
                // Not a wait for anything: this is where in its restart the process is hit.
                thread::sleep(STEP * kill);
                victim.kill().expect("killed");
                victim.wait().expect("reaped");
                let mut datapath = node.open();
                serve(&datapath, cluster_ip, server);
                datapath.attach().expect("attached");
                attached_alone(node, &datapath);
                pins_in_order(node);
                assert!(
                    !client.is_finished(),
                    "kill {kill}, {phase}: the client was not served"
                );
            }
            done.store(true, Ordering::Relaxed);
            client.join().expect("the client was served all along");
        });
    });
}
