//! The backends that established flows keep, and departed ones.

use std::collections::BTreeSet;

use reference_agent::{
    control::Planner,
    model::{Endpoint, Event, Slice},
    plan::HealthCheck,
    reconcile::{DEPARTED_LIMIT, Departed},
    testing::{
        World,
        objects::{address, addresses, name, service, slice},
    },
};

use super::{endpoints, local, planner, ranged, restart_unchanged, section, world};

/// With the last endpoint on its way out.
fn terminating(slice: Slice) -> Slice {
    let mut endpoints = slice.endpoints;
    if let Some(last) = endpoints.pop() {
        endpoints.push(Endpoint {
            ready: false,
            serving: true,
            terminating: true,
            ..last
        });
    }
    Slice { endpoints, ..slice }
}

#[test]
fn a_backend_on_its_way_out_takes_no_new_flows_and_keeps_its_number() {
    let mut world = world();
    world.put_service(service("t/x", "10.96.0.2", &["TCP 80"]));
    world.put_slice(endpoints(&["10.0.0.7", "10.0.0.8"]));
    let before = world.contents().backends;
    world.put_slice(terminating(endpoints(&["10.0.0.7", "10.0.0.8"])));
    assert_eq!(
        section(&world, "frontends"),
        ["TCP 10.96.0.2:80 -> 10.0.0.7:8080"]
    );
    assert_eq!(section(&world, "established"), ["TCP 10.0.0.8:8080"]);
    assert_eq!(world.contents().backends, before);
    restart_unchanged(
        &world,
        vec![
            Event::ServiceApplied(service("t/x", "10.96.0.2", &["TCP 80"])),
            Event::SliceApplied(terminating(endpoints(&["10.0.0.7", "10.0.0.8"]))),
        ],
    );
    world.put_slice(endpoints(&["10.0.0.7"]));
    assert_eq!(section(&world, "established"), [""; 0]);
    assert_eq!(world.contents().backends.len(), 1);
    world.assert_clean();
}

fn resolver(endpoints: &[&str]) -> Slice {
    slice("t/1", "x", &["UDP 53"], endpoints)
}

fn resolved() -> World<Planner> {
    let mut world = world();
    world.put_service(service("t/x", "10.96.0.10", &["UDP 53"]));
    world.put_slice(resolver(&["10.0.0.7", "10.0.0.8"]));
    assert_eq!(world.control.take_changes().departed.listed, []);
    world
}

fn departed(world: &mut World<Planner>) -> Vec<Departed> {
    world.control.take_changes().departed.listed
}

#[test]
fn a_tcp_backend_departs_too_as_it_may_not_have_answered_and_one_of_sctp_does_not() {
    let mut world = world();
    world.put_service(service("t/x", "10.96.0.10", &["TCP 80", "SCTP 81"]));
    world.put_slice(slice(
        "t/1",
        "x",
        &["TCP 80", "SCTP 81"],
        &["10.0.0.7", "10.0.0.8"],
    ));
    assert_eq!(departed(&mut world), []);
    world.put_slice(slice("t/1", "x", &["TCP 80", "SCTP 81"], &["10.0.0.8"]));
    let gone = departed(&mut world);
    let gone: Vec<_> = gone
        .iter()
        .map(|gone| (gone.backend, gone.frontends.clone()))
        .collect();
    assert_eq!(
        gone,
        [(address("TCP 10.0.0.7:80"), addresses(&["TCP 10.96.0.10:80"]))]
    );
}

#[test]
fn a_udp_backend_departs_when_it_serves_no_more() {
    let mut world = resolved();
    world.put_slice(terminating(resolver(&["10.0.0.7", "10.0.0.8"])));
    assert_eq!(departed(&mut world), [], "its flows may go on");
    let contents = world.contents();
    let [(service, _)] = contents.services[..] else {
        panic!("one service port")
    };
    world.put_slice(resolver(&["10.0.0.7"]));
    let gone = Departed {
        service,
        frontends: addresses(&["UDP 10.96.0.10:53"]),
        backend: address("UDP 10.0.0.8:53"),
        id: contents.backends[1].0,
    };
    assert_eq!(departed(&mut world), [gone]);
    assert_eq!(departed(&mut world), [], "it is told once");
}

#[test]
fn a_backend_departs_from_one_service_and_goes_on_serving_another() {
    let mut world = resolved();
    world.put_service(service("t/y", "10.96.0.11", &["UDP 53"]));
    world.put_slice(slice("t/2", "y", &["UDP 53"], &["10.0.0.8"]));
    world.put_slice(resolver(&["10.0.0.7"]));
    let gone = departed(&mut world);
    assert_eq!(gone.len(), 1);
    assert_eq!(gone[0].frontends, addresses(&["UDP 10.96.0.10:53"]));
    assert_eq!(world.contents().backends.len(), 2);
    world.assert_clean();
}

#[test]
fn everybody_departs_from_a_service_that_is_deleted() {
    let mut world = resolved();
    world.delete_service("t/x");
    let gone = departed(&mut world);
    assert_eq!(gone.len(), 2);
    assert!(
        gone.iter()
            .all(|gone| gone.service != 0 && gone.frontends.len() == 1)
    );
}

