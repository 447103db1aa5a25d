//! Load for benchmarks: how often one thread can do the same exchange, and how long each takes.
//!
//! Unlike those of `client`, these exchanges leave no history: an exchange is a handful of system calls, so that what is measured
//! is the kernel's way to the server and back.
//!
//! | file | holds |
//! |---|---|
//! | this one | the client: [`Work`], [`measure`], [`Measured`]; [`watch`], which sees a change |
//! | `answer` | the server |

mod answer;

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read, Write},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
    str::FromStr,
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
    /// Exchanges that were answered.
    pub exchanges: u64,
    /// Bytes that were sent, of a stream.
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

/// Does the work again and again for this long, in this thread.
///
/// # Errors
/// The first connection of a request or a stream can't be made.
pub fn measure(work: Work, to: SocketAddr, lasts: Duration) -> io::Result<Measured> {
    let mut socket = Socket::open(work, to)?;
    // All of it is one measurement of a few seconds at most; saturates beyond.
    let mut times = Histogram::<u64>::new_with_bounds(1, LONGEST, FIGURES).map_err(io::Error::other)?;
    let mut measured = Measured::default();
    let busy = busy_seconds();
    let begin = Instant::now();
    let mut at = begin;
    while at - begin < lasts {
        match socket.exchange(to) {
            Ok(bytes) => {
                measured.exchanges += 1;
                measured.bytes += bytes;
                let now = Instant::now();
                times.saturating_record(u64::try_from((now - at).as_nanos()).unwrap_or(LONGEST));
                at = now;
            }
            Err(error) => {
                *measured.failed.entry(symbol(&error)).or_default() += 1;
                // What follows on a connection that has failed would fail as well.
                if let Ok(another) = Socket::open(work, to) {
                    socket = another;
                }
                at = Instant::now();
            }
        }
    }
    measured.seconds = begin.elapsed().as_secs_f64();
    measured.busy_seconds = busy_seconds() - busy;
    let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1000.0;
    measured.median_us = microseconds(times.value_at_quantile(0.5));
    measured.p99_us = microseconds(times.value_at_quantile(0.99));
    measured.longest_us = microseconds(times.max());
    Ok(measured)
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

/// When a server of another name was reached first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// When its first connection began, in microseconds since the Unix epoch.
    pub began_us: u64,
    /// Connections until then that were not answered.
    pub failed: u64,
}

/// Connects again and again, `pause` apart, until a server of this name answers; `None`: none has within the limit.
#[must_use]
pub fn watch(to: SocketAddr, server: &str, pause: Duration, limit: Duration) -> Option<Seen> {
    let begin = Instant::now();
    let mut failed = 0;
    while begin.elapsed() < limit {
        let began_us = clock::now_us();
        match connection(to) {
            Ok(answer) if answer.starts_with(server.as_bytes()) && answer.get(server.len()) == Some(&0) => {
                return Some(Seen { began_us, failed });
            }
            Ok(_) => {}
            Err(_) => failed += 1,
        }
        std::thread::sleep(pause);
    }
    None
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
            Work::Request => Self::Connection(connect(to)?),
            Work::Stream => Self::Stream(connect(to)?, vec![0; BLOCK].into_boxed_slice()),
            Work::UdpFlow => Self::Datagrams(datagrams(to)?),
        })
    }

    /// One exchange. Returns the bytes of a stream.
    fn exchange(&mut self, to: SocketAddr) -> io::Result<u64> {
        match self {
            Self::Fresh(Work::UdpNew) => datagram(&datagrams(to)?),
            Self::Fresh(_) => connection(to).map(|_| 0),
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

fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, LIMIT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    Ok(stream)
}

/// A connection for one exchange. The server ends it, so that the client's ports do not stay in TIME-WAIT (RFC 9293, 3.6): there
/// are fewer of them than connections in a minute.
fn connection(to: SocketAddr) -> io::Result<[u8; MESSAGE]> {
    let mut stream = connect(to)?;
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
    use super::*;

    fn server(name: &str) -> Answering {
        Answering::bind(name, Ipv4Addr::LOCALHOST.into(), 0).unwrap()
    }

    #[test]
    fn each_work_is_counted_and_timed() {
        let server = server("b1");
        let to = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), server.port());
        server.start();
        for work in Work::ALL {
            let to = SocketAddr::new(to.ip(), to.port() + work.offset());
            let measured = measure(work, to, Duration::from_millis(50)).unwrap();
            assert!(measured.failed.is_empty(), "{work:?}: {measured:?}");
            assert!(measured.exchanges > 10, "{work:?}: {measured:?}");
            assert_eq!(measured.bytes > 0, work == Work::Stream, "{work:?}");
            assert!(measured.seconds >= 0.05);
            let times = [measured.median_us, measured.p99_us, measured.longest_us];
            assert!(times[0] > 0.0 && times.is_sorted(), "{work:?}: {measured:?}");
        }
    }

    #[test]
    fn what_is_refused_is_counted_by_its_error() {
        let gone = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = gone.local_addr().unwrap();
        drop(gone);
        for work in [Work::Connect, Work::UdpNew] {
            let measured = measure(work, to, Duration::from_millis(20)).unwrap();
            assert_eq!(measured.exchanges, 0);
            assert!(measured.failed["ECONNREFUSED"] > 0, "{work:?}: {measured:?}");
        }
        assert!(measure(Work::Request, to, Duration::from_millis(20)).is_err());
    }

    #[test]
    fn a_server_is_seen_by_its_whole_name() {
        let server = server("b10");
        let to = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), server.port());
        server.start();
        let before = clock::now_us();
        let seen = |name| watch(to, name, Duration::from_millis(1), Duration::from_millis(100));
        assert_eq!(seen("b1"), None);
        let seen = seen("b10").unwrap();
        assert!(seen.began_us >= before);
        assert_eq!(seen.failed, 0);
    }
}
