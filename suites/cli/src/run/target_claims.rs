//! Features and deviations that the target declares, and those of the command line.

use std::collections::BTreeSet;

use anyhow::{Context as _, anyhow};
use cluster::{Description, Deviation};

use super::{
    exempt::{Exemption, Only},
    select::Feature,
};

/// The target's features, and claims that it is known not to keep.
#[derive(Debug)]
pub(super) struct Declared {
    pub(super) features: BTreeSet<String>,
    pub(super) exemptions: Vec<Exemption>,
    /// Deviations whose versions are not known to be the running one: no exemptions, each as text.
    pub(super) not_applied: Vec<String>,
}

impl Declared {
    /// Features of the command line replace the target's own; exemptions of the command line come first.
    ///
    /// # Errors
    /// The target names a feature or a claim that the catalogue does not have.
    pub(super) fn new(
        features: Option<Vec<Feature>>,
        exempt: Vec<Exemption>,
        cluster: &Description,
    ) -> anyhow::Result<Self> {
        let wrong = || format!("failed to use what the target {} says of itself", cluster.target);
        let own = || {
            let parsed = cluster.features.iter().map(|name| name.parse::<Feature>());
            parsed.collect::<Result<Vec<_>, _>>()
        };
        let features = features
            .map_or_else(own, Ok)
            .map_err(|why| anyhow!(why))
            .with_context(wrong)?;
        let (mut exemptions, mut not_applied) = (exempt, Vec::new());
        for deviation in &cluster.deviations {
            let reason = format!("{} ({})", deviation.reason, deviation.link);
            let own = Exemption::new(&deviation.claim, &reason).map_err(|why| anyhow!(why));
            let own = own.with_context(wrong)?;
            match deviates(deviation, cluster) {
                Ok(true) => exemptions.push(Exemption {
                    only: part(deviation, cluster),
                    ..own
                }),
                Ok(false) => {}
                Err(why) => not_applied.push(format!("{}: {why}", deviation.claim)),
            }
        }
        Ok(Self {
            features: features.into_iter().filter_map(|feature| feature.0).collect(),
            exemptions,
            not_applied,
        })
    }
}

/// Whether the running version is one that deviates.
///
/// # Errors
/// The version is unknown, with the reason.
fn deviates(deviation: &Deviation, cluster: &Description) -> Result<bool, String> {
    let Some(versions) = &deviation.versions else {
        return Ok(true);
    };
    let found = cluster
        .software
        .agent_versions()
        .ok_or_else(|| format!("known of versions {versions}, and the version of the agents is not known"))?;
    let of_them = found.iter().filter(|version| versions.matches(version)).count();
    match of_them {
        0 => Ok(false),
        count if count == found.len() => Ok(true),
        _ => {
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            Err(format!(
                "known of versions {versions}, and agents are of {}",
                found.join(" and ")
            ))
        }
    }
}

fn part(deviation: &Deviation, cluster: &Description) -> Option<Only> {
    let Deviation {
        families, frontends, ..
    } = deviation;
    let is_whole = families.is_empty() && frontends.is_empty();
    (!is_whole).then(|| Only {
        families: families.clone(),
        frontends: frontends.clone(),
        nodes: cluster
            .nodes
            .iter()
            .flat_map(|node| node.addresses.clone())
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use cluster::{
        ApiEndpoints,
        software::{AgentSoftware, Software},
        target::Target,
    };

    use super::*;

    fn cluster(target: &str) -> Description {
        let Target {
            features,
            deviations,
            most_endpoints,
            ..
        } = Target::find(target).unwrap();
        Description {
            provider: "lab".into(),
            target: target.into(),
            kernel: "6.1".into(),
            nodes: Vec::new(),
            capabilities: BTreeSet::new(),
            lacking: Default::default(),
            features,
            deviations,
            most_endpoints,
            ways: ApiEndpoints::default(),
            variants: BTreeSet::new(),
            image: cluster::PROBE.to_owned(),
            pull_secrets: Vec::new(),
            confined: None,
            software: Software::default(),
            nodes_of_others: 0,
        }
    }

    #[test]
    fn what_the_repository_s_targets_say_is_in_the_catalogue() {
        for target in ["reference", "kube-proxy-iptables", "kube-proxy-nftables"] {
            let declared = Declared::new(None, Vec::new(), &cluster(target)).unwrap();
            assert!(declared.features.contains("loadbalancer"), "{target}");
        }
    }

    #[test]
    fn the_command_line_comes_first() {
        let target = cluster("kube-proxy-iptables");
        let exempt: Exemption = "empty-refill-no-restart=not today".parse().unwrap();
        let said = Declared::new(Some(vec!["sctp".parse().unwrap()]), vec![exempt], &target).unwrap();
        assert_eq!(said.features, BTreeSet::from(["sctp".to_owned()]));
        let first = |exemptions: &[Exemption]| {
            let of_claim = |one: &&Exemption| one.claim == "empty-refill-no-restart";
            exemptions.iter().find(of_claim).unwrap().reason.clone()
        };
        assert_eq!(first(&said.exemptions), "not today");
        let own = Declared::new(None, Vec::new(), &target).unwrap();
        assert!(first(&own.exemptions).contains("https://github.com/"), "{own:?}");
    }

    #[test]
    fn a_deviation_of_versions_is_one_of_those_that_run_alone() {
        let exempt = |versions: &[Option<&str>]| {
            let mut target = cluster("cilium");
            let agent = |version: &Option<&str>| AgentSoftware {
                version: version.map(str::to_owned),
                ..AgentSoftware::default()
            };
            target.software.agents = versions.iter().map(agent).collect();
            let declared = Declared::new(None, Vec::new(), &target).unwrap();
            let is_it = |one: &Exemption| one.claim == "release-prefix-empty-list";
            let said = declared.not_applied.into_iter();
            let said = said.filter(|words| words.starts_with("release-prefix-empty-list: "));
            (declared.exemptions.iter().any(is_it), said.collect::<Vec<_>>())
        };
        assert_eq!(exempt(&[Some("v1.18.5")]), (true, vec![]));
        assert_eq!(exempt(&[Some("v1.19.5")]), (false, vec![]));
        for (versions, part) in [
            (&[None][..], "the version of the agents is not known"),
            (&[], "the version of the agents is not known"),
            (
                &[Some("v1.18.5"), Some("v1.19.5")],
                "agents are of 1.18.5 and 1.19.5",
            ),
        ] {
            let (is_exempt, said) = exempt(versions);
            assert!(!is_exempt && said[0].contains(part), "{said:?}");
        }
    }

    #[test]
    fn a_name_that_the_catalogue_does_not_have_is_an_error() {
        let mut target = cluster("reference");
        target.deviations.push(Deviation {
            claim: "no-such-claim".into(),
            reason: "r".into(),
            link: "l".into(),
            versions: None,
            families: BTreeSet::new(),
            frontends: BTreeSet::new(),
        });
        let error = Declared::new(None, Vec::new(), &target).unwrap_err();
        assert!(format!("{error:#}").contains("no-such-claim"), "{error:#}");
        let mut target = cluster("reference");
        target.features.insert("no-such-feature".into());
        let error = Declared::new(None, Vec::new(), &target).unwrap_err();
        assert!(format!("{error:#}").contains("no-such-feature"), "{error:#}");
    }
}
