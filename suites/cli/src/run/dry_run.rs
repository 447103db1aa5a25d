//! `plumbline run --dry-run`: what would run, where, about how long, and what it would touch. Nothing is made or
//! changed.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use cluster::{ApiEndpoints, Capability, Description, Node, PROBE, software::Software, target::Target};
use existing::{KubernetesCluster, Options, Own, Tier};
use harness::{case::Case, limits::Limits};
use kind::KindTarget;

use super::{
    arguments::Arguments,
    estimate, existing_site, kind_installation, lab_site, machine,
    previous_run::Durations,
    provider::Choice,
    select::{Selection, select},
    target_claims::Declared,
};
use crate::{cluster::Provider, plural::counted, targets::KindNodes};

/// Where the run would be.
struct Place {
    description: Description,
    /// What it would make, change and remove: a sentence each.
    touches: Vec<String>,
    /// What shows only during the run.
    open: Vec<String>,
    runs: estimate::Place,
    /// What is added to the time of the cases.
    besides: &'static str,
}

/// Prints what a run with these arguments would do.
///
/// # Errors
/// The run could not start; an existing cluster can't be read.
pub(super) async fn show(
    arguments: Arguments,
    choice: &Choice,
    named: Vec<Case>,
) -> anyhow::Result<ExitCode> {
    let provider = choice.provider();
    let profile = arguments.profile(provider);
    let limits = Limits::of(profile).scaled(arguments.timeout_scale);
    let out = arguments.out();
    let features = arguments.features.clone();
    let place = match provider {
        Provider::Lab => in_labs(arguments).await?,
        Provider::Kind => in_kind(&arguments, &named)?,
        Provider::Existing => in_existing(arguments).await?,
    };
    let declared = Declared::new(features, Vec::new(), &place.description)?;
    let selection = select(named, &place.description, &declared.features, &limits, None);
    let durations = Durations::read(&out, profile.name());
    let takes = durations
        .expected_of(&selection.run, profile, place.runs)
        .with_basis();
    print!("{}", text(&place, choice, &selection, takes.as_deref()));
    Ok(ExitCode::SUCCESS)
}

async fn in_labs(arguments: Arguments) -> anyhow::Result<Place> {
    let control_plane = arguments.control_plane()?;
    let (families, nodes) = (arguments.families.families(), arguments.nodes());
    let is_running = arguments.lab.is_some();
    let target = lab_site::Target::new(arguments.on.lab, arguments.on.target, arguments.on.mutant);
    let description = lab_site::described(
        &target,
        families,
        control_plane,
        nodes,
        arguments.on.timeout_scale,
    )
    .await?;
    let touches = if is_running {
        format!(
            "objects and processes of the lab, which stays: {target}",
            target = target.options().trim()
        )
    } else {
        "nothing but processes of this host: labs with their namespaces, cgroups and eBPF programs end with the run".to_owned()
    };
    Ok(Place {
        description,
        touches: vec![touches],
        open: vec!["cases about programs on nodes, if the target turns out to have none".to_owned()],
        runs: estimate::Place::Labs,
        besides: "",
    })
}

fn in_kind(arguments: &Arguments, named: &[Case]) -> anyhow::Result<Place> {
    let (target, kind) = (&arguments.target, arguments.kind.clone());
    let families = arguments.families.families();
    let found = Target::find(target.name())?;
    let stays = if arguments.keep {
        "which stay (--keep)"
    } else {
        "removed at its end"
    };
    let (count, touches) = if KindTarget::find(target.name()).is_err() {
        let default = KindNodes::default();
        let nodes = KindNodes {
            count: arguments.nodes.unwrap_or(default.count),
            families,
        };
        let (image, load) = kind.of_installed(target.name())?;
        let given = kind_installation::Given {
            tested: target.tested()?,
            nodes,
            image,
            load,
            kubeconfig: PathBuf::new(),
            keep: arguments.keep,
        };
        let plan = kind_installation::Plan::new(target.name(), given)?;
        let mut touches = vec![format!(
            "containers of Docker, {stays}: the nodes {}",
            plan.containers().join(", ")
        )];
        touches.push(format!("there, the steps that install {}:", target.name()));
        touches.extend(plan.steps());
        (nodes.count, touches)
    } else {
        let nodes = arguments.nodes();
        let (config, existing) = kind.cluster(target.name(), nodes, families, named)?;
        let touches = match existing {
            kind::Existing::Use => vec![format!(
                "the kind cluster {}, which stays, with the images and the agent of this run",
                config.name
            )],
            kind::Existing::Refuse => vec![format!(
                "containers of Docker, {stays}: {} of the cluster {}, one as the client outside and its router{}",
                counted(nodes.into(), "node", "nodes"),
                config.name,
                match config.api_servers {
                    Some(2) => ", one as the balancer of two API servers",
                    _ => "",
                }
            )],
        };
        (nodes, touches)
    };
    let is_reference = KindTarget::find(target.name()).is_ok_and(|found| found == KindTarget::Reference);
    let image = "an image of this program in Docker and on the nodes".to_owned();
    let node = |number: u8| Node {
        name: format!("node {number}"),
        addresses: Vec::new(),
    };
    Ok(Place {
        description: Description {
            provider: Provider::Kind.name().to_owned(),
            target: target.name().to_owned(),
            kernel: String::new(),
            nodes: (1..=count).map(node).collect(),
            // Which of them a kind cluster has shows when it is up.
            capabilities: Capability::ALL.into_iter().collect(),
            lacking: Default::default(),
            features: found.features,
            deviations: found.deviations,
            most_endpoints: found.most_endpoints,
            ways: ApiEndpoints {
                service: is_reference,
                further: is_reference,
                shared: false,
            },
            variants: found
                .lab
                .filter(|_| is_reference)
                .map(|program| program.variants.into_keys().collect())
                .unwrap_or_default(),
            image: PROBE.to_owned(),
            pull_secrets: Vec::new(),
            confined: None,
            software: Software::default(),
            nodes_of_others: 0,
        },
        touches: [touches, vec![image]].concat(),
        open: vec![
            "cases that need what the cluster, once it is up, does not have: each with the reason".to_owned(),
        ],
        runs: estimate::Place::Cluster {
            at_once: machine::jobs_of_kind(),
        },
        // Measured on two processors: three nodes with the reference agent.
        besides: "; the cluster takes up to two minutes more, and the images of its target",
    })
}

