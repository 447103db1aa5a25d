//! Incident 2, word for word: service 172.17.93.4:8080 has one endpoint, 172.16.109.127; programs of an earlier load,
//! still attached, send clients to 172.16.149.220, the address of a deleted pod.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddrV4},
    os::unix::fs::MetadataExt as _,
};

use doctor::report::{Certainty, ProblemKind, SCHEMA, Verdict, Whose};
use lb_loader::{ALLOW_MULTI, Hook, attach_legacy, attach_link};

use crate::support::{
    Cilium, Node, calico, isolated,
    node::{dial, serve},
};

pub(crate) const SERVICE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(172, 17, 93, 4), 8080);
pub(crate) const ENDPOINT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(172, 16, 109, 127), 8080);
const GONE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(172, 16, 149, 220), 8080);
/// A service that is the same in both loads.
const OTHER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 96, 0, 1), 443);

pub(crate) struct Staged {
    pub(crate) earlier: Cilium,
    pub(crate) current: Cilium,
}

/// Makes the earlier load, whose pins are gone, then the current one, which is pinned.
pub(crate) fn stage(node: &Node) -> Staged {
    node.addresses(&[(*ENDPOINT.ip()).into()]);
    serve(ENDPOINT);
    let earlier = Cilium::load();
    earlier.service(SERVICE, Some(GONE));
    earlier.service(OTHER, Some(ENDPOINT));
    attach_legacy(&node.cgroup, Hook::Connect4, &earlier.program, ALLOW_MULTI).unwrap();
    let current = Cilium::load();
    current.service(SERVICE, Some(ENDPOINT));
    current.service(OTHER, Some(ENDPOINT));
    current.pin(&node.bpffs);
    attach_legacy(&node.cgroup, Hook::Connect4, &current.program, ALLOW_MULTI).unwrap();
    Staged { earlier, current }
}

#[test]
fn it_is_shown_explained_and_healed() {
    isolated(|node| {
        let Staged { earlier, current } = stage(node);
        let (old, new) = (earlier.program.id(), current.program.id());
        assert!(
            dial(SERVICE).is_err(),
            "the old program sends clients to a pod that is gone"
        );
        assert_eq!(dial(OTHER).unwrap(), ENDPOINT.to_string());

        let shown = node.doctor(&[]);
        assert_eq!(shown.code, Some(1), "{shown:#?}");
        let text = shown.text();
        for expected in [
            format!("Program {old} (cil_sock4_conne, loaded"),
            format!(
                "is suspected to be stale: it runs first at connect4 of {}",
                node.cgroup.display()
            ),
            format!(
                "and reads map {} (cilium_lb4_serv); program {new}",
                earlier.services.id()
            ),
            format!(
                "runs after it and reads map {} of the same name.",
                current.services.id()
            ),
            format!(
                "by map {}, TCP {SERVICE} is {GONE}; program {new} then sees an address that is no service",
                earlier.services.id()
            ),
            format!(
                "By map {} it would be {ENDPOINT}. 1 of 2 services differ.",
                current.services.id()
            ),
            "To do: `plumbline doctor --fix --suspected`".to_owned(),
        ] {
            assert!(text.contains(&expected), "{expected}\n{}", shown.stdout);
        }

        let address = SERVICE.to_string();
        let cgroup = node.cgroup.to_str().unwrap();
        let explained = node.doctor(&["explain", &address, "--cgroup", cgroup]);
        assert_eq!(explained.code, Some(1), "{explained:#?}");
        let expected = format!(
            "By connect4, a client that connects to TCP {SERVICE} reaches {GONE}: stale program {old} (cil_sock4_conne, \
             which reads map {}) sends it there. Program {new} (cil_sock4_conne, which reads map {}) would make it \
             {ENDPOINT}, but sees only {GONE}, which is no service to it.",
            earlier.services.id(),
            current.services.id()
        );
        assert!(
            explained.text().contains(&expected),
            "{expected}\n{}",
            explained.stdout
        );

        // A suspected program is evicted only with --suspected.
        let left = node.doctor(&["--fix", "--yes"]);
        assert_eq!(left.code, Some(1), "{left:#?}");
        assert!(left.text().contains("Nothing to evict."), "{}", left.stdout);
        assert!(dial(SERVICE).is_err());

        // Without a terminal, --yes is required.
        let refused = node.doctor(&["--fix", "--suspected"]);
        assert_eq!(refused.code, Some(2), "{refused:#?}");
        assert!(
            refused.stdout.contains("To evict (1):"),
            "it shows first: {}",
            refused.stdout
        );
        assert!(
            refused.stderr.contains("nothing was evicted"),
            "{}",
            refused.stderr
        );
        assert!(dial(SERVICE).is_err());

        let fixed = node.doctor(&["--fix", "--suspected", "--yes"]);
        assert_eq!(fixed.code, Some(0), "{fixed:#?}");
        let text = fixed.text();
        let done = format!("done: detach program {old} (cil_sock4_conne) from connect4 of {cgroup}");
        assert!(
            text.contains(&done) && text.contains("healthy: "),
            "{}",
            fixed.stdout
        );
        assert_eq!(dial(SERVICE).unwrap(), ENDPOINT.to_string());
        assert_eq!(dial(OTHER).unwrap(), ENDPOINT.to_string());

        let again = node.doctor(&["--fix", "--suspected", "--yes"]);
        assert_eq!(again.code, Some(0), "{again:#?}");
        assert!(again.text().contains("Nothing to evict."), "{}", again.stdout);
        let explained = node.doctor(&["explain", &address, "--pid", &std::process::id().to_string()]);
        assert_eq!(explained.code, Some(0), "{explained:#?}");
        assert!(
            explained
                .text()
                .contains(&format!("reaches {ENDPOINT}: program {new}")),
            "{}",
            explained.stdout
        );
    });
}

