//! `slice-port-name-match`: ports of a slice are those of the Service that have their name (none matches none) and
//! protocol, never those that have their number. A slice whose port has another name or protocol adds no backend.
//!
//! Service port, target port and the ports of all slices have one number, so that matching by number would show. What
//! the other slices list is alive, and gets nothing for the hold time.
use harness::{
    case::Case,
    context::Context,
    dialled::Dialled,
    fence, frontends,
    pods::{Backend, endpoints},
    probing,
    slices::{Port, Service, themselves},
    verdict::Halt,
    waiting::Within,
};
use oracle::history::Transport::{Tcp, Udp};

use super::{OTHER_TARGET, Point, TARGET, WEB, points, row};

pub(crate) const CASE: Case = row(
    &["slice-port-name-match"],
    "ports of EndpointSlices match those of Services by name and protocol, never by number",
    |cx| Box::pin(run(cx)),
);

/// The number of all ports but one.
const NUMBER: u16 = TARGET;
const NAMELESS: &str = "";

#[derive(Clone, Copy, Debug)]
enum Row {
    OtherName,
    OtherProtocol,
    NoName,
    NoNameBySlice,
    NoNameByService,
    NothingMatches,
    OtherNumber,
}

const ROWS: [(Row, &str); 7] = [
    (Row::OtherName, "a slice port of another name"),
    (Row::OtherProtocol, "a slice port of another protocol"),
    (Row::NoName, "neither port has a name"),
    (Row::NoNameBySlice, "the slice port has no name"),
    (Row::NoNameByService, "the Service port has no name"),
    (Row::NothingMatches, "no slice port matches"),
    (Row::OtherNumber, "the number of another slice port"),
];

/// Ports of the Service, and of slices that list the backend or the trap.
struct Ports {
    service: Vec<Port>,
    slices: Vec<(Vec<Port>, Lists)>,
    /// By which port of the backend it is served.
    served_at: Option<u16>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lists {
    Backend,
    Trap,
}

impl Row {
    fn ports(self) -> Ports {
        let web = || Port::both(WEB, NUMBER).to_vec();
        let one = |name: &str, transport| vec![Port::new(name, transport, NUMBER)];
        let (service, slices) = match self {
            Self::OtherName => {
                let other = Port::both("admin", NUMBER).to_vec();
                (web(), vec![(web(), Lists::Backend), (other, Lists::Trap)])
            }
            Self::OtherProtocol => {
                // The names of `web`, each with the protocol of the other.
                let swapped = [(WEB, Udp), ("web-udp", Tcp)];
                let swapped = swapped
                    .map(|(name, transport)| Port::new(name, transport, NUMBER))
                    .to_vec();
                (web(), vec![(web(), Lists::Backend), (swapped, Lists::Trap)])
            }
            Self::NoName => {
                let nameless = one(NAMELESS, Udp);
                let trap = one(NAMELESS, Tcp);
                (
                    nameless.clone(),
                    vec![(nameless, Lists::Backend), (trap, Lists::Trap)],
                )
            }
            Self::NoNameBySlice => (
                web(),
                vec![(web(), Lists::Backend), (one(NAMELESS, Tcp), Lists::Trap)],
            ),
            Self::NoNameByService => {
                let nameless = one(NAMELESS, Tcp);
                (
                    nameless.clone(),
                    vec![(nameless, Lists::Backend), (web(), Lists::Trap)],
                )
            }
            Self::NothingMatches => (web(), vec![(Port::both("admin", NUMBER).to_vec(), Lists::Trap)]),
            Self::OtherNumber => {
                let both = [Port::both(WEB, OTHER_TARGET), Port::both("admin", NUMBER)].concat();
                (web(), vec![(both, Lists::Backend)])
            }
        };
        let served_at = match self {
            Self::NothingMatches => None,
            Self::OtherNumber => Some(OTHER_TARGET),
            _ => Some(NUMBER),
        };
        Ports {
            service,
            slices,
            served_at,
        }
    }
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: slices whose ports match by name, or by number alone");
    let namespace = cx.namespace().await?;
    let ports = [TARGET, OTHER_TARGET];
    let backends = frontends::serving(cx, &namespace, &["b", "trap"], &ports, &ports).await?;
    let (mut all, mut direct) = (Vec::new(), Vec::new());
    for point in points(cx, &ROWS) {
        all.push(stage(cx, &point, &backends[0], &backends[1]).await?);
        direct.extend(themselves(
            &point.axis(),
            point.family,
            &[(&backends[1], NUMBER)],
        )?);
    }
    let all = Dialled::all(all);
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let what = "the trap answers without the Service";
    probing::control(cx, what, &cx.clients()[..1], &direct, within).await?;

    cx.phase("verdict: what matches by name and protocol is served, and for the hold time nothing else");
    all.judge_briefly(cx, within).await?;
    all.window(cx).await?.hold(cx).await?;
    Ok(())
}

async fn stage(cx: &Context, point: &Point<Row>, b: &Backend, trap: &Backend) -> Result<Dialled, Halt> {
    let Ports {
        service: ports,
        mut slices,
        served_at,
    } = point.variant.ports();
    let namespace = cx.namespace().await?;
    let service = Service::create(cx, &point.axis(), &namespace, "s", point.family, &ports).await?;
    cx.shuffle(&mut slices);
    for (number, (ports, lists)) in slices.iter().enumerate() {
        let listed = if *lists == Lists::Trap { trap } else { b };
        let slice = service.slice(&format!("s-{number}"), ports);
        slice.create(cx, endpoints([listed], point.family)?).await?;
    }
    let by: Vec<_> = served_at.into_iter().map(|at| (b, at)).collect();
    service.meets(cx, NUMBER, &by)
}
