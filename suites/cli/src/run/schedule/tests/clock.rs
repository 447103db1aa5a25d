//! A clock that advances only when nothing else can happen, so that a schedule of hours runs at once and is
//! deterministic.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures::channel::oneshot;

/// Seconds since the clock was made.
#[derive(Default)]
pub(super) struct Clock {
    now: Cell<u64>,
    /// Timers by due time and number.
    due: RefCell<BTreeMap<(u64, usize), oneshot::Sender<()>>>,
    timers: Cell<usize>,
}

/// Whether a task can continue.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Clock {
    pub(super) fn now(&self) -> u64 {
        self.now.get()
    }

    /// Returns after this many seconds, and never at once.
    pub(super) async fn passes(&self, seconds: u64) {
        let (due, is_due) = oneshot::channel();
        let number = self.timers.replace(self.timers.get() + 1);
        self.due.borrow_mut().insert((self.now() + seconds, number), due);
        is_due.await.expect("the clock runs");
    }

    /// Runs the future to its end.
    pub(super) fn run<T>(&self, what: impl Future<Output = T>) -> T {
        let mut what = pin!(what);
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&woken));
        loop {
            if woken.0.swap(false, Ordering::Relaxed) {
                if let Poll::Ready(value) = what.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return value;
                }
                continue;
            }
            let next = self.due.borrow_mut().pop_first();
            let ((at, _), due) = next.expect("what waits for nothing never ends");
            self.now.set(at);
            // The timer may have been dropped.
            let _ = due.send(());
        }
    }
}
