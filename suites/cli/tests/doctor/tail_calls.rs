//! Programs that only tail calls reach, as most of Cilium's and Calico's are: they are shown as in use.

use std::{collections::BTreeSet, fs, net::SocketAddrV4};

use doctor::report::{Loose, Outcome, Report, Verdict, Whose};
use lb_loader::{
    ALLOW_MULTI, CraftedHook, CraftedKind, CraftedMap, Direction, HeldProgram, Hook, attach_legacy,
    attach_tcx, load_crafted, load_passing, load_tail_calling,
};

use crate::support::{
    Node, isolated,
    node::{dial, serve},
};

fn array(name: &str, entries: u32) -> CraftedMap {
    CraftedMap::create(name, CraftedKind::ProgArray, (4, 4), entries).unwrap()
}

#[track_caller]
fn loose(report: &Report, program: &HeldProgram) -> Loose {
    let found = report.loose.iter().find(|loose| loose.program == program.id());
    found
        .unwrap_or_else(|| panic!("program {}: {report:#?}", program.id()))
        .clone()
}

/// Whether the table under a heading shows one of several programs.
fn under(text: &str, heading: &str, program: &HeldProgram) -> bool {
    let Some((_, after)) = text.split_once(heading) else {
        return false;
    };
    let table = after.split_once("\n\n").map_or(after, |(table, _)| table);
    let title = format!("{} {}", program.id(), program.name());
    table.lines().any(|line| line.trim_start().starts_with(&title))
}

const IN_USE: &str = "REACHED BY TAIL CALLS";
const NOWHERE: &str = "LOADED, AND ATTACHED NOWHERE THAT CAN BE SEEN";

#[test]
fn what_an_attached_program_goes_on_as_is_in_use_and_so_is_what_that_goes_on_as() {
    isolated(|node| {
        let address: SocketAddrV4 = "127.0.0.1:8080".parse().unwrap();
        node.addresses(&[]);
        serve(address);
        assert!(dial(address).is_ok());
        // The entry calls the second program; that one calls the third by an array of as many entries as Calico's, and
        // by its last entry; the third refuses. Each array has only two entries.
        let (calls, jump) = (array("cilium_calls_00001", 3), array("cali_jump", 240_000));
        let refuse = load_crafted("tail_handle_ipv4", Hook::Connect4, &[0xb7, 0x95]).unwrap();
        let last = load_passing("tail_last", Hook::Connect4, &[], None).unwrap();
        let second = load_tail_calling("p4i_eth0", Hook::Connect4, &[&jump]).unwrap();
        let entry = load_tail_calling("cil_sock4_connect", Hook::Connect4, &[&calls]).unwrap();
        calls.put_program(0, &second).unwrap();
        jump.put_program(0, &refuse).unwrap();
        jump.put_program(239_999, &last).unwrap();
        attach_legacy(&node.cgroup, Hook::Connect4, &entry, ALLOW_MULTI).unwrap();
        let error = dial(address).expect_err("the kernel goes on as the third");
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{error}");

        let said = node.doctor(&["--json"]);
        assert_eq!(said.code, Some(0), "{said:#?}");
        let report = said.report();
        for (program, caller, map) in [
            (&second, &entry, &calls),
            (&refuse, &second, &jump),
            (&last, &second, &jump),
        ] {
            let found = loose(&report, program);
            let called = found.tail_called.clone().expect("it is called");
            assert_eq!((called.caller, called.map), (caller.id(), map.id()), "{found:?}");
            let from = found.in_use().expect("by an attached program");
            assert_eq!(from.program, entry.id(), "{found:?}");
            assert_eq!(from.place.hook(), "connect4");
            assert!(!found.unexplained, "{found:?}");
        }
        let owner = |program: &HeldProgram| report.programs[&program.id()].owner.whose;
        assert_eq!(
            [owner(&second), owner(&refuse)],
            [Whose::Cilium, Whose::Calico],
            "by the arrays that they are in"
        );
        let calico = report.prog_arrays.iter().find(|array| array.map == jump.id());
        let calico = calico.expect("it is looked at");
        assert_eq!(calico.callers, [second.id()]);
        let inside: BTreeSet<u32> = calico.programs.iter().copied().collect();
        assert_eq!(inside, BTreeSet::from([refuse.id(), last.id()]));

        let all = node.doctor(&["-v"]);
        for program in [&second, &refuse, &last] {
            assert!(under(&all.stdout, IN_USE, program), "{}", all.stdout);
            assert!(!under(&all.stdout, NOWHERE, program), "{}", all.stdout);
        }
        let shown = node.doctor(&[]);
        let text = shown.text();
        assert!(
            text.contains("In use, by tail calls from programs that are attached: 3 programs"),
            "{}",
            shown.stdout
        );
    });
}

#[test]
fn what_only_unattached_programs_call_is_said_to_be() {
    isolated(|node| {
        let calls = array("calls", 4);
        let called = load_passing("called", Hook::Connect4, &[], None).unwrap();
        let caller = load_tail_calling("caller", Hook::Connect4, &[&calls]).unwrap();
        calls.put_program(1, &called).unwrap();
        // A tail call into itself: a loop without an attached program keeps nothing in use.
        calls.put_program(2, &caller).unwrap();
        let report = node.doctor(&["--json"]).report();
        for program in [&called, &caller] {
            let found = loose(&report, program);
            let told = found.tail_called.clone().expect("it is called");
            assert_eq!(
                (told.caller, told.map, told.from),
                (caller.id(), calls.id(), None)
            );
        }
        let all = node.doctor(&["-v"]);
        assert!(under(&all.stdout, NOWHERE, &called), "{}", all.stdout);
        let page = node.doctor(&[]).text();
        assert!(
            page.contains("Only tail-called by programs that are attached nowhere: "),
            "{page}"
        );
    });
}

