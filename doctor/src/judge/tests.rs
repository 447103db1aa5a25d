//! Judgements on chains written by hand.

use crate::{
    fixture::{DAY, Fixture, at, map},
    judge::ago,
    report::{Certainty, CgroupState, Direction, Holder, Layer, Manner, Place, ProblemKind, Stale, Standing},
};

fn stale(fixture: &Fixture) -> Vec<(u32, Option<Certainty>)> {
    let marks = fixture.attachments.iter();
    marks
        .map(|attachment| {
            let certainty = attachment.stale.as_ref().map(|stale| stale.certainty);
            (attachment.program, certainty)
        })
        .collect()
}

#[test]
fn incident_two_is_told_in_one_paragraph() {
    let mut fixture = Fixture::incident();
    let problems = fixture.judge();
    assert_eq!(stale(&fixture), [(113, Some(Certainty::Suspected)), (205, None)]);
    let [problem] = problems.as_slice() else {
        panic!("one problem: {problems:#?}")
    };
    assert_eq!(problem.kind, ProblemKind::StalePrograms);
    assert_eq!(
        (problem.programs.as_slice(), problem.against.as_slice()),
        (&[113][..], &[205][..])
    );
    assert_eq!(
        problem.story,
        "Program 113 (cil_sock4_conne, loaded 6 days ago) is suspected to be stale: it runs first at connect4 of \
         /sys/fs/cgroup and reads map 27 (cilium_lb4_serv); program 205 (cil_sock4_conne, loaded 2 hours ago) runs after it \
         and reads map 144 of the same name. The first decides: by map 27, TCP 172.17.93.4:8080 is 172.16.149.220:8080; \
         program 205 then sees an address that is no service, and lets it pass. By map 144 it would be \
         172.16.109.127:8080. 1 of 2 services differ. Map 144 is pinned at \
         /sys/fs/bpf/tc/globals/cilium_lb4_services_v2, map 27 nowhere: nothing writes to it any more. Program 113 is \
         attached the legacy way, which neither a process nor a pin keeps: it stays until it is detached."
    );
    let [misled] = problem.misled.as_slice() else {
        panic!("one service: {:?}", problem.misled)
    };
    assert_eq!(misled.service, "TCP 172.17.93.4:8080");
    assert_eq!(misled.stale.to_string(), "172.16.149.220:8080");
    assert_eq!(misled.current.to_string(), "172.16.109.127:8080");
    assert!(
        problem.remedy.contains("plumbline doctor --fix --suspected"),
        "{}",
        problem.remedy
    );
}

#[test]
fn the_reasons_are_given() {
    let mut fixture = Fixture::incident();
    fixture.judge();
    let Some(Stale { newer, reasons, .. }) = &fixture.attachments[0].stale else {
        panic!("stale")
    };
    assert_eq!(*newer, Some(205));
    assert_eq!(
        reasons.as_slice(),
        [
            "program 205 at the same hook was loaded after it: 2 hours ago, this one 6 days ago",
            "it reads map 27 where program 205 reads map 144 of the same name, cilium_lb4_serv",
            "it reads map 28 where program 205 reads map 145 of the same name, cilium_lb4_back",
            "the younger program's maps are pinned, this one's are not",
        ]
    );
}

#[test]
fn a_load_with_many_hooks_is_one_problem() {
    let mut fixture = Fixture::incident();
    for (hook, old, new) in [("sendmsg4", 114, 206), ("recvmsg4", 115, 207)] {
        let name = format!("cil_sock4_{}", &hook[..5]);
        fixture.program(old, &name, Some(6 * DAY), &[27, 28]);
        fixture.program(new, &name, Some(7200), &[144, 145]);
        fixture.legacy(at("/sys/fs/cgroup", hook), 0, old);
        fixture.legacy(at("/sys/fs/cgroup", hook), 1, new);
    }
    let problems = fixture.judge();
    let [problem] = problems.as_slice() else {
        panic!("one problem: {problems:#?}")
    };
    assert_eq!(problem.programs, [113, 114, 115]);
    assert!(
        problem.story.contains("114 at sendmsg4 of /sys/fs/cgroup"),
        "{}",
        problem.story
    );
}

#[test]
fn siblings_and_other_hooks_are_no_chain() {
    for (path, hook) in [("/sys/fs/cgroup/b", "connect4"), ("/sys/fs/cgroup/a", "connect6")] {
        let mut fixture = Fixture::incident();
        fixture.attachments[0].place = at("/sys/fs/cgroup/a", "connect4");
        fixture.attachments[1].place = at(path, hook);
        assert!(fixture.judge().is_empty(), "{path} {hook}");
    }
    let mut fixture = Fixture::incident();
    fixture.attachments[0].place = at("/sys/fs/cgroup/a/b", "connect4");
    assert_eq!(fixture.judge().len(), 1, "a cgroup above is of the chain");
    // A folder whose name merely begins with the other's.
    let mut fixture = Fixture::incident();
    fixture.attachments[0].place = at("/sys/fs/cgroup/ab", "connect4");
    fixture.attachments[1].place = at("/sys/fs/cgroup/a", "connect4");
    assert!(fixture.judge().is_empty());
}

