//! `plumbline list`.

use std::process::ExitCode;

use comfy_table::{Table, presets};
use harness::case::{Case, Families, Rights};
use serde_json::{Value, json};

/// List the cases and the claims that they decide.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Claims, with the sentence that each case decides
    #[arg(long)]
    claims: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn list(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.json {
        let all: Vec<Value> = cases::ALL.iter().map(object).collect();
        println!("{}", serde_json::to_string_pretty(&all)?);
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if arguments.claims {
        table.set_header(["CLAIM", "CASE", "SENTENCE"]);
        for case in cases::ALL {
            for claim in case.claims {
                table.add_row([*claim, case.id, case.sentence]);
            }
        }
    } else {
        table.set_header(["CASE", "AREA", "TIER", "NEEDS", "RUNS"]);
        for case in cases::ALL {
            let runs = if case.disruptive { "alone" } else { "side by side" };
            table.add_row([case.id, case.area, &case.tier.to_string(), &needs(&case), runs]);
        }
    }
    println!("{table}");
    Ok(ExitCode::SUCCESS)
}

/// As in the catalogue: nodes · families · rights.
pub(crate) fn needs(case: &Case) -> String {
    let families = match case.needs.families {
        Families::Any => "any",
    };
    let rights = match case.needs.rights {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_read_as_in_the_catalogue() {
        let case = cases::find("stale-sock-legacy-multi").unwrap();
        assert_eq!(needs(&case), "1n · any · node");
    }
}
