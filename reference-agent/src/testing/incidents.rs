//! Incident 1 as a table: histories, what a repaired agent serves after each, and what Cilium 1.18.5 did.
//!
//! A Service of a shorter name and one whose name begins with it share a backend. Measured on the affected
//! release's own reflector and tables (issue 43619, fix 43620). The same rows decide over the agent (everything
//! kept) and over the mutant of this bug (lost exactly where the affected release lost it).

use std::collections::BTreeSet;

use crate::{
    endpoint_address::TransportAddress,
    model::{Event, Service, Slice},
};

use super::{
    objects::{address, addresses, name, service, slice},
    synced,
};

/// One row.
#[derive(Debug)]
pub struct Row {
    /// From empty maps, after the first sync.
    pub history: Vec<Event>,
    /// What is looked at in the end.
    pub ends: Vec<End>,
}

/// A frontend at the end of a history.
#[derive(Debug)]
pub struct End {
    /// Which.
    pub frontend: TransportAddress,
    /// Its backends in a repaired agent.
    pub repaired: BTreeSet<TransportAddress>,
    /// Its backends in the affected release.
    pub affected: BTreeSet<TransportAddress>,
}

const SHORT_IP: &str = "10.96.0.1";
const LONG_IP: &str = "10.96.0.2";
const THIRD_IP: &str = "10.96.0.3";
/// The backend that both list.
pub const SHARED: &str = "1.1.1.1";
/// Another one.
pub const OTHER: &str = "1.1.1.2";

/// Lost, or kept: with the one shared backend.
enum Fate {
    Lost,
    Kept,
}

struct Pair {
    short: Service,
    short_slice: Slice,
    long: Service,
    long_slice: Slice,
}

/// Two Services of one port with a slice each, both listing the shared backend.
fn pair(short: &str, long: &str) -> Pair {
    let of = |full: &str, endpoints: &[&str]| {
        let plain = name(full).name;
        slice(&format!("{full}-1"), &plain, &["TCP 80"], endpoints)
    };
    Pair {
        short: service(short, SHORT_IP, &["TCP 80"]),
        short_slice: of(short, &[SHARED]),
        long: service(long, LONG_IP, &["TCP 80"]),
        long_slice: of(long, &[SHARED]),
    }
}

fn test_pair() -> Pair {
    pair("t/test", "t/test-extended")
}

impl Pair {
    fn begin(&self) -> Vec<Event> {
        let objects = [
            Event::ServiceApplied(self.short.clone()),
            Event::ServiceApplied(self.long.clone()),
            Event::SliceApplied(self.short_slice.clone()),
            Event::SliceApplied(self.long_slice.clone()),
        ];
        synced().into_iter().chain(objects).collect()
    }

    fn annotate_short(&self) -> Event {
        Event::ServiceApplied(self.short.clone())
    }

    fn annotate_long(&self) -> Event {
        Event::ServiceApplied(self.long.clone())
    }

    fn short_lists(&self, endpoints: &[&str]) -> Event {
        Event::SliceApplied(with(&self.short_slice, endpoints))
    }

    fn long_lists(&self, endpoints: &[&str]) -> Event {
        Event::SliceApplied(with(&self.long_slice, endpoints))
    }

    fn row(&self, steps: impl IntoIterator<Item = Event>, fate: &Fate) -> Row {
        let affected: &[&str] = match fate {
            Fate::Lost => &[],
            Fate::Kept => &[SHARED],
        };
        self.row_of(steps, &[SHARED], affected)
    }

    fn row_of(&self, steps: impl IntoIterator<Item = Event>, repaired: &[&str], affected: &[&str]) -> Row {
        let mut history = self.begin();
        history.extend(steps);
        Row {
            history,
            ends: vec![end(LONG_IP, repaired, affected)],
        }
    }
}

fn with(before: &Slice, endpoints: &[&str]) -> Slice {
    let endpoints = slice("t/x", "x", &[], endpoints).endpoints;
    Slice {
        endpoints,
        ..before.clone()
    }
}

fn end(ip: &str, repaired: &[&str], affected: &[&str]) -> End {
    let backends = |ips: &[&str]| {
        let texts: Vec<_> = ips.iter().map(|ip| format!("TCP {ip}:80")).collect();
        addresses(&texts.iter().map(String::as_str).collect::<Vec<_>>())
    };
    End {
        frontend: address(&format!("TCP {ip}:80")),
        repaired: backends(repaired),
        affected: backends(affected),
    }
}

/// The short name's slice is emptied, then the long name is annotated.
pub fn emptied_then_annotated(short: &str, long: &str) -> Row {
    let pair = pair(short, long);
    pair.row([pair.short_lists(&[]), pair.annotate_long()], &Fate::Lost)
}

/// The same with a victim older than the releaser.
pub fn emptied_then_older_annotated() -> Row {
    let mut pair = test_pair();
    pair.short.created = Some(10);
    pair.row([pair.short_lists(&[]), pair.annotate_long()], &Fate::Lost)
}

