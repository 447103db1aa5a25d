//! The control loop: events and deadlines in, rounds out.

use std::time::Instant;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{Arrival, EVENTS, rounds::Rounds};
use crate::{
    control::DesiredState,
    datapath::Datapath,
    dump,
    host::HostWatch,
    maps::{LbMaps as _, MapError},
    names::ObjectId,
    plan::Plan,
};

/// What others want to know of what the control loop alone may touch. Answered between rounds, when all that was
/// begun is written.
#[derive(Debug)]
pub enum Question {
    /// The maps as text.
    Dump(oneshot::Sender<Result<String, MapError>>),
    /// What the maps should say, from scratch, as text.
    Plan(oneshot::Sender<String>),
}

/// All that one thread at a time works on.
pub(super) struct ControlLoop<B, D: Datapath> {
    rounds: Rounds<B, D>,
    /// The same as the control's, to be read.
    maps: D::Maps,
}

impl<B: DesiredState, D: Datapath> ControlLoop<B, D> {
    /// Says at once that nothing is ready yet.
    pub(super) fn new(rounds: Rounds<B, D>, maps: D::Maps) -> Self {
        rounds.report();
        Self { rounds, maps }
    }

    /// Until told to end.
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
                () = seen(&mut self.rounds.host) => {}
                Some(question) = questions.recv() => tokio::task::block_in_place(|| self.answer(question)),
                () = tokio::time::sleep_until(wake.into()) => {}
            }
        }
    }

    /// Whoever asked may have gone away meanwhile.
    fn answer(&self, question: Question) {
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

/// Returns when the machine has changed; never, if nobody looks at it.
async fn seen(host: &mut Option<HostWatch>) {
    if let Some(host) = host
        && host.views.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}
