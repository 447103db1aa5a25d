//! Tables of CI: the plan with reasons, how each part ended, and its costs.

use std::time::Duration;

use comfy_table::{Table, presets::NOTHING};

use super::{
    board::{Finished, Outcome},
    decide::Decision,
    parts::Part,
    seconds,
};

/// Each part, and whether it would run.
pub(super) fn plan<'a>(plan: impl Iterator<Item = (&'a Part, &'a Decision)>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(["PART", "LANE", "", "WHY"]);
    for (part, decision) in plan {
        let runs = if decision.runs { "runs" } else { "left out" };
        table.add_row([part.name, part.lane.name(), runs, &decision.why]);
    }
    format!("{}\n", table.trim_fmt())
}

/// How each part ended. On two processors, processor time is at most twice the time.
pub(super) fn ended(ended: &[(&Part, Finished)], wall: Duration) -> String {
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_header(["PART", "LANE", "RESULT", "TIME", "PROCESSORS", "WHY"]);
    let mut processor = Duration::ZERO;
    for (part, finished) in ended {
        let (result, why) = result(&finished.outcome);
        let ran = matches!(finished.outcome, Outcome::Passed { .. } | Outcome::Failed(_));
        let time = |time| if ran { seconds(time) } else { "-".to_owned() };
        processor += finished.processor;
        table.add_row([
            part.name,
            part.lane.name(),
            result,
            &time(finished.wall),
            &time(finished.processor),
            why,
        ]);
    }
    let all = format!(
        "all parts: {}, {} of processor time",
        seconds(wall),
        seconds(processor)
    );
    format!("\n{}\n\n{all}\n", table.trim_fmt())
}

/// The outcome of a part.
pub(super) fn one(finished: &Finished) -> String {
    let (result, why) = result(&finished.outcome);
    match finished.outcome {
        Outcome::Passed { .. } | Outcome::Failed(_) => format!(
            "{result}, {}, {} of processor time",
            seconds(finished.wall),
            seconds(finished.processor)
        ),
        _ => format!("{result}: {why}"),
    }
}

fn result(outcome: &Outcome) -> (&'static str, &str) {
    match outcome {
        Outcome::Passed { with_luck: false } => ("passed", ""),
        Outcome::Passed { with_luck: true } => {
            ("passed", "something of it at a later try: no record is kept")
        }
        Outcome::Failed(why) => ("FAILED", why),
        Outcome::LeftOut(why) => ("left out", why),
        Outcome::Lacking(why) => ("left out", why),
        Outcome::NotRun(why) => ("NOT RUN", why),
    }
}
