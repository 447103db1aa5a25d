//! Faults, made and healed at their times. Each heals when it is dropped, and ends by itself.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    num::NonZeroU32,
    time::{Duration, Instant},
};

use cluster::{
    ApiFault, Capability, Clients, Family, Fault as Answers, LONGEST, Place, Refusal, Stop, Variant, users,
};
use faults::{
    As, At, ForeignPrograms, Found, LeftoverPrograms, Reattached, Removed, Staging, StoppedAgent, Wiped,
};
use harness::{
    agents::{self, Killed},
    api_faults,
    commands::{Lasting, output},
    context::Context,
    frontends::node_addresses,
    history::now_us,
    verdict::Halt,
    waiting::{Within, has_lasted},
};
use oracle::{
    chaos::Disturbance,
    finding::{Finding, Weight},
};

use super::{
    schedule::{Action, Does, Fault, FaultKind, Schedule},
    storm::storm,
};

/// Events that are late are so much.
const DELAY: Duration = Duration::from_secs(5);
/// How long watches live that break off again and again.
const CUT: Duration = Duration::from_millis(500);
/// Bytes that come of an answer that breaks off, and in a second of a slow one.
const TRUNCATED: usize = 3000;
const SLOW: u32 = 4096;
/// By how many versions the resourceVersion jumps.
pub const JUMP: u32 = 1000;
/// One of so many writes to the kernel fails.
pub const FAILING: NonZeroU32 = NonZeroU32::new(4).unwrap();
/// From one kill of a crash loop to the next.
pub const CRASHES: Duration = Duration::from_millis(700);
/// What is left over until the end of a run ends by itself then, later than any run.
const EXPIRES: Duration = Duration::from_secs(1800);
/// After a third party has removed an implementation's state, all is exact again so much later than after other faults at most
/// (`state-wiped-recovers`: 120 s in place of T_heal).
const WIPED: Duration = Duration::from_secs(30);
/// Hooks of programs that are left over.
const CONNECT: [&str; 2] = ["connect4", "connect6"];
/// The axis of programs of others.
const FOREIGN: &str = "programs of another owner stay";
/// The table of rules that drop packets.
const TABLE: &str = "inet plumbline_chaos";
/// Addresses for documentation (RFC 5737, RFC 3849): no other machine has them.
const FURTHER: [&str; 2] = ["192.0.2.77/32", "2001:db8::77/128"];

/// Kinds of faults that can be made in the cluster of a case, with its target.
///
/// # Errors
/// A node can't be looked at.
pub async fn available(cx: &Context) -> Result<BTreeSet<FaultKind>, Halt> {
    let has = |capability| cx.cluster().describe().capabilities.contains(&capability);
    let on_nodes = has(Capability::Node);
    let found = match cx.nodes().first() {
        Some(node) if on_nodes => Found::on(cx.cluster(), node, EXPIRES).await?,
        _ => Found::default(),
    };
    let (mut has_nft, mut has_ip, mut has_nsenter) = (false, false, false);
    if let Some(node) = cx.nodes().into_iter().next().filter(|_| on_nodes) {
        let place = Place::Host { node };
        has_nft = output(cx, &place, "nft --version").await.is_ok();
        has_ip = output(cx, &place, "ip -V").await.is_ok();
        has_nsenter = output(cx, &place, "nsenter --version && xargs --version")
            .await
            .is_ok();
    }
    // Elsewhere, what the suite does on a node goes by the device, too.
    let is_lab = cx.cluster().describe().provider == "lab";
    let has_connect = CONNECT.iter().any(|hook| found.is_at(hook));
    let can = |kind: &FaultKind| match kind {
        FaultKind::WatchesCut
        | FaultKind::EventsDelayed
        | FaultKind::EventsDropped
        | FaultKind::VersionsExpired
        | FaultKind::ApiBehind
        | FaultKind::ApiUnavailable
        | FaultKind::ApiBusy
        | FaultKind::ApiSlow
        | FaultKind::ListsTruncated => has(Capability::WrongAnswers),
        // A storm of changes only where the API servers are no others' too.
        FaultKind::ApiServerDown | FaultKind::VersionsJump | FaultKind::ChangesStorm => {
            has(Capability::ApiFaults)
        }
        FaultKind::ApiElsewhere => has(Capability::SharedAddress),
        FaultKind::AgentKilled
        | FaultKind::AgentDown
        | FaultKind::AgentFrozen
        | FaultKind::AgentCrashLoop => on_nodes,
        FaultKind::AgentTwice => has_nsenter,
        FaultKind::AgentAfresh => has(Capability::AgentCleanup),
        FaultKind::PinsLost => has(Capability::AgentPins) && !found.pinned_maps.is_empty(),
        FaultKind::ProgramsLeft => has(Capability::AgentPins) && has_connect,
        FaultKind::WritesFail => has(Capability::WriteFailures),
        FaultKind::EntriesWiped => has(Capability::Baseline) && found.added.has("maps"),
        FaultKind::ValuesOverwritten | FaultKind::MapsFull => {
            has(Capability::Baseline) && found.added.has("maps")
        }
        FaultKind::ProgramsDetached => has(Capability::Baseline) && found.added.has_programs(),
        FaultKind::ProgramsForeign => on_nodes,
        FaultKind::AgentOtherMode => {
            on_nodes && cx.cluster().describe().variants.contains(&Variant::OtherMode)
        }
        FaultKind::AddressAdded => has_ip,
        FaultKind::PacketsLost => has_nft,
        FaultKind::NodesApart => has_nft && has_ip && cx.nodes().len() > 1,
        FaultKind::DeviceDown => has_ip && is_lab && cx.nodes().len() > 1,
        FaultKind::PowerLost => has(Capability::PowerLoss),
    };
    Ok(FaultKind::ALL.into_iter().filter(can).collect())
}

