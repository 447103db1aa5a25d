//! `cargo xtask mutants`: the suite against agents with one known bug each.
//!
//! Each mutant names the cases that must fail on it. It is killed if all of them fail while a control passes, a case
//! about something else: a failure of an agent that does not work at all shows nothing. One that is late with everything
//! has no control (`Mutant::control`). A mutant may also name cases
//! that must pass, which guards against wrong failures. Some have no bug at all, and only name these. The agent without
//! a bug runs as well: a case that fails on it can kill nothing. Each mutant is one run, whose cases share a lab unless
//! they are disruptive, of IPv4, or of both families where a case needs both. Many runs are concurrent, the longest by the durations of the agent without a bug first.
//! Inconclusive cases run once more.
//!
//! `brand_x.rs`: a mutant as a user's implementation; `by_chaos.rs`: schedules instead of cases; `list.rs`: the mutants; `trial.rs`: one run; `room.rs`: when it
//! begins; `outcome.rs`: its results; `table.rs`: the printed tables.
pub(crate) mod brand_x;
mod by_chaos;
mod list;
pub(crate) mod outcome;
mod room;
mod table;
mod trial;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Display, Formatter},
    num::NonZero,
    path::PathBuf,
    process::ExitCode,
    str::FromStr,
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use self::{
    by_chaos::Seeds,
    list::list,
    outcome::{Outcome, Outcomes, joined},
    table::{matrix, rows},
    trial::Trial,
};
use crate::{e2e, steps};
use anyhow::bail;

/// Runs the suite against each mutant and prints mutant × case; fails if one survives.
#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: 0 every mutant was killed (by chaos: found), 1 one survived, 2 it or a trial could not run."
)]
pub(crate) struct Arguments {
    /// Only mutants whose name contains this text
    #[arg(long, default_value = "")]
    only: String,
    /// Only a part of them, such as 2/3: the second of three, of which each mutant is in one
    #[arg(long, value_name = "PART/OF", default_value = "1/1")]
    part: Part,
    /// Run every case on every mutant, which takes hours: shows which cases catch which bugs
    #[arg(long)]
    every_case: bool,
    /// Instead of cases, play schedules of chaos on each mutant until one fails, with these seeds in turn: shows how many
    /// it takes. Without the last, such as 1..21
    #[arg(long, value_name = "FROM..TO", conflicts_with_all = ["every_case", "baseline", "run"])]
    by_chaos: Option<Seeds>,
    /// How long each of these schedules lasts
    #[arg(
        long = "for",
        value_name = "DURATION",
        default_value = "20s",
        requires = "by_chaos"
    )]
    lasts: String,
    /// Read the verdicts of the agent without a bug from an earlier report.yaml instead of running it again.
    /// Repeatable, for a second run of its inconclusive cases: a case that failed in any has failed
    #[arg(long, value_name = "FILE")]
    baseline: Vec<PathBuf>,
    /// Number of concurrent runs, each in a cluster of its own; the default depends on the processors
    #[arg(long, value_name = "N")]
    jobs: Option<NonZero<usize>>,
    /// Arguments for `plumbline run`
    #[arg(last = true, value_name = "ARGS")]
    run: Vec<String>,
}

/// Name of the agent without a bug.
const UNMUTATED: &str = "none";
/// Folder of the reports, below the workspace.
const OUT: &str = "target/plumbline/mutants";
/// Limit of concurrent runs for each processor, of two to three cases each: a failing case mostly waits for the
/// recovery limit. Each begins when the machine has room. Sixteen that began at once on two processors were all
/// inconclusive, and half of the cases were on a slow machine.
const PER_PROCESSOR: usize = 4;
/// The limit for runs of inconclusive cases.
const ONCE_MORE: usize = 1;
/// The recovery limit.
const T_HEAL: Duration = Duration::from_secs(90);
/// The option of `plumbline run` for a lab of both families.
const DUAL: &str = "--dual";
/// Controls: the first of these that is not meant to catch the mutant must pass on it.
const CONTROLS: [&str; 2] = ["clusterip-from-pod", "kubesvc-reachable"];

