//! What else explains a broken node, and is cheap to look at.
//!
//! `shared_objects`: programs and maps that several projects have, or that nothing uses any more.

mod shared_objects;

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    time::Duration,
};

use lb_loader::Hook;

use super::{
    gather::Parts,
    report::{CgroupState, Check, Manner, Outcome, Place, Standing},
};

/// How long the agent may take to accept a connection, and then to answer: it is on this machine.
const AGENT_LIMIT: Duration = Duration::from_secs(2);
/// Most bytes of its answer that are read: one line for each reason.
const ANSWER_MOST: u64 = 64 * 1024;

/// Everything that is checked beside programs and maps.
pub(super) fn checks(parts: &Parts, cgroup: &Path, bpffs: &Path, agent: SocketAddr) -> Vec<Check> {
    let ours = parts
        .attachments
        .iter()
        .any(|attachment| matches!(attachment.standing, Standing::Current | Standing::Earlier));
    let mut checks = vec![cgroups(cgroup), pinning(bpffs, ours)];
    if ours {
        checks.push(readiness(agent));
        checks.extend(pins(parts));
        checks.extend(hooks(parts));
    }
    checks.extend(other_nodes(parts));
    checks.extend(shared_objects::unexplained(parts));
    checks.extend(shared_objects::generations(parts));
    checks.extend(shared_objects::unused_arrays(parts));
    checks.extend(shared_objects::owners(parts));
    checks
}

/// Most things that a sentence names; all of them are in the report's other parts.
const NAMED: usize = 8;

/// The first few, and how many others there are.
pub(super) fn some_of(all: &[String], between: &str) -> String {
    let (named, others) = all.split_at(all.len().min(NAMED));
    let mut text = named.join(between);
    if !others.is_empty() {
        let _ = write!(text, "{between}and {} others", others.len());
    }
    text
}

fn check(name: &str, outcome: Outcome, text: String) -> Check {
    Check {
        name: name.to_owned(),
        outcome,
        text,
    }
}

fn cgroups(cgroup: &Path) -> Check {
    let legacy = lb_loader::mount_points("cgroup").unwrap_or_default();
    let hybrid = if legacy.is_empty() {
        ""
    } else {
        "; hierarchies of v1 are mounted too, and mean nothing to socket programs"
    };
    let text = format!(
        "cgroup v2 is mounted, and was looked at from {} on{hybrid}",
        cgroup.display()
    );
    check("cgroup2", Outcome::Good, text)
}

fn pinning(bpffs: &Path, ours: bool) -> Check {
    let mounted = lb_loader::mount_points("bpf").unwrap_or_default();
    if mounted.iter().any(|point| bpffs.starts_with(point)) {
        return check(
            "bpffs",
            Outcome::Good,
            format!("a bpffs is mounted at {}", bpffs.display()),
        );
    }
    let elsewhere: Vec<String> = mounted.iter().map(|point| point.display().to_string()).collect();
    let elsewhere = if elsewhere.is_empty() {
        "nor anywhere else".to_owned()
    } else {
        format!("but at {} (see --bpffs)", elsewhere.join(", "))
    };
    let text = format!(
        "no bpffs is mounted at {}, {elsewhere}: links that are pinned nowhere end with the process that made them",
        bpffs.display()
    );
    check("bpffs", if ours { Outcome::Bad } else { Outcome::Note }, text)
}

fn readiness(agent: SocketAddr) -> Check {
    let (outcome, text) = match ready(agent) {
        Ok((200, _)) => (Outcome::Good, format!("the agent at {agent} is ready")),
        Ok((status, body)) => {
            let reasons: Vec<&str> = body.lines().filter(|line| !line.is_empty()).collect();
            let text = format!(
                "the agent at {agent} is not ready ({status}): {}",
                reasons.join("; ")
            );
            (Outcome::Bad, text)
        }
        Err(error) => {
            let text = format!(
                "programs of Plumbline are attached, and no agent answers at {agent} ({error}): they serve what the maps \
                 said last, and nothing changes that. Start it, or name its address with --agent"
            );
            (Outcome::Bad, text)
        }
    };
    check("agent", outcome, text)
}

/// Status and body of `GET /readyz`. By hand: one request to this machine is no reason for an HTTP client.
fn ready(agent: SocketAddr) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&agent, AGENT_LIMIT)?;
    stream.set_read_timeout(Some(AGENT_LIMIT))?;
    stream.set_write_timeout(Some(AGENT_LIMIT))?;
    write!(stream, "GET /readyz HTTP/1.0\r\nHost: {agent}\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MOST).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "that is no HTTP"))?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((status, body.to_owned()))
}

/// Links of the agent's programs that nothing pins.
fn pins(parts: &Parts) -> Option<Check> {
    let mut text = String::new();
    for attachment in &parts.attachments {
        let Manner::Link {
            id,
            pinned_at,
            held_by,
        } = &attachment.manner
        else {
            continue;
        };
        if attachment.standing != Standing::Current || !pinned_at.is_empty() {
            continue;
        }
        let kept = held_by
            .first()
            .map_or_else(|| "nothing that can be seen".to_owned(), ToString::to_string);
        let before = if text.is_empty() { "" } else { "; " };
        let _ = write!(
            text,
            "{before}link {id} at {} is not pinned: kept by {kept}, it ends with that",
            attachment.place
        );
    }
    (!text.is_empty()).then(|| check("pins", Outcome::Bad, text))
}

/// Hooks of a cgroup at which the agent's programs are missing, where others of them are.
fn hooks(parts: &Parts) -> Option<Check> {
    let mut at: BTreeMap<&Path, Vec<&str>> = BTreeMap::new();
    for attachment in &parts.attachments {
        if let (
            Standing::Current,
            Place::Cgroup {
                path: Some(path),
                state: CgroupState::Visible,
                hook,
                ..
            },
        ) = (attachment.standing, &attachment.place)
        {
            at.entry(path).or_default().push(hook);
        }
    }
    let missing: Vec<String> = at
        .into_iter()
        .filter_map(|(path, there)| {
            let missing: Vec<&str> = Hook::ALL
                .into_iter()
                .map(Hook::name)
                .filter(|name| !there.contains(name))
                .collect();
            (!missing.is_empty()).then(|| format!("{} of {}", missing.join(", "), path.display()))
        })
        .collect();
    (!missing.is_empty()).then(|| {
        let text = format!(
            "Plumbline's programs are attached, but not to {}: they were detached there",
            missing.join("; ")
        );
        check("hooks", Outcome::Bad, text)
    })
}

fn other_nodes(parts: &Parts) -> Option<Check> {
    let count = parts
        .attachments
        .iter()
        .filter(|attachment| attachment.standing == Standing::OtherNode)
        .count();
    (count > 0).then(|| {
        let text =
            format!("{count} attachments are of other nodes that this kernel runs too: they are left alone");
        check("other nodes", Outcome::Note, text)
    })
}
