//! Results of a machine's events for its kernel.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use guest::{End, Event, Plan, Step};

use super::{
    archive::Kernel,
    listener::ended,
    machine::{Outcome, Stop},
    programs::{COUNTED, FEATURES, VERIFIER, requested_cases},
};
use crate::mutants::outcome::parsed;

/// Results of one kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Findings {
    /// The full release.
    pub(super) kernel: String,
    /// Features of the kernel, in the order of the probes.
    pub(super) features: Vec<(String, bool)>,
    /// The number of programs that the verifier accepted, and the most instructions that it processed for one.
    pub(super) verified: Option<Verified>,
    /// Results of each test program, by its name.
    pub(super) tests: BTreeMap<String, Tests>,
    /// The verdict of each case.
    pub(super) cases: BTreeMap<String, String>,
    /// All problems, as text.
    pub(super) problems: Vec<String>,
    /// How it ran, and the duration of each program, as text.
    pub(super) took: String,
}

/// Figures of the verifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Verified {
    pub(super) programs: usize,
    pub(super) most_processed: u64,
}

/// Results of a test program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tests {
    pub(super) passed: usize,
    pub(super) failed: Vec<String>,
    /// Name of the test, and the reason.
    pub(super) skipped: Vec<String>,
}

impl Findings {
    /// Version and patch level, such as `6.12`.
    pub(super) fn release(&self) -> String {
        let mut numbers = self.kernel.split(['.', '-', '+']);
        [numbers.next(), numbers.next()]
            .map(Option::unwrap_or_default)
            .join(".")
    }

    /// Whether there are no problems.
    pub(super) fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Parses the events.
pub(super) fn of(kernel: &Kernel, plan: &Plan, outcome: &Outcome) -> Findings {
    let mut findings = Findings {
        kernel: kernel.release.clone(),
        ..Findings::default()
    };
    if outcome.stop != Stop::Over {
        findings.problems.push(outcome.stop.to_string());
    }
    let how = if outcome.accelerated {
        "KVM"
    } else {
        "emulated, without KVM"
    };
    findings.took = how.to_owned();
    if let Some(boot) = outcome.boot {
        findings.took += &format!("; boot {:.0} s", boot.as_secs_f64());
    }
    for event in &outcome.events {
        if let Event::ModuleRefused { module, why } = event {
            findings
                .problems
                .push(format!("module {module} was refused: {why}"));
        }
    }
    for step in &plan.steps {
        Program::of(step, &outcome.events).judge(&mut findings);
    }
    findings
}

/// Events of one program.
struct Program<'a> {
    step: &'a Step,
    lines: Vec<&'a str>,
    files: Vec<Cow<'a, str>>,
    end: Option<(End, Duration)>,
}

impl<'a> Program<'a> {
    fn of(asked: &'a Step, events: &'a [Event]) -> Self {
        let name = asked.name.as_str();
        let mut program = Self {
            step: asked,
            lines: Vec::new(),
            files: Vec::new(),
            end: None,
        };
        for event in events {
            match event {
                Event::Line { step, text } if step == name => program.lines.push(text),
                Event::File { step, path, bytes } if step == name && !COUNTED.contains(&path.as_str()) => {
                    program.files.push(String::from_utf8_lossy(bytes));
                }
                Event::Ended {
                    step,
                    end,
                    milliseconds,
                } if step == name => program.end = Some((*end, Duration::from_millis(*milliseconds))),
                _ => {}
            }
        }
        program
    }

