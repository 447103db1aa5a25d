//! Pages of the catalogue: one for each claim, an index for each area, and one of all areas.

use std::fmt::Write as _;

use super::{
    catalogue::{Area, Case, Catalogue, Claim, Families, Rights, Tier},
    page::{NOTICE, Page, capitalised, in_words, link, table},
    staging::{Staging, Text},
};

/// Folder of the pages.
pub(super) const FOLDER: &str = "docs/claims";

/// The two incidents, by the number that claims name.
const INCIDENTS: [&str; 2] = ["docs/incident-1.md", "docs/incident-2.md"];

/// The page of a claim.
pub(super) fn path(claim: &str) -> String {
    format!("{FOLDER}/{claim}.md")
}

/// The page of an area.
pub(super) fn area_path(area: &Area<'_>) -> String {
    format!("{FOLDER}/area-{}.md", area.letter().to_lowercase())
}

/// All pages.
pub(super) fn pages(catalogue: &Catalogue, staging: &Staging) -> Vec<Page> {
    let mut pages = vec![index(catalogue)];
    for area in catalogue.areas() {
        pages.push(area_page(catalogue, staging, &area));
        for claim in &area.claims {
            pages.push(claim_page(catalogue, staging, &area, claim));
        }
    }
    pages
}

/// The part of the book's table of contents that lists them.
pub(super) fn contents(catalogue: &Catalogue, summary: &str) -> String {
    let mut text = format!("- [All claims]({})\n", link(summary, &index_path()));
    for area in catalogue.areas() {
        let _ = writeln!(text, "  - [{}]({})", area.name, link(summary, &area_path(&area)));
        for claim in &area.claims {
            let _ = writeln!(text, "    - [{}]({})", claim.id, link(summary, &path(&claim.id)));
        }
    }
    text
}

/// By area and tier: how many claims have a case.
pub(super) fn coverage(catalogue: &Catalogue, document: &str) -> String {
    let of = |claims: &[&Claim]| {
        let decided = claims.iter().filter(|claim| claim.is_decided()).count();
        match claims.len() {
            0 => String::new(),
            all => format!("{decided} of {all}"),
        }
    };
    let row = |name: String, claims: &[&Claim]| {
        let mut row = vec![name, of(claims)];
        for tier in Tier::ALL {
            let of_tier: Vec<&Claim> = claims
                .iter()
                .copied()
                .filter(|claim| claim.binds.tier == tier)
                .collect();
            row.push(of(&of_tier));
        }
        row
    };
    let areas = catalogue.areas();
    let mut rows: Vec<Vec<String>> = areas
        .iter()
        .map(|area| {
            row(
                format!("[{}]({})", area.name, link(document, &area_path(area))),
                &area.claims,
            )
        })
        .collect();
    rows.push(row(
        "**all**".to_owned(),
        &catalogue.claims().iter().collect::<Vec<_>>(),
    ));
    let mut header = vec!["Area", "Claims with a case"];
    header.extend(Tier::ALL.map(Tier::name));
    table(&header, &rows)
}

fn index_path() -> String {
    format!("{FOLDER}/README.md")
}

fn index(catalogue: &Catalogue) -> Page {
    let path = index_path();
    let decided = catalogue
        .claims()
        .iter()
        .filter(|claim| claim.is_decided())
        .count();
    let text = format!(
        "{NOTICE}# Claims\n\n\
         A claim is one sentence about what a client of a Service sees on the wire, such that packets alone decide it. There \
         are {} of them; cases decide {decided}. The others are written down and wait for a case: no verdict says anything \
         about them.\n\n{}\n\
         *core* binds every implementation, *extended* those that declare the feature; *robustness* also holds through \
         restarts, faults and leftovers; *hygiene* is about what is left behind and what belongs to others. The \
         [glossary]({}) has the words that pages use.\n",
        catalogue.claims().len(),
        coverage(catalogue, &path),
        link(&path, "docs/glossary.md"),
    );
    Page { path, text }
}