/// A part of the mutants: every so manieth, of all in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// From 1.
    number: usize,
    of: usize,
}

impl Part {
    /// One of so many parts for a commit, by its name: the parts of commits that follow each other are all of them, in
    /// time.
    pub(crate) fn of_commit(name: &str, of: usize) -> Self {
        let end = name.len().saturating_sub(4);
        let hash = name
            .get(end..)
            .and_then(|end| usize::from_str_radix(end, 16).ok());
        Self {
            number: hash.unwrap_or_default() % of + 1,
            of,
        }
    }

    fn has(self, place: usize) -> bool {
        place % self.of == self.number - 1
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (number, of) = text.split_once('/').unwrap_or_default();
        match (number.parse(), of.parse()) {
            (Ok(number), Ok(of)) if (1..=of).contains(&number) => Ok(Self { number, of }),
            _ => Err("expected a part and the number of parts, such as 2/3".to_owned()),
        }
    }
}

impl Display for Part {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.number, self.of)
    }
}

/// An agent with a bug.
struct Mutant {
    name: String,
    /// Ids of the cases and rows that must fail on it.
    caught_by: BTreeSet<String>,
    /// Ids of cases that must pass, besides the control; a mutant without a bug has only these.
    passed_by: BTreeSet<String>,
    /// Whether a control must pass, too.
    has_control: bool,
    /// The case to run for a row that is no case.
    through: BTreeMap<String, String>,
    /// Ids of those that need both families.
    of_both_families: BTreeSet<String>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    e2e::build(&[&e2e::PROGRAMS[..], &["mutants"]].concat())?;
    let mut mutants = list()?;
    mutants.retain(|mutant| mutant.name.contains(&arguments.only));
    let all = mutants.len();
    let mut places = 0..all;
    mutants.retain(|_| places.next().is_some_and(|place| arguments.part.has(place)));
    if mutants.len() < all {
        println!("{} of {all} mutants: part {}", mutants.len(), arguments.part);
    }
    if mutants.is_empty() {
        bail!(
            "part {} of the mutants whose names contain {:?} has none",
            arguments.part,
            arguments.only
        );
    }
    steps::ask_for_root("making the clusters")?;
    let most = processors() * PER_PROCESSOR;
    if let Some(seeds) = arguments.by_chaos {
        let jobs = arguments.jobs.map_or(most, NonZero::get);
        return Ok(by_chaos::search(&mutants, seeds, &arguments.lasts, jobs));
    }
    // Every case runs in the families that were asked for.
    if arguments.every_case || arguments.run.iter().any(|argument| argument == DUAL) {
        for mutant in &mut mutants {
            mutant.of_both_families.clear();
        }
    }
    let mut baseline = if arguments.baseline.is_empty() {
        let named = mutants.iter().flat_map(Mutant::tried);
        unmutated(
            (!arguments.every_case).then(|| named.collect()),
            false,
            &arguments.run,
        )?
    } else {
        joined(&arguments.baseline)?
    };
    let of_both: BTreeSet<&str> = mutants
        .iter()
        .flat_map(|mutant| &mutant.of_both_families)
        .map(String::as_str)
        .collect();
    if !of_both.is_empty() {
        baseline.extend(unmutated(Some(of_both), true, &arguments.run)?);
    }
    if let Some((case, Outcome { verdict, .. })) =
        baseline.iter().find(|(_, outcome)| failing(&outcome.verdict))
    {
        bail!(
            "{case} ends with {verdict} on the unmutated agent, so the suite can kill nothing: mend that first"
        );
    }
    let trials = trials(&mutants, &baseline, arguments.every_case);
    let mut by_mutant: BTreeMap<&str, Outcomes> = BTreeMap::new();
    let mut not_run: BTreeMap<&str, anyhow::Error> = BTreeMap::new();
    // A run of all cases uses the machine fully.
    let most = if arguments.every_case { 1 } else { most };
    let jobs = arguments.jobs.map_or(most, NonZero::get);
    let first = side_by_side(&trials, jobs, |trial| trial.run(&arguments.run));
    let open: Vec<Trial<'_>> = first
        .iter()
        .filter_map(|(trial, tried)| trial.open(tried))
        .collect();
    if !open.is_empty() {
        eprintln!(
            "  ==> {} runs once more, fewer at once, of what they did not decide",
            open.len()
        );
    }
    let again = side_by_side(&open, jobs.min(processors() * ONCE_MORE), |trial| {
        trial.run(&arguments.run)
    });
    for (trial, tried) in first.into_iter().chain(again) {
        match tried {
            Ok(outcomes) => {
                not_run.remove(trial.name());
                by_mutant.entry(trial.name()).or_default().extend(outcomes);
            }
            Err(error) => drop(not_run.insert(trial.name(), error)),
        }
    }
    let results: Vec<(&Mutant, Outcomes)> = mutants
        .iter()
        .map(|mutant| (mutant, by_mutant.remove(&*mutant.name).unwrap_or_default()))
        .collect();
    if arguments.every_case {
        print!("{}", matrix(&baseline, &results));
    } else {
        print!("{}", rows(&baseline, &results));
    }
    let mut killed = 0;
    for (mutant, outcomes) in &results {
        let survived = survived(&mutant.caught_by, &baseline, outcomes);
        let works = mutant
            .control()
            .is_none_or(|control| is(outcomes, control, "pass"));
        let accused = accused(&mutant.passed_by, outcomes);
        killed += usize::from(survived.is_empty() && works && accused.is_empty());
        if not_run.contains_key(&*mutant.name) {
            continue;
        }
        for case in survived {
            println!("{} is not caught by {case}, which is meant to", mutant.name);
        }
        for (case, verdict) in accused {
            println!(
                "{} is accused of what it does not do: {case} ends with {verdict}, and must pass",
                mutant.name
            );
        }
        if !works {
            println!(
                "{} does not pass {}, its control: what caught it may not be its bug",
                mutant.name,
                mutant.control().unwrap_or_default()
            );
        }
    }
    for (name, error) in &not_run {
        println!("{name} has shown nothing: {error:#}");
    }
    println!("{} mutants, {killed} killed", results.len());
    Ok(match (not_run.is_empty(), killed == results.len()) {
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::from(1),
        (false, _) => ExitCode::from(2),
    })
}

