//! The list of CI's parts.

use super::parts::{BUILT, Inputs, Lane, Need, Part, Suite, Work};

const fn need(from: &'static str, thing: &'static str) -> Need {
    let strict = true;
    Need { from, thing, strict }
}

const fn want(from: &'static str, thing: &'static str) -> Need {
    let strict = false;
    Need { from, thing, strict }
}

/// A function of `.ci/setup`: it runs if a part that needs it runs.
const fn setup(name: &'static str, lane: Lane, after: &'static [&'static str]) -> Part {
    Part {
        name,
        lane,
        after,
        needs: Vec::new(),
        inputs: Inputs::OfParts(&[]),
        nightly: false,
        work: Work::Setup,
    }
}

/// A command of cargo in the lane of checks.
fn check(
    name: &'static str,
    after: &'static [&'static str],
    inputs: Inputs,
    command: &'static [&'static str],
) -> Part {
    Part {
        name,
        lane: Lane::Checks,
        after,
        needs: Vec::new(),
        inputs,
        nightly: false,
        work: Work::Cargo(command),
    }
}

/// A run of the suite.
fn suite(name: &'static str, needs: Vec<Need>, suite: Suite) -> Part {
    Part {
        name,
        lane: Lane::Suite,
        after: &["test"],
        needs,
        inputs: Inputs::Of {
            packages: &["plumbline", "reference-agent"],
            tests: false,
            paths: &[],
        },
        nightly: false,
        work: Work::Suite(suite),
    }
}

/// Inputs: packages without their tests.
const fn of(packages: &'static [&'static str]) -> Inputs {
    Inputs::Of {
        packages,
        tests: false,
        paths: &[],
    }
}

/// All parts, those of a lane in their order.
pub(crate) fn parts() -> Vec<Part> {
    let mut all = tests();
    all.extend(set_ups());
    all.extend(checks());
    all.extend(labs());
    all.extend(clusters());
    all
}

fn tests() -> Vec<Part> {
    vec![
        setup("room", Lane::Tests, &[]),
        setup("netfilter", Lane::Tests, &[]),
        setup("browser", Lane::Tests, &["netfilter"]),
        setup("kubernetes", Lane::Tests, &[]),
        Part {
            name: "test",
            lane: Lane::Tests,
            after: &[],
            needs: vec![
                need("room", "room"),
                want("kubernetes", "kubectl"),
                want("kubernetes", "kube-apiserver"),
                want("netfilter", "nft"),
                want("netfilter", "iptables"),
                want("netfilter", "conntrack"),
                want("browser", "chromium"),
            ],
            inputs: Inputs::Everything,
            nightly: false,
            work: Work::Tests,
        },
    ]
}

/// In the order of their users. One at a time may install packages: these begin after the set-up of the tests.
fn set_ups() -> Vec<Part> {
    vec![
        setup("kind-host", Lane::SetUps, &["netfilter", "browser"]),
        setup("bpf-linker", Lane::SetUps, &["netfilter", "browser"]),
        setup("nightly", Lane::SetUps, &[]),
        setup("tools", Lane::SetUps, &["netfilter", "browser"]),
    ]
}