    fn judge(&self, findings: &mut Findings) {
        let name = self.step.name.as_str();
        let Some((end, took)) = self.end else {
            findings.problems.push(format!("{name} did not run to its end"));
            return;
        };
        findings.took += &format!("; {name} {:.0} s", took.as_secs_f64());
        let problem = match name {
            FEATURES => {
                findings.features = self.features();
                (findings.features.is_empty() || end != End::Code(0))
                    .then(|| format!("{}: {}", ended(end), self.lines.join(" / ")))
            }
            VERIFIER => {
                findings.verified = Some(self.verified());
                (end != End::Code(0)).then(|| format!("{}: {}", ended(end), self.refused()))
            }
            "lab" => {
                findings.cases = self.cases();
                let unpassed: Vec<String> = findings
                    .cases
                    .iter()
                    .filter(|(_, verdict)| *verdict != "pass")
                    .map(|(case, verdict)| format!("{case} {verdict}"))
                    .collect();
                (!unpassed.is_empty() || end != End::Code(0))
                    .then(|| format!("{}: {}", ended(end), unpassed.join(", ")))
            }
            _ => {
                let tests = self.tests();
                let is_whole = self.lines.iter().any(|line| line.starts_with("test result: ok"));
                let failed = tests.failed.join(", ");
                let is_none = tests == Tests::default();
                findings.tests.insert(name.to_owned(), tests);
                if is_whole && is_none && end == End::Code(0) {
                    Some("no test ran: none has a name as --filter says".to_owned())
                } else {
                    (!is_whole || end != End::Code(0)).then(|| format!("{}; failed: {failed}", ended(end)))
                }
            }
        };
        findings
            .problems
            .extend(problem.map(|problem| format!("{name}: {problem}")));
    }

    /// Parses lines of a name and `yes` or `no`.
    fn features(&self) -> Vec<(String, bool)> {
        let lines = self.lines.iter().filter_map(|line| line.split_once('\t'));
        lines
            .map(|(name, offered)| (name.to_owned(), offered == "yes"))
            .collect()
    }

    /// Parses lines of four fields, the third of which is the number of processed instructions.
    fn verified(&self) -> Verified {
        let processed = self.lines.iter().filter_map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            (fields.len() == 4).then(|| fields[2].parse::<u64>().ok())?
        });
        processed.fold(Verified::default(), |sum, processed| Verified {
            programs: sum.programs + 1,
            most_processed: sum.most_processed.max(processed),
        })
    }

    fn refused(&self) -> String {
        let errors = self.lines.iter().filter(|line| line.starts_with("error"));
        errors.copied().collect::<Vec<_>>().join(" / ")
    }

    /// Parses `test some::name ... ok`, without tests that are recorded as skipped.
    fn tests(&self) -> Tests {
        let mut tests = Tests {
            skipped: self
                .files
                .iter()
                .flat_map(|file| file.lines())
                .map(str::to_owned)
                .collect(),
            ..Tests::default()
        };
        tests.skipped.sort_unstable();
        tests.skipped.dedup();
        for line in &self.lines {
            let Some((name, result)) = line
                .strip_prefix("test ")
                .and_then(|line| line.split_once(" ... "))
            else {
                continue;
            };
            if result != "ok" {
                if !result.starts_with("ignored") {
                    tests.failed.push(name.to_owned());
                }
            } else if !tests.skipped.iter().any(|skip| is_of(skip, name)) {
                tests.passed += 1;
            }
        }
        tests
    }

    /// The verdict of each requested case, from the suite's report.
    fn cases(&self) -> BTreeMap<String, String> {
        let report = self.files.first().and_then(|text| parsed(text).ok());
        let cases = report.as_ref().and_then(|report| report["cases"].as_array());
        let verdict = |asked: &str| {
            let case = cases?.iter().find(|case| case["id"] == asked)?;
            Some(case["verdict"].as_str()?.to_owned())
        };
        let verdicts = requested_cases(self.step).into_iter().map(|asked| {
            let verdict = verdict(asked).unwrap_or_else(|| "not run".to_owned());
            (asked.to_owned(), verdict)
        });
        verdicts.collect()
    }
}

