//! `--fix` on a terminal shows the planned evictions and asks for confirmation; every answer but yes means no.

use lb_loader::{Hook, programs_attached};

use crate::{
    incident::{ENDPOINT, SERVICE, Staged, stage},
    support::{isolated, node::dial},
};

#[test]
fn only_a_yes_evicts() {
    /// Ctrl-D at the beginning of a line: the end of the input.
    const END: &str = "\u{4}";
    isolated(|node| {
        let Staged { earlier, current } = stage(node);
        let (old, new) = (earlier.program.id(), current.program.id());
        let attached = || programs_attached(&node.cgroup, Hook::Connect4, false).unwrap();
        for answer in ["n\n", "\n", END, "yet\n", "N\n", "no\n"] {
            let said = node.doctor_asks(&["--fix", "--suspected"], answer);
            assert_eq!(said.code, Some(2), "{answer:?}: {said:#?}");
            let (before, after) = said.shown.split_once("Evict 1? [y/N] ").expect("it asks");
            let plan = before.split_once("To evict (1):").expect("it shows first").1;
            assert!(plan.contains(&format!("program {old} ")), "{answer:?}: {said:#?}");
            assert!(after.contains("nothing was evicted"), "{answer:?}: {said:#?}");
            assert_eq!(attached(), [old, new], "{answer:?}");
        }
        let said = node.doctor_asks(&["--fix", "--suspected"], "y\n");
        assert_eq!(said.code, Some(0), "{said:#?}");
        assert_eq!(attached(), [new]);
        assert_eq!(dial(SERVICE).unwrap(), ENDPOINT.to_string());
    });
}

#[test]
fn without_a_terminal_nobody_is_asked_and_nothing_evicted() {
    isolated(|node| {
        let Staged { earlier, current } = stage(node);
        let both = [earlier.program.id(), current.program.id()];
        let attached = || programs_attached(&node.cgroup, Hook::Connect4, false).unwrap();
        let said = node.doctor(&["--fix", "--suspected"]);
        assert_eq!(said.code, Some(2), "{said:#?}");
        assert!(
            said.stderr.contains("there is no terminal to ask on"),
            "{said:#?}"
        );
        assert!(!said.stderr.contains("[y/N]"), "{said:#?}");
        assert_eq!(attached(), both);
    });
}
