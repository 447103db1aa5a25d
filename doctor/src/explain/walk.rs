//! One chain of programs, each given what the one before has made of the destination.

use std::{collections::BTreeSet, net::SocketAddr};

use super::{End, MOST_FOLLOWED, Step, Way};
use crate::{
    destination::Destination,
    layout::{From, Question, Tables},
    map_bytes::MapBytes,
    report::{Attachment, Map, Place, Program, Report},
    resolution::Answer,
    tail_calls::TailCalls,
};

/// What chains are made of.
pub(super) struct Chain<'a> {
    pub(super) report: &'a Report,
    pub(super) bytes: &'a dyn MapBytes,
}

impl Chain<'_> {
    /// By which tables a program decides: its own, or else those of the programs that it goes on as by tail calls.
    fn tables(&self, program: &Program, place: &Place) -> Result<Tables, Answer> {
        if let Some(tables) = self.own_tables(program)? {
            return Ok(tables);
        }
        let calls = TailCalls::from([(program.id, place)], &self.report.prog_arrays);
        let mut found: Option<(u32, Tables)> = None;
        for called in calls.reached() {
            let Some(called) = self.report.programs.get(&called) else {
                continue;
            };
            match (self.own_tables(called)?, &found) {
                (Some(tables), None) => found = Some((called.id, tables)),
                // Which of them it goes on as, only its instructions say.
                (Some(tables), Some((other, known))) if tables != *known => {
                    return Err(Answer::Unknown {
                        because: format!(
                            "it goes on as other programs by tail calls, which read different maps: program {other} maps {}, \
                             program {} maps {}",
                            ids(&known.generation()),
                            called.id,
                            ids(&tables.generation())
                        ),
                    });
                }
                _ => {}
            }
        }
        match found {
            Some((_, tables)) => Ok(tables),
            None => Err(Answer::Unknown {
                because: self.why_not(program),
            }),
        }
    }

    /// Those of a program's own maps; `None`: it has none that are known.
    fn own_tables(&self, program: &Program) -> Result<Option<Tables>, Answer> {
        Tables::recognise(self.bytes, &program.owner, &self.maps(program)).map_err(|error| Answer::Unknown {
            because: error.to_string(),
        })
    }

    fn maps(&self, program: &Program) -> Vec<&Map> {
        let ids = program.maps.iter();
        ids.filter_map(|id| self.report.maps.get(id)).collect()
    }

    /// Why it is not known how a program decides.
    fn why_not(&self, program: &Program) -> String {
        let maps = self.maps(program);
        // A program without maps decides nothing by services.
        if maps.is_empty() {
            return "it uses no map: whatever it does, it does not know services".to_owned();
        }
        let maps: Vec<String> = maps
            .iter()
            .map(|map| format!("{} {}", map.id, map.name))
            .collect();
        format!("the layout of its maps ({}) is not known here", maps.join(", "))
    }
}

fn ids(ids: &[u32]) -> String {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    ids.join(", ")
}

/// Follows a destination, or what has been made of it already (`sent`), through programs in their order.
pub(super) fn walk(
    chain: &Chain<'_>,
    name: String,
    destination: Destination,
    sent: BTreeSet<SocketAddr>,
    attachments: Vec<(&Attachment, From)>,
) -> Way {
    let own = SocketAddr::new(destination.address, destination.port);
    let mut addresses = if sent.is_empty() {
        BTreeSet::from([own])
    } else {
        sent
    };
    let (mut by, mut only_if, mut stopped) = (None, Vec::new(), None);
    let mut steps = Vec::new();
    for (attachment, from) in attachments {
        let Some(program) = chain.report.programs.get(&attachment.program) else {
            continue;
        };
        let tables = chain.tables(program, &attachment.place);
        let ask = |address: SocketAddr| match &tables {
            Ok(tables) => tables.ask(
                chain.bytes,
                &Question {
                    destination: Destination {
                        address: address.ip(),
                        port: address.port(),
                        ..destination
                    },
                    from,
                },
            ),
            Err(unknown) => unknown.clone(),
        };
        let (answer, becomes) = pass(&addresses, &ask);
        let alone = ask(own);
        steps.push(Step {
            place: attachment.place.clone(),
            program: program.id,
            name: program.name.clone(),
            owner: program.owner.clone(),
            by_maps: tables.as_ref().map(Tables::generation).unwrap_or_default(),
            sees: addresses.clone(),
            answer: answer.clone(),
            alone,
            stale: attachment.stale.clone(),
        });
        match &answer {
            Answer::Backends {
                only_if: condition, ..
            } => {
                by.get_or_insert(program.id);
                only_if.extend(condition.clone());
                addresses = becomes;
            }
            // The others run all the same; what they do can't undo it.
            Answer::Refused { .. } | Answer::Dropped { .. } => {
                stopped.get_or_insert((program.id, answer));
            }
            Answer::NotAService | Answer::LeftToPackets { .. } | Answer::Unknown { .. } => {}
        }
    }
    let end = match stopped {
        Some((by, answer)) => End::Stopped { by, answer },
        None => End::Reaches {
            addresses,
            by,
            only_if,
        },
    };
    Way { name, steps, end }
}

/// What a program makes of all addresses, and what they become.
fn pass(
    addresses: &BTreeSet<SocketAddr>,
    ask: &dyn Fn(SocketAddr) -> Answer,
) -> (Answer, BTreeSet<SocketAddr>) {
    let mut becomes = BTreeSet::new();
    let mut telling: Option<Answer> = None;
    for address in addresses {
        let answer = ask(*address);
        match &answer {
            Answer::Backends { backends, .. } => becomes.extend(backends.iter().take(MOST_FOLLOWED)),
            _ => drop(becomes.insert(*address)),
        }
        let tells = !matches!(answer, Answer::NotAService);
        if telling.is_none() || (tells && matches!(telling, Some(Answer::NotAService))) {
            telling = Some(answer);
        }
    }
    while becomes.len() > MOST_FOLLOWED {
        becomes.pop_last();
    }
    (telling.unwrap_or(Answer::NotAService), becomes)
}
