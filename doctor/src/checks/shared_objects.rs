//! Programs and maps that several projects have, or that nothing uses any more.

use std::collections::{BTreeMap, BTreeSet};

use super::{check, some_of};
use crate::{
    gather::Parts,
    report::{Check, Outcome, Program, Standing, Whose},
};

/// Others' programs of the kinds that balance load, which run nowhere that can be seen, and are kept by nothing that can.
pub(super) fn unexplained(parts: &Parts) -> Option<Check> {
    let programs: Vec<String> = parts
        .loose
        .iter()
        .filter(|loose| loose.unexplained && loose.standing == Standing::Foreign)
        .filter_map(|loose| parts.programs.get(&loose.program).map(Program::title))
        .collect();
    (!programs.is_empty()).then(|| {
        let text = format!(
            "nothing that can be seen attaches or keeps these programs, so something does that can't: mostly a cgroup that \
             was removed while sockets of it live on, for which they run: {}",
            some_of(&programs, ", ")
        );
        check("unexplained", Outcome::Note, text)
    })
}

/// Several maps of one name among those that hold services: how incident-like trouble looks from the maps' side.
pub(super) fn generations(parts: &Parts) -> Option<Check> {
    let other_nodes: Vec<u32> = parts
        .attachments
        .iter()
        .filter(|attachment| attachment.standing == Standing::OtherNode)
        .map(|attachment| attachment.program)
        .collect();
    let mut same: BTreeMap<(Whose, &str, &str), Vec<u32>> = BTreeMap::new();
    for map in parts.maps.values() {
        let Some(layout) = &map.layout else { continue };
        let mut users = parts
            .programs
            .values()
            .filter(|program| program.maps.contains(&map.id) && !other_nodes.contains(&program.id));
        if let Some(Program { owner, .. }) = users.next() {
            let key = (owner.whose, map.name.as_str(), layout.as_str());
            same.entry(key).or_default().push(map.id);
        }
    }
    let several: Vec<String> = same
        .into_iter()
        .filter(|(_, ids)| ids.len() > 1)
        .map(|((whose, name, _), ids)| {
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            format!("{name} of {whose} ({})", ids.join(", "))
        })
        .collect();
    (!several.is_empty()).then(|| {
        let text = format!(
            "several maps have the same name and layout, so no tool that goes by names tells them apart: {}",
            some_of(&several, "; ")
        );
        check("maps", Outcome::Note, text)
    })
}

/// Arrays of programs that are pinned, and that nothing which runs uses: what an earlier start or version has left. Where
/// programs of other kinds are attached, as kprobes, is not looked at: of what they use nothing is said.
pub(super) fn unused_arrays(parts: &Parts) -> Option<Check> {
    let idle: BTreeSet<u32> = parts
        .loose
        .iter()
        .filter(|loose| loose.in_use().is_none())
        .map(|loose| loose.program)
        .collect();
    let unused: Vec<String> = parts
        .prog_arrays
        .iter()
        .filter(|array| array.callers.iter().all(|caller| idle.contains(caller)))
        .filter_map(|array| {
            let map = parts.maps.get(&array.map)?;
            let path = map.pinned_at.first()?;
            let count = array.programs.len();
            Some(format!(
                "{} {} ({count} inside) at {}",
                map.id,
                map.name,
                path.display()
            ))
        })
        .collect();
    (!unused.is_empty()).then(|| {
        let text = format!(
            "arrays of programs are pinned, and no program that is attached uses them, or is reached by one that is: nothing \
             is called through them: {}",
            some_of(&unused, "; ")
        );
        check("prog arrays", Outcome::Note, text)
    })
}

