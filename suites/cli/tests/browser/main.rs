//! Reports as people see them, in a headless browser: pages of a run that passed, of one that failed, of their comparison,
//! and the SVG file, on a screen and on a phone. Screenshots are in `target/tmp/screenshots`.
//!
//! `browser.rs`: Chromium. `reports/`: runs of one case that tells a mutant from the reference, and of one that does not;
//! `cargo xtask e2e` and `cargo xtask mutants` make such reports.
#![expect(
    clippy::unwrap_used,
    reason = "a test that can not be staged has failed, and says where"
)]

mod browser;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::{Value, json};

use browser::{Browser, Page};

/// A screen, and a phone.
const WIDTHS: [u32; 2] = [1280, 390];

/// The case that failed, and the one that passed beside it.
const FAILED: &str = "release-prefix-null-slice";
const PASSED: &str = "clusterip-from-pod";

/// Below the folder of the tests.
fn report(name: &str) -> PathBuf {
    Path::new("reports").join(name).join("report.yaml")
}

fn plumbline(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_plumbline"))
        .args(arguments)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser"))
        .output();
    output.expect("plumbline runs")
}

/// What `plumbline report` prints, in a file.
fn printed(folder: &Path, name: &str, arguments: &[&str]) -> PathBuf {
    let output = plumbline(&[&["report"], arguments].concat());
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let file = folder.join(name);
    fs::write(&file, output.stdout).unwrap();
    file
}

/// Shows the page at each width, checks what holds for every page, and takes a screenshot of each.
fn at_each_width(browser: &mut Browser, file: &Path, name: &str, check: impl Fn(&mut Page<'_>)) {
    let screenshots = Path::new(env!("CARGO_TARGET_TMPDIR")).join("screenshots");
    fs::create_dir_all(&screenshots).unwrap();
    for width in WIDTHS {
        let mut page = browser.open(file, width);
        assert_eq!(page.requests(), [""; 0], "{name} asks for more than itself");
        fs::write(screenshots.join(format!("{name}-{width}.png")), page.screenshot()).unwrap();
        check(&mut page);
        page.emulate("dark");
        fs::write(
            screenshots.join(format!("{name}-{width}-dark.png")),
            page.screenshot(),
        )
        .unwrap();
        assert_ne!(
            page.evaluate("getComputedStyle(document.body || document.documentElement).color"),
            "rgb(27, 31, 36)"
        );
        page.emulate("print");
        assert_eq!(
            page.evaluate("document.querySelector('.filter')?.offsetHeight || 0"),
            0,
            "no box on paper"
        );
        page.emulate("light");
        page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))");
        let wide = page.evaluate("document.documentElement.scrollWidth");
        assert!(
            wide.as_u64().unwrap() <= u64::from(width),
            "{name} at {width}: {wide} wide"
        );
        assert_eq!(
            page.evaluate(OUTSIDE),
            json!([]),
            "{name} at {width}: elements that are cut off"
        );
        assert_eq!(
            page.evaluate(TINY),
            0,
            "{name} at {width}: text that is too small to read"
        );
        assert_eq!(
            page.evaluate(CUT),
            json!([]),
            "{name} at {width}: names that are cut off"
        );
        assert_eq!(page.errors(), [""; 0]);
    }
}

