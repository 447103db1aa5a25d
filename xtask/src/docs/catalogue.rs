//! Claims, cases and mutants, as the built programs list them.

use std::{path::Path, process::Command};

use anyhow::{Context as _, bail};
use serde::{Deserialize, de::DeserializeOwned};

/// All that pages are made of.
pub(super) struct Catalogue {
    claims: Vec<Claim>,
    cases: Vec<Case>,
    mutants: Vec<Mutant>,
}

/// A claim, of `plumbline list --claims --json`.
#[derive(Clone, Deserialize)]
pub(super) struct Claim {
    pub(crate) id: String,
    pub(crate) area: String,
    pub(crate) about: String,
    pub(crate) binds: Binds,
    pub(crate) least: Least,
    pub(crate) text: String,
    pub(crate) why: Option<String>,
    pub(crate) causes: Vec<String>,
    pub(crate) joint: bool,
    /// Ids of the cases that decide it.
    pub(crate) cases: Vec<String>,
    pub(crate) incidents: Vec<u8>,
    /// Addresses of threads.
    pub(crate) outages: Vec<String>,
}

/// Which implementations a claim binds.
#[derive(Clone, Deserialize)]
pub(super) struct Binds {
    pub(crate) tier: Tier,
    pub(crate) features: Vec<String>,
    pub(crate) parts: Vec<Part>,
}

/// A part of a claim with a tier of its own.
#[derive(Clone, Deserialize)]
pub(super) struct Part {
    pub(crate) of: String,
    pub(crate) tier: Tier,
    pub(crate) features: Vec<String>,
}

/// Who must keep a claim.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Tier {
    Core,
    Extended,
    Robustness,
    Hygiene,
}

/// What a cluster must have for a claim at the least.
#[derive(Clone, Deserialize)]
pub(super) struct Least {
    pub(crate) nodes: usize,
    pub(crate) families: Families,
    pub(crate) rights: Rights,
    pub(crate) outside: bool,
}

/// Families of addresses that a claim is about.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Families {
    Any,
    Ipv4,
    DualStack,
}

/// What a run must be allowed to do; each includes the one before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Rights {
    Namespaced,
    Api,
    Node,
}

/// A case, or a claim that is judged over several, of `plumbline list --json`.
#[derive(Clone, Deserialize)]
pub(super) struct Case {
    pub(crate) id: String,
    pub(crate) sentence: String,
    /// What a run must be allowed to do for it: as the claim says, or more.
    pub(crate) needs: Option<Needs>,
    /// What else a cluster must have, in words.
    #[serde(default)]
    pub(crate) also: Vec<String>,
}

/// What a case needs, as far as pages tell.
#[derive(Clone, Deserialize)]
pub(super) struct Needs {
    pub(crate) rights: Rights,
}

/// An agent with a known bug, of `plumbline-mutant list --json`.
#[derive(Clone, Deserialize)]
pub(super) struct Mutant {
    pub(crate) name: String,
    pub(crate) bug: String,
    /// Ids of cases, and of claims that are judged over several, that fail on it.
    pub(crate) caught_by: Vec<String>,
}

/// Claims about one subject.
pub(super) struct Area<'a> {
    /// Its letter and its name.
    pub(crate) name: &'a str,
    pub(crate) about: &'a str,
    pub(crate) claims: Vec<&'a Claim>,
}

impl Tier {
    pub(super) const ALL: [Self; 4] = [Self::Core, Self::Extended, Self::Robustness, Self::Hygiene];

    /// As catalogue, reports and terminal name it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Extended => "extended",
            Self::Robustness => "robustness",
            Self::Hygiene => "hygiene",
        }
    }
}

impl Claim {
    pub(super) fn is_decided(&self) -> bool {
        !self.cases.is_empty()
    }
}

impl Area<'_> {
    pub(super) fn letter(&self) -> &str {
        self.name.split(' ').next().unwrap_or_default()
    }
}

impl Catalogue {
    /// What the programs of this folder list.
    ///
    /// # Errors
    /// One of them can't be started, or prints something else.
    pub(super) fn of_programs(programs: &Path) -> anyhow::Result<Self> {
        Self::new(
            listed(programs, "plumbline", &["list", "--claims", "--json"])?,
            listed(programs, "plumbline", &["list", "--json"])?,
            listed(programs, "plumbline-mutant", &["list", "--json"])?,
        )
    }

    /// # Errors
    /// A claim or a mutant names a case that there is not.
    pub(super) fn new(claims: Vec<Claim>, cases: Vec<Case>, mutants: Vec<Mutant>) -> anyhow::Result<Self> {
        let decided = claims.iter().flat_map(|claim| &claim.cases);
        let caught = mutants.iter().flat_map(|mutant| &mutant.caught_by);
        for id in decided.chain(caught) {
            if !cases.iter().any(|case| case.id == *id) {
                bail!("expected {id} to be a case, but `plumbline list` has none of this id");
            }
        }
        Ok(Self {
            claims,
            cases,
            mutants,
        })
    }

    pub(super) fn claims(&self) -> &[Claim] {
        &self.claims
    }

    pub(super) fn claim(&self, id: &str) -> Option<&Claim> {
        self.claims.iter().find(|claim| claim.id == id)
    }

    /// All cases, in the order of the catalogue.
    pub(super) fn cases(&self) -> &[Case] {
        &self.cases
    }

    /// The claims, by area.
    pub(super) fn areas(&self) -> Vec<Area<'_>> {
        let of_one = self.claims.chunk_by(|a, b| a.area == b.area);
        of_one
            .map(|claims| Area {
                name: &claims[0].area,
                about: &claims[0].about,
                claims: claims.iter().collect(),
            })
            .collect()
    }

    /// The cases that decide a claim.
    pub(super) fn cases_of(&self, claim: &Claim) -> Vec<&Case> {
        self.cases
            .iter()
            .filter(|case| claim.cases.contains(&case.id))
            .collect()
    }

    /// The area of a case.
    pub(super) fn area_of(&self, case: &str) -> Option<&str> {
        let decides = |claim: &&Claim| claim.id == case || claim.cases.iter().any(|id| id == case);
        self.claims.iter().find(decides).map(|claim| claim.area.as_str())
    }

    /// The mutants that its cases, or the claim itself, must fail on.
    pub(super) fn mutants_of(&self, claim: &Claim) -> Vec<&Mutant> {
        let is_of_it = |id: &String| {
            if claim.joint {
                *id == claim.id
            } else {
                claim.cases.contains(id)
            }
        };
        self.mutants
            .iter()
            .filter(|mutant| mutant.caught_by.iter().any(is_of_it))
            .collect()
    }
}

fn listed<T: DeserializeOwned>(programs: &Path, program: &str, arguments: &[&str]) -> anyhow::Result<T> {
    let line = format!("{program} {}", arguments.join(" "));
    let output = Command::new(programs.join(program))
        .args(arguments)
        .output()
        .with_context(|| format!("failed to start {program}"))?;
    serde_json::from_slice(&output.stdout).with_context(|| format!("expected JSON from `{line}`"))
}
