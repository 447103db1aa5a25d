//! A client that comes back with the port that it had, to the backend's own address instead of the frontend's: as
//! clients do whose first packets were translated on their way, and whose next connection is translated at its socket.

use std::{
    io,
    net::{SocketAddr, TcpStream, UdpSocket},
    time::Duration,
};

use lb_abi::{TCP, UDP, backend_flags};
use socket2::{Domain, Protocol, Socket, Type};
use testing::patience::LIMIT;

use super::{
    MODES,
    network::{FAMILIES, Network},
    packets::{Client, NEVER, announce, attach, counted, expose, open, serve, ways},
};
use crate::support::isolated;

const CLIENT_PORT: u16 = 40_404;
/// Of datagrams, the first answer is lost: the client's refusal of it is what ends the flow.
const TRIES: usize = 5;
/// For how long each of them is waited for.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// From an address and port that an earlier connection may have had, of which the end is still remembered.
pub(super) fn again(from: SocketAddr, protocol: u8, to: SocketAddr) -> io::Result<Client> {
    let (kind, number) = if protocol == TCP {
        (Type::STREAM, Protocol::TCP)
    } else {
        (Type::DGRAM, Protocol::UDP)
    };
    let socket = Socket::new(Domain::for_address(to), kind, Some(number))?;
    socket.set_reuse_address(true)?;
    socket.bind(&from.into())?;
    if protocol == TCP {
        socket.connect_timeout(&to.into(), LIMIT)?;
        return Client::of_stream(TcpStream::from(socket));
    }
    socket.connect(&to.into())?;
    let socket = UdpSocket::from(socket);
    socket.set_read_timeout(Some(ANSWER_LIMIT))?;
    Ok(Client::Udp(socket))
}

#[test]
fn a_client_that_comes_back_around_the_service_hears_of_the_backend_itself() {
    isolated(|node| {
        let network = Network::new();
        for mode in MODES {
            let mut datapath = open(node, mode);
            attach(&mut datapath);
            for family in FAMILIES {
                announce(&datapath, family);
                let backend = serve(&network.pod, family.pod);
                let from = SocketAddr::new(family.client, CLIENT_PORT);
                let [_, vip] = ways(family);
                for protocol in [TCP, UDP] {
                    expose(
                        &datapath,
                        family,
                        protocol,
                        1,
                        Some((backend, backend_flags::LOCAL)),
                    );
                    let answers = network.client.run(move || -> io::Result<_> {
                        let by_service = again(from, protocol, vip)?.ask()?;
                        let mut around = again(from, protocol, backend)?;
                        let mut answer = around.ask();
                        for _ in 1..if protocol == UDP { TRIES } else { 1 } {
                            if answer.is_ok() {
                                break;
                            }
                            answer = around.ask();
                        }
                        Ok((by_service, answer?))
                    });
                    let answers = answers
                        .unwrap_or_else(|error| panic!("{mode:?}, protocol {protocol}, {family:?}: {error}"));
                    assert_eq!(
                        answers,
                        ((backend, from), (backend, from)),
                        "{mode:?}, protocol {protocol}"
                    );
                }
            }
            counted(&datapath, &NEVER);
        }
    });
}
