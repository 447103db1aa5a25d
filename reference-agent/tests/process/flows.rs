//! Flows that last: every message is answered before the next one is sent, so that one lost is seen.

use std::{
    collections::BTreeMap,
    io::{self, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use testing::patience::LIMIT;

use crate::world::Server;

/// Between two messages, so that agents get to run where there are few processors.
const PAUSE: Duration = Duration::from_millis(1);
/// How often progress is looked for.
const POLL: Duration = Duration::from_millis(1);

/// How a flow is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Manner {
    /// One connection.
    Connection,
    /// One UDP socket that is connected.
    Connected,
    /// One UDP socket that names the Service with each datagram, and sees who answers.
    Unconnected,
}

impl Manner {
    pub(crate) const ALL: [Self; 3] = [Self::Connection, Self::Connected, Self::Unconnected];
}

/// Flows that run until they are stopped.
#[derive(Default)]
pub(crate) struct Flows {
    shared: Arc<Shared>,
    flows: BTreeMap<String, Arc<AtomicU64>>,
    threads: Vec<thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    done: AtomicBool,
    broken: Mutex<Vec<String>>,
}

impl Flows {
    /// Starts a flow; `enter` is called first, on its thread.
    pub(crate) fn start(
        &mut self,
        whence: &str,
        manner: Manner,
        to: SocketAddr,
        enter: impl FnOnce() + Send + 'static,
    ) {
        let name = format!("{manner:?} {whence} -> {to}");
        let answered = Arc::new(AtomicU64::new(0));
        self.flows.insert(name.clone(), answered.clone());
        let shared = self.shared.clone();
        self.threads.push(thread::spawn(move || {
            enter();
            if let Err(error) = shared.run(manner, to, &answered) {
                let answered = answered.load(Ordering::Relaxed);
                let said = format!("{name}: {error} after {answered} answers");
                shared
                    .broken
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(said);
            }
        }));
    }

    /// Waits until every flow has had so many more answers.
    ///
    /// # Panics
    /// A flow is broken.
    pub(crate) fn progress(&self, more: u64, when: &str) {
        let begin = Instant::now();
        let before: Vec<u64> = self
            .flows
            .values()
            .map(|answered| answered.load(Ordering::Relaxed))
            .collect();
        for ((name, answered), before) in self.flows.iter().zip(before) {
            while answered.load(Ordering::Relaxed) < before + more {
                let broken = self.shared.broken.lock().unwrap_or_else(PoisonError::into_inner);
                assert!(broken.is_empty(), "{when}: {}", broken.join("\n"));
                drop(broken);
                assert!(begin.elapsed() < LIMIT * 2, "{when}: {name} stands still");
                thread::sleep(POLL);
            }
        }
    }

    /// Ends them; how many answers each has had.
    pub(crate) fn stop(self) -> BTreeMap<String, u64> {
        self.shared.done.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a flow ends well");
        }
        let broken = self.shared.broken.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(broken.is_empty(), "{}", broken.join("\n"));
        let count =
            |(name, answered): (&String, &Arc<AtomicU64>)| (name.clone(), answered.load(Ordering::Relaxed));
        self.flows.iter().map(count).collect()
    }
}

impl Shared {
    fn run(&self, manner: Manner, to: SocketAddr, answered: &AtomicU64) -> io::Result<()> {
        if manner == Manner::Connection {
            let mut stream = TcpStream::connect_timeout(&to, LIMIT)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(LIMIT))?;
            let mut server: [Server; 1] = [0];
            stream.read_exact(&mut server)?;
            return self.repeat(answered, |number| {
                stream.write_all(&number.to_be_bytes())?;
                let mut answer = [0; 8];
                stream.read_exact(&mut answer)?;
                expect(u64::from_be_bytes(answer), number)
            });
        }
        let any: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.set_read_timeout(Some(LIMIT))?;
        if manner == Manner::Connected {
            socket.connect(to)?;
        }
        self.repeat(answered, |number| {
            // The first octet of an answer says which server it is of.
            let mut answer = [0; 9];
            if manner == Manner::Connected {
                socket.send(&number.to_be_bytes())?;
                socket.recv(&mut answer)?;
            } else {
                socket.send_to(&number.to_be_bytes(), to)?;
                let (_, from) = socket.recv_from(&mut answer)?;
                expect(from, to)?;
            }
            let [_, answer @ ..] = answer;
            expect(u64::from_be_bytes(answer), number)
        })
    }

    fn repeat(&self, answered: &AtomicU64, mut ask: impl FnMut(u64) -> io::Result<()>) -> io::Result<()> {
        while !self.done.load(Ordering::Relaxed) {
            ask(answered.load(Ordering::Relaxed))?;
            answered.fetch_add(1, Ordering::Relaxed);
            thread::sleep(PAUSE);
        }
        Ok(())
    }
}

fn expect<T: Copy + PartialEq + std::fmt::Debug>(found: T, expected: T) -> io::Result<()> {
    if found == expected {
        Ok(())
    } else {
        Err(io::Error::other(format!("{found:?} in place of {expected:?}")))
    }
}