/// A fault that is over.
pub struct Made {
    /// What it may have disturbed.
    pub disturbance: Disturbance,
    /// Programs that are left over until the end of the run: the agent has to evict them by itself.
    pub left: Vec<LeftoverPrograms>,
}

/// Makes a fault, lets it last, and heals it.
///
/// # Errors
/// It can't be made or healed.
async fn make(cx: &Context, fault: &Fault) -> Result<Made, Halt> {
    let nodes = cx.nodes();
    let of_one = fault.node.filter(|_| !fault.kind.is_of_all());
    let node = of_one.map(|number| {
        let last = nodes.len().saturating_sub(1);
        nodes[usize::from(number).saturating_sub(1).min(last)].clone()
    });
    let lasts = Duration::from_millis(fault.lasts_ms.into());
    let from_us = now_us();
    let on = match &node {
        Some(node) => vec![node.clone()],
        None => nodes.clone(),
    };
    let mut left = Vec::new();
    match fault.kind {
        FaultKind::ProgramsLeft => {
            for node in &on {
                left.push(programs_left(cx, node).await?);
            }
        }
        kind if kind.is_of_api() => api(cx, kind, &on, lasts).await?,
        kind => on_nodes(cx, kind, &on, lasts).await?,
    }
    let more = if fault.kind.is_of_state() {
        WIPED
    } else {
        Duration::ZERO
    };
    let more = u64::try_from(more.as_micros()).unwrap_or(u64::MAX);
    let disturbance = Disturbance {
        what: match &node {
            Some(node) => format!("{} on {node}", fault.kind.words()),
            None => fault.kind.words().to_owned(),
        },
        fault: fault.kind.name().to_owned(),
        // Packets from other nodes to backends of this one are lost, too.
        node: node.filter(|_| !fault.kind.is_of_links()),
        from_us,
        until_us: now_us().saturating_add(more),
        excuses: fault.kind.excuses(),
    };
    Ok(Made { disturbance, left })
}

/// Makes the faults of the API, or those of nodes, one after the other: two of one kind would undo each other. `began`: since when the
/// times of actions count.
///
/// # Errors
/// One can't be made or healed.
pub async fn lane(cx: &Context, actions: &[Action], of_api: bool, began: Instant) -> Result<Vec<Made>, Halt> {
    let mut all = Vec::new();
    for action in actions {
        if let Does::Fault(fault) = &action.does
            && fault.kind.is_of_api() == of_api
        {
            has_lasted(began, Duration::from_millis(action.at_ms.into())).await;
            all.push(make(cx, fault).await?);
        }
    }
    Ok(all)
}

