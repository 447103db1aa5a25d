//! A folder in which nothing changes: how often it is looked at.

use std::{
    path::Path,
    sync::mpsc,
    time::{Duration, Instant},
};

use notify::{EventKind, Watcher as _, event::AccessKind};
use reference_agent::folder::POLL;

use crate::from_files::{LIMIT, Told, service};

/// A feed that takes the opening of the folder by its own scan for a change scans thousands of times in a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_nothing_changes_the_folder_is_opened_once_in_every_poll() {
    let mut told = Told::of(&[("1.yaml", &service("a", "10.96.0.1"))]);
    told.synced().await;
    // Two polls lie between three looks; half of it is left to a slow machine that tells of the first one late.
    let took = tokio::task::block_in_place(|| opened(told.path(), 3));
    assert!(took >= POLL, "three looks in {took:?}");
    told.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_cannot_be_read_is_tried_once_in_every_poll() {
    let mut told = Told::of(&[("1.yaml", &service("a", "10.96.0.1"))]);
    told.synced().await;
    told.write("2.yaml", "{");
    let begin = Instant::now();
    while told.reports.readiness.reasons().is_empty() {
        assert!(begin.elapsed() < LIMIT, "the file is not named");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // A try is a look, and, as the file is to settle, another one that opens it: from one to the one after the next.
    let took = tokio::task::block_in_place(|| opened(told.path(), 7));
    assert!(took >= POLL, "two tries in {took:?}");
    told.end().await;
}

/// In which time a folder, or files of it, are opened so many times more.
fn opened(folder: &Path, times: usize) -> Duration {
    let (sender, opened) = mpsc::channel();
    let mut watcher = notify::recommended_watcher(move |told: notify::Result<notify::Event>| {
        if matches!(
            told.expect("inotify").kind,
            EventKind::Access(AccessKind::Open(_))
        ) {
            // The counter is gone.
            let _over = sender.send(Instant::now());
        }
    })
    .expect("inotify");
    watcher
        .watch(folder, notify::RecursiveMode::NonRecursive)
        .expect("watched");
    let next = || opened.recv_timeout(LIMIT).expect("the folder is looked at");
    let first = next();
    (1..times).fold(first, |_, _| next()) - first
}
