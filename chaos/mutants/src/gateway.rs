//! What no program translates is answered, by a proxy that is no backend of anybody: no bug of its own.
//!
//! As seen with Cilium 1.18.5 and 1.19.5: the ClusterIP of a Service that is gone leaves the node, and a gateway answers it with
//! HTTP 400. Here the node is that gateway: the Service ranges lead to it, in the network namespace of the agent. The proxy ends
//! with the agent; the routes stay, as others that a node has do, and without it the kernel refuses.

use std::{
    collections::BTreeSet,
    io::{self, Read as _, Write as _},
    net::{IpAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use reference_agent::{
    control::DesiredState,
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::ServicePlan,
    transport::Range,
};
use rtnetlink::{
    RouteMessageBuilder, new_connection,
    packet_route::route::{RouteScope, RouteType},
};

/// What a proxy says to who speaks no HTTP.
pub const ANSWER: &str = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
/// The ports of the suite's Services, but those that something else on a node may have.
const PORTS: [u16; 3] = [7480, 7481, 7443];
/// How long a request is waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// `RT_TABLE_LOCAL` of linux/rtnetlink.h.
const LOCAL: u32 = 255;
/// `LOOPBACK_IFINDEX`.
const LOOPBACK: u32 = 1;

/// A desired beside which each Service range is led to a gateway when it is first heard of.
#[derive(Debug)]
pub struct Gateway<B, L> {
    desired: B,
    lead: L,
    led: BTreeSet<Range>,
}

impl<B, L> Gateway<B, L> {
    /// `lead` leads one there. What the desired state does with ranges is its own affair.
    pub fn new(desired: B, lead: L) -> Self {
        Self {
            desired,
            lead,
            led: BTreeSet::new(),
        }
    }
}

impl<B: DesiredState, L: FnMut(Range) + Send> DesiredState for Gateway<B, L> {
    fn apply(&mut self, event: Event) -> Dirty {
        let ranges = match &event {
            Event::ServiceCidrApplied(object) => object.ranges.clone(),
            Event::ServiceRanges(ranges) => ranges.iter().copied().collect(),
            _ => Vec::new(),
        };
        for range in ranges {
            if self.led.insert(range) {
                (self.lead)(range);
            }
        }
        self.desired.apply(event)
    }

    fn plan_service(&self, service: ObjectId) -> ServicePlan {
        self.desired.plan_service(service)
    }

    fn model(&self) -> &Model {
        self.desired.model()
    }
}

/// Leads ranges to this node, where a proxy answers from the first of them on. A gateway that can't be one ends the agent: nobody
/// is to take it for one.
pub fn to_this_node() -> impl FnMut(Range) + Send {
    let proxy = Proxy::default();
    move |range| {
        let led = proxy.answer_in(range).and_then(|()| route(range));
        if let Err(error) = led {
            eprintln!("error: no gateway for {range}: {error}");
            std::process::exit(1);
        }
    }
}

/// A proxy of everything in its ranges, and of nothing else at this node.
#[derive(Clone, Debug, Default)]
struct Proxy(Arc<Mutex<Vec<Range>>>);

impl Proxy {
    /// Answers in one more range.
    fn answer_in(&self, range: Range) -> io::Result<()> {
        let mut ranges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ranges.is_empty() {
            for port in PORTS {
                // Of both families, unless the kernel has IPv4 alone.
                let listener =
                    TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port)))?;
                self.serve(listener);
            }
        }
        ranges.push(range);
        Ok(())
    }

    fn serve(&self, listener: TcpListener) {
        let proxy = self.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let proxy = proxy.clone();
                // Who went meanwhile needs no answer.
                thread::spawn(move || drop(proxy.answer(stream)));
            }
        });
    }

    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        let asked = stream.local_addr()?.ip().to_canonical();
        let ranges = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if ranges
            .iter()
            .any(|range| Range::new(asked, range.length()) == Some(*range))
        {
            stream.set_read_timeout(Some(PATIENCE))?;
            let _ = stream.read(&mut [0; 4096])?;
            stream.write_all(ANSWER.as_bytes())?;
        }
        Ok(())
    }
}

/// The kernel takes what is for these addresses for its own.
fn route(range: Range) -> io::Result<()> {
    let add = async move {
        let (connection, handle, _) = new_connection()?;
        let connection = tokio::spawn(connection);
        let message = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(range.address(), range.length())
            .map_err(io::Error::other)?
            .table_id(LOCAL)
            .kind(RouteType::Local)
            .scope(RouteScope::Host)
            .output_interface(LOOPBACK)
            .build();
        let added = handle.route().add(message).replace().execute().await;
        connection.abort();
        added.map_err(io::Error::other)
    };
    // The agent's own runtime may not be waited in.
    let waiting = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(add)
    });
    waiting
        .join()
        .map_err(|_| io::Error::other("it was not asked for"))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str, length: u8) -> Range {
        Range::new(text.parse().unwrap(), length).unwrap()
    }

    /// What a client gets at 127.0.0.1 from a proxy of these.
    fn answered(ranges: &[Range]) -> String {
        let proxy = Proxy(Arc::new(Mutex::new(ranges.to_vec())));
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        proxy.serve(listener);
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"who are you?\n").unwrap();
        let mut answer = String::new();
        // Who is not answered may be reset.
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn what_is_in_a_range_is_answered_and_the_node_itself_is_not() {
        assert_eq!(answered(&[range("10.96.0.0", 12), range("127.0.0.0", 8)]), ANSWER);
        assert_eq!(answered(&[range("10.96.0.0", 12), range("fd00::", 108)]), "");
    }
}