fn area_page(catalogue: &Catalogue, staging: &Staging, area: &Area<'_>) -> Page {
    let path = area_path(area);
    let mut text = format!("{NOTICE}# {}\n\n{}.\n\n", area.name, capitalised(area.about));
    let rows: Vec<Vec<String>> = area
        .claims
        .iter()
        .map(|claim| {
            let decided = if claim.is_decided() { "yes" } else { "not yet" };
            vec![
                format!("[`{}`]({})", claim.id, link(&path, &self::path(&claim.id))),
                capitalised(&claim.text),
                claim.binds.tier.name().to_owned(),
                decided.to_owned(),
            ]
        })
        .collect();
    text += &table(
        &["Claim", "What a client sees", "Tier", "A case decides it"],
        &rows,
    );
    let common = staging.of_area(area.letter());
    if !common.is_empty() {
        text += "\n## How its cases are staged\n\n";
        for common in common {
            text += &paragraphs(catalogue, &path, "", common);
        }
    }
    if area.claims.iter().any(|claim| claim.is_decided()) {
        let _ = write!(
            text,
            "## Run its cases\n\n```sh\nsudo plumbline run --filter {}\n```\n",
            area.letter()
        );
    }
    Page { path, text }
}

fn claim_page(catalogue: &Catalogue, staging: &Staging, area: &Area<'_>, claim: &Claim) -> Page {
    let path = path(&claim.id);
    let mut text = format!("{NOTICE}# {}\n\n> {}.\n\n", claim.id, capitalised(&claim.text));
    let _ = writeln!(
        text,
        "Area [{}]({}). {}\n",
        area.name,
        link(&path, &area_path(area)),
        binding(claim)
    );
    if !claim.is_decided() {
        text +=
            "No case decides this claim yet: a report says nothing about it, whatever its verdicts are.\n\n";
    }
    if let Some(why) = &claim.why {
        let _ = writeln!(
            text,
            "## Why it matters\n\n{}\n",
            linked(catalogue, &path, &claim.id, why)
        );
    }
    text += &outages(&path, claim);
    let cases = catalogue.cases_of(claim);
    if claim.is_decided() {
        text += "## How it is staged\n\n";
        text += &staged(catalogue, staging, &path, claim, &cases);
        text += &proof(catalogue, claim);
    }
    if !claim.causes.is_empty() {
        text += "## Likely causes of a failure\n\n";
        for cause in &claim.causes {
            let _ = writeln!(text, "- {}", linked(catalogue, &path, &claim.id, cause));
        }
        text.push('\n');
    }
    text += &needs(claim, &cases);
    if claim.is_decided() {
        text += &run(claim, &cases);
    }
    Page { path, text }
}

/// Who must keep it.
fn binding(claim: &Claim) -> String {
    let mut text = format!(
        "*{}*: {}.",
        claim.binds.tier.name(),
        bound(claim.binds.tier, &claim.binds.features)
    );
    for part in &claim.binds.parts {
        let _ = write!(
            text,
            " Its part *{}* is *{}*: {}.",
            part.of,
            part.tier.name(),
            bound(part.tier, &part.features)
        );
    }
    text
}

fn bound(tier: Tier, features: &[String]) -> String {
    let declared = match features {
        [] => "every implementation must keep it".to_owned(),
        some => {
            let named: Vec<String> = some.iter().map(|feature| format!("`{feature}`")).collect();
            format!(
                "implementations that declare {} must keep it",
                named.join(" and ")
            )
        }
    };
    match tier {
        Tier::Core | Tier::Extended => declared,
        Tier::Robustness => format!("{declared}, also through restarts, faults and leftovers"),
        Tier::Hygiene => {
            format!("{declared}: nothing is left behind, and nothing of another owner is touched")
        }
    }
}

fn outages(path: &str, claim: &Claim) -> String {
    let incidents = claim.incidents.iter().filter_map(|number| {
        let page = INCIDENTS.get(usize::from(*number).checked_sub(1)?)?;
        Some(format!("- [Incident {number}]({})\n", link(path, page)))
    });
    let threads = claim
        .outages
        .iter()
        .map(|url| format!("- [{}]({url})\n", thread(url)));
    let list: String = incidents.chain(threads).collect();
    match list.as_str() {
        "" => String::new(),
        list => format!("## Outages behind it\n\n{list}\n"),
    }
}

/// `cilium/cilium#43619`, from its address.
fn thread(url: &str) -> String {
    url.trim_start_matches("https://github.com/")
        .replace("/issues/", "#")
}