/// HTML elements that are partly outside the width.
const OUTSIDE: &str = "[...document.querySelectorAll('body *')]
    .filter((each) => each instanceof HTMLElement && !each.closest('thead'))
    .filter((each) => each.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    .map((each) => `${each.tagName} ${each.className} ${each.textContent.slice(0, 60)}`)";

/// Names of clients that do not end before their strips begin.
const CUT: &str = "[...document.querySelectorAll('.chart .client')]
    .filter((each) => each.getBoundingClientRect().width > 0)
    .filter((each) => each.getBoundingClientRect().right >
      each.closest('.chart').querySelector('.strip').getBoundingClientRect().left)
    .map((each) => each.textContent)";

/// The number of texts of charts that are less than 10 pixels high.
const TINY: &str = "[...document.querySelectorAll('.chart text')]
    .filter((each) => each.getBoundingClientRect().height < 10).length";

/// Visible text of an element, or null.
fn text(page: &mut Page<'_>, selector: &str) -> Value {
    page.evaluate(&format!(
        "document.querySelector({selector:?})?.innerText ?? null"
    ))
}

fn has(text: &Value, part: &str) {
    assert!(
        text.as_str().is_some_and(|text| text.contains(part)),
        "no {part:?} in {text}"
    );
}

#[test]
fn a_run_that_failed_shows_what_broke_at_first_sight() {
    let Some(mut browser) = Browser::start_or_skip() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = printed(
        folder.path(),
        "fail.html",
        &[report("fail").to_str().unwrap(), "--html"],
    );
    at_each_width(&mut browser, &file, "report-fail", |page| {
        assert_eq!(text(page, "h1"), "✗ 1 of 2 cases failed");
        has(&text(page, ".banner"), "mutant:prefix-release");
        has(&text(page, ".coverage"), "claims, 2 decided here, 1 kept");
        has(&text(page, ".coverage"), "tested by no case here: ");
        has(&text(page, ".failures"), FAILED);
        let chart = format!("#{FAILED} figure > .chart");
        let count = |page: &mut Page<'_>, part: &str| {
            let found = page.evaluate(&format!("document.querySelectorAll('{chart} {part}').length"));
            found.as_u64().unwrap()
        };
        for part in [".wrong", ".judged", ".mark title", ".strip", ".destination"] {
            assert!(count(page, part) > 0, "{part}");
        }
        has(
            &page.evaluate(&format!(
                "getComputedStyle(document.querySelector('{chart} .wrong')).fill"
            )),
            "hatching",
        );
        has(
            &page.evaluate(&format!(
                "document.querySelector('{chart} .wrong title').textContent"
            )),
            "ECONNREFUSED",
        );
        has(
            &text(page, &format!("#{FAILED} .legend")),
            "wrong: outside what the claim permits",
        );
        has(&text(page, &format!("#{FAILED} .broke")), "refused");
        let findings = format!("document.querySelectorAll('#{FAILED} > .finding').length");
        assert_eq!(page.evaluate(&findings), 3);
        let top = page.evaluate(&format!(
            "document.querySelector('{chart} .wrong').getBoundingClientRect().top"
        ));
        assert!(top.as_f64().unwrap() < 1300.0, "the failure is {top} pixels down");
        assert_eq!(
            page.evaluate(&format!("document.getElementById('{PASSED}').open")),
            false
        );
        let visible = "[...document.querySelectorAll('.case')].filter((each) => each.offsetHeight).map((each) => each.id)";
        page.evaluate(
            "(() => { const box = document.querySelector('.filter input'); box.value = 'release FAIL';
              box.dispatchEvent(new Event('input')); })()",
        );
        assert_eq!(page.evaluate(visible), json!([FAILED]));
        has(&text(page, ".filter [role=status]"), "1 of 2 cases");
        page.evaluate(
            "(() => { const box = document.querySelector('.filter input'); box.value = '';
              box.dispatchEvent(new Event('input')); })()",
        );
        assert_eq!(page.evaluate(visible), json!([FAILED, PASSED]));
    });
}

#[test]
fn a_run_that_passed_says_so_and_folds_its_cases() {
    let Some(mut browser) = Browser::start_or_skip() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = printed(
        folder.path(),
        "pass.html",
        &[report("pass").to_str().unwrap(), "--html"],
    );
    at_each_width(&mut browser, &file, "report-pass", |page| {
        assert_eq!(text(page, "h1"), "✓ All 2 cases passed");
        has(&text(page, ".coverage"), "claims, 2 decided here, 2 kept");
        assert_eq!(
            page.evaluate("document.querySelectorAll('.case[open], .wrong').length"),
            0
        );
        assert_eq!(
            page.evaluate("document.querySelectorAll('tbody .axes .pass').length > 1"),
            true
        );
        page.evaluate(&format!(
            "document.querySelector('a[href=\"#{FAILED}\"]').click()"
        ));
        let top = page.evaluate(&format!(
            "document.getElementById('{FAILED}').getBoundingClientRect().bottom"
        ));
        assert!(
            top.as_f64().unwrap() <= 900.0,
            "the link leads to the case: {top}"
        );
    });
}