fn checks() -> Vec<Part> {
    let sources_of_object = &[
        "ebpf/abi",
        "ebpf/flow",
        "ebpf/programs",
        "ebpf/prebuilt",
        // Has the list of its sources.
        "ebpf/loader/build",
    ];
    vec![
        // With the features of programs, which differ from those of tests. The programs themselves are built later,
        // since tests may start programs of the same name meanwhile.
        check(
            "libraries",
            &[BUILT],
            Inputs::OfParts(&["e2e", "mutants"]),
            &[
                "build",
                "--quiet",
                "--lib",
                "--package",
                "cases",
                "--package",
                "mutants",
                "--package",
                "reference-agent",
            ],
        ),
        check(
            "agent-library",
            &[BUILT],
            Inputs::OfParts(&["kind", "kind-kube-proxy", "kind-own-target"]),
            &["build", "--quiet", "--lib", "--package", "reference-agent"],
        ),
        Part {
            needs: vec![need("bpf-linker", "bpf-linker")],
            ..check(
                "object",
                &[BUILT],
                Inputs::Of {
                    packages: &[],
                    tests: false,
                    paths: sources_of_object,
                },
                &["xtask", "ebpf", "check"],
            )
        },
        Part {
            needs: vec![need("nightly", "miri")],
            nightly: true,
            ..check(
                "miri",
                &[BUILT],
                Inputs::Of {
                    packages: &["lb-abi", "lb-flow"],
                    tests: true,
                    paths: &[],
                },
                &["xtask", "miri"],
            )
        },
        Part {
            needs: vec![
                want("tools", "cargo-deny"),
                want("tools", "cargo-machete"),
                want("tools", "actionlint"),
                want("tools", "zizmor"),
                want("tools", "shellcheck"),
            ],
            ..check("lint", &[BUILT], Inputs::Everything, &["xtask", "lint"])
        },
        // These load programs. An agent without access to other processes, as some tests start, would take them for
        // leftovers of an earlier load; so they begin after the tests.
        check(
            "verifier",
            &["test"],
            of(&["lb-loader"]),
            &["xtask", "ebpf", "verify"],
        ),
        // A change is judged by cases that the last change passed, too: new seeds are for the nightly run (chaos.yml),
        // and for developers of the programs.
        Part {
            nightly: true,
            ..check(
                "fuzz",
                &["test"],
                of(&["lb-packets"]),
                &[
                    "xtask",
                    "ebpf",
                    "fuzz",
                    "--seed",
                    "1",
                    "--cases",
                    "100000",
                    "--time-limit",
                    "60",
                ],
            )
        },
        // Documents of this repository are read as a whole, and what they name is in many packages. Builds the programs as
        // `mutants` does: with other features, they would be replaced while tests or e2e start them.
        Part {
            needs: vec![need("tools", "mdbook")],
            ..check(
                "docs",
                &["e2e"],
                Inputs::Everything,
                &["xtask", "docs", "--check"],
            )
        },
    ]
}

/// The reference passes the whole suite, and agents with a bug do not.
fn labs() -> Vec<Part> {
    let all = Suite {
        target: None,
        provider: "lab",
        out: "plumbline",
        control_plane: false,
        filter: "",
    };
    vec![
        suite("e2e", Vec::new(), all),
        Part {
            name: "mutants",
            lane: Lane::Suite,
            after: &["test", "e2e"],
            needs: Vec::new(),
            inputs: of(&["plumbline", "reference-agent", "mutants"]),
            nightly: false,
            work: Work::Mutants,
        },
    ]
}

