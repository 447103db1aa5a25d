//! What is written, how much of it, and under which numbers.

use std::{collections::BTreeSet, time::Instant};

use reference_agent::{
    control::{Control, Planner},
    maps::{Contents, LbMaps, memory::MemoryMaps},
    model::Event,
    resolve,
    testing::{
        World,
        objects::{addresses, name, service, slice},
        synced,
    },
};

fn served() -> World<Planner> {
    let mut world = World::synced();
    world.put_service(service("t/x", "10.96.0.1", &["TCP 80"]));
    world.put_slice(slice("t/1", "x", &["TCP 80"], &["1.1.1.1", "1.1.1.2"]));
    world
}

#[test]
fn an_unchanged_set_of_backends_causes_no_write() {
    let mut world = served();
    let before = world.memory().writes();
    world.put_service(service("t/x", "10.96.0.1", &["TCP 80"]));
    world.put_slice(slice(
        "t/1",
        "x",
        &["TCP 80"],
        &["1.1.1.2", "1.1.1.1", "!1.1.1.3"],
    ));
    world.put_slice(slice("t/2", "x", &["TCP 80"], &["1.1.1.1"]));
    assert_eq!(world.memory().writes(), before);
}

/// A control plane over maps whose every write is checked, but not followed by a look at all of them: for tests
/// with many entries.
struct Large(Control<Planner, MemoryMaps>);

impl Large {
    fn new() -> Self {
        Self(Control::new(Planner::default(), MemoryMaps::new()).expect("maps in memory can be read"))
    }

    fn sync(&mut self) {
        for event in synced() {
            self.0.apply(event);
        }
        self.reconcile();
    }

    fn put(&mut self, index: usize, endpoints: &[&str]) {
        let (high, low, name) = (index / 256, index % 256, format!("s{index}"));
        let ip = format!("10.97.{high}.{low}");
        self.0.apply(Event::ServiceApplied(service(
            &format!("u/{name}"),
            &ip,
            &["TCP 80"],
        )));
        self.0.apply(Event::SliceApplied(slice(
            &format!("u/{name}"),
            &name,
            &["TCP 80"],
            endpoints,
        )));
    }

    fn reconcile(&mut self) {
        let mut now = Instant::now();
        self.0.reconcile(now);
        while let Some(deadline) = self.0.deadline() {
            now = now.max(deadline);
            self.0.reconcile(now);
            assert_eq!(self.0.troubles(), [] as [String; 0]);
        }
    }

    fn maps(&self) -> &MemoryMaps {
        self.0.reconciler().maps()
    }

    fn contents(&self) -> Contents {
        self.maps().contents().expect("maps in memory can be read")
    }
}

#[test]
fn one_service_changed_among_a_thousand_writes_only_its_own() {
    let mut large = Large::new();
    for index in 0..1000 {
        large.put(index, &["1.1.1.1", "1.1.1.2"]);
    }
    large.put(500, &["1.1.1.1", "1.1.1.3"]);
    large.sync();
    let before = large.maps().writes();
    large.put(500, &["1.1.1.1"]);
    large.reconcile();
    // A slot, the switch, then two old slots and a backend that nobody has any more.
    assert_eq!(large.maps().writes() - before, 5);
}

#[test]
fn a_backend_shared_by_services_is_one_entry_until_the_last_gives_it_up() {
    let mut world = served();
    world.put_service(service("t/y", "10.96.0.2", &["TCP 80"]));
    world.put_slice(slice("t/2", "y", &["TCP 80"], &["1.1.1.1"]));
    assert_eq!(world.contents().backends.len(), 2);
    world.put_slice(slice("t/1", "x", &["TCP 80"], &[]));
    assert_eq!(world.contents().backends.len(), 1);
    assert_eq!(
        world.serves("TCP 10.96.0.2:80"),
        Some(addresses(&["TCP 1.1.1.1:80"]))
    );
    world.delete_slice("t/2");
    assert_eq!(world.contents().backends.len(), 0);
    world.assert_clean();
}

#[test]
fn a_deleted_service_leaves_nothing() {
    let mut world = served();
    world.delete_service("t/x");
    assert_eq!(world.contents(), Contents::default());
    world.assert_clean();
}

#[test]
fn generations_go_up_and_never_back() {
    let mut world = served();
    let mut seen = BTreeSet::new();
    for endpoints in [&["1.1.1.1"][..], &[], &["1.1.1.2"], &["1.1.1.1", "1.1.1.2"]] {
        world.put_slice(slice("t/1", "x", &["TCP 80"], endpoints));
        let [(_, value)] = world.contents().services[..] else {
            panic!("one service port")
        };
        assert!(
            seen.iter().all(|&before| before < value.generation),
            "{value:?} after {seen:?}"
        );
        seen.insert(value.generation);
    }
    assert!(!seen.contains(&0));
}

#[test]
fn a_cluster_ip_that_moves_to_another_service_is_never_without_one() {
    let mut world = served();
    world.put_service(service("t/y", "10.96.0.2", &["TCP 80"]));
    world.put_slice(slice("t/2", "y", &["TCP 80"], &["1.1.1.9"]));
    // In one reconciliation: the old Service is gone, the other has its ClusterIP. The maps' witness looks after
    // every write.
    world.control.apply(Event::ServiceDeleted(name("t/x")));
    world
        .control
        .apply(Event::ServiceApplied(service("t/y", "10.96.0.1", &["TCP 80"])));
    world.settle();
    assert_eq!(
        world.serves("TCP 10.96.0.1:80"),
        Some(addresses(&["TCP 1.1.1.9:80"]))
    );
    assert_eq!(world.serves("TCP 10.96.0.2:80"), None);
    world.assert_clean();
}

#[test]
fn a_service_that_changes_address_and_backends_at_once_shows_no_mixture() {
    let mut world = served();
    world
        .control
        .apply(Event::ServiceApplied(service("t/x", "10.96.0.7", &["TCP 80"])));
    world
        .control
        .apply(Event::SliceApplied(slice("t/1", "x", &["TCP 80"], &["1.1.1.7"])));
    world.settle();
    assert_eq!(world.serves("TCP 10.96.0.1:80"), None);
    assert_eq!(
        world.serves("TCP 10.96.0.7:80"),
        Some(addresses(&["TCP 1.1.1.7:80"]))
    );
    world.assert_clean();
}

#[test]
fn a_long_list_of_changes_is_collected_in_between() {
    let backends: Vec<String> = (0..50).map(|index| format!("1.1.1.{index}")).collect();
    let all: Vec<&str> = backends.iter().map(String::as_str).collect();
    let mut large = Large::new();
    let mut most = 0;
    for endpoints in [&all[..], &all[1..]] {
        for index in 0..200 {
            large.put(index, endpoints);
        }
        large.sync();
        most = most.max(large.maps().most_slots());
        assert_eq!(large.contents().slots.len(), 200 * endpoints.len());
    }
    assert!(
        most < 15_000,
        "both generations of all were there at once: {most} slots"
    );
    assert_eq!(large.maps().violations(), [] as [String; 0]);
    assert!(resolve::resolve(&large.contents()).1.is_empty());
}