/// Hooks at which addresses are rewritten by programs of more than one owner: the first that knows a service decides.
pub(super) fn owners(parts: &Parts) -> Option<Check> {
    let mut at: BTreeMap<(String, String), BTreeMap<Whose, u32>> = BTreeMap::new();
    for attachment in &parts.attachments {
        let (place, Some(program)) = (&attachment.place, parts.programs.get(&attachment.program)) else {
            continue;
        };
        if attachment.standing == Standing::OtherNode || place.rewrites().is_none() {
            continue;
        }
        let hook = (place.whole(), place.hook());
        at.entry(hook)
            .or_default()
            .entry(program.owner.whose)
            .or_insert(program.id);
    }
    at.retain(|_, owners| owners.len() > 1);
    let mut alike: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for ((whole, hook), owners) in at {
        let names: Vec<String> = owners.keys().map(ToString::to_string).collect();
        let ids: Vec<String> = owners.values().map(ToString::to_string).collect();
        let place = format!("{whole} ({})", ids.join(", "));
        alike.entry((hook, names.join(" and "))).or_default().push(place);
    }
    let several: Vec<String> = alike
        .into_iter()
        .map(|((hook, owners), places)| format!("{owners} at {hook} of {}", some_of(&places, ", ")))
        .collect();
    (!several.is_empty()).then(|| {
        let text = format!(
            "programs of several owners rewrite addresses at one hook, where the first that knows a service decides: {}",
            several.join("; ")
        );
        check("owners", Outcome::Note, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fixture::{Fixture, at, map},
        report::{Entry, Loose, Manner, ProgArray, TailCalled},
    };

    fn parts(fixture: &Fixture) -> Parts {
        Parts {
            attachments: fixture.attachments.clone(),
            programs: fixture.programs.clone(),
            maps: fixture.maps.clone(),
            ..Parts::default()
        }
    }

    #[test]
    fn two_owners_at_one_hook_that_rewrites_are_noted() {
        let root = "/sys/fs/cgroup";
        for (hook, other, standing, noted) in [
            ("connect4", "calico_connect_", Standing::Foreign, true),
            ("connect4", "cil_sock4_conne", Standing::Foreign, false),
            ("connect4", "calico_connect_", Standing::OtherNode, false),
            ("sock_release", "calico_sock_rel", Standing::Foreign, false),
        ] {
            let mut fixture = Fixture::new();
            fixture.program(1, "cil_sock4_conne", Some(9), &[]);
            fixture.program(2, other, Some(9), &[]);
            fixture.legacy(at(root, hook), 0, 1);
            fixture.attach(at(root, hook), 1, 2, Manner::Legacy { flags: 2 }, standing);
            let check = owners(&parts(&fixture));
            assert_eq!(check.is_some(), noted, "{hook} {other}: {check:?}");
            if let Some(check) = check {
                assert_eq!(check.outcome, Outcome::Note);
                let expected = "Cilium and Calico at connect4 of cgroup /sys/fs/cgroup (1, 2)";
                assert!(check.text.contains(expected), "{}", check.text);
            }
        }
    }

    #[test]
    fn an_array_is_unused_if_none_of_its_callers_runs_and_all_are_known() {
        let called = |program, in_use: bool| Loose {
            program,
            standing: Standing::Foreign,
            called_from: vec![7],
            unexplained: false,
            armed: None,
            tail_called: in_use.then(|| TailCalled {
                caller: 1,
                map: 7,
                from: Some(Entry {
                    program: 1,
                    place: at("/sys/fs/cgroup", "connect4"),
                }),
            }),
        };
        // 1 is attached, 2 runs by tail calls, 3 is idle; of 4, a kprobe maybe, nothing is known.
        for (callers, pinned, noted) in [
            ([].as_slice(), true, true),
            (&[], false, false),
            (&[3], true, true),
            (&[3, 2], true, false),
            (&[1], true, false),
            (&[3, 4], true, false),
        ] {
            let mut fixture = Fixture::new();
            let pins = ["/sys/fs/bpf/tc/globals/cilium_calls_1"];
            fixture.map(map(
                7,
                "cilium_calls_1",
                4,
                4,
                pins.get(..usize::from(pinned)).unwrap_or_default(),
            ));
            fixture.program(1, "cil_from_contai", Some(9), &[7]);
            fixture.legacy(at("/sys/fs/cgroup", "connect4"), 0, 1);
            let mut parts = parts(&fixture);
            parts.loose = vec![called(2, true), called(3, false)];
            parts.prog_arrays = vec![ProgArray {
                map: 7,
                callers: callers.to_vec(),
                programs: vec![2],
            }];
            let check = unused_arrays(&parts);
            assert_eq!(check.is_some(), noted, "{callers:?} {pinned}: {check:?}");
        }
    }

    #[test]
    fn a_long_list_says_how_long_it_is() {
        let all: Vec<String> = (0..10).map(|number: u32| number.to_string()).collect();
        assert_eq!(some_of(&all, ", "), "0, 1, 2, 3, 4, 5, 6, 7, and 2 others");
        assert_eq!(some_of(&all[..2], ", "), "0, 1");
    }
}