/// Whether a line of the record is about this test.
fn is_of(skip: &str, test: &str) -> bool {
    skip.strip_prefix(test).is_some_and(|rest| rest.starts_with(": "))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::kernels::programs::{Part, steps};

    fn line(step: &str, text: &str) -> Event {
        Event::Line {
            step: step.to_owned(),
            text: text.to_owned(),
        }
    }

    fn file(step: &str, text: &str) -> Event {
        Event::File {
            step: step.to_owned(),
            path: String::new(),
            bytes: text.as_bytes().to_vec(),
        }
    }

    fn end(step: &str, end: End) -> Event {
        Event::Ended {
            step: step.to_owned(),
            end,
            milliseconds: 1000,
        }
    }

    fn findings(parts: &[Part], events: Vec<Event>, stop: Stop) -> Findings {
        let kernel = Kernel {
            release: "6.12.107+deb13-cloud-amd64".to_owned(),
            image: PathBuf::new(),
            modules: PathBuf::new(),
        };
        let plan = Plan {
            modules: Vec::new(),
            steps: steps(parts, &[], Duration::from_secs(60)).unwrap(),
        };
        let outcome = Outcome {
            events,
            stop,
            accelerated: false,
            boot: None,
        };
        of(&kernel, &plan, &outcome)
    }

    /// A report of the lab's cases with these verdicts, and of a row over many cases, which was not requested.
    fn report(verdicts: &[&str]) -> String {
        let step = steps(&[Part::Lab], &[], Duration::from_secs(60))
            .unwrap()
            .remove(2);
        let mut text = "cases:\n- id: stale-no-reboot\n  verdict: skipped\n".to_owned();
        for (case, verdict) in requested_cases(&step).iter().zip(verdicts) {
            text += &format!("- id: {case}\n  verdict: {verdict}\n");
        }
        text
    }

    fn first() -> Vec<Event> {
        vec![
            line("features", "TCX\tyes"),
            line("features", "netkit\tno"),
            end("features", End::Code(0)),
            line("verifier", "connect4\t90\t1234\t64+8"),
            line("verifier", "connect6\t90\t2234\t64"),
            end("verifier", End::Code(0)),
        ]
    }

    #[test]
    fn what_held_is_counted_and_what_was_skipped_is_no_pass() {
        let mut events = first();
        events.extend([
            line("sockets", "test a::one ... ok"),
            line("sockets", "test a::one_more ... ok"),
            line("sockets", "test a::two ... ignored, of another test"),
            line("sockets", "test result: ok. 2 passed; 0 failed; 1 ignored"),
            file("sockets", "a::one: no TCX\n"),
            Event::File {
                step: "sockets".to_owned(),
                path: COUNTED[0].to_owned(),
                bytes: b"00000001 00000000\n".to_vec(),
            },
            end("sockets", End::Code(0)),
            file("lab", &report(&["pass"; 5])),
            end("lab", End::Code(0)),
        ]);
        let found = findings(&[Part::Sockets, Part::Lab], events, Stop::Over);
        assert_eq!(found.problems, Vec::<String>::new());
        assert_eq!(found.release(), "6.12");
        let features = [("TCX".to_owned(), true), ("netkit".to_owned(), false)];
        assert_eq!(found.features, features);
        let verified = found.verified.unwrap();
        assert_eq!((verified.programs, verified.most_processed), (2, 2234));
        let tests = &found.tests["sockets"];
        assert_eq!((tests.passed, tests.skipped.len()), (1, 1));
        assert_eq!(
            found.cases.len(),
            5,
            "the row over all cases was not asked for: {found:?}"
        );
    }

    #[test]
    fn whatever_did_not_hold_is_named() {
        let check = |events: Vec<Event>, said: &str| {
            let events = [first(), events].concat();
            let found = findings(&[Part::Sockets], events, Stop::Over);
            assert!(!found.is_clean());
            let problems = found.problems.join("\n");
            assert!(problems.contains(said), "{said} in {problems}");
        };
        check(vec![], "sockets did not run to its end");
        check(vec![end("sockets", End::Code(0))], "sockets: done; failed");
        check(
            vec![
                line("sockets", "test result: ok. 0 passed; 0 failed; 90 filtered out"),
                end("sockets", End::Code(0)),
            ],
            "no test ran",
        );
        check(vec![end("sockets", End::Limit)], "killed at its time limit");
        check(
            vec![
                line("sockets", "test a::b ... FAILED"),
                end("sockets", End::Code(101)),
            ],
            "exit code 101; failed: a::b",
        );
        let lab = |verdicts: &[&str]| {
            let lab = vec![file("lab", &report(verdicts)), end("lab", End::Code(1))];
            let found = findings(&[Part::Lab], [first(), lab].concat(), Stop::Over);
            found.problems.join("\n")
        };
        let said = lab(&["pass", "inconclusive", "fail", "pass", "pass"]);
        assert!(
            said.ends_with("release-prefix-null-slice inconclusive, stale-sock-legacy-multi fail"),
            "{said}"
        );
        let said = lab(&["pass"]);
        assert!(said.contains("uninstall-leaves-nothing not run"), "{said}");
        let found = findings(&[], first(), Stop::Panic("not syncing: no init".to_owned()));
        assert!(found.problems[0].contains("no init"), "{:?}", found.problems);
    }
}
