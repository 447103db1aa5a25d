//! What is written, how much of it, and under which numbers.

use std::{collections::BTreeSet, time::Instant};

use lb_abi::frontend_flags::MAGLEV;
use reference_agent::{
    control::{Control, Planner},
    maps::{Contents, LbMaps, memory::MemoryMaps},
    model::Event,
    plan::{Perspective, Selection},
    reconcile::REPLACED_LIMIT,
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
pub(crate) struct Large(pub(crate) Control<Planner, MemoryMaps>);

impl Large {
    fn new() -> Self {
        Self::seen_as(Perspective::default())
    }

    pub(crate) fn seen_as(perspective: Perspective) -> Self {
        let control = Control::new(Planner::new(perspective), MemoryMaps::new());
        Self(control.expect("maps in memory can be read"))
    }

    /// A restart that chooses backends by tables from now on.
    fn with_tables(self) -> Self {
        let perspective = Perspective {
            selection: Selection::Maglev,
            ..Perspective::default()
        };
        let control = Control::new(Planner::new(perspective), self.0.into_maps());
        Self(control.expect("maps in memory can be read"))
    }

    pub(crate) fn sync(&mut self) {
        for event in synced() {
            self.0.apply(event);
        }
        self.reconcile();
    }

    /// Frontends that say that their slots are a table.
    fn tables(&self) -> usize {
        let frontends = self.contents().frontends.into_iter();
        frontends.filter(|(_, value)| value.flags & MAGLEV != 0).count()
    }

    pub(crate) fn put(&mut self, index: usize, endpoints: &[&str]) {
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

    pub(crate) fn reconcile(&mut self) {
        let mut now = Instant::now();
        self.0.reconcile(now);
        assert_eq!(self.0.troubles(), [] as [String; 0]);
        while let Some(deadline) = self.0.deadline() {
            now = now.max(deadline);
            self.0.reconcile(now);
            assert_eq!(self.0.troubles(), [] as [String; 0]);
        }
    }

    pub(crate) fn maps(&self) -> &MemoryMaps {
        self.0.reconciler().maps()
    }

    pub(crate) fn contents(&self) -> Contents {
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
    // A slot, the switch, then two old slots and an unused backend.
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

#[test]
fn frontends_that_all_get_other_values_are_replaced_a_few_in_a_round() {
    const SERVICES: usize = 100;
    let put_all = |large: &mut Large| (0..SERVICES).for_each(|index| large.put(index, &["1.1.1.1"]));
    let mut large = Large::new();
    put_all(&mut large);
    large.sync();
    let mut large = large.with_tables();
    put_all(&mut large);
    for event in synced() {
        large.0.apply(event);
    }
    let now = Instant::now();
    let mut rounds = 0;
    while large.0.outstanding() {
        let before = large.tables();
        large.0.reconcile(now);
        rounds += 1;
        let replaced = large.tables() - before;
        assert_eq!(
            large.0.postponed(),
            SERVICES.saturating_sub(rounds * REPLACED_LIMIT)
        );
        assert_eq!(large.0.troubles(), [] as [String; 0]);
        if large.0.postponed() == 0 {
            break;
        }
        assert!(large.0.deadline() <= Some(now), "the next round is at once");
        // What comes in the meantime does not wait for the others; it is new, and takes no turn.
        let new = usize::from(rounds == 3);
        assert_eq!(replaced, REPLACED_LIMIT + new);
        if rounds == 2 {
            large.put(SERVICES, &["1.1.1.1"]);
        }
    }
    assert_eq!(rounds, SERVICES.div_ceil(REPLACED_LIMIT));
    large.reconcile();
    assert_eq!(large.tables(), SERVICES + 1);
    assert_eq!(large.maps().violations(), [] as [String; 0]);
    assert!(resolve::resolve(&large.contents()).1.is_empty());
}
