//! Transfers of 1 MiB over one connection, and the narrow hop that their packets meet: seen on devices, not assumed.

use std::{net::IpAddr, process::Output, time::Duration};

use cluster::{NARROW, Place};
use oracle::{
    check::{Observed, Times},
    crossings::{Packet, larger_to, too_big_to},
    history::Attempt,
};

use crate::{client::Client, context::Context, destination::Destination, verdict::Halt};

/// What is transferred.
const BYTES: u32 = 1 << 20;
/// It has arrived within this time: of the claims about path MTU discovery, which name it.
const WITHIN: Duration = Duration::from_secs(10);
/// What a client's process takes beside.
const STARTS: Duration = Duration::from_secs(10);

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the backend.
    Upload,
    /// From the backend to the client.
    Download,
}

/// Transfers once between a client, at this address of its own if one is given, and a target.
///
/// # Errors
/// The client can't be started there.
pub async fn transfer(
    cx: &Context,
    client: &Client,
    from: Option<IpAddr>,
    target: &Destination,
    direction: Direction,
) -> Result<Attempt, Halt> {
    let within = WITHIN.mul_f64(cx.limits().scale.max(1.0));
    let mut argv = vec![
        "probe".to_owned(),
        "transfer".to_owned(),
        format!("--client={}", client.name),
        format!("--target={}", target.label()),
        format!("--to={}", target.address),
        format!("--limit={}", within.as_millis()),
    ];
    argv.push(match direction {
        Direction::Upload => format!("--upload={BYTES}"),
        Direction::Download => format!("--download={BYTES}"),
    });
    argv.extend(from.map(|from| format!("--from={from}")));
    let child = cx.cluster().exec(&client.place, &argv).await?;
    let failed = |why: String| Halt::Harness(format!("{} makes no transfer: {why}", client.name));
    let output = tokio::time::timeout(within + STARTS, child.wait_with_output()).await;
    let Output {
        status,
        stdout,
        stderr,
    } = output
        .map_err(|_| failed("it does not end".to_owned()))?
        .map_err(|error| failed(error.to_string()))?;
    let line = String::from_utf8_lossy(&stdout);
    if !status.success() {
        return Err(failed(String::from_utf8_lossy(&stderr).trim().to_owned()));
    }
    let attempt = serde_json::from_str(&line).map_err(|error| failed(format!("{error} in {line:?}")))?;
    cx.history().attempt(line.trim_end(), &attempt);
    Ok(attempt)
}

/// Verdict: transfers of a client to a target were all whole, in time, and by who is permitted.
///
/// # Errors
/// Backends' logs can't be read.
pub async fn judge(
    cx: &Context,
    client: &Client,
    target: &Destination,
    attempts: &[Attempt],
) -> Result<(), Halt> {
    let logs = cx
        .logs()
        .in_the_end(std::slice::from_ref(target), attempts)
        .await?;
    let times = Times {
        probe: WITHIN.mul_f64(cx.limits().scale.max(1.0)),
        ..cx.limits().times()
    };
    let observed = Observed::new(attempts, &logs, times);
    let findings = observed.judge(&target.expectation(client, attempts.len()));
    cx.axes().judged(&target.axis, findings);
    Ok(())
}

/// Witness: at a hop's devices, packets to an address were seen that are too large for it, and errors that say so. An axis
/// without them becomes inconclusive.
pub fn met_hop(cx: &Context, axis: &str, to: IpAddr, packets: &[Packet]) {
    let (larger, errors) = (larger_to(packets, to, NARROW), too_big_to(packets, to));
    cx.record(
        &format!("{axis}: to {to}"),
        format!("{larger} packets larger than {NARROW} bytes, {errors} errors about them"),
    );
    if larger == 0 || errors == 0 {
        let why = format!(
            "the narrow hop was not met: {larger} packets to {to} larger than {NARROW} bytes, {errors} errors about them"
        );
        cx.axes().inconclusive(axis, why, Vec::new());
    }
}

/// Commands that make a hop of a node's route to an address, and those that take it back.
#[must_use]
pub fn narrow_route(to: IpAddr) -> [String; 2] {
    let ip = if to.is_ipv4() { "ip -4" } else { "ip -6" };
    let begin = format!(
        "route=$({ip} route show exact {to} | head -1)\ntest -n \"$route\"\n{ip} route replace $route mtu lock {NARROW}"
    );
    [begin, format!("{ip} route replace $route")]
}

/// Commands that forget what a network has learnt about paths.
pub const FORGET_PATHS: &str = "ip -4 route flush cache\nip -6 route flush cache";

/// The place of a node.
#[must_use]
pub fn on(node: &str) -> Place {
    Place::Host {
        node: node.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_route_is_the_one_that_is_there_of_its_family() {
        let [begin, end] = narrow_route("fd00::5".parse().unwrap());
        assert!(
            begin.starts_with("route=$(ip -6 route show exact fd00::5 |"),
            "{begin}"
        );
        assert!(
            begin.ends_with("ip -6 route replace $route mtu lock 1280"),
            "{begin}"
        );
        assert_eq!(end, "ip -6 route replace $route");
        assert!(narrow_route("10.0.0.5".parse().unwrap())[1].starts_with("ip -4"));
    }
}