/// The same with a victim younger than the releaser.
pub fn emptied_then_younger_annotated() -> Row {
    let mut pair = test_pair();
    pair.long.created = Some(10);
    pair.row([pair.short_lists(&[]), pair.annotate_long()], &Fate::Lost)
}

/// Nothing follows: the release is latent.
pub fn emptied_then_nothing() -> Row {
    let pair = test_pair();
    pair.row([pair.short_lists(&[])], &Fate::Kept)
}

/// The releaser itself is annotated.
pub fn emptied_then_itself_annotated() -> Row {
    let pair = test_pair();
    pair.row([pair.short_lists(&[]), pair.annotate_short()], &Fate::Kept)
}

/// A third Service is annotated.
pub fn emptied_then_a_third_annotated() -> Row {
    let pair = test_pair();
    let third = Event::ServiceApplied(service("t/other", THIRD_IP, &["TCP 80"]));
    pair.row([pair.short_lists(&[]), third.clone(), third], &Fate::Kept)
}

/// The annotation comes before the release.
pub fn annotated_before_the_emptying() -> Row {
    let pair = test_pair();
    pair.row([pair.annotate_long(), pair.short_lists(&[])], &Fate::Kept)
}

/// The slice is deleted instead of emptied.
pub fn slice_deleted() -> Row {
    let pair = test_pair();
    let gone = Event::SliceDeleted(pair.short_slice.name.clone());
    pair.row([gone, pair.annotate_long()], &Fate::Lost)
}

/// The releaser's Service is deleted, its slice stays.
pub fn service_deleted_slice_stays() -> Row {
    let pair = test_pair();
    let gone = Event::ServiceDeleted(pair.short.name.clone());
    pair.row([gone, pair.annotate_long()], &Fate::Kept)
}

/// The releaser's Service is deleted, then its slice.
pub fn service_deleted_then_slice() -> Row {
    let pair = test_pair();
    let service = Event::ServiceDeleted(pair.short.name.clone());
    let slice = Event::SliceDeleted(pair.short_slice.name.clone());
    pair.row([service, slice, pair.annotate_long()], &Fate::Lost)
}

/// The slice gets another address in place of the shared one.
pub fn address_changed() -> Row {
    let pair = test_pair();
    pair.row([pair.short_lists(&[OTHER]), pair.annotate_long()], &Fate::Lost)
}

/// The releaser has two slices, the one with the shared address is emptied.
pub fn one_of_two_slices_emptied() -> Row {
    let pair = test_pair();
    let second = slice("t/test-2", "test", &["TCP 80"], &[OTHER]);
    pair.row(
        [
            Event::SliceApplied(second),
            pair.short_lists(&[]),
            pair.annotate_long(),
        ],
        &Fate::Lost,
    )
}

/// The slice is emptied and filled again before the annotation.
pub fn emptied_and_filled_again() -> Row {
    let pair = test_pair();
    pair.row(
        [
            pair.short_lists(&[]),
            pair.short_lists(&[SHARED]),
            pair.annotate_long(),
        ],
        &Fate::Lost,
    )
}

/// The slice is filled again after the loss.
pub fn lost_then_short_filled_again() -> Row {
    let pair = test_pair();
    pair.row(
        [
            pair.short_lists(&[]),
            pair.annotate_long(),
            pair.short_lists(&[SHARED]),
        ],
        &Fate::Lost,
    )
}

/// The victim has another address, which stays.
pub fn long_has_another_address() -> Row {
    let pair = test_pair();
    let steps = [
        pair.long_lists(&[SHARED, OTHER]),
        pair.short_lists(&[]),
        pair.annotate_long(),
    ];
    pair.row_of(steps, &[SHARED, OTHER], &[OTHER])
}

/// `a`, `ab`, `abc`; `a` is emptied, then so many of the other two are annotated.
pub fn three_names(annotated: usize) -> Row {
    let pair = pair("t/a", "t/ab");
    let third = service("t/abc", THIRD_IP, &["TCP 80"]);
    let third_slice = slice("t/abc-1", "abc", &["TCP 80"], &[SHARED]);
    let mut history = pair.begin();
    history.extend([
        Event::ServiceApplied(third.clone()),
        Event::SliceApplied(third_slice),
        pair.short_lists(&[]),
    ]);
    history.extend(
        [pair.annotate_long(), Event::ServiceApplied(third)]
            .into_iter()
            .take(annotated),
    );
    let fate = |lost: bool| if lost { Vec::new() } else { vec![SHARED] };
    let ends = vec![
        end(LONG_IP, &[SHARED], &fate(annotated >= 1)),
        end(THIRD_IP, &[SHARED], &fate(annotated >= 2)),
    ];
    Row { history, ends }
}

/// The victim's slice is written after the release, before the annotation: the bug is healed.
pub fn healed_before(endpoints: &[&str]) -> Row {
    let pair = test_pair();
    let steps = [
        pair.short_lists(&[]),
        pair.long_lists(endpoints),
        pair.annotate_long(),
    ];
    pair.row_of(steps, endpoints, endpoints)
}

/// The victim's slice is written after the loss: it heals too.
pub fn healed_after(endpoints: &[&str]) -> Row {
    let pair = test_pair();
    let steps = [
        pair.short_lists(&[]),
        pair.annotate_long(),
        pair.long_lists(endpoints),
    ];
    pair.row_of(steps, endpoints, endpoints)
}