/// With other projects' programs: a real API server, kube-proxy, kubelets.
fn clusters() -> Vec<Part> {
    let lab = |target, out, filter| Suite {
        target,
        provider: "lab",
        out,
        control_plane: false,
        filter,
    };
    let kind = |target, out, filter| Suite {
        provider: "kind",
        ..lab(target, out, filter)
    };
    let kube_proxy = need("kubernetes", "kube-proxy");
    let on_kind = |name, run| Part {
        lane: Lane::Clusters,
        // Not concurrent with runs of many labs: a control plane without processor time loses its leases.
        after: &["test", "e2e", "mutants"],
        ..suite(name, vec![need("kind-host", "kind")], run)
    };
    vec![
        // Two real API servers that advertise one address, one of which stops: the first outage.
        suite(
            "real-apiservers",
            vec![need("kubernetes", "control-plane")],
            Suite {
                control_plane: true,
                ..lab(None, "plumbline-real", "^kubesvc-shared-address-restart$")
            },
        ),
        // Kubernetes' own kube-proxy: a failure means that a case is wrong, or that its target lacks a deviation. One
        // mode runs the kinds of cases except the longest; the other differs only in how it writes rules, so the first
        // outage's first case and those about ClusterIPs suffice. Four minutes for both.
        suite(
            "kube-proxy-nftables",
            vec![kube_proxy, need("netfilter", "nft")],
            lab(
                Some("kube-proxy-nftables"),
                "plumbline-nftables",
                "^(release-prefix-(null-slice|object-deleted)|release-established-flows|clusterip-(from-pod|no-endpoints-refused)|kubesvc-shared-.*|udp-fragments|uninstall-.*)$",
            ),
        ),
        suite(
            "kube-proxy-iptables",
            vec![
                kube_proxy,
                need("netfilter", "iptables"),
                need("netfilter", "nft"),
            ],
            lab(
                Some("kube-proxy-iptables"),
                "plumbline-iptables",
                "^(clusterip-(from-pod|no-endpoints-refused)|release-prefix-null-slice)$",
            ),
        ),
        // Real kubelets, a real control plane and another project's pod network: what labs could emulate wrongly.
        on_kind(
            "kind",
            kind(
                None,
                "plumbline-kind",
                "^(clusterip-(from-pod|no-endpoints-refused)|kubesvc-reachable|release-prefix-one-of-two|stale-sock-legacy-multi|uninstall-leaves-nothing)$",
            ),
        ),
        on_kind(
            "kind-kube-proxy",
            kind(
                Some("kube-proxy-nftables"),
                "plumbline-kind-proxy",
                "^clusterip-(from-pod|no-endpoints-refused)$",
            ),
        ),
        // An implementation of which the suite has nothing but its target file, installed as a vendor's is: it passes
        // the first case and fails the second.
        Part {
            name: "kind-own-target",
            lane: Lane::Clusters,
            after: &["test", "e2e", "mutants"],
            needs: vec![need("kind-host", "kind")],
            inputs: of(&["plumbline", "mutants"]),
            nightly: false,
            work: Work::Cargo(&[
                "xtask",
                "brand-x",
                "--",
                "--filter",
                "^(clusterip-from-pod|release-prefix-empty-list)$",
            ]),
        },
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Each waits for earlier parts of its lane, for set-ups and for its `after`: none of these may be itself.
    #[test]
    fn no_part_waits_for_itself() {
        let parts = parts();
        let mut ended: Vec<&str> = vec![];
        let mut waiting: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (place, part) in parts.iter().enumerate() {
            let mut before: Vec<&str> = part
                .after
                .iter()
                .map(|name| if *name == BUILT { "test" } else { name })
                .collect();
            before.extend(part.needs.iter().map(|need| need.from));
            before.extend(
                parts[..place]
                    .iter()
                    .filter(|other| other.lane == part.lane)
                    .map(|other| other.name),
            );
            assert!(
                waiting.insert(part.name, before).is_none(),
                "{} stands twice",
                part.name
            );
        }
        while !waiting.is_empty() {
            let can = waiting
                .iter()
                .find(|(_, before)| before.iter().all(|name| ended.contains(name)));
            let name = *can
                .unwrap_or_else(|| panic!("these wait for each other, or for what is not here: {waiting:?}"))
                .0;
            waiting.remove(name);
            ended.push(name);
        }
    }

    #[test]
    fn ci_setup_has_a_function_for_each_set_up_and_gives_what_parts_need() {
        let script = std::fs::read_to_string(crate::steps::root().join(".ci/setup")).unwrap();
        for part in parts() {
            if matches!(part.work, Work::Setup) {
                let function = format!("\n{}() {{", part.name.replace('-', "_"));
                assert!(script.contains(&function), "{} is not in .ci/setup", part.name);
            }
            for need in part.needs {
                assert!(script.contains(need.thing), "{} is not in .ci/setup", need.thing);
            }
        }
    }
}
