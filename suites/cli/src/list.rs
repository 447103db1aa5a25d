//! `plumbline list`.

use std::{collections::BTreeSet, process::ExitCode};

use cases::claims::{self, Area, Claim, ClaimTier, Name, Thread, joint};
use comfy_table::{Table, presets};
use harness::case::{Case, Families, Rights, in_words};
use serde_json::{Value, json};

use crate::{catalogue::CataloguePart, plural::counted};

/// List the cases, or the claims of the catalogue with the cases that decide them.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only this case, the cases of a claim, or those of an area (its letter or name): `plumbline list A`
    #[arg(value_name = "CASE|CLAIM|AREA")]
    parts: Vec<CataloguePart>,
    /// List all claims of the catalogue
    #[arg(long)]
    claims: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn list(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let parts = Parts(&arguments.parts);
    let text = match (arguments.claims, arguments.json) {
        (false, false) => format!("{}\n", case_table(parts)),
        (false, true) => {
            let rows = parts.joint().map(joint_object);
            json_text(&parts.cases().map(object).chain(rows).collect())?
        }
        (true, false) => format!("{}\n", claim_table(parts)),
        (true, true) => json_text(&claim_objects(parts))?,
    };
    print!("{text}");
    Ok(ExitCode::SUCCESS)
}

/// The named parts of the catalogue; all of it, if none is named.
#[derive(Clone, Copy)]
struct Parts<'a>(&'a [CataloguePart]);

impl<'a> Parts<'a> {
    fn cases(self) -> impl Iterator<Item = &'static Case> + use<'a> {
        let is_named = move |case: &&Case| self.0.is_empty() || self.0.iter().any(|part| part.has_case(case));
        cases::ALL.iter().filter(is_named)
    }

    fn has_claim(self, claim: &Claim) -> bool {
        self.0.is_empty() || self.0.iter().any(|part| part.has_claim(claim))
    }

    /// Claims without a case of their own that have a row.
    fn joint(self) -> impl Iterator<Item = &'static Claim> + use<'a> {
        joint::all().filter(move |claim| self.has_claim(claim))
    }
}

fn json_text(all: &Vec<Value>) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(all)? + "\n")
}

fn case_table(parts: Parts<'_>) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(["CASE", "AREA", "TIER", "NEEDS", "RUNS"]);
    for case in parts.cases() {
        let runs = if case.disruptive {
            "in a lab of its own"
        } else {
            "in a lab that is shared"
        };
        table.add_row([case.id, case.area, &case.tier.to_string(), &needs(case), runs]);
    }
    for claim in parts.joint() {
        let over = format!("as {} cases, which it is judged over", claim.cases().len());
        table.add_row([
            claim.id.as_str(),
            area_name(claim),
            &claim.tier.to_string(),
            &needs_of_claim(claim),
            &over,
        ]);
    }
    table
}

/// Every claim, by area, and how many of them have a case.
fn claim_table(parts: Parts<'_>) -> String {
    let mut text = String::new();
    for area in claims::areas() {
        let mut table = Table::new();
        table
            .load_style(presets::NOTHING)
            .set_header(["CLAIM", "TIER", "NEEDS", "CASES", "TEXT"]);
        let claims = area.claims.iter().filter(|claim| parts.has_claim(claim));
        let claims: Vec<&Claim> = claims.collect();
        if claims.is_empty() {
            continue;
        }
        for claim in claims {
            let cases: Vec<&str> = claim.cases().iter().map(|case| case.id).collect();
            let cases = match cases.as_slice() {
                some if claim.is_joint => format!("{} together", some.len()),
                [] => "no case yet".to_owned(),
                [one] if *one == claim.id.as_str() => "of its name".to_owned(),
                some => some.join(" "),
            };
            table.add_row([
                claim.id.as_str(),
                &tiers(claim),
                &needs_of_claim(claim),
                &cases,
                &claim.sentence,
            ]);
        }
        text += &format!("{}: {}\n{table}\n\n", area.name, area.about);
    }
    let shown = || claims::all().filter(|claim| parts.has_claim(claim));
    let decided = shown().filter(|claim| !claim.cases().is_empty()).count();
    text + &format!(
        "{}, {decided} decided",
        counted(shown().count(), "claim", "claims")
    )
}

fn claim_objects(parts: Parts<'_>) -> Vec<Value> {
    let object = |area: &Area, claim: &Claim| {
        json!({
            "id": claim.id.as_str(),
            "area": area.name,
            "about": area.about,
            "tier": tiers(claim),
            "binds": { "tier": claim.tier, "features": claim.features, "parts": claim.parts },
            "needs": needs_of_claim(claim),
            "least": claim.needs,
            "text": claim.sentence,
            "why": claim.why,
            "causes": claim.causes,
            "joint": claim.is_joint,
            "cases": claim.cases().iter().map(|case| case.id).collect::<Vec<_>>(),
            "incidents": claim.incidents,
            "outages": claim.outages.iter().map(Thread::url).collect::<Vec<_>>(),
        })
    };
    claims::areas()
        .iter()
        .flat_map(|area| area.claims.iter().map(move |claim| (area, claim)))
        .filter(|(_, claim)| parts.has_claim(claim))
        .map(|(area, claim)| object(area, claim))
        .collect()
}

