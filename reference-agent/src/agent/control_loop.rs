//! The control loop: events and deadlines in, writes out.

use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{Arrival, EVENTS};
use crate::{
    board::Part,
    control::{Brain, Control},
    datapath::Datapath,
    dump,
    hooks::Hooks,
    host::HostWatch,
    maps::{LbMaps as _, MapError},
    model::Kind,
    reports::Reports,
};

/// The longest time from one round to the next.
const IDLE: Duration = Duration::from_millis(500);

/// What others want to know of what the control loop alone may touch. Answered between rounds, when all that was
/// begun is written.
#[derive(Debug)]
pub enum Question {
    /// The maps as text.
    Dump(oneshot::Sender<Result<String, MapError>>),
}

/// All that one thread at a time works on.
pub(super) struct ControlLoop<B, D: Datapath> {
    control: Control<B, D::Maps>,
    hooks: Hooks<D>,
    host: Option<HostWatch>,
    /// The same as the control's, to be read.
    maps: D::Maps,
    reports: Reports,
}

impl<B: Brain, D: Datapath> ControlLoop<B, D> {
    /// Says at once that nothing is ready yet.
    pub(super) fn new(
        control: Control<B, D::Maps>,
        hooks: Hooks<D>,
        host: Option<HostWatch>,
        maps: D::Maps,
        reports: Reports,
    ) -> Self {
        let this = Self {
            control,
            hooks,
            host,
            maps,
            reports,
        };
        this.report();
        this
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
                // The next round takes it.
                () = seen(&mut self.host) => {}
                Some(question) = questions.recv() => tokio::task::block_in_place(|| self.answer(question)),
                () = tokio::time::sleep_until(wake.into()) => {}
            }
        }
    }

    /// Devices that are new are served at once.
    fn take_host(&mut self) {
        let view = self
            .host
            .as_mut()
            .and_then(|host| host.views.borrow_and_update().clone());
        if let Some(view) = view {
            self.hooks.host(view);
        }
    }

    /// Tells which addresses the Node object has, if it has others than before.
    fn tell_host(&self) {
        let Some(host) = &self.host else { return };
        let node = self.control.brain().model().node(&host.node);
        let addresses = node.map_or(&[][..], |node| &node.addresses);
        host.internal.send_if_modified(|before| {
            let differs = before != addresses;
            if differs {
                addresses.clone_into(before);
            }
            differs
        });
    }

    fn round(&mut self, now: Instant) {
        self.tell_host();
        // Its addresses come as an event, and its devices are to be there before programs at the cgroup.
        self.take_host();
        let outstanding = self.control.outstanding();
        self.control.reconcile(now);
        if outstanding {
            self.reports.metrics.round.observe(now.elapsed().as_secs_f64());
        }
        self.hooks.look(self.control.synced(), now);
        self.report();
    }

    /// Whoever asked may have gone away meanwhile.
    fn answer(&self, question: Question) {
        match question {
            Question::Dump(answer) => {
                let text = self.maps.contents().map(|contents| dump::dump(&contents));
                let _gone = answer.send(text);
            }
        }
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
        let Reports { board, metrics, .. } = &self.reports;
        board.say(Part::Hooks, self.hooks.reasons());
        board.say(Part::Lists, unsynced.collect());
        board.say(Part::Maps, self.control.troubles());
        board.beat(Instant::now());
        metrics.ready.at([]).set(i64::from(board.reasons().is_empty()));
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