/// What a fault of the API does to answers; `None`: it is another one.
#[must_use]
pub fn answers(kind: FaultKind) -> Option<Answers> {
    let refuse = |refusal, retry_after| Answers::Refuse { refusal, retry_after };
    Some(match kind {
        FaultKind::WatchesCut => Answers::CutWatches { after: CUT },
        FaultKind::EventsDelayed => Answers::DelayEvents { by: DELAY },
        FaultKind::EventsDropped => Answers::DropEvents,
        FaultKind::VersionsExpired => Answers::Expire,
        FaultKind::ApiBehind => Answers::Lag,
        FaultKind::ApiUnavailable => refuse(Refusal::Unavailable, None),
        FaultKind::ApiBusy => refuse(Refusal::TooManyRequests, Some(1)),
        FaultKind::ApiSlow => Answers::SlowBodies {
            bytes_per_second: SLOW,
        },
        FaultKind::ListsTruncated => Answers::TruncateBodies { after: TRUNCATED },
        _ => return None,
    })
}

async fn api(cx: &Context, kind: FaultKind, nodes: &[String], lasts: Duration) -> Result<(), Halt> {
    let fault = match (answers(kind), kind) {
        (Some(fault), _) => fault,
        (None, FaultKind::VersionsJump) => {
            cx.fault("the resourceVersion jumps");
            return Ok(cx.cluster().control_plane()?.jump_versions(JUMP).await?);
        }
        (None, FaultKind::ChangesStorm) => {
            cx.fault(kind.words());
            let (changes, took) = storm(cx, lasts).await?;
            let rate = f64::from(changes) / took.as_secs_f64();
            cx.fault(&format!(
                "over: {changes} changes of other Services, {rate:.0} a second"
            ));
            return Ok(());
        }
        (None, FaultKind::ApiElsewhere) => {
            let held = api_faults::begin(cx, &ApiFault::SharedAddress, LONGEST).await?;
            last(lasts).await;
            return held.heal().await.map(drop);
        }
        (None, _) => {
            let servers = cx.cluster().control_plane()?.servers().await?;
            let server = servers.first().map_or(1, |server| server.number);
            let how = Stop::Kill;
            let held = api_faults::begin(cx, &ApiFault::Down { server, how }, LONGEST).await?;
            last(lasts).await;
            return held.heal().await.map(drop);
        }
    };
    // Of agents alone: what controllers do late, such as the end of a load balancer, would be no fault of theirs.
    let mut held = Vec::new();
    for node in nodes {
        let answers = ApiFault::Answers {
            server: None,
            clients: Clients::User(users::node(node)),
            fault: fault.clone(),
        };
        held.push(api_faults::begin(cx, &answers, LONGEST).await?);
    }
    last(lasts).await;
    for one in held {
        one.heal().await?;
    }
    Ok(())
}

/// Makes a fault of nodes.
async fn on_nodes(cx: &Context, kind: FaultKind, nodes: &[String], lasts: Duration) -> Result<(), Halt> {
    match kind {
        FaultKind::AgentKilled => Killed::kill(cx, nodes).await?.start(cx).await?,
        FaultKind::AgentDown => {
            let killed = Killed::kill(cx, nodes).await?;
            last(lasts).await;
            killed.start(cx).await?;
        }
        FaultKind::AgentFrozen => frozen(cx, nodes, lasts).await?,
        FaultKind::AgentCrashLoop => {
            let times = (lasts.as_millis() / CRASHES.as_millis()).max(2);
            for _ in 1..times {
                Killed::kill(cx, nodes).await?.start_at_once().await?;
                last(CRASHES).await;
            }
            Killed::kill(cx, nodes).await?.start(cx).await?;
        }
        FaultKind::AgentTwice => {
            for node in nodes {
                twice(cx, node, lasts).await?;
            }
        }
        FaultKind::AgentAfresh => agents::start_afresh(cx, nodes).await?,
        FaultKind::PinsLost => {
            for node in nodes {
                replaced(cx, node, None).await?;
            }
        }
        FaultKind::WritesFail => {
            for node in nodes {
                let before = cx.cluster().agents()?.state(node).await?;
                let watched = api_faults::watch_writes(cx, node, LONGEST).await?;
                agents::ready(cx, node, &before, Within::from_now(cx.limits().heal)).await?;
                cx.cluster().agents()?.fail_writes(node, Some(FAILING)).await?;
                last(lasts).await;
                let failed = cx.cluster().agents()?.fail_writes(node, None).await?;
                cx.fault(&format!(
                    "over: {failed} writes of the agent of {node} have failed"
                ));
                watched.heal().await?;
            }
        }
        FaultKind::AgentOtherMode => {
            for node in nodes {
                other_mode(cx, node, lasts).await?;
            }
        }
        FaultKind::EntriesWiped
        | FaultKind::ValuesOverwritten
        | FaultKind::MapsFull
        | FaultKind::ProgramsDetached => {
            let what = match kind {
                FaultKind::EntriesWiped => Wiped::Entries,
                FaultKind::ValuesOverwritten => Wiped::Values,
                FaultKind::MapsFull => Wiped::Room,
                _ => Wiped::Programs,
            };
            for node in nodes {
                let Removed(count) = Removed::from(cx.cluster(), node, what).await?;
                cx.fault(&format!("{}: {count} on {node}", kind.words()));
                if count == 0 {
                    return Err(not_witnessed(
                        kind,
                        node,
                        "its maps were empty or full, or its programs gone",
                    ));
                }
            }
        }
        FaultKind::ProgramsForeign => foreign(cx, nodes, lasts).await?,
        FaultKind::PowerLost => {
            let mut lost = Vec::new();
            for node in nodes {
                lost.push(api_faults::lose_power(cx, node, LONGEST).await?);
            }
            last(lasts).await;
            for one in lost {
                one.heal().await?;
            }
        }
        kind => changed(cx, kind, nodes, lasts).await?,
    }
    Ok(())
}

