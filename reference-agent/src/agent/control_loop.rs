//! The control loop: events and deadlines in, rounds out.

use std::time::Instant;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::rounds::Rounds;
use crate::{
    control::DesiredState,
    datapath::Datapath,
    dump,
    feed::{Arrival, EVENTS},
    host::HostWatch,
    maps::LbMaps as _,
    names::ObjectId,
    plan::Plan,
    status::Question,
};

/// The loop, with everything that only its task may touch.
pub(super) struct ControlLoop<B, D: Datapath> {
    rounds: Rounds<B, D>,
    /// For `/dump`; the same maps as the control's.
    maps: D::Maps,
}

impl<B: DesiredState, D: Datapath> ControlLoop<B, D> {
    /// Reports at once that nothing is ready yet.
    pub(super) fn new(rounds: Rounds<B, D>, maps: D::Maps) -> Self {
        rounds.report();
        Self { rounds, maps }
    }

    /// Runs until `shutdown`.
    pub(super) async fn run(
        mut self,
        mut events: mpsc::Receiver<Arrival>,
        mut questions: mpsc::Receiver<Question>,
        shutdown: CancellationToken,
    ) {
        let mut batch: Vec<Arrival> = Vec::with_capacity(EVENTS);
        loop {
            tokio::task::block_in_place(|| self.rounds.round(Instant::now()));
            let wake = self.rounds.wake();
            tokio::select! {
                () = shutdown.cancelled() => return,
                received = events.recv_many(&mut batch, EVENTS), if !events.is_closed() || !events.is_empty() => {
                    tracing::trace!(received, "events");
                    for arrival in batch.drain(..) {
                        self.rounds.take(arrival);
                    }
                }
                // The next round takes it.
                () = host_changed(&mut self.rounds.host) => {}
                Some(question) = questions.recv() => tokio::task::block_in_place(|| self.answer(question)),
                () = tokio::time::sleep_until(wake.into()) => {}
            }
        }
    }

    fn answer(&self, question: Question) {
        // The receiver of an answer may be gone.
        match question {
            Question::Dump(answer) => {
                let text = self.maps.contents().map(|contents| dump::dump(&contents));
                let _gone = answer.send(text);
            }
            Question::Plan(answer) => {
                let desired = self.rounds.control.desired();
                let services = desired.model().services().map(|(id, _)| id);
                let plan: Plan = services
                    .chain([ObjectId::NODE])
                    .map(|id| (id, desired.plan_service(id)))
                    .collect();
                let _gone = answer.send(dump::planned(&plan));
            }
        }
    }
}

/// Returns when the machine has changed; never without a watch of it.
async fn host_changed(host: &mut Option<HostWatch>) {
    if let Some(host) = host
        && host.views.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}
