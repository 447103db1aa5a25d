//! Two VIPs of one backend, and sockets that send to one after the other.
//!
//! The reply of a socket is translated by the socket and its backend. What a leftover has stored for a socket that sent
//! to the first VIP is wrong as soon as that socket sends to the second: only sockets that stay open from one
//! generation to the next show it. New sockets on the ports of former ones are tried as well, ten thousand of each
//! family.

use std::net::SocketAddr;

use cluster::Family;
use harness::{
    context::Context,
    destination::Destination,
    lasting_sockets::{Sockets, Which},
    pods::{Backend, endpoints},
    probing::identities,
    verdict::Halt,
    waiting::Within,
};
use oracle::{
    finding::Finding,
    history::{Attempt, Transport},
    observations,
    peer::Shows,
};
use serde_json::json;

use super::{GETPEERNAME, RECVMSG, of_family};

/// Sockets of each family, of all clients and both transports.
const SOCKETS: u32 = 10_000;
/// Port of the Services.
const PORT: u16 = 7480;
/// Port of the backend.
pub(in super::super) const TARGET: u16 = 8080;

/// The VIPs of one family, and sockets of one kind.
pub(in super::super) struct Twins {
    /// The hook: its axis.
    pub(in super::super) axis: &'static str,
    first: Destination,
    second: Destination,
    /// The backend at its own address.
    direct: Destination,
    /// The peer that a leftover shows, whatever such a socket dials.
    forged: SocketAddr,
    /// Sockets of each client.
    sockets: u32,
}

impl Twins {
    /// The two kinds for a family: unconnected and connected sockets.
    pub(in super::super) async fn stage(
        cx: &Context,
        namespace: &str,
        family: Family,
        backend: &Backend,
        clients: usize,
    ) -> Result<[Self; 2], Halt> {
        let values = json!({
            "namespace": namespace, "family": family.to_string(), "endpoints": endpoints([backend], family)?,
        });
        let first: SocketAddr = (cx.apply_service("first", &values).await?, PORT).into();
        let second: SocketAddr = (cx.apply_service("second", &values).await?, PORT).into();
        let direct: SocketAddr = (backend.address(family)?, TARGET).into();
        let kinds = [(RECVMSG, Transport::Udp), (GETPEERNAME, Transport::UdpConnected)];
        let clients = u32::try_from(clients).unwrap_or(u32::MAX).max(1);
        let sockets = SOCKETS.div_ceil(clients * 2);
        Ok(kinds.map(|(hooks, transport)| {
            let axis = of_family(hooks, family);
            let served = |name, address| {
                let by = identities([backend], transport, TARGET);
                Destination::serves_one_of(axis, name, transport, address, by)
            };
            Self {
                axis,
                first: served("first", first),
                second: served("second", second),
                direct: served("backend", direct),
                forged: first,
                sockets,
            }
        }))
    }

    /// Control: both VIPs serve, and all sockets sent to the first one last.
    pub(in super::super) async fn begin(
        &self,
        cx: &Context,
        sockets: &mut Sockets,
        within: Within,
    ) -> Result<(), Halt> {
        for target in [&self.second, &self.first] {
            let findings = sockets.settle(cx, target, Shows::FrontendOrBackend, within);
            self.require(cx, "control failed (generation 1 serves)", findings.await?);
        }
        let all = Which::Oldest(self.sockets);
        let (_, findings) = sockets
            .exchange(cx, &self.first, all, Shows::FrontendOrBackend)
            .await?;
        self.require(cx, "control failed (generation 1 serves every socket)", findings);
        Ok(())
    }

    /// Witness: with no other program attached, sockets that dial the backend itself show the first VIP as their peer.
    pub(in super::super) async fn is_forged(
        &self,
        cx: &Context,
        sockets: &mut Sockets,
        within: Within,
    ) -> Result<(), Halt> {
        let forged = Shows::Always(self.forged);
        let findings = sockets.settle(cx, &self.direct, forged, within).await?;
        self.require(cx, "not witnessed (the leftover shows the first VIP)", findings);
        Ok(())
    }

    /// Verdict: within the limit sockets of generation 1 show what they dial, and then N of each client.
    pub(in super::super) async fn judge(
        &self,
        cx: &Context,
        sockets: &mut Sockets,
        within: Within,
    ) -> Result<(), Halt> {
        // The rounds that follow show what has not settled.
        let findings = sockets.settle(cx, &self.second, Shows::FrontendOrBackend, within);
        if findings.await?.is_empty() {
            cx.record_delay(self.axis, within.since.elapsed(), within.limit);
        }
        let enough = u32::try_from(self.second.probes(cx.limits())).unwrap_or(u32::MAX);
        let attempts = self.judge_both(cx, sockets, Which::Oldest(enough)).await?;
        cx.record(
            &format!("peers as sockets show them ({})", self.axis),
            format!("{:?}", observations::peers(&attempts)),
        );
        Ok(())
    }

    /// Verdict: it stays so.
    pub(in super::super) async fn judge_again(
        &self,
        cx: &Context,
        sockets: &mut Sockets,
    ) -> Result<(), Halt> {
        let fewest = u32::try_from(self.second.fewest()).unwrap_or(u32::MAX);
        self.judge_both(cx, sockets, Which::Oldest(fewest))
            .await
            .map(drop)
    }

    /// Verdict: new sockets on all ports that generation 1 used show what they dial.
    pub(in super::super) async fn judge_anew(&self, cx: &Context, sockets: &mut Sockets) -> Result<(), Halt> {
        self.judge_round(cx, sockets, &self.second, Which::Anew(self.sockets))
            .await
            .map(drop)
    }

    /// Sends to one VIP and then to the other.
    async fn judge_both(
        &self,
        cx: &Context,
        sockets: &mut Sockets,
        which: Which,
    ) -> Result<Vec<Attempt>, Halt> {
        let mut attempts = self.judge_round(cx, sockets, &self.second, which).await?;
        attempts.extend(self.judge_round(cx, sockets, &self.first, which).await?);
        Ok(attempts)
    }

    async fn judge_round(
        &self,
        cx: &Context,
        sockets: &mut Sockets,
        target: &Destination,
        which: Which,
    ) -> Result<Vec<Attempt>, Halt> {
        if !cx.axes().is_open(self.axis) {
            return Ok(Vec::new());
        }
        let (attempts, findings) = sockets
            .exchange(cx, target, which, Shows::FrontendOrBackend)
            .await?;
        cx.axes().judged(self.axis, findings);
        Ok(attempts)
    }

    fn require(&self, cx: &Context, what: &str, findings: Vec<Finding>) {
        require(cx, self.axis, what, findings);
    }
}

/// An axis with another result is inconclusive.
pub(in super::super) fn require(cx: &Context, axis: &str, what: &str, findings: Vec<Finding>) {
    if let Some(first) = findings.first() {
        let first = first.to_string();
        let why = format!("{what}: {}", first.lines().next().unwrap_or_default());
        cx.axes().inconclusive(axis, why, findings);
    }
}