fn area_name(claim: &Claim) -> &'static str {
    claim.area().map_or("", |area| &area.name)
}

/// The tier of the claim, and of each part that has one of its own, with the features that they name.
fn tiers(claim: &Claim) -> String {
    let tier = |tier: ClaimTier, features: &BTreeSet<Name>| {
        let features: Vec<&str> = features.iter().map(Name::as_str).collect();
        match features.as_slice() {
            [] => tier.to_string(),
            some => format!("{tier}:{}", some.join("+")),
        }
    };
    let parts = claim
        .parts
        .iter()
        .map(|part| format!("; {}: {}", part.of, tier(part.tier, &part.features)));
    tier(claim.tier, &claim.features) + &parts.collect::<String>()
}

/// Nodes · families · rights, and a client outside.
fn needs_of_claim(claim: &Claim) -> String {
    let needs = &claim.needs;
    let outside = if needs.outside { ", outside client" } else { "" };
    format!(
        "{}n · {} · {}{outside}",
        needs.nodes,
        needs.families,
        rights(needs.rights)
    )
}

/// Nodes · families · rights.
fn needs(case: &Case) -> String {
    let families = match case.needs.families {
        Families::Any => "any",
        Families::Ipv4 => "IPv4",
        Families::DualStack => "dual-stack",
    };
    format!(
        "{}n · {families} · {}",
        case.needs.nodes,
        rights(case.needs.rights)
    )
}

fn rights(rights: Rights) -> &'static str {
    match rights {
        Rights::Namespaced => "namespaced",
        Rights::Api => "api",
        Rights::Node => "node",
    }
}

fn object(case: &Case) -> Value {
    json!({
        "id": case.id,
        "area": case.area,
        "claims": case.claims,
        "sentence": case.sentence,
        "tier": case.tier,
        "features": case.features,
        "needs": case.needs,
        "also": case.needs.also.iter().map(|capability| in_words(*capability)).collect::<Vec<_>>(),
        "disruptive": case.disruptive,
    })
}

fn joint_object(claim: &Claim) -> Value {
    json!({
        "id": claim.id.as_str(),
        "area": area_name(claim),
        "claims": [claim.id.as_str()],
        "sentence": claim.sentence,
        "tier": claim.tier.to_string(),
        "judged_over": claim.cases().iter().map(|case| case.id).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Parts<'_> = Parts(&[]);

    #[test]
    fn needs_and_tiers_are_printed_in_one_line() {
        let case = cases::find("stale-sock-legacy-multi").unwrap();
        assert_eq!(needs(&case), "1n · any · node");
        let claim = claims::find("frontend-moves-owner").unwrap();
        assert_eq!(needs_of_claim(claim), "2n · any · api, outside client");
        assert_eq!(
            tiers(claim),
            "core; load balancer address and external IP: extended:external-ips+loadbalancer"
        );
    }

    #[test]
    fn a_claim_without_a_case_of_its_own_is_listed_with_those_it_is_judged_over() {
        let claim = joint::find("stale-no-reboot").unwrap();
        assert!(case_table(ALL).to_string().contains(claim.id.as_str()));
        assert_eq!(joint_object(claim)["judged_over"][0], "stale-sock-legacy-multi");
        let objects = claim_objects(ALL);
        let object = objects.iter().find(|object| object["id"] == claim.id.as_str());
        assert_eq!(object.unwrap()["cases"], joint_object(claim)["judged_over"]);
    }

    #[test]
    fn every_claim_is_listed_with_its_cases_or_without() {
        let table = claim_table(ALL);
        let objects = claim_objects(ALL);
        assert_eq!(objects.len(), claims::all().count());
        for object in &objects {
            let line = table.lines().find(|line| {
                line.trim_start()
                    .starts_with(&*format!("{} ", object["id"].as_str().unwrap()))
            });
            let line = line.unwrap_or_else(|| panic!("{object} has no line"));
            let has_none = object["cases"].as_array().unwrap().is_empty();
            assert_eq!(line.contains("no case yet"), has_none, "{line}");
        }
        assert!(
            table.contains("A release isolation: one backend shared by two Services"),
            "{table}"
        );
    }

    #[test]
    fn a_part_of_the_catalogue_is_listed_alone() {
        let area = ["A".parse().unwrap()];
        let table = case_table(Parts(&area)).to_string();
        assert!(
            table.contains("release-name-lattice") && !table.contains("clusterip-from-pod"),
            "{table}"
        );
        let claims = claim_table(Parts(&area));
        assert!(
            claims.starts_with("A release isolation: ") && !claims.contains("\nB "),
            "{claims}"
        );
        let case = ["clusterip-from-pod".parse().unwrap()];
        let claims = claim_table(Parts(&case));
        assert!(claims.ends_with("1 claim, 1 decided"), "{claims}");
        assert_eq!(claim_objects(Parts(&case)).len(), 1);
    }
}
