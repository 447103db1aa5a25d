//! What the paper promises of a table, measured.

use std::collections::BTreeMap;

use super::*;
use crate::endpoint_address::Protocol;

fn backend(index: usize) -> TransportAddress {
    let [.., a, b] = index.to_be_bytes();
    TransportAddress {
        protocol: Protocol::Tcp,
        address: [10, 1, a, b].into(),
        port: 8080,
    }
}

/// Of the largest scale.
fn table(backends: impl IntoIterator<Item = TransportAddress>) -> Vec<TransportAddress> {
    super::table(Scale::default(), backends)
}

fn backends(count: usize) -> BTreeSet<TransportAddress> {
    (0..count).map(backend).collect()
}

fn shares(table: &[TransportAddress]) -> BTreeMap<TransportAddress, usize> {
    let mut shares = BTreeMap::new();
    for owner in table {
        *shares.entry(*owner).or_default() += 1;
    }
    shares
}

/// Slots that lead elsewhere in another table of the same size, though their backend is in both sets.
fn needlessly_moved(
    before: &[TransportAddress],
    after: &[TransportAddress],
    staying: &BTreeSet<TransportAddress>,
) -> usize {
    assert_eq!(before.len(), after.len(), "tables of one size");
    let pairs = before.iter().zip(after);
    pairs
        .filter(|(before, after)| before != after && staying.contains(before) && staying.contains(after))
        .count()
}

/// So much of a table, in percent.
fn percent(slots: usize, table: &[TransportAddress]) -> f64 {
    let [slots, all] =
        [slots, table.len()].map(|count| f64::from(u32::try_from(count).expect("a table's size")));
    100.0 * slots / all
}

#[test]
fn the_papers_example_comes_out_as_in_the_paper() {
    // Section 3.4, table 1: seven slots, three backends; then without the second.
    let [b0, b1, b2] = [(3, 4), (0, 2), (3, 1)].map(|(at, skip)| Permutation { at, skip });
    assert_eq!(populate(vec![b0, b1, b2], 7), [1, 0, 1, 0, 2, 2, 0]);
    assert_eq!(populate(vec![b0, b2], 7), [0, 0, 0, 0, 1, 1, 1]);
}

#[test]
fn sizes_are_primes_of_a_hundred_slots_for_each_backend() {
    for size in SIZES {
        let divisor = (2..size)
            .take_while(|divisor| divisor * divisor <= size)
            .find(|divisor| size % divisor == 0);
        assert_eq!(divisor, None, "{size} is a prime");
    }
    assert!(SIZES.is_sorted());
    let [scale, ..] = SCALES;
    assert_eq!(scale, Scale::default());
    for count in 2..=655 {
        let size = scale.size(count);
        assert!(SIZES.contains(&size) && size >= 100 * count, "{count} backends");
    }
    let steps = [2, 10, 40, 163].map(|count| [scale.size(count), scale.size(count + 1)]);
    let between: Vec<_> = SIZES[1..].windows(2).map(|pair| [pair[0], pair[1]]).collect();
    assert_eq!(steps.as_slice(), between, "where tables change their size");
}

#[test]
fn a_smaller_scale_has_smaller_tables_and_never_fewer_than_16_slots_for_each_backend_but_one() {
    for pair in SCALES.windows(2) {
        for count in 0..=capacity::BACKENDS as usize {
            let [larger, smaller] = [pair[0].size(count), pair[1].size(count)];
            assert!(smaller <= larger, "{count} backends: {larger}, then {smaller}");
        }
    }
    for scale in SCALES {
        assert_eq!([scale.size(0), scale.size(1)], [0, 1]);
        for count in 2..=capacity::BACKENDS as usize {
            let size = scale.size(count);
            let is_table = SIZES.contains(&size) && size >= 16 * count;
            assert!(is_table || size == count, "{count} backends: {size} slots");
        }
        assert_eq!(scale.size(usize::MAX), usize::MAX);
    }
    // Of the commonest numbers of backends.
    let sizes = |count| SCALES.map(|scale| scale.size(count));
    assert_eq!(sizes(2), [251, 61, 61, 2]);
    assert_eq!(sizes(3), [1021, 251, 61, 3]);
    assert_eq!(sizes(10), [1021, 251, 251, 10]);
    assert_eq!(sizes(1000), [65_521, 16_381, 1000, 1000]);
    assert_eq!(sizes(5000), [5000; 4]);
}

#[test]
fn no_number_of_backends_has_more_slots_than_is_counted_for_it_or_for_more() {
    for scale in SCALES {
        let mut most = 0;
        for count in 0..=capacity::BACKENDS as usize {
            most = most.max(scale.size(count));
            assert_eq!(scale.most(count), most, "up to {count} backends, {scale:?}");
        }
    }
}

