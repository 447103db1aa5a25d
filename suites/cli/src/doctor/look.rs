//! Examines the node, with a spinner if that takes long.

use std::{
    io::{IsTerminal as _, stderr},
    time::Duration,
};

use doctor::{Examination, Options, examine};
use indicatif::ProgressBar;
use tokio::time::timeout;

/// An examination takes less, unless the node has very many maps and processes.
const SILENT: Duration = Duration::from_secs(2);
/// Interval of the spinner.
const TICK: Duration = Duration::from_millis(200);

/// Examines this node.
pub(super) async fn look(options: Options, services: bool) -> anyhow::Result<Examination> {
    let mut looking = tokio::task::spawn_blocking(move || {
        let mut examination = examine(&options)?;
        if services {
            examination.read_services();
        }
        anyhow::Ok(examination)
    });
    if let Ok(looked) = timeout(SILENT, &mut looking).await {
        return looked?;
    }
    let spinner = stderr().is_terminal().then(|| {
        let spinner = ProgressBar::new_spinner().with_message("reading programs, maps, and who holds them");
        spinner.enable_steady_tick(TICK);
        spinner
    });
    let looked = looking.await;
    if let Some(spinner) = spinner {
        spinner.finish_and_clear();
    }
    looked?
}
