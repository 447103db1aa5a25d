//! The control loop: events and deadlines in, writes out.

use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Arrival, EVENTS};
use crate::{
    board::{Board, Part},
    control::{Brain, Control},
    datapath::Datapath,
    hooks::Hooks,
    model::Kind,
};

/// The longest time from one round to the next.
const IDLE: Duration = Duration::from_millis(500);

/// All that one thread at a time works on.
pub(super) struct ControlLoop<B, D: Datapath> {
    control: Control<B, D::Maps>,
    hooks: Hooks<D>,
    board: Board,
}

impl<B: Brain, D: Datapath> ControlLoop<B, D> {
    /// Tells the board at once that nothing is ready yet.
    pub(super) fn new(control: Control<B, D::Maps>, hooks: Hooks<D>, board: Board) -> Self {
        let this = Self {
            control,
            hooks,
            board,
        };
        this.report();
        this
    }

    /// Until told to end.
    pub(super) async fn run(mut self, mut events: mpsc::Receiver<Arrival>, shutdown: CancellationToken) {
        let mut batch: Vec<Arrival> = Vec::with_capacity(EVENTS);
        loop {
            tokio::task::block_in_place(|| self.round(Instant::now()));
            let wake = self.wake();
            tokio::select! {
                () = shutdown.cancelled() => return,
                received = events.recv_many(&mut batch, EVENTS), if !events.is_closed() || !events.is_empty() => {
                    tracing::trace!(received, "events");
                    for arrival in batch.drain(..) {
                        self.control.apply(arrival.event);
                    }
                }
                () = tokio::time::sleep_until(wake.into()) => {}
            }
        }
    }

    fn round(&mut self, now: Instant) {
        self.control.reconcile(now);
        self.hooks.look(self.control.synced(), now);
        self.report();
    }

    /// While the hooks wait for the maps, their time is past; the loop comes round anyway, for its beat.
    fn wake(&self) -> Instant {
        let hooks = self.hooks.next().max(Instant::now() + IDLE);
        self.control
            .deadline()
            .into_iter()
            .chain([hooks])
            .min()
            .unwrap_or(hooks)
    }

    fn report(&self) {
        let unsynced = self.control.brain().model().unsynced().map(|kind| {
            let kind = match kind {
                Kind::Service => "services",
                Kind::EndpointSlice => "endpointslices",
                Kind::Node => "nodes",
            };
            format!("{kind} have not been listed yet")
        });
        self.board.say(Part::Hooks, self.hooks.reasons());
        self.board.say(Part::Lists, unsynced.collect());
        self.board.say(Part::Maps, self.control.troubles());
        self.board.beat(Instant::now());
    }
}