/// The other way round: the longer name releases, the shorter one is looked at.
pub fn long_emptied() -> Row {
    let pair = test_pair();
    let mut row = pair.row([pair.long_lists(&[]), pair.annotate_short()], &Fate::Kept);
    row.ends = vec![end(SHORT_IP, &[SHARED], &[SHARED])];
    row
}

/// The releaser's name is a suffix of the other.
pub fn suffix() -> Row {
    let pair = pair("t/b", "t/ab");
    pair.row([pair.short_lists(&[]), pair.annotate_long()], &Fate::Kept)
}

/// Two names in two namespaces, given as `namespace/name`.
pub fn two_namespaces(short: &str, long: &str) -> Row {
    let pair = pair(short, long);
    pair.row([pair.short_lists(&[]), pair.annotate_long()], &Fate::Kept)
}

/// The releaser lists the shared address with another port.
pub fn other_port() -> Row {
    let mut pair = test_pair();
    pair.short_slice.ports[0].port = 81;
    pair.row([pair.short_lists(&[]), pair.annotate_long()], &Fate::Kept)
}

/// The releaser lists another address.
pub fn other_address() -> Row {
    let mut pair = test_pair();
    pair.short_slice = with(&pair.short_slice, &[OTHER]);
    pair.row([pair.short_lists(&[]), pair.annotate_long()], &Fate::Kept)
}

/// The table as a test: one case for each row, `$check` decides.
#[macro_export]
macro_rules! incident_one_table {
    ($check:path) => {
        #[rstest::rstest]
        #[case::test_emptied($crate::testing::incidents::emptied_then_annotated("t/test", "t/test-extended"))]
        #[case::x_emptied($crate::testing::incidents::emptied_then_annotated("t/x", "t/xy"))]
        #[case::kubernetes_emptied($crate::testing::incidents::emptied_then_annotated(
            "default/kubernetes",
            "default/kubernetes-intranet"
        ))]
        #[case::older_victim($crate::testing::incidents::emptied_then_older_annotated())]
        #[case::younger_victim($crate::testing::incidents::emptied_then_younger_annotated())]
        #[case::nothing_follows($crate::testing::incidents::emptied_then_nothing())]
        #[case::itself_annotated($crate::testing::incidents::emptied_then_itself_annotated())]
        #[case::a_third_annotated($crate::testing::incidents::emptied_then_a_third_annotated())]
        #[case::annotated_before($crate::testing::incidents::annotated_before_the_emptying())]
        #[case::slice_deleted($crate::testing::incidents::slice_deleted())]
        #[case::service_deleted_slice_stays($crate::testing::incidents::service_deleted_slice_stays())]
        #[case::service_deleted_then_slice($crate::testing::incidents::service_deleted_then_slice())]
        #[case::address_changed($crate::testing::incidents::address_changed())]
        #[case::one_of_two_slices($crate::testing::incidents::one_of_two_slices_emptied())]
        #[case::emptied_and_filled_again($crate::testing::incidents::emptied_and_filled_again())]
        #[case::lost_then_filled_again($crate::testing::incidents::lost_then_short_filled_again())]
        #[case::another_address_stays($crate::testing::incidents::long_has_another_address())]
        #[case::three_names_none_annotated($crate::testing::incidents::three_names(0))]
        #[case::three_names_one_annotated($crate::testing::incidents::three_names(1))]
        #[case::three_names_two_annotated($crate::testing::incidents::three_names(2))]
        #[case::heals_before_same($crate::testing::incidents::healed_before(&[$crate::testing::incidents::SHARED]))]
        #[case::heals_before_more($crate::testing::incidents::healed_before(&[$crate::testing::incidents::SHARED, $crate::testing::incidents::OTHER]))]
        #[case::heals_before_other($crate::testing::incidents::healed_before(&[$crate::testing::incidents::OTHER]))]
        #[case::heals_after_same($crate::testing::incidents::healed_after(&[$crate::testing::incidents::SHARED]))]
        #[case::heals_after_more($crate::testing::incidents::healed_after(&[$crate::testing::incidents::SHARED, $crate::testing::incidents::OTHER]))]
        #[case::heals_after_other($crate::testing::incidents::healed_after(&[$crate::testing::incidents::OTHER]))]
        #[case::long_emptied($crate::testing::incidents::long_emptied())]
        #[case::suffix($crate::testing::incidents::suffix())]
        #[case::same_name_elsewhere($crate::testing::incidents::two_namespaces("t/x", "u/x"))]
        #[case::longer_name_elsewhere($crate::testing::incidents::two_namespaces("t/x", "u/xy"))]
        #[case::prefix_of_a_namespace($crate::testing::incidents::two_namespaces("a/b-c", "a-b/c"))]
        #[case::other_port($crate::testing::incidents::other_port())]
        #[case::other_address($crate::testing::incidents::other_address())]
        fn incident_one(#[case] row: $crate::testing::incidents::Row) {
            $check(row);
        }
    };
}
