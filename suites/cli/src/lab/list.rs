//! `plumbline lab list`.

use std::process::ExitCode;

use comfy_table::{Table, presets};
use lab::{Downed, LabCluster};

/// A row: name, state, target and nodes.
type Row = [String; 4];

pub(super) async fn run() -> anyhow::Result<ExitCode> {
    let mut rows = Vec::new();
    for name in lab::labs()? {
        rows.push(row(name).await?);
    }
    print!("{}", render(rows));
    Ok(ExitCode::SUCCESS)
}

async fn row(name: String) -> anyhow::Result<Row> {
    if let Ok(lab) = LabCluster::attach(&name).await {
        let description = lab.cluster().describe();
        let nodes = description.nodes.len().to_string();
        return Ok([name, "up".to_owned(), description.target.clone(), nodes]);
    }
    let state = match lab::standing(&name)? {
        Downed::Up => "begins or ends",
        Downed::Leftovers => "dead: `plumbline cleanup` removes what it has left",
        Downed::Nothing => "gone",
    };
    Ok([name, state.to_owned(), String::new(), String::new()])
}

fn render(rows: Vec<Row>) -> String {
    if rows.is_empty() {
        return "no lab is up, and none has left anything: `plumbline lab up` starts one\n".to_owned();
    }
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(["LAB", "STATE", "TARGET", "NODES"])
        .add_rows(rows);
    table.trim_fmt() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labs_are_rows_and_none_is_a_sentence() {
        let row = ["a", "up", "reference", "2"].map(str::to_owned);
        let text = render(vec![row]);
        assert_eq!(text, " LAB  STATE  TARGET     NODES\n a    up     reference  2\n");
        assert!(render(Vec::new()).contains("plumbline lab up"));
    }
}