fn staged(catalogue: &Catalogue, staging: &Staging, path: &str, claim: &Claim, cases: &[&Case]) -> String {
    if claim.joint {
        let text = staging
            .of_case(&claim.id)
            .map(|text| paragraphs(catalogue, path, &claim.id, text));
        return text.unwrap_or_default();
    }
    let mut shown: Vec<&Text> = Vec::new();
    let mut text = String::new();
    for case in cases {
        let Some(own) = staging.of_case(&case.id) else {
            continue;
        };
        if !shown.contains(&own) {
            text += &paragraphs(catalogue, path, &claim.id, own);
            shown.push(own);
        }
    }
    let sources: Vec<String> = shown
        .iter()
        .map(|text| {
            let name = text.file.rsplit('/').next().unwrap_or_default();
            format!("[{name}]({})", link(path, &text.file))
        })
        .collect();
    if let [_, _, ..] = cases {
        for case in cases {
            let _ = writeln!(text, "- case `{}`: {}", case.id, case.sentence);
        }
        text.push('\n');
    }
    text + &format!("Source: {}\n\n", sources.join(", "))
}

fn paragraphs(catalogue: &Catalogue, path: &str, own: &str, text: &Text) -> String {
    let said = text.paragraphs.iter();
    said.map(|paragraph| format!("{}\n\n", linked(catalogue, path, own, paragraph)))
        .collect()
}

/// The text with names of other claims as links.
fn linked(catalogue: &Catalogue, path: &str, own: &str, text: &str) -> String {
    let mut parts = text.split('`');
    let mut linked = parts.next().unwrap_or_default().to_owned();
    while let (Some(code), rest) = (parts.next(), parts.next()) {
        match catalogue.claim(code) {
            Some(claim) if claim.id != own => {
                let _ = write!(linked, "[`{code}`]({})", link(path, &self::path(code)));
            }
            _ => {
                let _ = write!(linked, "`{code}`");
            }
        }
        linked += rest.unwrap_or_default();
    }
    linked
}

/// The bugs that its cases have been shown to catch.
fn proof(catalogue: &Catalogue, claim: &Claim) -> String {
    let mutants = catalogue.mutants_of(claim);
    let mut text = "## What proves the case\n\n".to_owned();
    if mutants.is_empty() {
        return text
            + "No mutant has this bug yet: that the case would notice it is shown by its witness and its traps alone.\n\n";
    }
    text += "It must fail on the reference agent with one of these bugs built in (`cargo xtask mutants` runs them):\n\n";
    for mutant in mutants {
        let _ = writeln!(text, "- `{}`: {}", mutant.name, mutant.bug);
    }
    text + "\n"
}

fn needs(claim: &Claim, cases: &[&Case]) -> String {
    let least = &claim.least;
    let nodes = match least.nodes {
        1 => "one node".to_owned(),
        more => format!("{} nodes", in_words(more)),
    };
    let families = match least.families {
        Families::Any => "IPv4 or IPv6; each family that the cluster has is tested by itself",
        Families::Ipv4 => "IPv4",
        Families::DualStack => "Services with both families",
    };
    let rights = match rights(claim, cases) {
        Rights::Namespaced => {
            "rights in one namespace: pods, Services and EndpointSlices (`--tier namespaced`)"
        }
        Rights::Api => "rights on the API: namespaces of its own, and objects in them (`--tier api`)",
        Rights::Node => {
            "rights on nodes: privileged pods, and agents that are stopped and started (`--tier node`)"
        }
    };
    let mut list = vec![nodes, families.to_owned(), rights.to_owned()];
    let outside = "a client outside".to_owned();
    list.extend(Some(outside).filter(|_| least.outside));
    for also in cases.iter().flat_map(|case| &case.also) {
        if !list.contains(also) {
            list.push(also.clone());
        }
    }
    let items: String = list.iter().map(|item| format!("- {item}\n")).collect();
    format!("## What it needs\n\n{items}\n")
}

/// The rights of the case that needs most.
fn rights(claim: &Claim, cases: &[&Case]) -> Rights {
    let of_cases = cases
        .iter()
        .filter_map(|case| case.needs.as_ref())
        .map(|needs| needs.rights);
    of_cases
        .chain([claim.least.rights])
        .max()
        .unwrap_or(claim.least.rights)
}

