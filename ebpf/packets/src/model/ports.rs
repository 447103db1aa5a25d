//! Section 5.9: which port a connection to a remote backend may get.

use std::collections::BTreeSet;

use lb_abi::Config;

/// Of those that the kernel gives to no socket, and of those that it does: so many are tried, at most.
const TRIES: [usize; 2] = [128, 64];
/// After so many that are in use, one whose connection has ended is taken.
const NEARLY_FULL: usize = 16;

/// What a port is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Port {
    /// Of no connection, no socket and no frontend.
    Free,
    /// A connection's that has ended, and whether it was the same client's.
    Ended(bool),
    /// A connection's, a socket's, or a frontend's.
    Taken,
}

/// Of so many that no socket is given, one is for clients of other machines, if each of them has enough to try.
const OF_OTHER_MACHINES: usize = 8;

/// The port that was observed, or none if `none`, where that is permitted; otherwise another that is. `elsewhere`: the address
/// is another machine's, which gives out ports of it, too.
pub(super) fn allocate(
    config: &Config,
    elsewhere: bool,
    at: impl Fn(u16) -> Port,
    observed: Option<u16>,
    none: bool,
) -> Option<u16> {
    let range = config.snat_first..=config.snat_last;
    let (local, others): (Vec<u16>, Vec<u16>) =
        range.partition(|port| (config.local_first..=config.local_last).contains(port));
    let others = if others.len() / OF_OTHER_MACHINES < TRIES[0] {
        others
    } else {
        let (its_own, of_others) = others.split_at(others.len() - others.len() / OF_OTHER_MACHINES);
        if elsewhere { of_others } else { its_own }.to_vec()
    };
    // Without others, those of sockets are all that there is, and are tried as they would be.
    let pools = if others.is_empty() {
        [local, others]
    } else {
        [others, local]
    };
    // One that is free may be the first that is tried.
    if let Some(port) = observed
        && pools[0].contains(&port)
        && at(port) == Port::Free
    {
        return Some(port);
    }
    let mut permitted = BTreeSet::new();
    for tried in outcomes(&pools[0], TRIES[0], 0, &at) {
        match tried {
            Ok(port) => drop(permitted.insert(Some(port))),
            Err(before) if pools[1].is_empty() => drop((permitted.insert(None), before)),
            Err(before) => {
                permitted.extend(
                    outcomes(&pools[1], TRIES[1], before, &at)
                        .into_iter()
                        .map(Result::ok),
                );
            }
        }
    }
    let seen = if none { None } else { observed };
    if (none || observed.is_some()) && permitted.contains(&seen) {
        return seen;
    }
    permitted.first().copied().flatten()
}

/// What comes of a pool, for each beginning; `Err`: none, after so many that were tried.
fn outcomes(
    pool: &[u16],
    most: usize,
    before: usize,
    at: impl Fn(u16) -> Port,
) -> BTreeSet<Result<u16, usize>> {
    let ports: Vec<Port> = pool.iter().map(|port| at(*port)).collect();
    (0..pool.len())
        .map(|beginning| {
            let mut ended: Option<(u16, bool)> = None;
            for step in 0..most.min(pool.len()) {
                if let Some((port, _)) = ended
                    && before + step >= NEARLY_FULL
                {
                    return Ok(port);
                }
                let index = (beginning + step) % pool.len();
                match ports[index] {
                    Port::Free => return Ok(pool[index]),
                    Port::Ended(clients) if ended.is_none_or(|(_, before)| clients && !before) => {
                        ended = Some((pool[index], clients));
                    }
                    Port::Ended(_) => {}
                    Port::Taken => {}
                }
            }
            ended.map(|(port, _)| port).ok_or(before + most.min(pool.len()))
        })
        .collect()
}
