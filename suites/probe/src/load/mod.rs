//! Load for benchmarks: how often a thread, or several at once, can do the same exchange, and how long each takes.
//!
//! Unlike those of `client`, these exchanges leave no history: an exchange is a handful of system calls, so that what is measured
//! is the kernel's way to the server and back.
//!
//! | file | holds |
//! |---|---|
//! | this one | the client: [`Work`], [`measure`], [`Measured`]; [`watch`], which sees a change or a start |
//! | `answer` | the server |

mod answer;

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read, Write},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
    str::FromStr,
    thread,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

pub use answer::{Answering, LONGEST_NAME};

use crate::{client::symbol, clock};

/// Bytes of a request, and of an answer: the server's name, and zeros.
pub const MESSAGE: usize = 64;
/// Bytes of one write of a stream.
const BLOCK: usize = 64 * 1024;
/// An exchange that takes longer has failed.
const LIMIT: Duration = Duration::from_secs(1);
/// A connection of [`watch`] that takes longer, and longer than a tenth of the time until then, is given up for another one: what was
/// sent before anybody served is sent again after a second only (RFC 6298, 2.1).
const GIVEN_UP: Duration = Duration::from_millis(20);
/// Longest that a histogram tells apart, in nanoseconds; longer ones count as this.
const LONGEST: u64 = 2_000_000_000;
/// Figures of a latency that are exact.
const FIGURES: u8 = 3;

/// What an exchange is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// A connection with one request and one answer, which the server ends.
    Connect,
    /// A request and an answer on one connection.
    Request,
    /// A datagram and its answer on one socket.
    UdpFlow,
    /// A datagram and its answer on a new socket, so on a new flow.
    UdpNew,
    /// 64 KiB into one connection.
    Stream,
}

impl Work {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Connect,
        Self::Request,
        Self::UdpFlow,
        Self::UdpNew,
        Self::Stream,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Request => "request",
            Self::UdpFlow => "udp-flow",
            Self::UdpNew => "udp-new",
            Self::Stream => "stream",
        }
    }

    /// Which of a server's ports it is for, counted from its first one.
    #[must_use]
    pub fn offset(self) -> u16 {
        match self {
            Self::Connect | Self::UdpFlow | Self::UdpNew => 0,
            Self::Request => 1,
            Self::Stream => 2,
        }
    }

    /// Whether it is made of datagrams.
    #[must_use]
    pub fn is_udp(self) -> bool {
        matches!(self, Self::UdpFlow | Self::UdpNew)
    }
}

impl FromStr for Work {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|work| work.name() == text)
            .ok_or_else(|| {
                let names = Self::ALL.map(Self::name).join(", ");
                format!("expected one of {names}, found {text:?}")
            })
    }
}

/// What a measurement has shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Exchanges that were answered, of all threads.
    pub exchanges: u64,
    /// Bytes that were sent, of streams.
    pub bytes: u64,
    /// Time of the measurement, in seconds.
    pub seconds: f64,
    /// Processor time of the whole machine during the measurement, in seconds, to a hundredth: what else runs there is part of it.
    pub busy_seconds: f64,
    /// Time of an answered exchange, in microseconds: the median, the 99th percentile, the longest.
    pub median_us: f64,
    /// As above.
    pub p99_us: f64,
    /// As above.
    pub longest_us: f64,
    /// Exchanges that were not answered, by the error's name.
    pub failed: BTreeMap<String, u64>,
}

/// Does the work again and again for this long, in so many threads at once, each with a socket of its own.
///
/// # Errors
/// The first connection of a request or a stream can't be made.
pub fn measure(work: Work, to: SocketAddr, lasts: Duration, threads: usize) -> io::Result<Measured> {
    let sockets: Vec<Socket> = (0..threads)
        .map(|_| Socket::open(work, to))
        .collect::<io::Result<_>>()?;
    let mut measured = Measured::default();
    let busy = busy_seconds();
    let begin = Instant::now();
    let done = thread::scope(|scope| {
        let exchanging = |socket| scope.spawn(move || exchanges(socket, work, to, lasts));
        let running: Vec<_> = sockets.into_iter().map(exchanging).collect();
        let joined = running.into_iter().map(thread::ScopedJoinHandle::join);
        joined
            .map(|done| done.unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))))
            .collect::<io::Result<Vec<Done>>>()
    })?;
    measured.seconds = begin.elapsed().as_secs_f64();
    measured.busy_seconds = busy_seconds() - busy;
    let mut times = histogram()?;
    for one in done {
        // Of the same bounds.
        times.add(one.times).map_err(io::Error::other)?;
        measured.bytes += one.bytes;
        for (error, count) in one.failed {
            *measured.failed.entry(error).or_default() += count;
        }
    }
    measured.exchanges = times.len();
    let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1000.0;
    measured.median_us = microseconds(times.value_at_quantile(0.5));
    measured.p99_us = microseconds(times.value_at_quantile(0.99));
    measured.longest_us = microseconds(times.max());
    Ok(measured)
}

