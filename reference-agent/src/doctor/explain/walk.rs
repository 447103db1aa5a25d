//! One chain of programs, each given what the one before has made of the destination.

use std::{collections::BTreeSet, net::SocketAddr};

use super::{End, MOST_FOLLOWED, Step, Way};
use crate::{
    doctor::{
        layout::{Answer, From, Question, Tables},
        read::MapBytes,
        report::{Attachment, Map, Program, Report},
    },
    transport::TransportAddress,
};

/// What chains are made of.
pub(super) struct Chain<'a> {
    pub(super) report: &'a Report,
    pub(super) bytes: &'a dyn MapBytes,
}

impl Chain<'_> {
    fn tables(&self, program: &Program) -> Result<Tables, Answer> {
        let maps: Vec<&Map> = program
            .maps
            .iter()
            .filter_map(|id| self.report.maps.get(id))
            .collect();
        match Tables::recognise(self.bytes, &program.owner, &maps) {
            Ok(Some(tables)) => Ok(tables),
            // A program without maps decides nothing by services.
            Ok(None) if maps.is_empty() => Err(Answer::Unknown {
                because: "it uses no map: whatever it does, it does not know services".to_owned(),
            }),
            Ok(None) => Err(Answer::Unknown {
                because: format!(
                    "the layout of its maps ({}) is not known here",
                    maps.iter()
                        .map(|map| format!("{} {}", map.id, map.name))
                        .collect::<Vec<_>>()
                        .join(", ")
                ),
            }),
            Err(error) => Err(Answer::Unknown {
                because: error.to_string(),
            }),
        }
    }
}

/// Follows a destination, or what has been made of it already (`sent`), through programs in their order.
pub(super) fn walk(
    chain: &Chain<'_>,
    name: String,
    destination: TransportAddress,
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
        let ask = |address: SocketAddr| match chain.tables(program) {
            Ok(tables) => tables.ask(
                chain.bytes,
                &Question {
                    destination: TransportAddress {
                        address: address.ip(),
                        port: address.port(),
                        ..destination
                    },
                    from,
                },
            ),
            Err(unknown) => unknown,
        };
        let (answer, becomes) = pass(&addresses, &ask);
        let alone = ask(own);
        steps.push(Step {
            place: attachment.place.clone(),
            program: program.id,
            name: program.name.clone(),
            owner: program.owner.clone(),
            by_maps: chain
                .tables(program)
                .map(|tables| tables.generation())
                .unwrap_or_default(),
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
