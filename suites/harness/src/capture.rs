//! Packets on a device of a place, captured while a case goes on, and packets that are none of TCP or UDP.

use std::{net::IpAddr, time::Instant};

use cluster::{Family, Place};
use oracle::crossings::{ICMP, Packet};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    process::{Child, ChildStdin},
    task::JoinHandle,
};

use crate::{client::Client, context::Context, host_servers::address_of, verdict::Halt, waiting::has_lasted};

/// Types of ICMP and ICMPv6 that answer an echo.
const REPLIES: [u8; 2] = [0, 129];

/// A capture that goes on. Ended by drop.
#[must_use = "a capture that is not ended shows nothing"]
pub struct Capture {
    place: String,
    child: Child,
    stdin: ChildStdin,
    packets: JoinHandle<Result<Vec<Packet>, String>>,
    stderr: JoinHandle<String>,
}

/// What is sent as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// An ICMP echo request.
    Echo,
    /// A packet of a protocol that nothing speaks.
    UnknownProtocol,
}

impl Capture {
    /// Begins to capture the packets from and to these addresses, on the device of a place that has the first address.
    /// What is sent after this has returned is seen.
    ///
    /// # Errors
    /// Packets can't be captured there.
    pub async fn start(
        cx: &Context,
        place: &Place,
        device_of: IpAddr,
        addresses: &[IpAddr],
    ) -> Result<Self, Halt> {
        let mut argv = ["probe", "capture", "--device-of"].map(str::to_owned).to_vec();
        argv.push(device_of.to_string());
        argv.extend(addresses.iter().map(|address| format!("--address={address}")));
        let mut child = cx.cluster().exec(place, &argv).await?;
        let broken = |what: &str| Halt::Harness(format!("the capture {place} {what}"));
        let (Some(stdin), Some(stdout), Some(mut errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(broken("has no pipes"));
        };
        let stderr = tokio::spawn(async move {
            let mut text = String::new();
            // What can't be read explains nothing.
            let _ = errors.read_to_string(&mut text).await;
            text
        });
        let mut lines = BufReader::new(stdout).lines();
        let begun = tokio::time::timeout(cx.limits().endpoints, lines.next_line()).await;
        if !matches!(begun, Ok(Ok(Some(_)))) {
            drop(stdin);
            let said = tokio::time::timeout(cx.limits().probe, stderr).await;
            let said = said.ok().and_then(Result::ok).unwrap_or_default();
            return Err(broken(&format!("does not begin: {}", said.trim())));
        }
        let packets = tokio::spawn(async move {
            let mut packets = Vec::new();
            while let Some(line) = lines.next_line().await.map_err(|error| error.to_string())? {
                packets.push(serde_json::from_str(&line).map_err(|error| format!("{error} in {line:?}"))?);
            }
            Ok(packets)
        });
        Ok(Self {
            place: place.to_string(),
            child,
            stdin,
            packets,
            stderr,
        })
    }

    /// Ends it. Returns what was captured.
    ///
    /// # Errors
    /// It has ended before, or does not end.
    pub async fn end(mut self, cx: &Context) -> Result<Vec<Packet>, Halt> {
        drop(self.stdin);
        let ended = tokio::time::timeout(cx.limits().endpoints, self.child.wait()).await;
        let broken = |what: String| Halt::Harness(format!("the capture {} {what}", self.place));
        let status = ended.map_err(|_| broken("does not end".to_owned()))?;
        let status = status.map_err(|error| broken(error.to_string()))?;
        let packets = self.packets.await.map_err(|error| broken(error.to_string()))?;
        if !status.success() {
            let said = self.stderr.await.unwrap_or_default();
            return Err(broken(format!("ended with {status}: {}", said.trim())));
        }
        packets.map_err(broken)
    }
}

/// Sends so many packets as they are, to their end.
///
/// # Errors
/// They can't be sent from there.
pub async fn send(cx: &Context, client: &Client, to: IpAddr, what: Sent, count: u16) -> Result<(), Halt> {
    let what = match what {
        Sent::Echo => "echo",
        Sent::UnknownProtocol => "unknown-protocol",
    };
    let argv = [
        "probe".to_owned(),
        "send".to_owned(),
        format!("--to={to}"),
        format!("--what={what}"),
        format!("--count={count}"),
    ];
    let child = cx.cluster().exec(&client.place, &argv).await?;
    let failed = |why: String| Halt::Harness(format!("{} can't send packets to {to}: {why}", client.name));
    let output = tokio::time::timeout(cx.limits().endpoints, child.wait_with_output()).await;
    let output = output.map_err(|_| failed("it does not end".to_owned()))?;
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(())
}

/// How many of so many ICMP echo requests of a client to an address were answered from there, within the limit of a
/// probe.
///
/// # Errors
/// They can't be sent, or seen.
pub async fn echoes(
    cx: &Context,
    client: &Client,
    family: Family,
    to: IpAddr,
    count: u16,
) -> Result<usize, Halt> {
    let own = address_of(cx, client, family).await?;
    let capture = Capture::start(cx, &client.place, own, &[to]).await?;
    send(cx, client, to, Sent::Echo, count).await?;
    has_lasted(Instant::now(), cx.limits().probe).await;
    let packets = capture.end(cx).await?;
    Ok(packets.iter().filter(|packet| is_reply(packet, to)).count())
}

fn is_reply(packet: &Packet, from: IpAddr) -> bool {
    let mut of = ICMP.iter().zip(REPLIES);
    let is = |(protocol, kind): (&u8, u8)| packet.protocol == *protocol && packet.icmp_type == Some(kind);
    !packet.is_sent && packet.source == from && of.any(is)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_an_echo_comes_from_the_address_that_was_asked() {
        let vip: IpAddr = "192.0.2.1".parse().unwrap();
        let reply = Packet {
            time_us: 0,
            is_sent: false,
            source: vip,
            destination: "192.0.2.9".parse().unwrap(),
            protocol: 1,
            bytes: 28,
            hops: 64,
            ports: Some([1, 1]),
            icmp_type: Some(0),
            icmp_code: Some(0),
            about: None,
        };
        assert!(is_reply(&reply, vip));
        assert!(!is_reply(&reply, reply.destination));
        let of_v6 = Packet {
            protocol: 58,
            ..reply.clone()
        };
        assert!(!is_reply(&of_v6, vip), "type 0 is none of ICMPv6");
        assert!(!is_reply(
            &Packet {
                icmp_type: Some(8),
                ..reply
            },
            vip
        ));
    }
}
