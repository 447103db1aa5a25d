//! Whole screens of runs, as a terminal shows them.

use cluster::{ApiEndpoints, Capability, Description, Node, software};
use harness::{limits::Limits, verdict::Verdict};
use indicatif::{InMemoryTerm, TermLike as _};

use super::{super::estimate::Place, *};
use crate::{
    report::{
        files,
        format::{self, Counts, Explanation, Report},
        golden,
    },
    run::{
        conclusion,
        preamble::Before,
        previous_run::Durations,
        process::{self, Settings, without_run},
        select::Selection,
    },
};

const WIDE: Size = || (80, 24);
const NARROW: Size = || (40, 24);
/// Rows of a terminal that shows a whole run at once.
const ROWS: u16 = 60;

const IDS: [&str; 4] = [
    "clusterip-from-pod",
    "release-prefix-null-slice",
    "release-prefix-empty-list",
    "stale-sock-legacy-multi",
];

/// A run, and the terminal that shows it.
struct Shown {
    terminal: InMemoryTerm,
    size: Size,
    settings: Settings,
    now: Instant,
    progress: Progress,
}

fn case(id: &str) -> Case {
    cases::find(id).unwrap()
}

/// The last run took a minute for each case, one after another.
fn expected(settings: &Settings) -> Expected {
    let minute = Duration::from_secs(60);
    let last = Durations {
        cases: IDS.map(|id| (id.to_owned(), minute)).into(),
        run: minute * u32::try_from(IDS.len()).unwrap(),
    };
    last.expected_of(&IDS.map(case), settings.limits.profile, Place::Labs)
}

fn settings(profile: Profile) -> Settings {
    let out = std::env::current_dir().unwrap().join("target/plumbline");
    Settings {
        limits: Limits::of(profile),
        ..process::tests::settings(&out, None, Duration::ZERO)
    }
}

fn description() -> Description {
    let node = |name: &str| Node {
        name: name.to_owned(),
        addresses: Vec::new(),
    };
    Description {
        provider: "lab".into(),
        target: "reference".into(),
        kernel: "6.12.5".into(),
        nodes: ["node1", "node2"].map(node).into(),
        capabilities: [Capability::Ipv4, Capability::Node].into(),
        lacking: Default::default(),
        features: Default::default(),
        deviations: Vec::new(),
        most_endpoints: None,
        ways: ApiEndpoints {
            service: true,
            further: true,
            shared: false,
        },
        variants: Default::default(),
        image: cluster::PROBE.to_owned(),
        pull_secrets: Vec::new(),
        confined: None,
        software: software::Software {
            kubernetes: Some("v1.36.1".into()),
            agents: vec![software::AgentSoftware {
                name: "reference-agent".into(),
                version: Some("reference-agent 0.1.0".into()),
                ..Default::default()
            }],
            ..Default::default()
        },
        nodes_of_others: 0,
    }
}

impl Shown {
    fn new(size: Size, profile: Profile) -> Self {
        Self::with(size, settings(profile), Verbosity::Normal)
    }

    fn with(size: Size, settings: Settings, verbosity: Verbosity) -> Self {
        let terminal = InMemoryTerm::new(ROWS, u16::try_from(size().0).unwrap());
        let now = Instant::now() + Duration::from_secs(1_000);
        let screen = Screen {
            target: ProgressDrawTarget::term_like(Box::new(terminal.clone())),
            size,
            now: Arc::new(move || now),
            has_colours: true,
        };
        let progress = Progress::on(
            Some(screen),
            verbosity,
            settings.limits.profile,
            settings.interrupted.clone(),
            expected(&settings),
        );
        let shown = Self {
            terminal,
            size,
            settings,
            now,
            progress,
        };
        shown.progress.cases().began = shown.ago(65);
        shown
    }

    fn ago(&self, seconds: u64) -> Instant {
        self.now - Duration::from_secs(seconds)
    }

