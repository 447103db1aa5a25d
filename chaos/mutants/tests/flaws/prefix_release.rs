//! The mutant of incident 1 behaves like the affected release, row by row, and otherwise like the production agent.

use mutants::wide_release::WideRelease;
use reference_agent::{
    control::Planner,
    incident_one_table,
    maps::Contents,
    model::Event,
    testing::{
        World,
        incidents::Row,
        objects::{addresses, service, slice},
        synced,
    },
};

fn mutant() -> World<WideRelease> {
    World::with(WideRelease::by_prefix(Planner::default()), &Contents::default())
}

fn as_in_the_affected_release(row: Row) {
    let mut world = mutant();
    for event in row.history {
        world.event(event);
    }
    let served = world.served();
    for end in row.ends {
        assert_eq!(served.get(&end.frontend), Some(&end.affected), "{}", end.frontend);
    }
    // The bug is in the plan; the writes are still consistent.
    world.assert_clean();
}

incident_one_table!(as_in_the_affected_release);

/// Both Services with a backend of their own beside the shared one.
fn begin() -> Vec<Event> {
    let objects = [
        Event::ServiceApplied(service("t/t", "10.96.0.1", &["TCP 80", "UDP 80 dns"])),
        Event::ServiceApplied(service("t/t-ext", "10.96.0.2", &["TCP 80", "UDP 80 dns"])),
        Event::SliceApplied(slice(
            "t/1",
            "t",
            &["TCP 80", "UDP 80 dns"],
            &["1.1.1.1", "1.1.1.2"],
        )),
        Event::SliceApplied(slice(
            "t/2",
            "t-ext",
            &["TCP 80", "UDP 80 dns"],
            &["1.1.1.1", "1.1.1.3"],
        )),
    ];
    synced().into_iter().chain(objects).collect()
}

#[test]
fn without_a_release_nothing_shows() {
    let (mut mutated, mut production) = (mutant(), World::new());
    let quiet = [
        Event::ServiceApplied(service("t/t-ext", "10.96.0.2", &["TCP 80", "UDP 80 dns"])),
        Event::SliceApplied(slice(
            "t/1",
            "t",
            &["TCP 80", "UDP 80 dns"],
            &["1.1.1.1", "1.1.1.2", "1.1.1.9"],
        )),
        Event::ServiceApplied(service("t/t-ext", "10.96.0.2", &["TCP 80", "UDP 80 dns"])),
        Event::SliceApplied(slice("t/2", "t-ext", &["TCP 80"], &["1.1.1.3"])),
        Event::ServiceApplied(service("t/t", "10.96.0.1", &["TCP 80"])),
        Event::ServiceDeleted(reference_agent::names::ObjectName::new("t", "t")),
        Event::ServiceApplied(service("t/t-ext", "10.96.0.2", &["TCP 80", "UDP 80 dns"])),
    ];
    for event in begin().into_iter().chain(quiet) {
        mutated.event(event.clone());
        production.event(event);
        assert_eq!(mutated.contents(), production.contents());
    }
}

#[test]
fn the_release_is_latent_until_the_victims_own_next_event() {
    let mut world = mutant();
    for event in begin() {
        world.event(event);
    }
    let whole = addresses(&["TCP 1.1.1.1:80", "TCP 1.1.1.3:80"]);
    world.put_slice(slice("t/1", "t", &["TCP 80", "UDP 80 dns"], &[]));
    assert_eq!(world.serves("TCP 10.96.0.1:80"), Some(addresses(&[])));
    assert_eq!(world.serves("TCP 10.96.0.2:80"), Some(whole));
    world.put_service(service("t/t-ext", "10.96.0.2", &["TCP 80", "UDP 80 dns"]));
    assert_eq!(
        world.serves("TCP 10.96.0.2:80"),
        Some(addresses(&["TCP 1.1.1.3:80"]))
    );
    assert_eq!(
        world.serves("UDP 10.96.0.2:80"),
        Some(addresses(&["UDP 1.1.1.3:80"]))
    );
}

#[test]
fn being_planned_again_for_others_sake_shows_nothing() {
    let mut world = mutant();
    for event in begin() {
        world.event(event);
    }
    world.put_slice(slice("t/1", "t", &["TCP 80"], &[]));
    // A rival claims the victim's ClusterIP, and loses: the victim is planned without an event of its own.
    world.put_service(reference_agent::model::Service {
        created: Some(7),
        ..service("t/rival", "10.96.0.2", &["TCP 80"])
    });
    world.delete_service("t/rival");
    assert_eq!(
        world.serves("TCP 10.96.0.2:80"),
        Some(addresses(&["TCP 1.1.1.1:80", "TCP 1.1.1.3:80"]))
    );
}

#[test]
fn a_restart_forgets_the_table_and_a_list_heals() {
    let mut world = mutant();
    for event in begin() {
        world.event(event);
    }
    world.put_slice(slice("t/1", "t", &["TCP 80"], &[]));
    world.put_service(service("t/t-ext", "10.96.0.2", &["TCP 80"]));
    assert_eq!(
        world.serves("TCP 10.96.0.2:80"),
        Some(addresses(&["TCP 1.1.1.3:80"]))
    );
    let mut world = World::with(WideRelease::by_prefix(Planner::default()), &world.contents());
    for event in begin() {
        world.event(event);
    }
    assert_eq!(
        world.serves("TCP 10.96.0.2:80"),
        Some(addresses(&["TCP 1.1.1.1:80", "TCP 1.1.1.3:80"]))
    );
}

#[test]
fn an_endpoint_on_its_way_out_is_released_when_it_is_gone_not_before() {
    let mut world = mutant();
    for event in begin() {
        world.event(event);
    }
    let mut leaving = slice("t/1", "t", &["TCP 80"], &["1.1.1.1", "1.1.1.2"]);
    for endpoint in &mut leaving.endpoints {
        (endpoint.ready, endpoint.serving, endpoint.terminating) = (false, true, true);
    }
    let annotate = || service("t/t-ext", "10.96.0.2", &["TCP 80"]);
    world.put_slice(leaving);
    world.put_service(annotate());
    let whole = addresses(&["TCP 1.1.1.1:80", "TCP 1.1.1.3:80"]);
    assert_eq!(world.serves("TCP 10.96.0.2:80"), Some(whole));
    world.put_slice(slice("t/1", "t", &["TCP 80"], &[]));
    world.put_service(annotate());
    assert_eq!(
        world.serves("TCP 10.96.0.2:80"),
        Some(addresses(&["TCP 1.1.1.3:80"]))
    );
}