#[test]
fn a_comparison_shows_the_failing_timeline_and_who_keeps_what() {
    let Some(mut browser) = Browser::start_or_skip() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("comparison.html");
    let [pass, fail] = ["pass", "fail"].map(report);
    let output = plumbline(&[
        "report",
        "compare",
        pass.to_str().unwrap(),
        fail.to_str().unwrap(),
        "--out",
        file.to_str().unwrap(),
    ]);
    assert_eq!(
        output.status.code(),
        Some(1),
        "they differ: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    at_each_width(&mut browser, &file, "report-compare", |page| {
        assert_eq!(text(page, "h1"), "1 of 2 cases ended differently");
        let changed = format!("#changed ~ #{FAILED}");
        has(&text(page, &changed), "✓ pass");
        has(&text(page, &changed), "✗ fail");
        assert_eq!(
            page.evaluate(&format!(
                "document.querySelectorAll('{changed} .wrong').length > 0"
            )),
            true
        );
        has(&text(page, "#claims ~ .area"), "✗ not kept");
        assert_eq!(page.evaluate("document.querySelectorAll('.case').length"), 1);
    });
}

#[test]
fn a_timeline_is_a_small_picture_of_its_own() {
    let Some(mut browser) = Browser::start_or_skip() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = printed(
        folder.path(),
        "case.svg",
        &[report("fail").to_str().unwrap(), "--svg", FAILED],
    );
    assert!(fs::metadata(&file).unwrap().len() <= 60_000);
    let mut page = browser.open(&file, 860);
    assert_eq!(page.evaluate("document.documentElement.nodeName"), "svg");
    assert_eq!(
        page.evaluate("document.querySelectorAll('.wrong').length > 0"),
        true
    );
    assert_eq!(
        page.evaluate("document.querySelectorAll('parsererror').length"),
        0
    );
    let outside = "(() => { const all = document.documentElement.getBoundingClientRect();
        return [...document.querySelectorAll('text')].filter((each) => {
          const own = each.getBoundingClientRect();
          return own.right > all.right || own.bottom > all.bottom;
        }).map((each) => each.textContent); })()";
    assert_eq!(page.evaluate(outside), json!([]));
    assert_eq!(page.requests(), [""; 0]);
    let screenshots = Path::new(env!("CARGO_TARGET_TMPDIR")).join("screenshots");
    fs::create_dir_all(&screenshots).unwrap();
    fs::write(screenshots.join("timeline.png"), page.screenshot()).unwrap();
}

#[test]
fn files_that_are_no_reports_are_all_named_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("comparison.html");
    let text = folder.path().join("text.yaml");
    fs::write(&text, "format: plumbline.report/v9\n").unwrap();
    let missing = folder.path().join("missing.yaml");
    let good = report("pass");
    let files = [&good, &text, &missing].map(|file| file.to_str().unwrap());
    let output = plumbline(
        &[
            &["report", "compare"],
            &files[..],
            &["--out", out.to_str().unwrap()],
        ]
        .concat(),
    );
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("plumbline.report/v9, which is newer"), "{error}");
    assert!(
        error.contains("missing.yaml") && error.contains("name the report.yaml of a run"),
        "{error}"
    );
    assert!(!out.exists() && output.stdout.is_empty());
}

#[test]
fn reports_that_agree_are_no_change_and_one_report_is_nothing_to_compare() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("comparison.html");
    let file = report("pass");
    let file = file.to_str().unwrap();
    let output = plumbline(&["report", "compare", file, file, "--out", out.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("2 cases ended alike in all reports"), "{said}");
    assert!(
        fs::read_to_string(&out)
            .unwrap()
            .contains("every case ended alike")
    );
    let output = plumbline(&["report", "compare", file]);
    assert_eq!(output.status.code(), Some(2));
    let help = plumbline(&["report", "compare", "--help"]);
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    assert!(help.contains("Exit codes: 0 every case ended alike"), "{help}");
}

#[test]
fn a_timeline_that_is_not_there_is_an_error_that_names_those_that_are() {
    let file = report("fail");
    let file = file.to_str().unwrap();
    for (case, part) in [
        (
            "release-prefix-nul-slice",
            "did you mean release-prefix-null-slice?",
        ),
        (PASSED, "these have one: release-prefix-null-slice"),
    ] {
        let output = plumbline(&["report", file, "--svg", case]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(part), "{error}");
    }
}