    fn write(&self, text: &str) {
        for line in text.lines() {
            self.terminal.write_line(line).unwrap();
        }
    }

    fn header(&self, excluded: Vec<(Case, Verdict)>) {
        let run: Vec<Case> = match excluded.is_empty() {
            true => IDS.map(case).into(),
            false => Vec::new(),
        };
        let before = Before {
            cluster: &description(),
            features: &Default::default(),
            not_applied: &[],
            settings: &self.settings,
            selection: &Selection { run, excluded },
            expected: &expected(&self.settings),
            took: Duration::from_secs(3),
        };
        self.write(&before.header((self.size)().0));
    }

    /// Begins a case that runs for these seconds.
    fn begin(&self, id: &str, seconds: u64, phase: &str) -> Line<'_> {
        let line = self.progress.begin(&case(id), "run-1");
        line.phase(phase);
        self.progress.cases().running.last_mut().unwrap().since = self.ago(seconds);
        line
    }

    fn end(&self, line: &Line<'_>, verdict: Verdict) {
        let mut report = without_run(&case(line.id), &self.settings, verdict);
        report.seconds = 51.25;
        line.end(&report, None);
    }

    fn draw(&self) {
        self.progress.drawn.as_ref().unwrap().bar.force_draw();
    }

    /// Ends drawing, and prints the report.
    fn conclude(&self, report: &Report) {
        self.progress.drawn.as_ref().unwrap().bar.finish_and_clear();
        let written = [files::YAML, files::HTML, files::JUNIT].map(|name| self.settings.out.join(name));
        let text = conclusion::shown(
            report,
            &self.settings.out,
            &written,
            Verbosity::Normal,
            (self.size)().0,
        );
        self.write(&text);
    }

    fn contents(&self) -> String {
        self.terminal.contents()
    }

    /// The same with its colours, whose escape characters are readable.
    fn coloured(&self) -> String {
        let bytes = self.terminal.contents_formatted();
        String::from_utf8(bytes).unwrap().replace('\u{1b}', "␛")
    }
}

fn failed() -> Verdict {
    Verdict::Fail {
        why: "1 of 4 axes; IPv4, 1 shared, victim older: t-ext:\n201 of 203 refused".into(),
    }
}

/// A report of these cases, which all passed.
fn report(ids: &[&str], profile: Profile) -> Report {
    let mut report = golden::report();
    let passed = report.cases[0].clone();
    let of = |id: &&str| format::Case {
        id: (*id).to_owned(),
        area: case(id).area.to_owned(),
        evidence: Some(format!("evidence/{id}")),
        replay: format!("plumbline run --filter '^{id}$' --seed 7"),
        undecided: Vec::new(),
        ..passed.clone()
    };
    report.cases = ids.iter().map(of).collect();
    report.run.profile = profile.name().to_owned();
    report.counts = Counts::of(&report.cases);
    report
}

fn explanation() -> Explanation {
    Explanation {
        expected: "Every connection to t-ext is answered by b01.".into(),
        happened: "From 30.4 s on, 201 of 203 connections to t-ext were refused.".into(),
        event: Some(
            "One second before, t (same backend) had been emptied. The EndpointSlice of t-ext still lists b01."
                .into(),
        ),
        next: "Look at how the agent releases a backend when endpoints is null; the timeline is in \
               evidence/release-prefix-null-slice."
            .into(),
    }
}

/// One failure with an explanation, and one without.
fn with_failures() -> Report {
    let mut report = report(&IDS, Profile::Lab);
    for (place, explanation) in [(1, Some(explanation())), (3, None)] {
        let case = &mut report.cases[place];
        case.verdict = format::Verdict::Fail;
        case.why = failed().why().to_owned();
        case.axes[0].verdict = format::Verdict::Fail;
        case.explanation = explanation;
    }
    report.counts = Counts::of(&report.cases);
    report
}