/// The verdicts on the agent without a bug, in a lab of both families if `dual`; inconclusive cases run once more, as for mutants. Its failures are shown.
fn unmutated(cases: Option<BTreeSet<&str>>, dual: bool, more: &[String]) -> anyhow::Result<Outcomes> {
    let trial = Trial {
        mutant: None,
        cases,
        dual,
    };
    let mut tried = trial.run(more)?;
    let report = trial.report();
    for line in outcome::shown(&report, &["FAIL ", "INCONCLUSIVE "]) {
        eprintln!("  <== {line}");
    }
    if let Some(open) = trial.open(&Ok(tried.clone())) {
        let cases = open.cases.as_ref().map_or(0, BTreeSet::len);
        eprintln!("  ==> once more: {cases} cases that it did not decide");
        tried = outcome::join(vec![tried, open.run(more)?]);
    }
    Ok(tried)
}

/// A run for each mutant, of its cases or of all; the longest first.
fn trials<'a>(mutants: &'a [Mutant], baseline: &Outcomes, every_case: bool) -> Vec<Trial<'a>> {
    let mut mutants: Vec<&Mutant> = mutants.iter().collect();
    // Each failing case also waits for its recovery limit.
    let takes = |case| baseline.get(case).map_or(T_HEAL, |outcome| outcome.took + T_HEAL);
    mutants.sort_by_key(|mutant| Reverse(mutant.tried().into_iter().map(takes).sum::<Duration>()));
    let trial = |mutant: &'a Mutant| Trial {
        mutant: Some(mutant),
        cases: (!every_case).then(|| mutant.tried()),
        dual: !mutant.of_both_families.is_empty(),
    };
    mutants.into_iter().map(trial).collect()
}