#[test]
fn machines_are_told_the_same() {
    isolated(|node| {
        // The kernel's ids increase: this skips small numbers, which occur in the compared text with other meanings.
        for _ in 0..16 {
            drop(Cilium::load());
        }
        let Staged { earlier, current } = stage(node);
        let (old, new) = (earlier.program.id(), current.program.id());
        let said = node.doctor(&["--json", "--services"]);
        assert_eq!(said.code, Some(1), "{said:#?}");
        let report = said.report();
        assert_eq!((report.schema, report.verdict), (SCHEMA, Verdict::Problems));
        let chain: Vec<(u32, u32, bool)> = report
            .attachments
            .iter()
            .map(|attachment| (attachment.program, attachment.order, attachment.stale.is_some()))
            .collect();
        assert_eq!(chain, [(old, 0, true), (new, 1, false)]);
        let [problem] = report.problems.as_slice() else {
            panic!("one problem: {:#?}", report.problems)
        };
        assert_eq!(
            (
                problem.kind,
                problem.certainty,
                problem.programs.as_slice(),
                problem.against.as_slice()
            ),
            (
                ProblemKind::StalePrograms,
                Certainty::Suspected,
                &[old][..],
                &[new][..]
            )
        );
        let owner = &report.programs[&old].owner;
        assert_eq!(
            (owner.whose, owner.guess, owner.because.len()),
            (Whose::Cilium, true, 2),
            "{owner:?}"
        );
        assert_eq!(
            report.maps[&earlier.backends.id()].layout.as_deref(),
            Some("Cilium backends v3 (IPv4)")
        );
        let services = report.services.as_ref().expect("asked for");
        let of = |map: u32| {
            services
                .iter()
                .find(|services| services.maps == [map])
                .expect("read")
        };
        let said = &of(earlier.services.id()).services[&format!("TCP {SERVICE}")];
        assert_eq!(said.to_string(), GONE.to_string());
        let said = &of(current.services.id()).services[&format!("TCP {SERVICE}")];
        assert_eq!(said.to_string(), ENDPOINT.to_string());

        let address = SERVICE.to_string();
        let cgroup = node.cgroup.to_str().unwrap();
        let explained = node.doctor(&["explain", "--json", &address, "--cgroup", cgroup]);
        let explanation = explained.explanation();
        assert_eq!(
            (explanation.consistent, explanation.culprits.as_slice()),
            (false, &[old][..])
        );
        // Values that differ between runs are replaced by names.
        let mut masked = explained
            .stdout
            .replace(cgroup, "/sys/fs/cgroup/node")
            .replace(node.bpffs.to_str().unwrap(), "/sys/fs/bpf");
        for (id, name) in [
            (old, "OLD"),
            (new, "NEW"),
            (earlier.services.id(), "MAP"),
            (current.services.id(), "TWIN"),
            (earlier.backends.id(), "BACKENDS"),
            (current.backends.id(), "TWINS"),
        ] {
            masked = whole_words(&masked, &id.to_string(), name);
        }
        let inode = fs::metadata(&node.cgroup).unwrap().ino().to_string();
        let masked = whole_words(&masked, &inode, "CGROUP");
        assert_eq!(ages(&masked), include_str!("explanation.json"));

        let fixed = node.doctor(&["--fix", "--suspected", "--yes", "--json"]);
        assert_eq!(fixed.code, Some(0), "{fixed:#?}");
        let fixed: serde_json::Value = serde_json::from_str(&fixed.stdout).unwrap();
        assert_eq!(fixed["before"]["verdict"], "problems");
        assert_eq!(fixed["done"][0]["eviction"]["program"], old);
        assert_eq!(fixed["done"][0]["failed"], serde_json::Value::Null);
        assert_eq!(fixed["after"]["verdict"], "healthy");
    });
}