fn run(claim: &Claim, cases: &[&Case]) -> String {
    let tier = match rights(claim, cases) {
        Rights::Namespaced => "namespaced",
        Rights::Api => "api",
        Rights::Node => "node",
    };
    let id = &claim.id;
    format!(
        "## Run it\n\nIn a lab on this machine, and in a cluster that is there. Where something is missing that it needs, it is *skipped*, \
         with the reason.\n\n```sh\n\
         sudo plumbline run --filter '^{id}$'\n\
         plumbline run --provider existing --kubeconfig FILE --tier {tier} --filter '^{id}$'\n```\n"
    )
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{super::tests::catalogue, *};

    fn all() -> Vec<Page> {
        let catalogue = catalogue();
        let source =
            |path: &str, text: &str| (PathBuf::from(format!("suites/cases/src/{path}")), text.to_owned());
        let both = "//! `first`: staged like `third`, by `first`.\n//! See `x.rs`.\nid: \"first\",\nid: \"second\",\n";
        let sources = [
            source("a_one/first.rs", both),
            source("b_two/third.rs", "//! Third.\nid: \"third\",\n"),
            source("claims/joint.rs", "//! Judged over others.\n"),
            source("a_one/mod.rs", "//! What they share.\n"),
        ];
        let staging = Staging::of(&sources, &catalogue).unwrap();
        pages(&catalogue, &staging)
    }

    fn page(path: &str) -> String {
        let page = all().into_iter().find(|page| page.path == path);
        page.unwrap_or_else(|| panic!("no page {path}")).text
    }

    #[test]
    fn every_claim_and_every_area_has_a_page() {
        let paths: Vec<String> = all().into_iter().map(|page| page.path).collect();
        let expected = [
            "README",
            "area-a",
            "first",
            "undecided",
            "area-b",
            "third",
            "fourth",
        ];
        assert_eq!(paths, expected.map(|name| format!("docs/claims/{name}.md")));
    }

    #[test]
    fn the_page_of_a_decided_claim_says_all_that_is_known_of_it() {
        let text = page("docs/claims/first.md");
        for expected in [
            "# first\n\n> A client is served by `b`.\n",
            "Area [A one](area-a.md). *extended*: implementations that declare `loadbalancer` must keep it. Its part *node \
             port* is *core*: every implementation must keep it.",
            "## Why it matters\n\nIt matters, as `first` does.\n",
            "- [Incident 1](../incident-1.md)\n- [cilium/cilium#43619](https://github.com/cilium/cilium/issues/43619)\n",
            "## How it is staged\n\n`first`: staged like [`third`](third.md), by `first`.\n\n- case `first`: sentence of first\n\
             - case `second`: sentence of second\n\nSource: [first.rs](../../suites/cases/src/a_one/first.rs)\n",
            "- `wrong-key`: a key is a prefix\n\n## Likely causes of a failure\n\n- A wrong key.\n",
            "- two nodes\n- IPv4 or IPv6; each family that the cluster has is tested by itself\n- rights on nodes: privileged pods, \
             and agents that are stopped and started (`--tier node`)\n- a client outside\n- raw sockets\n",
            "sudo plumbline run --filter '^first$'\n",
        ] {
            assert!(text.contains(expected), "{expected:?} is not in\n{text}");
        }
    }

    #[test]
    fn the_page_of_an_undecided_claim_says_that_no_case_decides_it() {
        let text = page("docs/claims/undecided.md");
        assert!(text.contains("No case decides this claim yet"), "{text}");
        for absent in ["How it is staged", "What proves", "Run it", "Likely causes"] {
            assert!(!text.contains(absent), "{absent:?} is in\n{text}");
        }
    }

    #[test]
    fn a_joint_claim_is_proved_by_its_own_mutants_and_staged_by_its_judge() {
        let text = page("docs/claims/fourth.md");
        assert!(
            text.contains("Judged over others.") && text.contains("`twice`") && !text.contains("wrong-key"),
            "{text}"
        );
    }

    #[test]
    fn coverage_counts_claims_with_a_case_by_area_and_tier() {
        let text = coverage(&catalogue(), "README.md");
        for expected in [
            "| Area | Claims with a case | core | extended | robustness | hygiene |",
            "| [A one](docs/claims/area-a.md) | 1 of 2 |  | 1 of 2 |  |  |",
            "| **all** | 3 of 4 |  | 3 of 4 |  |  |",
        ] {
            assert!(text.contains(expected), "{expected:?} is not in\n{text}");
        }
    }

    #[test]
    fn the_contents_of_the_book_are_nested_by_area() {
        let text = contents(&catalogue(), "docs/SUMMARY.md");
        let expected = "- [All claims](claims/README.md)\n  - [A one](claims/area-a.md)\n    - [first](claims/first.md)\n";
        assert!(text.starts_with(expected), "{text}");
    }

    #[test]
    fn a_case_without_a_source_is_an_error() {
        let error = Staging::of(&[], &catalogue()).err().unwrap().to_string();
        assert!(error.contains("expected a source of the case first"), "{error}");
    }
}