#[test]
fn where_each_backend_has_one_slot_the_order_is_that_of_the_names() {
    let [.., last] = SCALES;
    let sorted: Vec<_> = backends(40).into_iter().collect();
    assert_eq!(super::table(last, (0..40).rev().map(backend)), sorted);
}

#[test]
fn without_backends_there_is_no_slot_and_one_backend_has_the_only_one() {
    assert_eq!(table([]), []);
    assert_eq!(table([backend(7)]), [backend(7)]);
}

#[test]
fn no_slot_is_empty_and_shares_differ_by_at_most_one_slot() {
    for scale in SCALES {
        for count in [2, 3, 10, 11, 40, 163, 655, 1310, 2000] {
            let table = super::table(scale, backends(count));
            assert_eq!(table.len(), scale.size(count), "{count} backends");
            let shares = shares(&table);
            assert_eq!(shares.keys().copied().collect::<BTreeSet<_>>(), backends(count));
            let [least, most] =
                [shares.values().min(), shares.values().max()].map(|share| *share.expect("some"));
            assert!(
                most - least <= 1,
                "{count} backends have from {least} to {most} slots"
            );
        }
    }
}

#[test]
fn the_table_is_that_of_the_set_whatever_the_order_and_however_often() {
    let expected = table(backends(40));
    assert_eq!(table((0..40).rev().map(backend)), expected);
    assert_eq!(table((0..40).map(|index| backend(index * 7 % 40))), expected);
    assert_eq!(table((0..80).map(|index| backend(index % 40))), expected);
}

#[test]
fn what_only_differs_in_port_protocol_or_family_is_another_backend() {
    let first = backend(1);
    let others = [
        TransportAddress { port: 8081, ..first },
        TransportAddress {
            protocol: Protocol::Udp,
            ..first
        },
        TransportAddress {
            address: "fd00::a01:1".parse().expect("an address"),
            ..first
        },
    ];
    for other in others {
        let shares = shares(&table([first, other]));
        assert_eq!(shares.into_values().collect::<BTreeSet<_>>(), [125, 126].into());
        assert_ne!(hash(&first, OFFSET), hash(&other, OFFSET));
        assert_ne!(hash(&first, SKIP), hash(&other, SKIP));
    }
}

#[test]
fn one_that_goes_or_comes_moves_little_of_the_others() {
    // Sets between which the table keeps its size.
    for count in [6, 10, 20, 40, 100, 163] {
        let all = backends(count);
        let before = table(all.iter().copied());
        let mut worst = 0.0_f64;
        for gone in 0..count.min(20) {
            let staying = &all - &[backend(gone)].into();
            // Going and coming are one change, seen from either side.
            let moved = needlessly_moved(&before, &table(staying.iter().copied()), &staying);
            worst = worst.max(percent(moved, &before));
        }
        assert!(
            worst <= 3.0,
            "of {count} backends, one moves {worst:.2} % of the others' slots"
        );
    }
}

#[test]
fn resilience_is_that_of_the_papers_experiment() {
    // Section 5.3: 1000 backends, tables of 65537 and 655373 slots, some of the backends gone at once. What must
    // change is the share of those that are gone. Beyond it there is what figure 13 shows: a few percent, and less of
    // it with the larger table.
    let all = backends(1000);
    let changed = |size: usize, gone: u16| {
        let staying: BTreeSet<_> = all.iter().copied().skip(gone.into()).collect();
        let (before, after) = (of_size(size, &all), of_size(size, &staying));
        let pairs = before.iter().zip(&after);
        percent(pairs.filter(|(before, after)| before != after).count(), &before)
    };
    for (gone, small, large) in [(1, 0.7, 0.5), (10, 3.5, 1.7), (50, 8.5, 6.0)] {
        let [in_small, in_large] = [65_537, 655_373].map(|size| changed(size, gone));
        let least = f64::from(gone) / 10.0;
        assert!(least * 0.99 <= in_large, "the share of those that are gone");
        assert!(in_large < in_small, "a larger table is more resilient");
        assert!(
            in_small <= small && in_large <= large,
            "{gone} gone: {in_small:.2} % and {in_large:.2} %"
        );
    }
}

#[test]
fn tables_are_those_of_every_other_version() {
    // A change of these numbers moves connections between nodes of different versions.
    assert_eq!(hash(&backend(1), OFFSET), 5_601_593_211_479_049_460);
    assert_eq!(digest(table(backends(10))), 6_562_008_823_366_553_454);
}