impl Mutant {
    /// The cases that run on the mutant.
    fn tried(&self) -> BTreeSet<&str> {
        let caught_by = self.caught_by.iter().map(String::as_str);
        let passed_by = self.passed_by.iter().map(String::as_str);
        caught_by.chain(passed_by).chain(self.control()).collect()
    }

    /// The control that must pass on it, if one must.
    fn control(&self) -> Option<&'static str> {
        let is_free =
            |control: &&str| !self.caught_by.contains(*control) && !self.passed_by.contains(*control);
        CONTROLS.into_iter().find(is_free).filter(|_| self.has_control)
    }
}

/// Does something with all of these, at most this many at once, each when the machine has room, whatever the results are.
fn side_by_side<'a, T: Sync, R: Send>(
    all: &'a [T],
    jobs: usize,
    work: impl Fn(&'a T) -> R + Sync,
) -> Vec<(&'a T, R)> {
    let next = Mutex::new(all.iter());
    let results = Mutex::new(Vec::new());
    // Each waits for room while it holds up the next ones.
    let turn = || {
        let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
        let one = next.next()?;
        room::wait();
        Some(one)
    };
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(one) = turn() {
                    let result = work(one);
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    results.push((one, result));
                }
            });
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn is(outcomes: &Outcomes, case: &str, wanted: &str) -> bool {
    outcomes
        .get(case)
        .is_some_and(|outcome| outcome.verdict == wanted)
}

/// The cases that should catch a mutant and do not: each must fail on it, and pass on the agent without a bug.
fn survived<'a>(caught_by: &'a BTreeSet<String>, baseline: &Outcomes, mutant: &Outcomes) -> Vec<&'a str> {
    caught_by
        .iter()
        .map(String::as_str)
        .filter(|case| !is(mutant, case, "fail") || !is(baseline, case, "pass"))
        .collect()
}

/// The cases that must pass and do not, with their verdicts.
fn accused<'a>(passed_by: &'a BTreeSet<String>, mutant: &'a Outcomes) -> Vec<(&'a str, &'a str)> {
    let verdict = |case: &'a String| mutant.get(case).map_or("nothing", |outcome| &*outcome.verdict);
    let all = passed_by.iter().map(|case| (case.as_str(), verdict(case)));
    all.filter(|(_, verdict)| *verdict != "pass").collect()
}