#[test]
fn an_array_that_is_pinned_and_used_by_nothing_that_runs_is_told() {
    isolated(|node| {
        let (unused, idle, used) = (array("old_jumps", 8), array("idle", 8), array("used", 8));
        let inside = load_passing("inside", Hook::Connect4, &[], None).unwrap();
        unused.put_program(7, &inside).unwrap();
        let _idle_caller = load_tail_calling("idle_caller", Hook::Connect4, &[&idle]).unwrap();
        let attached = load_tail_calling("attached", Hook::Connect4, &[&used]).unwrap();
        attach_legacy(&node.cgroup, Hook::Connect4, &attached, ALLOW_MULTI).unwrap();
        let path = |name: &str| node.bpffs.join(name);
        for (map, name) in [(&unused, "old_jumps"), (&idle, "idle"), (&used, "used")] {
            map.pin(&path(name)).unwrap();
        }
        let said = node.doctor(&["--json"]);
        assert_eq!(said.code, Some(0), "no problem, a note: {said:#?}");
        let report = said.report();
        let check = report.checks.iter().find(|check| check.name == "prog arrays");
        let check = check.expect("noted");
        assert_eq!(check.outcome, Outcome::Note);
        let expected = format!(
            "{} old_jumps (1 inside) at {}",
            unused.id(),
            path("old_jumps").display()
        );
        assert!(check.text.contains(&expected), "{expected}\n{}", check.text);
        assert!(
            check.text.contains(&format!("{} idle (0 inside)", idle.id())),
            "{}",
            check.text
        );
        assert!(
            !check.text.contains(&format!("{} used", used.id())),
            "{}",
            check.text
        );
        let shown = node.doctor(&[]).text();
        assert!(shown.contains(&expected), "{shown}");
        fs::remove_file(path("used")).unwrap();
    });
}

/// Pods of a fake Cilium, with one device each.
const PODS: u32 = 37;
/// Programs of each pod that tail calls reach.
const CALLS: u32 = 8;

/// Programs as on a Cilium node with some dozens of pods: a program at each device, an array of calls for each,
/// programs in them that only tail calls reach, and socket programs at the cgroup.
struct Cluster {
    calls: Vec<CraftedMap>,
    called: Vec<HeldProgram>,
}

impl Cluster {
    fn stage(node: &Node) -> Self {
        let devices = node.pairs("lxc", PODS);
        let (mut calls, mut called) = (Vec::new(), Vec::new());
        for (device, number) in devices.iter().zip(0..) {
            let array = array(&format!("cilium_calls_{number:05}"), 50);
            let entry = load_tail_calling("cil_from_container", CraftedHook::Device, &[&array]).unwrap();
            for index in 0..CALLS {
                let map = CraftedMap::create("cilium_policy_v2", CraftedKind::Hash, (4, 4), 8).unwrap();
                let maps = [map.id(), array.id()];
                let program =
                    load_passing(&format!("tail_call_{index}"), CraftedHook::Device, &maps, None).unwrap();
                array.put_program(index * 3, &program).unwrap();
                called.push(program);
            }
            attach_tcx(device.as_str(), Direction::Ingress, &entry).unwrap();
            calls.push(array);
        }
        for (hook, name) in [
            (Hook::Connect4, "cil_sock4_connect"),
            (Hook::Connect6, "cil_sock6_connect"),
            (Hook::Sendmsg4, "cil_sock4_sendmsg"),
            (Hook::Sendmsg6, "cil_sock6_sendmsg"),
            (Hook::Recvmsg4, "cil_sock4_recvmsg"),
            (Hook::Recvmsg6, "cil_sock6_recvmsg"),
            (Hook::PostBind4, "cil_sock4_post_bind"),
        ] {
            let program = load_passing(name, hook, &[], None).unwrap();
            attach_legacy(&node.cgroup, hook, &program, ALLOW_MULTI).unwrap();
        }
        Self { calls, called }
    }
}

#[test]
fn a_node_of_hundreds_of_programs_is_a_page_and_all_of_them_with_v() {
    isolated(|node| {
        let cluster = Cluster::stage(node);
        assert_eq!(cluster.called.len(), 296);
        let page = node.doctor(&[]);
        assert_eq!(page.code, Some(0), "{page:#?}");
        let lines = page.stdout.lines().count();
        assert!(lines <= 40, "{lines} lines:\n{}", page.stdout);
        assert!(page.stdout.starts_with("healthy: "), "{}", page.stdout);
        let text = page.text();
        for expected in [
            "tcx ingress 1 37 × cil_from_contai Cilium ? 37 devices".to_owned(),
            "296 programs (Cilium ? 296), through 37 arrays of programs".to_owned(),
        ] {
            assert!(text.contains(&expected), "{expected}\n{}", page.stdout);
        }
        let at = |what: &str| {
            text.find(what)
                .unwrap_or_else(|| panic!("{what}\n{}", page.stdout))
        };
        assert!(at("connect4 1") < at("recvmsg4 1") && at("recvmsg4 1") < at("tcx ingress 1"));

        let all = node.doctor(&["--verbose"]);
        assert!(
            all.stdout.lines().count() > cluster.called.len(),
            "{}",
            all.stdout
        );
        for program in &cluster.called {
            assert!(
                under(&all.stdout, IN_USE, program),
                "{}: {}",
                program.id(),
                all.stdout
            );
        }
        let report = node.doctor(&["--json"]).report();
        assert_eq!(report.verdict, Verdict::Healthy);
        for array in &cluster.calls {
            assert!(report.prog_arrays.iter().any(|one| one.map == array.id()));
        }
    });
}
