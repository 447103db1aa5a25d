//! What a target says of itself, and what the command line says instead.

use std::collections::BTreeSet;

use anyhow::{Context as _, anyhow};
use lab::cluster::Description;

use super::{exempt::Exemption, select::Feature};

/// Features that it has, and claims that it is known not to keep.
#[derive(Debug)]
pub(super) struct Declared {
    pub(super) features: BTreeSet<String>,
    pub(super) exemptions: Vec<Exemption>,
}

impl Declared {
    /// Features of the command line stand in the place of the target's own; exemptions come before them.
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
        let mut exemptions = exempt;
        for deviation in &cluster.deviations {
            let reason = format!("{} ({})", deviation.reason, deviation.link);
            let own = Exemption::new(&deviation.claim, &reason).map_err(|why| anyhow!(why));
            exemptions.push(own.with_context(wrong)?);
        }
        Ok(Self {
            features: features.into_iter().filter_map(|feature| feature.0).collect(),
            exemptions,
        })
    }
}

#[cfg(test)]
mod tests {
    use lab::{
        cluster::{Deviation, Ways},
        target::Target,
    };

    use super::*;

    fn cluster(target: &str) -> Description {
        let Target {
            features, deviations, ..
        } = Target::find(target).unwrap();
        Description {
            provider: "lab".into(),
            target: target.into(),
            kernel: "6.1".into(),
            nodes: Vec::new(),
            capabilities: BTreeSet::new(),
            features,
            deviations,
            ways: Ways::default(),
            variants: BTreeSet::new(),
            image: lab::cluster::PROBE.to_owned(),
            pull_secrets: Vec::new(),
            confined: None,
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
        let case = cases::find("empty-refill-no-restart").unwrap();
        let reason = |exemptions: &[Exemption]| super::super::exempt::reason(&case, exemptions).unwrap();
        assert_eq!(reason(&said.exemptions), "empty-refill-no-restart: not today");
        let own = Declared::new(None, Vec::new(), &target).unwrap();
        assert!(reason(&own.exemptions).contains("https://github.com/"), "{own:?}");
    }

    #[test]
    fn a_name_that_the_catalogue_does_not_have_is_an_error() {
        let mut target = cluster("reference");
        target.deviations.push(Deviation {
            claim: "no-such-claim".into(),
            reason: "r".into(),
            link: "l".into(),
        });
        let error = Declared::new(None, Vec::new(), &target).unwrap_err();
        assert!(format!("{error:#}").contains("no-such-claim"), "{error:#}");
        let mut target = cluster("reference");
        target.features.insert("no-such-feature".into());
        let error = Declared::new(None, Vec::new(), &target).unwrap_err();
        assert!(format!("{error:#}").contains("no-such-feature"), "{error:#}");
    }
}