/// Changes nodes by commands, for a while.
async fn changed(cx: &Context, kind: FaultKind, nodes: &[String], lasts: Duration) -> Result<(), Halt> {
    let mut changed = Vec::new();
    for node in nodes {
        let place = Place::Host { node: node.clone() };
        let [begin, end] = match kind {
            FaultKind::AddressAdded => {
                let device = uplink(cx, node).await?;
                let further = cx.families().into_iter().map(|family| match family {
                    Family::IPv4 => FURTHER[0],
                    Family::IPv6 => FURTHER[1],
                });
                let each = |verb: &str| -> String {
                    let each = further
                        .clone()
                        .map(|address| format!("ip address {verb} {address} dev {device}"));
                    each.collect::<Vec<_>>().join(" && ")
                };
                [each("add"), each("delete")]
            }
            FaultKind::DeviceDown => {
                let device = uplink(cx, node).await?;
                [
                    format!("ip link set {device} down"),
                    restored(cx, &place, &device).await?,
                ]
            }
            FaultKind::NodesApart => {
                let others = addresses_of_links(cx, node).await?.join(", ");
                [
                    format!(
                        "nft add table {TABLE} && \
                         nft 'add chain {TABLE} in {{ type filter hook prerouting priority -310 ; }}' && \
                         nft 'add rule {TABLE} in ether saddr {{ {others} }} drop'"
                    ),
                    format!("nft delete table {TABLE}"),
                ]
            }
            _ => [
                format!(
                    "nft add table {TABLE}\n\
                     nft 'add chain {TABLE} in {{ type filter hook prerouting priority -310 ; }}'\n\
                     nft 'add rule {TABLE} in iifname != \"lo\" meta l4proto {{ tcp, udp }} numgen random mod 20 == 0 drop'"
                ),
                format!("nft delete table {TABLE}"),
            ],
        };
        changed.push(Lasting::begin(cx, &place, [&begin, &end], LONGEST).await?);
    }
    last(lasts).await;
    for one in changed {
        one.end(cx).await?;
    }
    Ok(())
}

/// The first address of a node of which this is true.
fn address(cx: &Context, is_wanted: impl Fn(&str) -> bool) -> Option<IpAddr> {
    let families = cx.families();
    let mut all = families.iter().flat_map(|family| node_addresses(cx, *family));
    all.find(|(node, _)| is_wanted(node)).map(|(_, address)| address)
}

/// The device by which a node reaches the others.
async fn uplink(cx: &Context, node: &str) -> Result<String, Halt> {
    let address = address(cx, |other| other != node)
        .ok_or_else(|| Halt::Harness(format!("no node beside {node} has an address")))?;
    let place = Place::Host {
        node: node.to_owned(),
    };
    let route = output(cx, &place, &format!("ip -oneline route get {address}")).await?;
    let mut words = route.split_whitespace().skip_while(|word| *word != "dev");
    match words.nth(1) {
        Some(device) => Ok(device.to_owned()),
        None => Err(Halt::Harness(format!("{node}: no device in {route:?}"))),
    }
}

