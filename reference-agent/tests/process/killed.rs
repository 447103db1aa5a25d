//! Killed before or after any step, in whatever it was doing, an agent leaves what the next one makes whole: the
//! planned state, nothing stale, no pin too many; and no client is ever sent astray, or fails where an earlier agent
//! has served.

use std::{
    fmt,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use rstest::rstest;
use testing::{isolation::Own, patience::LIMIT};
use tokio::runtime::Runtime;

use crate::{
    clients::{self, Clients},
    control::Control,
    node::{Left, Node, PROGRAM},
    place::{self, Place, place},
    trace::{Ended, Moment},
    world::{World, addresses},
};

/// An agent that has settled and made no step for longer than it takes it to look at everything again (two seconds)
/// makes none.
const QUIET: Duration = Duration::from_secs(3);
/// How often a process is looked at.
const POLL: Duration = Duration::from_millis(2);

/// What an agent is doing when it is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// It starts on a node without pins.
    FromNothing,
    /// It starts over the maps of an agent that was stopped; the world has changed meanwhile.
    Adoption,
    /// The same, but an older version had one map less: there is a set of maps to replace.
    Migration,
    /// It runs, and the world changes.
    Changes,
}

impl Phase {
    const ALL: [Self; 4] = [Self::FromNothing, Self::Adoption, Self::Migration, Self::Changes];
}

/// Where an agent is killed.
#[derive(Clone, Copy, Debug)]
struct Kill(Phase, Moment);

/// A map that an older version did not have.
const NEW_MAP: &str = "maps/SOURCES";

/// Each phase on a node of its own, as agents wait for most of the time.
#[rstest]
#[case::from_nothing(Phase::FromNothing)]
#[case::adoption(Phase::Adoption)]
#[case::migration(Phase::Migration)]
#[case::changes(Phase::Changes)]
fn killed_at_steps_of_a_phase_the_next_agent_ends_in_the_planned_state(#[case] phase: Phase) {
    /// At so many of the phase's moments.
    const KILLS: usize = 20;
    if let Some(place) = place() {
        run(&place, &[phase], KILLS);
    }
}

#[test]
#[ignore = "takes minutes: `cargo xtask soak restart`"]
fn killed_at_every_step_the_next_agent_ends_in_the_planned_state() {
    const WHOLE: Duration = Duration::from_secs(4 * 3600);
    if let Some(own) = Own::within(&testing::current(), WHOLE) {
        run(&Place::new(own), &Phase::ALL, usize::MAX);
    }
}

fn worlds() -> [World; 2] {
    [
        World::new(&[
            ("steady", 1, &[1, 2]),
            ("changing", 2, &[3]),
            ("growing", 3, &[4]),
            ("leaving", 4, &[6]),
            ("emptied", 5, &[7]),
            ("a", 6, &[8]),
            ("a-b", 7, &[8, 11]),
            ("filled", 9, &[]),
        ]),
        World::new(&[
            ("steady", 1, &[1, 2]),
            ("changing", 2, &[9]),
            ("growing", 3, &[4, 5]),
            // At the addresses of one that is gone.
            ("taking", 4, &[10]),
            ("emptied", 5, &[]),
            ("a", 6, &[8]),
            ("coming", 8, &[13, 1]),
            ("filled", 9, &[12]),
        ]),
    ]
}

/// Kills at moments of these phases, each of them once, and at no more than `most`, which are spread over all.
fn run(place: &Place, phases: &[Phase], most: usize) {
    let trial = Trial::new(place);
    let mut all = Vec::new();
    for &phase in phases {
        let Ended { steps, .. } = trial.go(Kill(phase, Moment::Never));
        println!("{phase:?}: {} steps: {}", steps.len(), Summary(&steps));
        let moments = (1..=steps.len()).flat_map(|step| [Moment::Before(step), Moment::After(step)]);
        all.extend(moments.map(|moment| Kill(phase, moment)));
    }
    let begin = Instant::now();
    let done = all.len().min(most);
    let killed = spread(all.len())
        .take(done)
        .filter(|&at| comes(&trial, all[at]))
        .count();
    println!(
        "{killed} kills at {done} of {} moments, {} answers to clients, {:.0} s",
        all.len(),
        trial.clients.answers(),
        begin.elapsed().as_secs_f64()
    );
    trial.clients.stop();
    assert!(killed * 10 >= done * 9, "only {killed} of {done} moments came");
}

/// Whether a process was killed at this moment, or at another of the same phase. How many steps a phase has differs: an
/// event brings as much of a change of the world as has come, so on a busy machine there are more changes of maps, each
/// smaller. A moment that does not come is replaced by one of the steps that came instead.
fn comes(trial: &Trial, Kill(phase, mut moment): Kill) -> bool {
    for _ in 0..3 {
        let Ended { killed, steps } = trial.go(Kill(phase, moment));
        if killed {
            return true;
        }
        moment = moment.among(steps.len());
    }
    false
}

/// The numbers below `count`, each once; each goes to about the largest gap that those before it have left (Weyl's
/// sequence of the golden ratio).
fn spread(count: usize) -> impl Iterator<Item = usize> {
    let divides =
        |step: usize| (2..=step).any(|factor| step.is_multiple_of(factor) && count.is_multiple_of(factor));
    let mut step = (count * 618 / 1000).max(1);
    while divides(step) {
        step += 1;
    }
    (0..count).map(move |nth| nth * step % count)
}

