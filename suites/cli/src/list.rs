//! `plumbline list`.

use std::process::ExitCode;

use cases::claims::{
    self, AREAS, Area, Claim,
    joint::{self, Joint},
};
use comfy_table::{Table, presets};
use harness::case::{Case, Families, Rights};
use serde_json::{Value, json};

/// List the cases, or the claims of the catalogue with the cases that decide them.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// List all claims of the catalogue, also those without a case
    #[arg(long)]
    claims: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn list(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    match (arguments.claims, arguments.json) {
        (false, false) => println!("{}", case_table()),
        (false, true) => {
            let rows = cases::JOINT.iter().map(joint_object);
            print_json(&cases::ALL.iter().map(object).chain(rows).collect())?;
        }
        (true, false) => println!("{}", claim_table()),
        (true, true) => print_json(&claim_objects())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn print_json(all: &Vec<Value>) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(all)?);
    Ok(())
}

fn case_table() -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(["CASE", "AREA", "TIER", "NEEDS", "RUNS"]);
    for case in cases::ALL {
        let runs = if case.disruptive {
            "in a lab of its own"
        } else {
            "in a lab that is shared"
        };
        table.add_row([case.id, case.area, &case.tier.to_string(), &needs(case), runs]);
    }
    for row in cases::JOINT {
        let needs = claims::find(row.id).map_or("", |claim| claim.needs);
        let over = format!("as {} cases, which it is judged over", row.cases().len());
        table.add_row([row.id, row.area, &row.tier.to_string(), needs, &over]);
    }
    table
}

/// Every claim, by area, and how many of them have a case.
fn claim_table() -> String {
    let mut text = String::new();
    for area in AREAS {
        let mut table = Table::new();
        table
            .load_style(presets::NOTHING)
            .set_header(["CLAIM", "TIER", "NEEDS", "CASES", "TEXT"]);
        for claim in area.claims {
            let cases: Vec<&str> = claim.cases().iter().map(|case| case.id).collect();
            let cases = match cases.as_slice() {
                some if joint::find(claim.id).is_some() => format!("{} together", some.len()),
                [] => "no case yet".to_owned(),
                [one] if *one == claim.id => "of its name".to_owned(),
                some => some.join(" "),
            };
            table.add_row([claim.id, claim.tier, claim.needs, &cases, claim.text]);
        }
        text += &format!("{}: {}\n{table}\n\n", area.name, area.about);
    }
    let decided = claims::all().filter(|claim| !claim.cases().is_empty()).count();
    text + &format!("{} claims, {decided} of them with a case", claims::all().count())
}

fn claim_objects() -> Vec<Value> {
    let object = |area: Area, claim: &Claim| {
        json!({
            "id": claim.id,
            "area": area.name,
            "tier": claim.tier,
            "needs": claim.needs,
            "text": claim.text,
            "cases": claim.cases().iter().map(|case| case.id).collect::<Vec<_>>(),
        })
    };
    AREAS
        .into_iter()
        .flat_map(|area| area.claims.iter().map(move |claim| object(area, claim)))
        .collect()
}

/// Requirements as in the catalogue: nodes · families · rights.
pub(crate) fn needs(case: &Case) -> String {
    let families = match case.needs.families {
        Families::Any => "any",
    };
    let rights = match case.needs.rights {
        Rights::Namespaced => "namespaced",
        Rights::Api => "api",
        Rights::Node => "node",
    };
    format!("{}n · {families} · {rights}", case.needs.nodes)
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
        "disruptive": case.disruptive,
    })
}

fn joint_object(row: &Joint) -> Value {
    json!({
        "id": row.id,
        "area": row.area,
        "claims": [row.id],
        "sentence": row.sentence,
        "tier": row.tier,
        "judged_over": row.cases().iter().map(|case| case.id).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_read_as_in_the_catalogue() {
        let case = cases::find("stale-sock-legacy-multi").unwrap();
        assert_eq!(needs(&case), "1n · any · node");
    }

    #[test]
    fn a_row_without_a_case_of_its_own_is_listed_with_those_it_is_judged_over() {
        let row = joint::find("stale-no-reboot").unwrap();
        assert!(case_table().to_string().contains(row.id));
        assert_eq!(joint_object(&row)["judged_over"][0], "stale-sock-legacy-multi");
        let claims = claim_objects();
        let claim = claims.iter().find(|claim| claim["id"] == row.id).unwrap();
        assert_eq!(claim["cases"], joint_object(&row)["judged_over"]);
    }

    #[test]
    fn every_claim_is_listed_with_its_cases_or_without() {
        let table = claim_table();
        let objects = claim_objects();
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
}
