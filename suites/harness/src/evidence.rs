//! What is kept of a case that explains it: everything of one that did not pass, little of one that did.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    str::FromStr,
};

use kube::api::ListParams;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    compressed::compress_large,
    context::Context,
    names::Kind,
    report::{CaseReport, Needed},
    requests::all,
    verdict::Verdict,
};

/// Of which cases objects, logs, dumps and every attempt are kept. Of all others the history is, with a summary of their attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Evidence {
    /// Of those that did not pass, or whose recoveries needed help.
    Failed,
    /// Of all.
    All,
}

impl Evidence {
    const ANY: [Self; 2] = [Self::Failed, Self::All];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::All => "all",
        }
    }

    /// Whether all of a case is kept. One that has passed can still fail a row that is judged over many cases, or have left
    /// nodes that need to be healed.
    pub(crate) fn keeps_all(self, report: &CaseReport) -> bool {
        let passed = |needed: &Needed| needed.axis(&report.id).verdict == Verdict::Pass;
        let explained = report.verdict == Verdict::Pass
            && report.unhealed.is_empty()
            && report.recoveries.iter().all(passed);
        self == Self::All || !explained
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Evidence {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ANY.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| {
            let names = Self::ANY.map(Self::name).join(" or ");
            format!("expected {names}, found {text:?}")
        })
    }
}

/// Folders of evidence: what the API had, what backends have logged, what the cluster says of itself.
const OBJECTS: &str = "objects";
const LOGS: &str = "logs";
const CLUSTER: &str = "cluster";

/// Objects, logs and dumps into a folder. Returns what could not be had.
pub(crate) async fn collect(cx: &Context, folder: &Path) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut keep = |what: &str, done: Result<(), String>| {
        warnings.extend(done.err().map(|error| lacks(what, &error)));
    };
    for kind in [Kind::Service, Kind::EndpointSlice, Kind::Pod] {
        let what = format!("{kind:?}s");
        keep(
            &what,
            objects(cx, kind, folder.join(format!("{OBJECTS}/{what}.json"))).await,
        );
    }
    for pod in cx.logs().backends() {
        let log = cx
            .cluster()
            .log(&pod.namespace, &pod.in_api)
            .await
            .map_err(|error| error.to_string());
        keep(
            &pod.in_api,
            log.and_then(|text| {
                write(
                    &folder.join(format!("{LOGS}/{}.jsonl", pod.server())),
                    text.as_bytes(),
                )
            }),
        );
    }
    let dumps = folder.join(CLUSTER);
    let dumped = match fs::create_dir_all(&dumps) {
        Ok(()) => cx
            .cluster()
            .evidence(&dumps)
            .await
            .map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    keep("the cluster", dumped);
    for part in [OBJECTS, LOGS, CLUSTER] {
        let compressed = compress_large(&folder.join(part));
        keep(part, compressed.map_err(|error| error.to_string()));
    }
    warnings
}

/// Says that there is none of something.
pub(crate) fn lacks(what: &str, error: &dyn fmt::Display) -> String {
    format!("no evidence of {what}: {error}")
}

async fn objects(cx: &Context, kind: Kind, file: PathBuf) -> Result<(), String> {
    let confined = cx.cluster().describe().confined.as_deref();
    let all = all(&cx.cluster().client(), kind, confined);
    let list = all
        .list(&ListParams::default())
        .await
        .map_err(|error| error.to_string())?;
    let values: Result<Vec<Value>, _> = list.items.into_iter().map(serde_json::to_value).collect();
    let text = serde_json::to_vec_pretty(&values.map_err(|error| error.to_string())?);
    write(&file, &text.map_err(|error| error.to_string())?)
}

/// Writes a file, and makes the folder that it is in.
pub(crate) fn write(file: &Path, text: &[u8]) -> Result<(), String> {
    let folder = file.parent().unwrap_or(file);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(file, text))
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execute::tests::report;

    fn ended(verdict: Verdict) -> CaseReport {
        CaseReport {
            verdict,
            ..report(Vec::new())
        }
    }

    fn recovery(starts: u32) -> Needed {
        Needed {
            from: "connect4".into(),
            node: "node1".into(),
            boots: ["b".into(), "b".into()],
            cordoned: false,
            starts,
            unaided: Verdict::Pass,
            healthy: 4,
            connections: Vec::new(),
        }
    }

    #[test]
    fn all_is_kept_of_what_did_not_pass_and_of_what_needed_a_hand() {
        let why = || "w".to_owned();
        let passed = |starts: &[u32], unhealed: &[&str]| CaseReport {
            recoveries: starts.iter().map(|starts| recovery(*starts)).collect(),
            unhealed: unhealed.iter().map(|words| (*words).to_owned()).collect(),
            ..ended(Verdict::Pass)
        };
        for report in [
            ended(Verdict::Fail { why: why() }),
            ended(Verdict::Inconclusive { why: why() }),
            ended(Verdict::NotSupported { why: why() }),
            passed(&[1, 2], &[]),
            passed(&[], &["the agent of n1 stays down"]),
        ] {
            assert!(Evidence::Failed.keeps_all(&report), "{report:?}");
        }
        for report in [passed(&[], &[]), passed(&[1, 1], &[])] {
            assert!(!Evidence::Failed.keeps_all(&report), "{report:?}");
            assert!(Evidence::All.keeps_all(&report));
        }
    }
}
