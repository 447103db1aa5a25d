//! Two generations of this project's programs: the earlier ones held by id and attached again, which no agent does.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddrV4},
    thread,
    time::Instant,
};

use doctor::report::{Certainty, Outcome, Standing, Verdict};
use lb_abi::{Address, Backend, Frontend, FrontendKey, Port, Service, SlotKey, TCP};
use lb_loader::{ALLOW_MULTI, Datapath, HeldProgram, Hook, Options, attach_legacy, programs_attached};

use crate::support::{
    Node, isolated,
    node::{answer, dial, serve},
};

const SERVICE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 96, 0, 1), 80);
const OLD: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 2), 8080);
const NEW: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 3), 8080);

fn open(node: &Node, backend: SocketAddrV4) -> Datapath {
    let mut datapath = Datapath::open(&Options::new(&node.bpffs, &node.cgroup)).unwrap();
    let maps = datapath.maps();
    let target = Backend {
        address: Address::v4(backend.ip().octets()),
        port: Port::new(backend.port()),
        protocol: TCP,
        flags: 0,
    };
    let key = FrontendKey {
        address: Address::v4(SERVICE.ip().octets()),
        port: Port::new(SERVICE.port()),
        protocol: TCP,
        pad: 0,
    };
    let slot = SlotKey {
        service: 1,
        generation: 1,
        index: 0,
    };
    maps.backends.put(&1, &target).unwrap();
    maps.slots.put(&slot, &1).unwrap();
    let service = Service {
        generation: 1,
        slots: 1,
    };
    maps.services.put(&1, &service).unwrap();
    let frontend = Frontend {
        internal: 1,
        external: 1,
        ..Frontend::default()
    };
    maps.frontends.put(&key, &frontend).unwrap();
    datapath.attach().unwrap();
    datapath
}

/// Makes an earlier load, whose pins are gone and whose programs are attached with the legacy API; then the agent's.
fn stage(node: &Node) -> (Vec<(Hook, HeldProgram)>, Datapath) {
    node.addresses(&[]);
    serve(OLD);
    serve(NEW);
    let earlier = open(node, OLD);
    let held: Vec<(Hook, HeldProgram)> = earlier
        .programs()
        .map(|(hook, program)| (hook, HeldProgram::by_id(program.id()).unwrap()))
        .collect();
    for (hook, program) in &held {
        attach_legacy(&node.cgroup, *hook, program, ALLOW_MULTI).unwrap();
    }
    fs::remove_dir_all(node.bpffs.join("plumbline")).unwrap();
    drop(earlier);
    (held, open(node, NEW))
}

#[test]
fn an_earlier_load_is_certainly_stale_and_goes() {
    isolated(|node| {
        let (held, _datapath) = stage(node);
        let agent = answer(200, "ok\n").to_string();
        assert_eq!(
            dial(SERVICE).unwrap(),
            OLD.to_string(),
            "the earlier load runs first"
        );
        let said = node.doctor(&["--json", "--agent", &agent]);
        assert_eq!(said.code, Some(1), "{said:#?}");
        let report = said.report();
        let stale: Vec<_> = report
            .attachments
            .iter()
            .filter(|attachment| attachment.standing == Standing::Earlier)
            .collect();
        assert_eq!(stale.len(), held.len(), "{:#?}", report.attachments);
        for attachment in stale {
            let why = attachment.stale.as_ref().expect("stale");
            assert_eq!(why.certainty, Certainty::Certain, "{attachment:?}");
            assert!(why.newer.is_some(), "{attachment:?}");
        }
        let [problem] = report.problems.as_slice() else {
            panic!("one problem: {:#?}", report.problems)
        };
        assert_eq!(problem.programs.len(), held.len());
        assert!(
            problem.story.contains(&format!("TCP {SERVICE} is {OLD}")),
            "{}",
            problem.story
        );

        let address = SERVICE.to_string();
        let pid = std::process::id().to_string();
        let explained = node.doctor(&["explain", &address, "--pid", &pid, "--agent", &agent]);
        assert_eq!(explained.code, Some(1), "{explained:#?}");
        let old = held
            .iter()
            .find(|(hook, _)| *hook == Hook::Connect4)
            .unwrap()
            .1
            .id();
        let expected = format!("reaches {OLD}: stale program {old} (connect4");
        assert!(
            explained.text().contains(&expected),
            "{expected}\n{}",
            explained.stdout
        );

        let fixed = node.doctor(&["--fix", "--yes", "--agent", &agent]);
        assert_eq!(fixed.code, Some(0), "{fixed:#?}");
        assert_eq!(dial(SERVICE).unwrap(), NEW.to_string());
        let report = node.doctor(&["--json", "--agent", &agent]).report();
        assert_eq!(report.verdict, Verdict::Healthy, "{report:#?}");
        assert_eq!(report.attachments.len(), Hook::ALL.len());
        let again = node.doctor(&["--fix", "--yes", "--agent", &agent]);
        assert_eq!(again.code, Some(0), "{again:#?}");
    });
}

#[test]
fn what_is_missing_around_the_programs_is_a_problem() {
    isolated(|node| {
        node.addresses(&[]);
        let datapath = open(node, NEW);
        let bad = |agent: &str| -> Vec<(String, String)> {
            let said = node.doctor(&["--json", "--agent", agent]);
            let checks = said.report().checks.into_iter();
            let bad: Vec<_> = checks
                .filter(|check| check.outcome == Outcome::Bad)
                .map(|check| (check.name, check.text))
                .collect();
            assert_eq!(said.code, Some(i32::from(!bad.is_empty())), "{said:#?}");
            bad
        };
        let agent = answer(200, "ok\n").to_string();
        assert_eq!(bad(&agent), []);

        // Port 9 of the loopback device has no server.
        let [(name, text)] = bad("127.0.0.1:9").try_into().expect("one");
        assert_eq!(name, "agent");
        assert!(text.contains("no agent answers at 127.0.0.1:9"), "{text}");
        let unready = answer(503, "services have not been listed yet\n").to_string();
        let [(name, text)] = bad(&unready).try_into().expect("one");
        assert_eq!(name, "agent");
        assert!(
            text.contains("not ready (503): services have not been listed yet"),
            "{text}"
        );

        let link = node.bpffs.join("plumbline/v1/links/recvmsg4");
        fs::remove_file(&link).unwrap_or_else(|error| panic!("{}: {error}", link.display()));
        let [(name, text)] = bad(&agent).try_into().expect("one");
        assert_eq!(name, "pins");
        assert!(
            text.contains("at recvmsg4 of") && text.contains("is not pinned: kept by"),
            "{text}"
        );
        drop(datapath);
        // A worker of the kernel detaches it later.
        let begun = Instant::now();
        while !programs_attached(&node.cgroup, Hook::Recvmsg4, false)
            .unwrap()
            .is_empty()
        {
            assert!(
                begun.elapsed() < testing::patience::LIMIT,
                "the link outlives its last holder"
            );
            thread::yield_now();
        }
        let [(name, text)] = bad(&agent).try_into().expect("one");
        assert_eq!(name, "hooks", "the link has ended with its last holder");
        assert!(text.contains("not to recvmsg4 of"), "{text}");
    });
}