/// What a thread has done.
struct Done {
    /// Of the exchanges that were answered, in nanoseconds.
    times: Histogram<u64>,
    bytes: u64,
    failed: BTreeMap<String, u64>,
}

/// All of it is one measurement of a few seconds at most; saturates beyond.
fn histogram() -> io::Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LONGEST, FIGURES).map_err(io::Error::other)
}

fn exchanges(mut socket: Socket, work: Work, to: SocketAddr, lasts: Duration) -> io::Result<Done> {
    let mut done = Done {
        times: histogram()?,
        bytes: 0,
        failed: BTreeMap::new(),
    };
    let begin = Instant::now();
    let mut at = begin;
    while at - begin < lasts {
        match socket.exchange(to) {
            Ok(bytes) => {
                done.bytes += bytes;
                let now = Instant::now();
                let took = u64::try_from((now - at).as_nanos()).unwrap_or(LONGEST);
                done.times.saturating_record(took);
                at = now;
            }
            Err(error) => {
                *done.failed.entry(symbol(&error)).or_default() += 1;
                // What follows on a connection that has failed would fail as well.
                if let Ok(another) = Socket::open(work, to) {
                    socket = another;
                }
                at = Instant::now();
            }
        }
    }
    Ok(done)
}

/// Processor time of this machine since it started, without what was idle (proc(5), /proc/stat: user, nice, system, idle, iowait,
/// irq, softirq, steal, in hundredths of a second); 0 where it can't be read.
fn busy_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().next().unwrap_or_default();
    let numbers = line.split_whitespace().skip(1).take(8);
    let ticks: Vec<u64> = numbers.filter_map(|number| number.parse().ok()).collect();
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    (ticks.iter().sum::<u64>() - idle) as f64 / 100.0
}

/// When a server was reached first, at the last of the destinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// When the first connection that it answered there began, in microseconds since the Unix epoch.
    pub began_us: u64,
    /// Connections until then that were not answered.
    pub failed: u64,
}

/// Connects again and again, `pause` apart, until a server of one of these names answers, at one destination after the other; `None`: it has
/// not within the limit. Those that are served already when their turn comes take one connection each.
#[must_use]
pub fn watch(to: &[SocketAddr], servers: &[String], pause: Duration, limit: Duration) -> Option<Seen> {
    let begin = Instant::now();
    let mut seen = None;
    let mut failed = 0;
    for to in to {
        seen = loop {
            if begin.elapsed() >= limit {
                return None;
            }
            let began_us = clock::now_us();
            match connection(*to, (begin.elapsed() / 10).clamp(GIVEN_UP, LIMIT)) {
                Ok(answer) if servers.iter().any(|server| is_named(&answer, server)) => {
                    break Some(Seen { began_us, failed });
                }
                Ok(_) => {}
                Err(_) => failed += 1,
            }
            thread::sleep(pause);
        };
    }
    seen
}

/// Whether an answer is from the server of this name.
fn is_named(answer: &[u8; MESSAGE], server: &str) -> bool {
    answer.starts_with(server.as_bytes()) && answer.get(server.len()) == Some(&0)
}

/// What the exchanges of some work are made on.
enum Socket {
    /// None: each makes its own.
    Fresh(Work),
    Connection(TcpStream),
    Stream(TcpStream, Box<[u8]>),
    Datagrams(UdpSocket),
}

impl Socket {
    fn open(work: Work, to: SocketAddr) -> io::Result<Self> {
        Ok(match work {
            Work::Connect | Work::UdpNew => Self::Fresh(work),
            Work::Request => Self::Connection(connect(to, LIMIT)?),
            Work::Stream => Self::Stream(connect(to, LIMIT)?, vec![0; BLOCK].into_boxed_slice()),
            Work::UdpFlow => Self::Datagrams(datagrams(to)?),
        })
    }

    /// One exchange. Returns the bytes of a stream.
    fn exchange(&mut self, to: SocketAddr) -> io::Result<u64> {
        match self {
            Self::Fresh(Work::UdpNew) => datagram(&datagrams(to)?),
            Self::Fresh(_) => connection(to, LIMIT).map(|_| 0),
            Self::Connection(stream) => {
                stream.write_all(&REQUEST)?;
                stream.read_exact(&mut [0; MESSAGE]).map(|()| 0)
            }
            Self::Stream(stream, block) => stream.write_all(block).map(|()| block.len() as u64),
            Self::Datagrams(socket) => datagram(socket),
        }
    }
}

/// Any bytes.
const REQUEST: [u8; MESSAGE] = [b'?'; MESSAGE];

fn connect(to: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, limit)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    Ok(stream)
}