fn failing(verdict: &str) -> bool {
    !matches!(verdict, "pass" | "skipped" | "not-supported")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Outcomes whose durations in seconds are their positions.
    pub(super) fn outcomes(pairs: &[(&str, &str)]) -> Outcomes {
        let outcome = |(before, (case, verdict)): (usize, &(&str, &str))| {
            let verdict = (*verdict).to_owned();
            let took = Duration::from_secs(before as u64);
            ((*case).to_owned(), Outcome { verdict, took })
        };
        pairs.iter().enumerate().map(outcome).collect()
    }

    pub(super) fn mutant(name: &str, caught_by: &[&str]) -> Mutant {
        Mutant {
            name: name.to_owned(),
            caught_by: caught_by.iter().map(|case| (*case).to_owned()).collect(),
            passed_by: BTreeSet::new(),
            has_control: true,
            through: BTreeMap::new(),
            of_both_families: BTreeSet::new(),
        }
    }

    #[test]
    fn each_mutant_is_in_one_part_and_each_commit_has_a_part() {
        let parts = ["1/3", "2/3", "3/3"].map(|text| text.parse::<Part>().unwrap());
        for place in 0..10 {
            assert_eq!(parts.iter().filter(|part| part.has(place)).count(), 1, "{place}");
        }
        for (name, part) in [
            ("c20a0000", "1/3"),
            ("c20a0001", "2/3"),
            ("c20a0005", "3/3"),
            ("", "1/3"),
        ] {
            assert_eq!(Part::of_commit(name, 3).to_string(), part, "{name}");
        }
        for text in ["", "3", "0/3", "4/3", "1/0", "a/b"] {
            assert!(text.parse::<Part>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_case_that_must_pass_is_accused_by_any_other_verdict() {
        let must = mutant("m", &["a", "b", "c"]).caught_by;
        let tried = outcomes(&[("a", "pass"), ("b", "inconclusive")]);
        assert_eq!(accused(&must, &tried), [("b", "inconclusive"), ("c", "nothing")]);
        let lawful = Mutant {
            passed_by: [CONTROLS[0].to_owned()].into(),
            ..mutant("m", &[])
        };
        assert_eq!(lawful.tried(), CONTROLS.into());
    }

    #[test]
    fn only_a_case_that_passes_the_unmutated_agent_kills() {
        let baseline = outcomes(&[("a", "pass"), ("b", "skipped")]);
        let [a, b] = [mutant("m", &["a"]).caught_by, mutant("m", &["a", "b"]).caught_by];
        assert!(survived(&a, &baseline, &outcomes(&[("a", "fail")])).is_empty());
        let failing = outcomes(&[("a", "fail"), ("b", "fail")]);
        assert_eq!(
            survived(&b, &baseline, &failing),
            ["b"],
            "the unmutated agent does not pass it"
        );
        assert_eq!(survived(&a, &baseline, &outcomes(&[("a", "pass")])), ["a"]);
        let inconclusive = outcomes(&[("a", "inconclusive")]);
        assert_eq!(survived(&a, &baseline, &inconclusive), ["a"], "it proves nothing");
    }

    #[test]
    fn what_was_not_run_or_not_decided_is_tried_again_and_what_survived_is_not() {
        let mutant = mutant("m", &["a", "b"]);
        let trial = Trial {
            mutant: Some(&mutant),
            cases: Some(mutant.tried()),
            dual: false,
        };
        let open =
            |pairs: &[(&str, &str)]| trial.open(&Ok(outcomes(pairs))).map(|trial| trial.cases.unwrap());
        let control = (CONTROLS[0], "pass");
        assert_eq!(
            open(&[("a", "fail"), ("b", "inconclusive"), control]),
            Some(["b"].into())
        );
        assert_eq!(open(&[("a", "fail"), control]), Some(["b"].into()));
        for verdict in ["fail", "pass", "skipped"] {
            assert_eq!(open(&[("a", verdict), ("b", "fail"), control]), None, "{verdict}");
        }
        assert!(
            trial
                .open(&Err(anyhow::anyhow!("it could not run")))
                .unwrap()
                .cases
                .unwrap()
                .contains("a")
        );
    }

    #[test]
    fn every_mutant_meets_its_cases_and_a_control_that_is_none_of_them_the_longest_first() {
        let mutants = [
            mutant("l", &["d"]),
            mutant("m", &["a", "b"]),
            mutant("n", &["c", CONTROLS[0]]),
        ];
        let late = Mutant {
            has_control: false,
            ..mutant("o", &["c"])
        };
        assert_eq!(late.tried(), ["c"].into());
        assert_eq!(late.control(), None);
        let baseline = outcomes(&[("a", "pass"), ("b", "pass"), ("c", "pass"), ("d", "pass")]);
        let all = trials(&mutants, &baseline, false);
        let cases = |at: usize| all[at].cases.clone().unwrap();
        assert_eq!(all.iter().map(Trial::name).collect::<Vec<_>>(), ["n", "m", "l"]);
        assert_eq!(cases(0), ["c", CONTROLS[0], CONTROLS[1]].into());
        assert_eq!(cases(1), ["a", "b", CONTROLS[0]].into());
        assert!(
            trials(&mutants, &baseline, true)
                .iter()
                .all(|trial| trial.cases.is_none())
        );
    }

    #[test]
    fn a_mutant_whose_case_needs_both_families_meets_all_of_its_cases_in_both() {
        let mut both = mutant("both", &["a", "b"]);
        both.of_both_families.insert("b".to_owned());
        let mutants = [both, mutant("one", &["a"])];
        let all = trials(&mutants, &Outcomes::new(), false);
        let dual: Vec<_> = all.iter().map(|trial| (trial.name(), trial.dual)).collect();
        assert_eq!(dual, [("both", true), ("one", false)]);
    }
}