/// A node with clients, between kills: as a stopped agent leaves it.
struct Trial {
    runtime: Runtime,
    control: Control,
    node: Node,
    clients: Clients,
    /// The world before and after a change, and what a fresh agent makes of it.
    worlds: [World; 2],
    fresh: [Left; 2],
}

impl Trial {
    fn new(place: &Place) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        let runtime = runtime.expect("a runtime");
        let worlds = worlds();
        let mut servers: Vec<_> = worlds.iter().flat_map(World::servers).collect();
        servers.sort_unstable();
        servers.dedup();
        let owned: Vec<_> = servers.iter().copied().flat_map(addresses).collect();
        place::loopback(&owned);
        let control = runtime.block_on(async {
            clients::serve(servers).await;
            Control::start(&place.folder).await
        });
        let fresh = [0, 1].map(|world| {
            runtime.block_on(control.become_(&worlds[world]));
            fresh(place, &format!("fresh-{world}"), &control)
        });
        assert_ne!(fresh[0], fresh[1]);
        let node = Node::new(place, "node", place.cgroup.clone(), &control.kubeconfig).without_probe();
        let clients = Clients::start();
        Self {
            runtime,
            control,
            node,
            clients,
            worlds,
            fresh,
        }
    }

    /// Stages, kills, and sees that the next agent is well; then everything is as before.
    fn go(&self, kill: Kill) -> Ended {
        let Kill(phase, moment) = kill;
        let [before, after] = &self.worlds;
        let [fresh_before, fresh_after] = &self.fresh;
        let traced = if phase == Phase::FromNothing {
            self.tell(after);
            self.clients.allow(&[after], true);
            self.node.trace(moment, true)
        } else {
            self.tell(before);
            self.clients.allow(&[before, after], true);
            let agent = self.node.start(Path::new(PROGRAM));
            self.settled(kill, "before", &fresh_before.dump);
            self.clients.allow(&[before, after], false);
            agent.end(Signal::SIGTERM);
            if phase == Phase::Migration {
                std::fs::remove_file(self.node.pin(NEW_MAP)).expect("it was pinned");
            }
            if phase == Phase::Changes {
                let traced = self.node.trace(moment, false);
                self.settled(kill, "to be traced", &fresh_before.dump);
                traced.count();
                self.tell(after);
                traced
            } else {
                self.tell(after);
                self.node.trace(moment, true)
            }
        };
        let mut counted = (traced.counted(), Instant::now());
        while !traced.is_over() {
            thread::sleep(POLL);
            let quiet = counted.1.elapsed();
            if traced.counted() != counted.0 {
                counted = (traced.counted(), Instant::now());
            } else if quiet > QUIET {
                // On a busy machine it may have been given no processor, and be killed yet.
                match self.node.settled(&fresh_after.dump) {
                    Err(found) if quiet > LIMIT => {
                        panic!(
                            "{kill:?}: the agent (not killed) does not settle: {found}\n{}",
                            self.node.said()
                        )
                    }
                    Err(_) => {}
                    Ok(()) => break,
                }
            }
        }
        let ended = traced.end(Signal::SIGTERM);
        let agent = self.node.start(Path::new(PROGRAM));
        self.settled(kill, "the next", &fresh_after.dump);
        if phase == Phase::FromNothing {
            self.clients.allow(&[after], false);
        }
        let left = self.node.left();
        assert_eq!(
            &left,
            fresh_after,
            "{}: what the next agent leaves",
            self.described(kill, &ended)
        );
        agent.end(Signal::SIGTERM);
        self.clients.assert_content(|| self.described(kill, &ended));
        self.clients.allow(&[], true);
        self.node.clean_up();
        ended
    }

    fn tell(&self, world: &World) {
        self.runtime.block_on(self.control.become_(world));
    }

    fn settled(&self, kill: Kill, which: &str, expected: &str) {
        if let Err(found) = self.node.settle(expected) {
            panic!(
                "{kill:?}: the agent ({which}) does not settle: {found}\n{}",
                self.node.said()
            );
        }
    }

    fn described(&self, Kill(phase, moment): Kill, ended: &Ended) -> String {
        let step = ended.steps.last().unwrap_or(&"nothing");
        format!("{phase:?}, killed {moment:?} ({step})\n{}", self.node.said())
    }
}

/// What an agent leaves that starts on a node where none ever ran.
fn fresh(place: &Place, name: &str, control: &Control) -> Left {
    let node = Node::new(place, name, place.cgroup(name), &control.kubeconfig).without_probe();
    let agent = node.start(Path::new(PROGRAM));
    node.ready();
    let left = node.left();
    agent.end(Signal::SIGTERM);
    node.clean_up();
    left
}

/// How often each step was made.
struct Summary<'a>(&'a [&'static str]);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kinds = self.0.to_vec();
        kinds.sort_unstable();
        let counts = kinds.chunk_by(PartialEq::eq);
        for (nth, chunk) in counts.enumerate() {
            let separator = if nth == 0 { "" } else { ", " };
            write!(formatter, "{separator}{} {}", chunk.len(), chunk[0])?;
        }
        Ok(())
    }
}