/// A connection for one exchange. The server ends it, so that the client's ports do not stay in TIME-WAIT (RFC 9293, 3.6): there
/// are fewer of them than connections in a minute.
fn connection(to: SocketAddr, limit: Duration) -> io::Result<[u8; MESSAGE]> {
    let mut stream = connect(to, limit)?;
    stream.write_all(&REQUEST)?;
    let mut answer = [0; MESSAGE];
    stream.read_exact(&mut answer)?;
    match stream.read(&mut [0; 1])? {
        0 => Ok(answer),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn datagrams(to: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = if to.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(LIMIT))?;
    Ok(socket)
}

fn datagram(socket: &UdpSocket) -> io::Result<u64> {
    socket.send(&REQUEST)?;
    socket.recv(&mut [0; MESSAGE]).map(|_| 0)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn server(name: &str) -> Answering {
        Answering::bind(name, Ipv4Addr::LOCALHOST.into(), 0).unwrap()
    }

    #[test]
    fn each_work_is_counted_and_timed() {
        let server = server("b1");
        let to = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), server.port());
        server.start(1);
        for work in Work::ALL {
            let to = SocketAddr::new(to.ip(), to.port() + work.offset());
            let measured = measure(work, to, Duration::from_millis(50), 1).unwrap();
            assert!(measured.failed.is_empty(), "{work:?}: {measured:?}");
            assert!(measured.exchanges > 10, "{work:?}: {measured:?}");
            assert_eq!(measured.bytes > 0, work == Work::Stream, "{work:?}");
            assert!(measured.seconds >= 0.05);
            let times = [measured.median_us, measured.p99_us, measured.longest_us];
            assert!(times[0] > 0.0 && times.is_sorted(), "{work:?}: {measured:?}");
        }
    }

    #[test]
    fn threads_make_exchanges_at_once() {
        const THREADS: usize = 3;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = listener.local_addr().unwrap();
        // It answers nobody before all have asked.
        thread::spawn(move || {
            let mut all: Vec<TcpStream> = listener.incoming().take(THREADS).map(Result::unwrap).collect();
            let ask = |stream: &mut TcpStream| stream.read_exact(&mut [0; MESSAGE]).is_ok();
            let answer = |stream: &mut TcpStream| stream.write_all(&[0; MESSAGE]).is_ok();
            while all.iter_mut().all(ask) && all.iter_mut().all(answer) {}
        });
        let measured = measure(Work::Request, to, Duration::from_millis(50), THREADS).unwrap();
        assert!(measured.exchanges >= THREADS as u64, "{measured:?}");
        assert!(measured.median_us > 0.0, "{measured:?}");
    }

    #[test]
    fn a_server_of_several_threads_answers_beside_a_slow_client() {
        let server = server("b1");
        let to = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), server.port());
        server.start(2);
        let _asks_nothing = TcpStream::connect(to).unwrap();
        let measured = measure(Work::Connect, to, Duration::from_millis(50), 1).unwrap();
        assert!(measured.exchanges > 0, "{measured:?}");
    }

    #[test]
    fn the_last_of_several_destinations_is_seen() {
        let (one, other) = (server("b1"), server("b1"));
        let at = |port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
        let (first, last) = (at(one.port()), at(other.port()));
        one.start(1);
        let names = ["b0".to_owned(), "b1".to_owned()];
        let seen =
            |to: &[SocketAddr]| watch(to, &names, Duration::from_millis(1), Duration::from_millis(200));
        assert!(seen(&[first, first]).is_some());
        drop(other);
        assert_eq!(seen(&[first, last]), None, "nobody serves the last");
        assert_eq!(seen(&[last, first]), None, "nor the first, then");
        let before = clock::now_us();
        let later = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            Answering::bind("b1", last.ip(), last.port()).unwrap().start(1);
        });
        let seen = watch(
            &[last, first],
            &names,
            Duration::from_millis(1),
            Duration::from_secs(10),
        )
        .unwrap();
        later.join().unwrap();
        assert!(seen.began_us >= before + 50_000 && seen.failed > 0, "{seen:?}");
    }

    #[test]
    fn what_is_refused_is_counted_by_its_error() {
        let gone = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = gone.local_addr().unwrap();
        drop(gone);
        for work in [Work::Connect, Work::UdpNew] {
            let measured = measure(work, to, Duration::from_millis(20), 1).unwrap();
            assert_eq!(measured.exchanges, 0);
            assert!(measured.failed["ECONNREFUSED"] > 0, "{work:?}: {measured:?}");
        }
        assert!(measure(Work::Request, to, Duration::from_millis(20), 1).is_err());
    }

    #[test]
    fn a_server_is_seen_by_its_whole_name() {
        let server = server("b10");
        let to = [SocketAddr::new(Ipv4Addr::LOCALHOST.into(), server.port())];
        server.start(1);
        let before = clock::now_us();
        let seen = |name| watch(&to, &[name], Duration::from_millis(1), Duration::from_millis(100));
        assert_eq!(seen("b1".to_owned()), None);
        let seen = seen("b10".to_owned()).unwrap();
        assert!(seen.began_us >= before);
        assert_eq!(seen.failed, 0);
    }
}
