//! Output and exit code of the doctor if there is nothing to show, or if permissions are missing.

use std::os::unix::process::CommandExt as _;

use caps::{CapSet, Capability};
use doctor::report::{Outcome, Verdict};
use nix::mount::{MntFlags, umount2};

use crate::support::isolated;

#[test]
fn a_node_without_programs_is_healthy_time_and_again() {
    isolated(|node| {
        for _ in 0..2 {
            let said = node.doctor(&[]);
            assert_eq!(said.code, Some(0), "{said:#?}");
            assert!(
                said.text().contains("healthy: 0 programs at 0 places"),
                "{}",
                said.stdout
            );
            assert_eq!(said.stderr, "");
        }
        let explained = node.doctor(&[
            "explain",
            "10.96.0.1:443",
            "--pid",
            &std::process::id().to_string(),
        ]);
        assert_eq!(explained.code, Some(0), "{explained:#?}");
        assert!(
            explained.text().contains("No program runs on the way"),
            "{}",
            explained.stdout
        );
    });
}

#[test]
fn without_a_bpffs_it_looks_all_the_same() {
    isolated(|node| {
        let said = node.doctor(&["--json", "--bpffs", "/nowhere"]);
        assert_eq!(said.code, Some(2), "given twice: {said:#?}");
        umount2(&node.bpffs, MntFlags::MNT_DETACH).unwrap();
        let said = node.doctor(&["--json"]);
        assert_eq!(said.code, Some(0), "{said:#?}");
        let report = said.report();
        assert_eq!(report.verdict, Verdict::Healthy);
        let check = report
            .checks
            .iter()
            .find(|check| check.name == "bpffs")
            .expect("looked at");
        assert_eq!(check.outcome, Outcome::Note, "nothing here is pinned: {check:?}");
    });
}

#[test]
fn without_cgroup_v2_it_cant_look() {
    isolated(|node| {
        for mount in lb_loader::mount_points("cgroup2").unwrap().iter().rev() {
            umount2(mount, MntFlags::MNT_DETACH).unwrap();
        }
        let said = node.doctor(&[]);
        assert_eq!(said.code, Some(2), "{said:#?}");
        assert!(
            said.stderr.contains("no cgroup2 file system is mounted"),
            "{}",
            said.stderr
        );
        assert_eq!(said.stdout, "");
    });
}

#[test]
fn without_privileges_it_cant_look() {
    isolated(|node| {
        // After exec, even root lacks capabilities outside the bounding set.
        caps::drop(None, CapSet::Bounding, Capability::CAP_SYS_ADMIN).unwrap();
        let said = node.doctor(&[]);
        assert_eq!(said.code, Some(2), "{said:#?}");
        assert!(said.stderr.contains("missing CAP_SYS_ADMIN"), "{}", said.stderr);
        assert_eq!(said.stdout, "");
    });
}

#[test]
fn what_is_asked_wrongly_is_told_so() {
    isolated(|node| {
        for (arguments, expected) in [
            (["--suspected", "--yes"].as_slice(), "--fix"),
            (&["-v", "--json"], "cannot be used with"),
            (&["-v", "--fix"], "cannot be used with"),
            (&["explain", "10.96.0.1"], "10.96.0.1"),
            (
                &["explain", "10.96.0.1:80", "--pid", "4194305"],
                "failed to find the cgroup of process 4194305",
            ),
            (
                &["explain", "10.96.0.1:80", "--cgroup", "/proc"],
                "expected a folder below",
            ),
            (
                &["explain", "10.96.0.1:80", "--container", "abc"],
                "at least 6 characters",
            ),
            (
                &["explain", "10.96.0.1:80", "--pid", "1", "--outside"],
                "cannot be used with",
            ),
        ] {
            let said = node.doctor(arguments);
            assert_eq!(said.code, Some(2), "{said:#?}");
            assert!(said.stderr.contains(expected), "{expected}: {}", said.stderr);
        }
    });
}

#[test]
fn the_help_teaches_by_the_incident() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_plumbline"))
        .arg0("plumbline")
        .args(["doctor", "--help"])
        .output()
        .unwrap();
    assert!(output.status.success());
    let help = String::from_utf8(output.stdout).unwrap();
    for expected in ["172.17.93.4:8080", "explain", "--suspected", "EXIT CODES"] {
        assert!(help.contains(expected), "{expected}\n{help}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    isolated(|node| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_plumbline"))
            .args(["doctor", "--below"])
            .arg(&node.cgroup)
            .stdout(writer)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
    });
}