/// The link-layer addresses of the other nodes' devices.
async fn addresses_of_links(cx: &Context, node: &str) -> Result<Vec<String>, Halt> {
    let mut all = Vec::new();
    for other in cx.nodes().into_iter().filter(|other| other != node) {
        let device = uplink(cx, &other).await?;
        let place = Place::Host { node: other };
        let address = output(cx, &place, &format!("cat /sys/class/net/{device}/address")).await?;
        all.push(address.trim().to_owned());
    }
    Ok(all)
}

/// Starts the agent a second time, as it was started, and ends that after a while, if it has not ended by itself.
async fn twice(cx: &Context, node: &str, lasts: Duration) -> Result<(), Halt> {
    let state = cx.cluster().agents()?.state(node).await?;
    let process = state.pid.ok_or_else(|| {
        Halt::Harness(format!(
            "expected a process of the agent of {node} to start a second time, found none"
        ))
    })?;
    let place = Place::Host {
        node: node.to_owned(),
    };
    // Its environment, its namespaces, its folder and its arguments, the first of which may decide what a program does. Whether it ends by
    // itself, and how, is its own affair.
    let seconds = lasts.as_secs().max(1);
    let command = format!(
        "xargs -0 -a /proc/{process}/environ sh -c 'env -i \"$@\" xargs -0 -a /proc/{process}/cmdline \
         timeout --kill-after 2 {seconds} nsenter --target {process} --mount --net --wd --' sh 2>&1 \
         | tail --lines 1"
    );
    let began = Instant::now();
    let said = output(cx, &place, &command).await?;
    let (took, said) = (began.elapsed().as_secs_f64(), said.trim());
    let starters = ["xargs: ", "env: ", "timeout: ", "nsenter: "];
    if starters.iter().any(|starter| said.starts_with(starter)) {
        return Err(not_witnessed(FaultKind::AgentTwice, node, said));
    }
    cx.fault(&format!(
        "over: a second agent of {node}, which ended after {took:.1} s: {said}"
    ));
    Ok(())
}

/// Commands that bring up a device again, with the addresses and routes that it has now: the kernel forgets routes by it, and
/// addresses of IPv6.
async fn restored(cx: &Context, place: &Place, device: &str) -> Result<String, Halt> {
    let addresses = format!("ip -6 -oneline address show dev {device} scope global");
    let addresses = output(cx, place, &addresses).await?;
    let mut commands = vec![format!("ip link set {device} up")];
    for line in addresses.lines() {
        let words = line.split_whitespace().skip_while(|word| *word != "inet6");
        let address = words.skip(1).take(1);
        commands.extend(address.map(|address| format!("ip address replace {address} dev {device} nodad")));
    }
    for version in ["-4", "-6"] {
        let routes = output(cx, place, &format!("ip {version} route show dev {device}")).await?;
        // The kernel makes its own when the device comes up.
        let made = |route: &&str| !route.contains("proto kernel");
        let again = |route: &str| format!("ip {version} route replace {} dev {device}", route.trim());
        commands.extend(routes.lines().filter(made).map(again));
    }
    Ok(commands.join(" && "))
}

/// Gives devices what the programs of another owner need there, before anything is judged: while a device gets the queueing discipline
/// that carries filters, the kernel takes its present one away (`dev_deactivate` in `qdisc_graft`), and loses what is sent. It stays when
/// the programs go.
pub async fn prepare(cx: &Context, schedule: &Schedule) -> Result<(), Halt> {
    if !schedule
        .faults()
        .any(|(_, fault)| fault.kind == FaultKind::ProgramsForeign)
    {
        return Ok(());
    }
    for node in cx.nodes() {
        attach_foreign(cx, &node).await?.heal().await?;
    }
    Ok(())
}

async fn attach_foreign(cx: &Context, node: &str) -> Result<ForeignPrograms, Halt> {
    let address =
        address(cx, |other| other == node).ok_or_else(|| Halt::Harness(format!("{node} has no address")))?;
    Ok(ForeignPrograms::attach(cx.cluster(), node, &CONNECT, address, LONGEST).await?)
}

