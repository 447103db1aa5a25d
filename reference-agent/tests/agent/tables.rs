//! Maglev with many service ports: all are served, by tables that fit.

use std::collections::BTreeSet;

use reference_agent::{
    control::Planner,
    model::Event,
    plan::{self, Perspective, Selection},
    resolve,
    testing::{node::Node, objects::name},
};

use crate::{
    running::{Control, Running, create_service, create_slice, eventually},
    writes::Large,
};

/// Of a Service with so many endpoints: some of them are others'.
fn put(large: &mut Large, index: usize, endpoints: usize) {
    let endpoints: Vec<String> = (0..endpoints)
        .map(|one| format!("10.1.{}.{}", index % 100, one))
        .collect();
    let endpoints: Vec<&str> = endpoints.iter().map(String::as_str).collect();
    large.put(index, &endpoints);
}

fn with_tables() -> Large {
    Large::seen_as(Perspective {
        selection: Selection::Maglev,
        ..Perspective::default()
    })
}

/// Everything that is planned is in the maps, and the maps are not fuller than a fresh agent would make them. The result
/// is how many slots a service port has.
fn assert_served(large: &Large, services: usize) -> BTreeSet<usize> {
    assert_eq!(large.0.troubles(), [] as [String; 0]);
    let contents = large.contents();
    let (written, defects) = resolve::resolve(&contents);
    assert!(defects.is_empty(), "{defects:?}");
    let desired = large.0.desired();
    let planned = plan::resolve(&desired.plan());
    assert_eq!(planned.len(), services);
    let slots = planned.values().map(|serving| serving.internal.len());
    assert_eq!(contents.slots.len(), slots.sum::<usize>());
    for (frontend, serving) in &planned {
        let found = written.get(frontend).map(|found| &found.internal);
        assert_eq!(found, Some(&serving.internal), "{frontend}");
    }
    planned.values().map(|serving| serving.internal.len()).collect()
}

#[test]
fn tables_become_smaller_as_services_come_and_larger_as_they_go_and_all_are_served_at_any_time() {
    const STEPS: [(usize, &[usize]); 7] = [
        (128, &[1021]),
        (129, &[251]),
        (500, &[251]),
        (2100, &[61]),
        (2200, &[3]),
        (400, &[251]),
        (100, &[1021]),
    ];
    let mut large = with_tables();
    large.sync();
    let mut there = 0;
    for (count, sizes) in STEPS {
        for index in there..count {
            put(&mut large, index, 3);
        }
        for index in count..there {
            let named = || name(&format!("u/s{index}"));
            large.0.apply(Event::ServiceDeleted(named()));
            large.0.apply(Event::SliceDeleted(named()));
        }
        there = count;
        large.reconcile();
        let sizes = sizes.iter().copied().collect();
        assert_eq!(assert_served(&large, count), sizes, "{count} Services");
    }
    assert_eq!(large.maps().violations(), [] as [String; 0]);
}

#[test]
fn large_services_keep_their_tables_beside_many_small_ones() {
    let mut large = with_tables();
    for index in 0..400 {
        put(&mut large, index, if index % 100 == 0 { 100 } else { 2 });
    }
    large.sync();
    assert_eq!(assert_served(&large, 400), [61, 4093].into());
}

#[test]
fn fifty_thousand_service_ports_are_served_with_tables_of_one_slot_for_each_backend() {
    let mut large = with_tables();
    for index in 0..50_000 {
        put(&mut large, index, 3);
    }
    large.sync();
    assert_eq!(assert_served(&large, 50_000), [3].into());
    assert_eq!(large.contents().slots.len(), 150_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_large_tables_are_is_a_metric() {
    let control = Control::start();
    let (node, client) = (Node::new(), control.client().await);
    // Half of it is a table of two backends, and some.
    let planner = Planner::new(Perspective {
        selection: Selection::Maglev,
        slots: 600,
        ..Perspective::default()
    });
    let agent = Running::start_as(planner, &client, &node).await;
    let until = async |expected| {
        eventually(|| async {
            let seen = agent.reports.metrics.maglev.at([]).get();
            (seen == expected).then_some(()).ok_or(format!("{seen}"))
        })
        .await;
    };
    create_service(&client, "x", "10.96.0.7").await;
    create_slice(&client, "x", "x", &["10.0.0.7", "10.0.0.8"]).await;
    until(100).await;
    create_service(&client, "y", "10.96.0.8").await;
    create_slice(&client, "y", "y", &["10.0.0.7", "10.0.0.8"]).await;
    until(25).await;
    agent.stop().await;

    let agent = Running::start(&control, &node).await;
    agent.until_readyz((200, "ok\n")).await;
    assert_eq!(agent.reports.metrics.maglev.at([]).get(), 0, "at random");
    agent.stop().await;
}