#[test]
fn a_stale_program_of_a_cgroup_below_comes_first_too() {
    isolated(|node| {
        node.addresses(&[(*ENDPOINT.ip()).into()]);
        serve(ENDPOINT);
        let container = format!("0123456789abcdef{}", std::process::id());
        let below = node.cgroup.join(format!("cri-containerd-{container}.scope"));
        fs::create_dir(&below).unwrap();
        let earlier = Cilium::load();
        earlier.service(SERVICE, None);
        attach_legacy(&below, Hook::Connect4, &earlier.program, ALLOW_MULTI).unwrap();
        let current = Cilium::load();
        current.service(SERVICE, Some(ENDPOINT));
        current.pin(&node.bpffs);
        attach_legacy(&node.cgroup, Hook::Connect4, &current.program, ALLOW_MULTI).unwrap();
        assert_eq!(dial(SERVICE).unwrap(), ENDPOINT.to_string(), "not in that cgroup");
        fs::write(below.join("cgroup.procs"), "0").unwrap();
        let error = dial(SERVICE).expect_err("refused by the stale program");
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{error}");

        let address = SERVICE.to_string();
        let explained = node.doctor(&["explain", &address, "--container", &container]);
        assert_eq!(explained.code, Some(1), "{explained:#?}");
        let text = explained.text();
        let expected = format!("is refused by stale program {}", earlier.program.id());
        assert!(text.contains(&expected), "{expected}\n{}", explained.stdout);
        let fixed = node.doctor(&["--fix", "--suspected", "--yes"]);
        assert_eq!(fixed.code, Some(0), "{fixed:#?}");
        assert_eq!(dial(SERVICE).unwrap(), ENDPOINT.to_string());
    });
}

#[test]
fn a_link_that_a_process_holds_is_shown_with_it_and_detached() {
    isolated(|node| {
        node.addresses(&[(*ENDPOINT.ip()).into()]);
        serve(ENDPOINT);
        let earlier = Cilium::load();
        earlier.service(SERVICE, Some(GONE));
        let link = attach_link(&node.cgroup, Hook::Connect4, &earlier.program).unwrap();
        let current = Cilium::load();
        current.service(SERVICE, Some(ENDPOINT));
        current.pin(&node.bpffs);
        attach_legacy(&node.cgroup, Hook::Connect4, &current.program, ALLOW_MULTI).unwrap();
        assert!(dial(SERVICE).is_err());
        let shown = node.doctor(&[]);
        assert_eq!(shown.code, Some(1), "{shown:#?}");
        let holder = format!("(pid {})", std::process::id());
        let text = shown.text();
        let kept = format!("What keeps program {} attached: link", earlier.program.id());
        assert!(
            text.contains(&kept) && text.contains(&holder),
            "{kept} {holder}\n{}",
            shown.stdout
        );
        let fixed = node.doctor(&["--fix", "--suspected", "--yes"]);
        assert_eq!(fixed.code, Some(0), "{fixed:#?}");
        assert_eq!(
            dial(SERVICE).unwrap(),
            ENDPOINT.to_string(),
            "though the link is still held"
        );
        drop(link);
    });
}

#[test]
fn anybodys_program_goes_only_when_it_is_named() {
    isolated(|node| {
        let (program, maps) = calico(SERVICE, ENDPOINT);
        attach_legacy(&node.cgroup, Hook::Connect4, &program, ALLOW_MULTI).unwrap();
        let shown = node.doctor(&["--services"]);
        assert_eq!(shown.code, Some(0), "{shown:#?}");
        let text = shown.text();
        for expected in [
            format!("{} calico_connect_", program.id()),
            "Calico ?".to_owned(),
            format!("SERVICES BY MAP {} (Calico", maps[0].id()),
            format!("TCP {SERVICE} {ENDPOINT}"),
        ] {
            assert!(text.contains(&expected), "{expected}\n{}", shown.stdout);
        }
        let report = node.doctor(&["--json"]).report();
        let layout = report.maps[&maps[0].id()].layout.as_deref();
        assert_eq!(layout, Some("Calico NAT frontends v3 (IPv4)"));
        let id = program.id().to_string();
        let kept = node.doctor(&["--fix", "--suspected", "--yes"]);
        assert!(kept.text().contains("Nothing to evict."), "{}", kept.stdout);
        let unknown = node.doctor(&["--fix", "--evict", "4294967295", "--yes"]);
        assert_eq!(unknown.code, Some(2), "{unknown:#?}");
        assert!(unknown.stderr.contains("attached nowhere"), "{}", unknown.stderr);
        let evicted = node.doctor(&["--fix", "--evict", &id, "--yes"]);
        assert_eq!(evicted.code, Some(0), "{evicted:#?}");
        assert!(
            evicted.text().contains("because it was named by --evict"),
            "{}",
            evicted.stdout
        );
        assert!(node.doctor(&["--json"]).report().attachments.is_empty());
    });
}

/// Replaces a number by a name, unless it is a part of a longer number or of an address.
fn whole_words(text: &str, number: &str, name: &str) -> String {
    let inner = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.' || c == ':';
    let mut masked = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(number) {
        let (before, found) = rest.split_at(at);
        let after = &found[number.len()..];
        let part = before.ends_with(inner) || after.starts_with(|c: char| c.is_ascii_alphanumeric());
        masked.push_str(before);
        masked.push_str(if part { number } else { name });
        rest = after;
    }
    masked + rest
}

/// Times since loading depend on the machine's speed.
fn ages(text: &str) -> String {
    let lines = text
        .lines()
        .map(|line| match line.split_once("was loaded after it: ") {
            Some((before, _)) => format!("{before}was loaded after it: AGO\",\n"),
            None => format!("{line}\n"),
        });
    lines.collect()
}
