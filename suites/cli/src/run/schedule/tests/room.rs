//! Cases that begin when the machine has room.

use super::*;

#[test]
fn more_cases_than_always_run_begin_one_by_one_where_the_machine_has_room() {
    let most_at_once = |room_every| {
        let cases = some(3, 9);
        let fake = Fake {
            lasts: cases.iter().map(|case| (case.id, 60)).collect(),
            room_every,
            ..Fake::default()
        };
        let wanted = Wanted {
            always: 2,
            ..Wanted::at_once(8, 6)
        };
        wanted.run(&fake, &cases).down.unwrap();
        let at_once = |stay: &fake::Stay| {
            let beside = |other: &&fake::Stay| other.began <= stay.began && stay.began < other.ended;
            fake.stays().iter().filter(beside).count()
        };
        let begun: Vec<usize> = fake.stays().iter().map(at_once).collect();
        begun.into_iter().max().unwrap()
    };
    assert_eq!(most_at_once(None), 2, "no room");
    assert_eq!(
        most_at_once(Some(10)),
        6,
        "room for one more every ten seconds, up to what may be at once"
    );
    assert_eq!(most_at_once(Some(50)), 3, "one more before the first has ended");
}

#[test]
fn what_is_tried_again_begins_alone_or_where_the_machine_has_room() {
    let beside = |room_every| {
        let cases = some(0, 8);
        let fake = Fake {
            undecided: cases.iter().map(|case| (case.id, 1)).collect(),
            lasts: cases.iter().map(|case| (case.id, 60)).collect(),
            out: Some(tempfile::tempdir().unwrap()),
            room_every,
            ..Fake::default()
        };
        let wanted = Wanted {
            always: 3,
            ..Wanted::at_once(8, 6)
        };
        wanted.run(&fake, &cases).down.unwrap();
        let stays = fake.stays();
        // Two of eight may be tried again, and begin last.
        let (first, second) = (&stays[stays.len() - 2], &stays[stays.len() - 1]);
        let at_once = |stay: &fake::Stay| {
            stays
                .iter()
                .filter(|other| other.began < stay.ended && stay.began < other.ended)
                .count()
        };
        [at_once(first), at_once(second)]
    };
    assert_eq!(beside(None), [1, 1], "no room");
    let with_room = beside(Some(10));
    assert!(with_room.iter().all(|count| *count > 1), "{with_room:?}");
}