#[test]
fn nobody_departs_before_it_is_written() {
    let mut world = resolved();
    world.faults().script([true; 4]);
    world.put_slice_unsettled(resolver(&["10.0.0.9"]));
    assert!(!world.settle_within(0), "nothing failed");
    assert_eq!(departed(&mut world), [], "they are served to new flows, too");
    world.faults().script([]);
    world.settle();
    assert_eq!(departed(&mut world).len(), 2);
}

#[test]
fn who_left_while_the_agent_was_down_has_departed_as_far_as_can_be_known() {
    let mut world = resolved();
    world.put_slice(terminating(resolver(&["10.0.0.7", "10.0.0.8", "10.0.0.9"])));
    let mut restarted = World::with(planner(), &world.contents());
    restarted.put_service(service("t/x", "10.96.0.10", &["UDP 53"]));
    restarted.put_slice(resolver(&["10.0.0.7"]));
    restarted.sync();
    let gone = departed(&mut restarted);
    let told: Vec<_> = gone
        .iter()
        .map(|gone| (gone.service == 0, gone.frontends.len(), gone.backend))
        .collect();
    assert_eq!(
        told,
        [
            (false, 1, address("UDP 10.0.0.8:53")),
            (true, 0, address("UDP 10.0.0.9:53"))
        ],
        "of a backend in no slot the service port is not known"
    );
    assert_eq!(restarted.contents().backends.len(), 1);
    restarted.assert_clean();
}

#[test]
fn more_departures_than_can_be_listed_are_counted() {
    let mut world =
        reference_agent::control::Control::new(planner(), reference_agent::maps::memory::MemoryMaps::new())
            .expect("maps in memory can be read");
    let now = std::time::Instant::now();
    for event in reference_agent::testing::synced() {
        world.apply(event);
    }
    world.apply(Event::ServiceApplied(service("t/x", "10.96.0.10", &["UDP 53"])));
    let many: Vec<String> = (0..DEPARTED_LIMIT + 7)
        .map(|index| format!("10.1.{}.{}", index / 250, index % 250 + 1))
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (index, some) in many.chunks(1000).enumerate() {
        world.apply(Event::SliceApplied(slice(
            &format!("t/{index}"),
            "x",
            &["UDP 53"],
            some,
        )));
    }
    world.reconcile(now);
    world.apply(Event::ServiceDeleted(name("t/x")));
    world.reconcile(now);
    let changes = world.take_changes();
    assert_eq!(
        (changes.departed.listed.len(), changes.departed.unlisted),
        (DEPARTED_LIMIT, 7)
    );
}

#[test]
fn changes_say_what_became_of_findings_health_checks_and_writes() {
    let mut world = world();
    let mut checked = local();
    checked.health_check_port = Some(32_000);
    world.put_service(checked.clone());
    let changes = world.control.take_changes();
    let health = |local_endpoints| {
        let port = 32_000;
        Some(HealthCheck {
            port,
            local_endpoints,
        })
    };
    assert_eq!(changes.health_checks, [(name("t/x"), health(0))]);
    assert_eq!(changes.written, [name("t/x")]);
    world.put_slice(endpoints(&["10.0.0.7@here"]));
    assert_eq!(
        world.control.take_changes().health_checks,
        [(name("t/x"), health(1))]
    );
    world.put_service(checked);
    assert_eq!(
        world.control.take_changes(),
        reference_agent::control::Changes::default()
    );
    world.delete_service("t/x");
    assert_eq!(world.control.take_changes().health_checks, [(name("t/x"), None)]);
}

#[test]
fn a_service_of_which_only_a_range_of_clients_is_put_counts_as_written() {
    let mut world = world();
    world.put_slice(endpoints(&["10.0.0.7"]));
    world.put_service(ranged(&["192.0.2.0/24"]));
    world.control.take_changes();
    let before = world.contents();
    world.put_service(ranged(&["192.0.2.0/24", "203.0.113.7/32"]));
    let after = world.contents();
    assert_eq!(after.sources.len(), before.sources.len() + 1);
    assert_eq!(
        (&after.frontends, &after.services),
        (&before.frontends, &before.services)
    );
    assert_eq!(world.control.take_changes().written, [name("t/x")]);
}

#[test]
fn what_is_not_written_is_a_finding_until_it_is() {
    let mut world = resolved();
    world.control.take_changes();
    world.faults().script([true; 6]);
    world.put_slice_unsettled(resolver(&["10.0.0.9"]));
    assert!(!world.settle_within(0), "nothing failed");
    let changes = world.control.take_changes();
    let [(of, findings)] = &changes.findings[..] else {
        panic!("{changes:?}")
    };
    assert_eq!(*of, name("t/x"));
    assert_eq!(
        findings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "NotWritten: port UDP (IPv4) is not written, and goes on as it was: put on map BACKENDS failed: Cannot allocate memory (os error 12)"
        ]
    );
    world.settle();
    let changes = world.control.take_changes();
    assert_eq!(changes.findings, [(name("t/x"), Vec::new())]);
    let frontends: BTreeSet<_> = changes
        .departed
        .listed
        .iter()
        .flat_map(|gone| gone.frontends.clone())
        .collect();
    assert_eq!(frontends, addresses(&["UDP 10.96.0.10:53"]));
}