#[test]
fn a_run_under_way_has_a_bar_and_a_line_for_each_case() {
    let shown = Shown::new(WIDE, Profile::Lab);
    shown.header(Vec::new());
    let first = shown.begin(IDS[0], 51, "clients and fence");
    let _second = shown.begin(IDS[1], 34, "IPv4, 1 shared: the Service serves");
    let _third = shown.begin(
        IDS[2],
        5,
        &format!("a phase\nwith wide characters {}", "世界".repeat(20)),
    );
    shown.draw();
    insta::assert_snapshot!("running", shown.contents());
    shown.end(&first, Verdict::Pass);
    shown.draw();
    let text = shown.contents();
    assert!(!text.contains(IDS[0]), "nothing stays of a pass: {text}");
    assert!(text.contains(" 1/4 "), "{text}");
}

#[test]
fn a_failure_stays_above_the_bar() {
    let shown = Shown::new(WIDE, Profile::Lab);
    shown.header(Vec::new());
    let first = shown.begin(IDS[0], 51, "clients and fence");
    let second = shown.begin(IDS[1], 34, "witness");
    let _third = shown.begin(IDS[3], 12, "witness");
    shown.end(&first, Verdict::Pass);
    shown.end(&second, failed());
    shown.draw();
    insta::assert_snapshot!("running.failed", shown.contents());
    insta::assert_snapshot!("running.failed.colours", shown.coloured());
    for line in shown.contents().lines() {
        assert!(terminal::shown_width(line) <= 80, "{line}");
    }
}

#[test]
fn a_narrow_terminal_has_the_same_in_lines_that_fit() {
    let shown = Shown::new(NARROW, Profile::Lab);
    shown.header(Vec::new());
    let first = shown.begin(IDS[0], 51, "clients and fence");
    let _second = shown.begin(IDS[1], 34, &"世界".repeat(20));
    let _third = shown.begin(IDS[3], 5, "witness");
    shown.end(&first, failed());
    shown.draw();
    insta::assert_snapshot!("running.narrow", shown.contents());
    for line in shown.contents().lines() {
        assert!(terminal::shown_width(line) <= 40, "{line}");
    }
}

#[test]
fn more_running_cases_than_rows_are_counted() {
    let shown = Shown::with(|| (80, 5), settings(Profile::Lab), Verbosity::Normal);
    let _all = IDS.map(|id| shown.begin(id, 1, "starts"));
    shown.draw();
    let text = shown.contents();
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(text.ends_with("… and 2 more"), "{text}");
}

#[test]
fn a_passed_run_ends_with_its_table() {
    let shown = Shown::new(WIDE, Profile::Lab);
    shown.header(Vec::new());
    for line in IDS.map(|id| shown.begin(id, 1, "starts")) {
        shown.end(&line, Verdict::Pass);
    }
    shown.draw();
    shown.conclude(&report(&IDS, Profile::Lab));
    insta::assert_snapshot!("pass", shown.contents());
    insta::assert_snapshot!("pass.colours", shown.coloured());
}

#[test]
fn a_failed_run_ends_with_what_broke() {
    let shown = Shown::new(WIDE, Profile::Lab);
    shown.header(Vec::new());
    for id in IDS {
        let line = shown.begin(id, 1, "starts");
        let is_failed = [IDS[1], IDS[3]].contains(&id);
        shown.end(&line, if is_failed { failed() } else { Verdict::Pass });
    }
    shown.draw();
    shown.conclude(&with_failures());
    insta::assert_snapshot!("fail", shown.contents());
    insta::assert_snapshot!("fail.colours", shown.coloured());
}