/// Attaches programs of another owner, which only count.
async fn foreign(cx: &Context, nodes: &[String], lasts: Duration) -> Result<(), Halt> {
    let mut all = Vec::new();
    for node in nodes {
        all.push((node, attach_foreign(cx, node).await?));
        cx.fault(&format!("programs of another owner on {node}"));
    }
    last(lasts).await;
    for (node, mut programs) in all {
        let tallies = programs.count().await?;
        let gone = tallies.into_iter().filter(|tally| !tally.attached);
        let findings = gone.map(|tally| Finding {
            weight: Weight::Violation,
            subject: format!("a program of another owner at {} of {node}", tally.place),
            expected: "it stays attached".to_owned(),
            found: "it is detached".to_owned(),
            first: Vec::new(),
            counted: None,
        });
        cx.axes().judged(FOREIGN, findings.collect());
        programs.heal().await?;
        cx.fault(&format!("over: programs of another owner on {node}"));
    }
    Ok(())
}

/// The agent of a node ends, and runs in its other configuration for a while.
async fn other_mode(cx: &Context, node: &str, lasts: Duration) -> Result<(), Halt> {
    let ready = async |before| {
        let within = Within::from_now(cx.limits().heal);
        agents::ready(cx, node, &before, within).await.map(drop)
    };
    let before = cx.cluster().agents()?.state(node).await?;
    let agent = StoppedAgent::stop(cx.faults(), node, Stop::Term).await?;
    let switched = agent.start_as(Variant::OtherMode).await?;
    cx.fault(&format!("agent of {node} ended, and started in its other mode"));
    ready(before).await?;
    last(lasts).await;
    let before = cx.cluster().agents()?.state(node).await?;
    switched.heal().await?;
    cx.fault(&format!("agent of {node} started in its own mode"));
    ready(before).await
}

/// Lets a fault last.
async fn last(lasts: Duration) {
    has_lasted(Instant::now(), lasts).await;
}

/// A fault that was not there: what clients saw says nothing of it.
fn not_witnessed(kind: FaultKind, node: &str, why: &str) -> Halt {
    Halt::Inconclusive(format!("not witnessed: {} on {node}: {why}", kind.words()))
}

/// Programs of the agent's former load, attached beside those of a new agent. They stay until this is healed.
async fn programs_left(cx: &Context, node: &str) -> Result<LeftoverPrograms, Halt> {
    let mut left = LeftoverPrograms::hold(cx.cluster(), node, &CONNECT, EXPIRES).await?;
    replaced(cx, node, Some(&mut left)).await?;
    Ok(left)
}

async fn frozen(cx: &Context, nodes: &[String], lasts: Duration) -> Result<(), Halt> {
    let mut frozen = Vec::new();
    for node in nodes {
        let state = cx.cluster().agents()?.state(node).await?;
        let Some(pid) = state.pid else {
            return Err(Halt::Inconclusive(format!("the agent of {node} does not run")));
        };
        let place = Place::Host { node: node.clone() };
        let [begin, end] = ["STOP", "CONT"].map(|signal| format!("kill -{signal} {pid}"));
        frozen.push(Lasting::begin(cx, &place, [&begin, &end], LONGEST).await?);
    }
    last(lasts).await;
    for one in frozen {
        one.end(cx).await?;
    }
    Ok(())
}

/// Kills the agent of a node, deletes its pins, attaches programs of before, and starts it.
async fn replaced(cx: &Context, node: &str, left: Option<&mut LeftoverPrograms>) -> Result<(), Halt> {
    let before = cx.cluster().agents()?.state(node).await?;
    let agent = StoppedAgent::stop(cx.faults(), node, Stop::Kill).await?;
    agent.lose_pins().await?;
    cx.fault(&format!("agent of {node} killed, its pins deleted"));
    if let Some(left) = left {
        let staging = Staging {
            at: At::Own,
            manner: As::Multi,
        };
        match left.attach(staging).await? {
            Reattached::Done(ids) => cx.fault(&format!("programs of before attached on {node}: {ids:?}")),
            Reattached::Refused(why) => return Err(not_witnessed(FaultKind::ProgramsLeft, node, &why)),
        }
    }
    agent.start().await?;
    agents::ready(cx, node, &before, Within::from_now(cx.limits().heal)).await?;
    Ok(())
}