async fn in_existing(arguments: Arguments) -> anyhow::Result<Place> {
    let tested = arguments.target.tested()?;
    let [at_once, _] = match arguments.jobs {
        Some(jobs) => [jobs.get(), 1],
        None => existing_site::jobs(&arguments.existing).await,
    };
    let program = std::env::current_exe().context("failed to find this program")?;
    let options = arguments.on.existing.cluster(tested, "run", program);
    let surveyed = KubernetesCluster::survey(options, Own::default()).await?;
    let mut description = surveyed.cluster().describe().clone();
    let options = &surveyed.about().options;
    let mut open = Vec::new();
    if options.tier == Tier::Namespaced {
        // Pods find the nodes during the run, two of them where there are two.
        let node = |number: u8| Node {
            name: format!("node {number}"),
            addresses: Vec::new(),
        };
        description.nodes = (1..=2).map(node).collect();
        open.push("cases that need two nodes, if pods find one alone".to_owned());
    }
    if !description
        .capabilities
        .contains(&Capability::LoadBalancerAddresses)
    {
        description.capabilities.insert(Capability::LoadBalancerAddresses);
        open.push("cases that need load balancer addresses, if a first Service gets none".to_owned());
    }
    let left_out = surveyed
        .left_out()
        .iter()
        .map(|words| format!("the node {words}"));
    open.extend(left_out);
    Ok(Place {
        touches: touched(options, &description),
        description,
        open,
        runs: estimate::Place::Cluster { at_once },
        besides: "",
    })
}

/// What a run would make and change in a cluster that is there.
fn touched(options: &Options, description: &Description) -> Vec<String> {
    let namespace = &options.namespace;
    let mut all = vec![match options.tier {
        Tier::Namespaced => format!(
            "in the namespace {namespace} alone: pods, Services and EndpointSlices with the label plumbline-run, a Lease; all of it \
             removed at the end"
        ),
        _ => format!(
            "namespaces with the label plumbline-run, with pods, Services and EndpointSlices, and the namespace {namespace} with a \
             Lease; all of it removed at the end"
        ),
    }];
    if options.tier == Tier::Node {
        let nodes: Vec<&str> = description.nodes.iter().map(|node| node.name.as_str()).collect();
        all.push(format!(
            "a privileged pod on each of the nodes {}",
            nodes.join(", ")
        ));
        if let Some(agents) = &options.tested.agents {
            let agent = &agents.agent;
            all.push(format!(
                "agents of the DaemonSet {}/{}, which cases stop and start: until the end it has the update strategy OnDelete and \
                 an affinity, and nodes a label",
                agent.namespace, agent.daemon_set
            ));
        }
    }
    all
}

