//! The ranges that cluster IPs are from.

use std::collections::BTreeMap;

use reference_agent::{
    endpoint_address::Range,
    model::{Event, Kind, Model, ServiceCidr},
};

use super::support::ranges;

fn object(name: &str, of: &str) -> Event {
    Event::ServiceCidrApplied(ServiceCidr {
        name: name.to_owned(),
        ranges: ranges(of),
    })
}

fn listed(events: impl IntoIterator<Item = Event>) -> Model {
    let mut model = Model::default();
    for event in events {
        assert!(model.apply(event).is_empty(), "no Service's plan depends on them");
    }
    model.apply(Event::Synced(Kind::ServiceCidr));
    model
}

fn those(model: &Model) -> Vec<Range> {
    model.service_ranges().expect("they are known").ranges
}

#[test]
fn they_are_those_of_all_objects_each_once() {
    let mut model = listed([
        object("kubernetes", "10.96.0.0/16 fd00:96::/112"),
        object("more", "10.97.0.0/16"),
        object("again", "10.97.0.0/16"),
    ]);
    assert_eq!(those(&model), ranges("10.96.0.0/16 10.97.0.0/16 fd00:96::/112"));
    model.apply(Event::ServiceCidrDeleted("more".to_owned()));
    assert_eq!(those(&model).len(), 3, "another one has it");
    model.apply(Event::ServiceCidrDeleted("again".to_owned()));
    model.apply(object("kubernetes", "10.96.0.0/16"));
    assert_eq!(those(&model), ranges("10.96.0.0/16"));
}

#[test]
fn they_are_unknown_until_they_are_listed_or_given_and_nothing_waits_for_that() {
    let mut model = Model::default();
    model.apply(object("kubernetes", "10.96.0.0/16"));
    assert_eq!(model.service_ranges(), None);
    for kind in [Kind::Service, Kind::EndpointSlice, Kind::Node] {
        model.apply(Event::Synced(kind));
    }
    model.apply(Event::Host(reference_agent::model::Host::default()));
    assert!(model.synced());
    assert_eq!(model.unsynced().collect::<Vec<_>>(), [Kind::ServiceCidr]);
    model.apply(Event::ServiceRanges(ranges("10.0.0.0/24").into_iter().collect()));
    assert_eq!(
        those(&model),
        ranges("10.0.0.0/24"),
        "instead of those of objects"
    );
    assert_eq!(model.unsynced().count(), 0);
}

#[test]
fn of_more_than_there_is_room_for_the_largest_count() {
    let model = listed([
        object("a", "10.1.0.0/24 fd00:1::/120"),
        object("b", "10.2.0.0/16 fd00:2::/112"),
        object("c", "10.3.0.0/16"),
        object("d", "10.4.0.0/25"),
    ]);
    let found = model.service_ranges().expect("they are known");
    assert_eq!(
        found.ranges,
        ranges("10.2.0.0/16 10.3.0.0/16 fd00:2::/112 10.1.0.0/24")
    );
    let left_out = [("a", "fd00:1::/120"), ("d", "10.4.0.0/25")];
    let left_out: BTreeMap<_, _> = left_out.map(|(name, of)| (name.to_owned(), ranges(of))).into();
    assert_eq!(found.left_out, left_out);
}