#[test]
fn where_pins_and_times_do_not_decide_nobody_is_called_stale() {
    let mut unknown_times = Fixture::incident();
    for program in unknown_times.programs.values_mut() {
        (program.loaded_at, program.loaded_seconds_ago) = (None, None);
    }
    let mut wrong_pins = Fixture::incident();
    let pins = wrong_pins.maps[&144].pinned_at.clone();
    for (id, map) in &mut wrong_pins.maps {
        map.pinned_at = if *id < 100 { pins.clone() } else { Vec::new() };
    }
    for mut fixture in [unknown_times, wrong_pins] {
        let problems = fixture.judge();
        assert_eq!(stale(&fixture), [(113, None), (205, None)]);
        let [problem] = problems.as_slice() else {
            panic!("one problem: {problems:#?}")
        };
        assert_eq!(problem.kind, ProblemKind::TwoGenerations);
        assert_eq!(problem.programs, [113, 205]);
        assert_eq!(problem.misled_in_all, 1);
    }
}

#[test]
fn equal_maps_sections_and_other_owners_are_no_suspicion() {
    let mut same_maps = Fixture::incident();
    same_maps.program(113, "cil_sock4_conne", Some(6 * DAY), &[144, 145]);
    let mut sections = Fixture::new();
    for (program, id, since) in [(1, 1, 100), (2, 2, 10)] {
        sections.map(map(id, ".rodata", 4, 64, &[]));
        sections.program(program, "cil_sock4_conne", Some(since), &[id]);
        sections.legacy(at("/sys/fs/cgroup", "connect4"), program, program);
    }
    let mut others = Fixture::incident();
    others.maps.get_mut(&27).expect("there").name = "x".to_owned();
    others.maps.get_mut(&28).expect("there").name = "y".to_owned();
    others.program(113, "connect4", Some(6 * DAY), &[27, 28]);
    for mut fixture in [same_maps, sections, others] {
        let problems = fixture.judge();
        assert!(problems.is_empty(), "{problems:#?}");
    }
}

#[test]
fn somebody_unknown_is_told_by_the_names_of_programs_and_maps() {
    let mut fixture = Fixture::new();
    for (program, id, since, pins) in [(1, 1, 100, [].as_slice()), (2, 2, 10, &["/sys/fs/bpf/lb/svc"])] {
        fixture.map(map(id, "svc", 8, 8, pins));
        fixture.program(program, "lb_connect4", Some(since), &[id]);
        fixture.legacy(at("/sys/fs/cgroup", "connect4"), program, program);
    }
    let problems = fixture.judge();
    assert_eq!(stale(&fixture), [(1, Some(Certainty::Suspected)), (2, None)]);
    assert_eq!(problems[0].misled_in_all, 0, "whose maps are read by nobody here");
}

#[test]
fn ours_is_certain_beside_a_current_one_or_at_a_removed_cgroup() {
    let link = |held_by: &[Holder]| Manner::Link {
        id: 9,
        pinned_at: Vec::new(),
        held_by: held_by.to_vec(),
    };
    let holder = Holder {
        pid: 7,
        command: "agent".to_owned(),
    };
    let dying = Place::Cgroup {
        id: 77,
        path: None,
        state: CgroupState::Dying,
        hook: "connect4".to_owned(),
    };
    let root = at("/sys/fs/cgroup", "connect4");
    for (place, manner, current, expected) in [
        (
            root.clone(),
            link(std::slice::from_ref(&holder)),
            true,
            Some(Certainty::Certain),
        ),
        (
            at("/sys/fs/cgroup/pod", "connect4"),
            link(&[]),
            true,
            Some(Certainty::Certain),
        ),
        (
            root.clone(),
            Manner::Legacy { flags: 2 },
            false,
            Some(Certainty::Suspected),
        ),
        (root.clone(), link(&[]), false, Some(Certainty::Suspected)),
        (root.clone(), link(&[holder]), false, None),
        (dying, link(&[]), false, Some(Certainty::Certain)),
    ] {
        let mut fixture = Fixture::new();
        fixture.program(1, "connect4", Some(100), &[]);
        fixture.ours(1);
        fixture.attach(place.clone(), 0, 1, manner.clone(), Standing::Earlier);
        if current {
            fixture.program(2, "connect4", Some(10), &[]);
            fixture.ours(2);
            fixture.attach(root.clone(), 1, 2, link(&[]), Standing::Current);
        }
        let problems = fixture.judge();
        assert_eq!(stale(&fixture)[0], (1, expected), "{place} {manner}");
        assert_eq!(problems.len(), usize::from(expected.is_some()));
    }
}

#[test]
fn devices_are_chains_too() {
    let device = |layer, direction| Place::Device {
        index: 2,
        name: Some("eth0".to_owned()),
        layer,
        direction,
    };
    let mut fixture = Fixture::incident();
    fixture.program(113, "cil_from_netdev", Some(6 * DAY), &[27, 28]);
    fixture.program(205, "cil_from_netdev", Some(7200), &[144, 145]);
    fixture.attachments[0].place = device(Layer::Clsact, Direction::Ingress);
    fixture.attachments[1].place = device(Layer::Tcx, Direction::Ingress);
    let problems = fixture.judge();
    // Hooks of different layers run one after the other for each packet.
    assert_eq!(stale(&fixture), [(113, Some(Certainty::Suspected)), (205, None)]);
    assert!(
        problems[0]
            .story
            .contains("as number 1 at clsact ingress of eth0"),
        "{}",
        problems[0].story
    );
    fixture.attachments[0].stale = None;
    fixture.attachments[0].place = device(Layer::Clsact, Direction::Egress);
    assert!(fixture.judge().is_empty());
}

#[test]
fn times_are_said_as_people_say_them() {
    for (seconds, text) in [
        (0, "just now"),
        (1, "1 second ago"),
        (119, "1 minute ago"),
        (7200, "2 hours ago"),
        (6 * DAY + 5, "6 days ago"),
    ] {
        assert_eq!(ago(seconds), text);
    }
}