#[test]
fn an_interrupted_run_says_so_while_it_ends_and_at_its_end() {
    let shown = Shown::new(WIDE, Profile::Lab);
    shown.header(Vec::new());
    let first = shown.begin(IDS[0], 51, "clients and fence");
    let second = shown.begin(IDS[1], 34, "witness");
    shown.end(&first, Verdict::Pass);
    shown.settings.interrupted.cancel();
    shown.draw();
    let text = shown.contents();
    assert!(
        text.contains("interrupted: cases are ended") && !text.contains("left"),
        "{text}"
    );
    let why = "the case's process was interrupted".to_owned();
    shown.end(&second, Verdict::Inconclusive { why: why.clone() });
    let mut report = report(&IDS[..2], Profile::Lab);
    report.interrupted = true;
    report.cases[1].verdict = format::Verdict::Inconclusive;
    report.cases[1].why = why;
    report.cases[1].axes = Vec::new();
    report.counts = Counts::of(&report.cases);
    shown.conclude(&report);
    insta::assert_snapshot!("interrupted", shown.contents());
}

#[test]
fn each_line_of_a_quick_run_is_marked_and_fits() {
    let shown = Shown::new(WIDE, Profile::Quick);
    shown.header(Vec::new());
    let first = shown.begin(IDS[0], 9, "clients and fence");
    let _second = shown.begin(IDS[1], 4, &"a long phase ".repeat(10));
    shown.end(&first, failed());
    shown.draw();
    insta::assert_snapshot!("quick.running", shown.contents());
    shown.conclude(&report(&IDS, Profile::Quick));
    insta::assert_snapshot!("quick", shown.contents());
    for line in shown.contents().lines() {
        assert!(
            line.starts_with("quick") && terminal::shown_width(line) <= 80,
            "{line}"
        );
    }
}

#[test]
fn a_run_without_a_case_says_why() {
    let shown = Shown::new(WIDE, Profile::Lab);
    let why = "needs 2 nodes (there are 1), which lab does not have";
    let skipped = || Verdict::Skipped { why: why.to_owned() };
    shown.header(IDS.map(|id| (case(id), skipped())).into());
    let mut report = report(&IDS, Profile::Lab);
    for case in &mut report.cases {
        case.verdict = format::Verdict::Skipped;
        case.why = why.to_owned();
        case.axes = Vec::new();
    }
    report.counts = Counts::of(&report.cases);
    shown.conclude(&report);
    insta::assert_snapshot!("nothing", shown.contents());
}

#[test]
fn details_are_shown_on_request_and_whole() {
    let phase = "longer-than-a-line".repeat(10);
    for (verbosity, is_shown) in [(Verbosity::Normal, false), (Verbosity::Verbose, true)] {
        let shown = Shown::with(WIDE, settings(Profile::Lab), verbosity);
        let line = shown.begin(IDS[0], 1, &phase);
        let undecided = Verdict::Inconclusive { why: "busy".into() };
        line.undecided(&without_run(&case(IDS[0]), &shown.settings, undecided));
        let text = shown.contents().replace('\n', "");
        assert_eq!(
            text.contains(&format!("{}: {}", IDS[0], phase)),
            is_shown,
            "{text}"
        );
        assert_eq!(text.contains("will be tried again: busy"), is_shown, "{text}");
    }
}

#[test]
fn the_bar_has_a_template() {
    for (profile, has_colours) in [(Profile::Lab, true), (Profile::Quick, false)] {
        let template = template(profile, has_colours);
        assert!(ProgressStyle::with_template(&template).is_ok(), "{template}");
    }
}

#[test]
fn details_before_the_cases_name_everything_in_words() {
    let settings = settings(Profile::Lab);
    let run = vec![case(IDS[0])];
    let why = "needs a client outside, which lab does not have".to_owned();
    let excluded = vec![(case(IDS[1]), Verdict::Skipped { why })];
    let before = Before {
        cluster: &description(),
        features: &Default::default(),
        not_applied: &["slice-union: known of versions <0.1.0".to_owned()],
        settings: &settings,
        selection: &Selection { run, excluded },
        expected: &expected(&settings),
        took: Duration::from_secs(3),
    };
    let text = anstream::adapter::strip_str(&before.details()).to_string();
    insta::assert_snapshot!("details", text);
    assert!(
        before
            .header(80)
            .contains("1 case, about 4 min, seed 7; 1 left out")
    );
}
