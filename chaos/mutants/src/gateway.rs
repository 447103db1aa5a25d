//! Packets that no program translates are answered by a proxy that is no backend: no bug of the agent.
//!
//! Seen with Cilium 1.18.5 and 1.19.5: packets to the ClusterIP of a deleted Service leave the node, and a gateway
//! answers them with HTTP 400. Here the node is that gateway: it routes the Service ranges to itself, in the network
//! namespace of the agent. The proxy ends with the agent; the routes stay, like other routes of a node, and without the
//! proxy the kernel refuses connections.

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
    endpoint_address::Range,
    model::{Dirty, Event, Model},
    names::ObjectId,
    plan::ServicePlan,
};
use rtnetlink::{
    RouteMessageBuilder, new_connection,
    packet_route::route::{RouteScope, RouteType},
};

/// The proxy's response to any request that is not HTTP.
pub const ANSWER: &str = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
/// The ports of the suite's Services, except those that other servers on a node may use.
const PORTS: [u16; 3] = [7480, 7481, 7443];
/// How long the proxy waits for a request.
const PATIENCE: Duration = Duration::from_secs(1);
/// `RT_TABLE_LOCAL` of linux/rtnetlink.h.
const LOCAL: u32 = 255;
/// `LOOPBACK_IFINDEX`.
const LOOPBACK: u32 = 1;

/// A desired state that also routes each new Service range to a gateway.
#[derive(Debug)]
pub struct Gateway<B, L> {
    desired: B,
    route_range: L,
    routed: BTreeSet<Range>,
}

impl<B, L> Gateway<B, L> {
    /// `route_range` routes a range to the gateway. The desired state may still ignore ranges.
    pub fn new(desired: B, route_range: L) -> Self {
        Self {
            desired,
            route_range,
            routed: BTreeSet::new(),
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
            if self.routed.insert(range) {
                (self.route_range)(range);
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

/// Routes ranges to this node, where a proxy answers after the first range. An error ends the agent, because without
/// the gateway results would be wrong.
pub fn to_this_node() -> impl FnMut(Range) + Send {
    let proxy = Proxy::default();
    move |range| {
        let routed = proxy.answer_in(range).and_then(|()| route(range));
        if let Err(error) = routed {
            eprintln!("error: no gateway for {range}: {error}");
            std::process::exit(1);
        }
    }
}

/// A proxy for all addresses in its ranges, and for no others of this node.
#[derive(Clone, Debug, Default)]
struct Proxy(Arc<Mutex<Vec<Range>>>);

impl Proxy {
    /// Answers in another range, too.
    fn answer_in(&self, range: Range) -> io::Result<()> {
        let mut ranges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ranges.is_empty() {
            for port in PORTS {
                // A socket of both families, unless the kernel only has IPv4.
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
                // The client may have gone.
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

/// Adds a local route, so that the kernel accepts packets to these addresses.
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
    // The agent's own runtime does not permit blocking.
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

    /// The response that a client gets at 127.0.0.1 from a proxy for these ranges.
    fn answered(ranges: &[Range]) -> String {
        let proxy = Proxy(Arc::new(Mutex::new(ranges.to_vec())));
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        proxy.serve(listener);
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"who are you?\n").unwrap();
        let mut answer = String::new();
        // A client without a response may get a reset.
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn what_is_in_a_range_is_answered_and_the_node_itself_is_not() {
        assert_eq!(answered(&[range("10.96.0.0", 12), range("127.0.0.0", 8)]), ANSWER);
        assert_eq!(answered(&[range("10.96.0.0", 12), range("fd00::", 108)]), "");
    }
}