fn text(place: &Place, choice: &Choice, selection: &Selection, takes: Option<&str>) -> String {
    let description = &place.description;
    let mut lines = vec![(
        "would run",
        format!(
            "{}, {}",
            counted(selection.run.len(), "case", "cases"),
            choice.place()
        ),
    )];
    lines.extend(selection.run.iter().map(|case| ("", case.id.to_owned())));
    lines.push(("target", description.target.clone()));
    let excluded = selection.excluded.iter();
    lines.extend(excluded.map(|(case, verdict)| ("left out", format!("{}: {verdict}", case.id))));
    lines.extend(place.open.iter().map(|words| ("may be left out", words.clone())));
    let takes = match takes {
        Some(takes) => format!("{takes}{}", place.besides),
        None if selection.run.is_empty() => "nothing: every case is left out".to_owned(),
        None => "not known: no run of these cases is in --out".to_owned(),
    };
    lines.push(("takes", takes));
    lines.extend(place.touches.iter().map(|words| ("touches", words.clone())));
    lines.push(("", "this was a dry run: nothing was made or changed".to_owned()));
    let mut before = "";
    let mut text = String::new();
    for (name, words) in lines {
        let shown = if name == before { "" } else { name };
        before = name;
        text += format!("{shown:<16} {words}").trim_end();
        text += "\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use existing::{Connection, PodOptions};

    use super::*;
    use crate::{
        cluster::NAMESPACE,
        run::{
            arguments::tests::parse,
            provider::tests::ALL as WITH_KIND,
            select::{Wanted, named},
        },
    };

    fn options(tier: Tier) -> Options {
        Options {
            provider: "existing".to_owned(),
            tested: parse("--target cilium").unwrap().target.tested().unwrap(),
            connection: Connection::default(),
            tier,
            image: "probe".to_owned(),
            program: "plumbline".to_owned(),
            namespace: NAMESPACE.to_owned(),
            run: "run".to_owned(),
            plumbline: "plumbline".into(),
            pods: PodOptions::default(),
        }
    }

    fn shown(line: &str) -> String {
        let arguments = parse(line).unwrap();
        let named = named(&Wanted {
            parts: &arguments.which.parts,
            ..Wanted::default()
        })
        .unwrap();
        let choice = Choice::new(&arguments, &WITH_KIND).unwrap();
        let place = in_kind(&arguments, &named).unwrap();
        let declared = Declared::new(None, Vec::new(), &place.description).unwrap();
        let limits = Limits::default();
        let selection = select(named, &place.description, &declared.features, &limits, None);
        text(&place, &choice, &selection, Some("about 5 s"))
    }

    #[test]
    fn a_kind_run_names_its_containers_and_the_steps_of_its_target() {
        let said = shown("--target cilium release-prefix-null-slice kubesvc-reachable");
        for part in [
            "would run        2 cases, in a new kind cluster, as the target cilium runs on a cluster alone (--kubeconfig FILE",
            "\n                 release-prefix-null-slice\n",
            "-control-plane, plumbline-",
            "helm upgrade --install cilium",
            "takes            about 5 s; the cluster takes up to two minutes more",
            "removed at its end",
        ] {
            assert!(said.contains(part), "{part} is not in {said}");
        }
        assert!(said.contains("=plumbline-") && !said.contains("${"), "{said}");
        let said = shown("--provider kind --keep A");
        assert!(
            said.contains("release-all-frontends-lb\n"),
            "it has load balancers: {said}"
        );
        for part in [
            "2 nodes of the cluster plumbline-",
            "which stay (--keep)",
            "the client outside",
        ] {
            assert!(said.contains(part), "{part} is not in {said}");
        }
        let said = shown("--reuse k release-prefix-null-slice");
        assert!(
            said.contains("touches          the kind cluster k, which stays"),
            "{said}"
        );
    }

    #[test]
    fn what_the_target_lacks_is_left_out_with_the_reason() {
        let said = shown("--target cilium --nodes 1 empty-refill-no-restart");
        assert!(
            said.contains("left out         empty-refill-no-restart: skipped: needs 2 nodes (there are 1)"),
            "{said}"
        );
        assert!(said.starts_with("would run        0 cases"), "{said}");
        let place = in_kind(&parse("--reuse k").unwrap(), &[]).unwrap();
        let choice = Choice::new(&parse("").unwrap(), &WITH_KIND).unwrap();
        let selection = Selection {
            run: Vec::new(),
            excluded: Vec::new(),
        };
        let said = text(&place, &choice, &selection, None);
        assert!(
            said.contains("takes            nothing: every case is left out"),
            "{said}"
        );
    }

    #[test]
    fn a_cluster_that_is_there_is_told_what_each_tier_touches() {
        let description = in_kind(&parse("--reuse k").unwrap(), &[]).unwrap().description;
        let of = |tier| touched(&options(tier), &description).join("\n");
        assert!(of(Tier::Namespaced).starts_with("in the namespace plumbline-run alone: "));
        assert!(!of(Tier::Api).contains("privileged"));
        let node = of(Tier::Node);
        for part in [
            "a privileged pod on each of the nodes node 1, node 2",
            "the DaemonSet kube-system/cilium",
            "OnDelete",
        ] {
            assert!(node.contains(part), "{part} is not in {node}");
        }
    }
}
