//! `slice-union`: the endpoints of all slices of a Service are served together. Two slices with an endpoint each, which
//! are created before and after the Service and written again in another order; and 252 endpoints of 28 addresses, nine
//! slices with a port number of their own each.
//!
//! The seed decides the order of all events. Few backends with many ports stand for many backends: each port answers
//! with an identity of its own.
use harness::{
    case::Case,
    context::Context,
    dialled::Dialled,
    fence, frontends,
    objects::annotation,
    pods::{Backend, endpoints},
    probing,
    slices::{Port, Service, Slice, themselves},
    verdict::Halt,
    waiting::Within,
};
use oracle::history::Transport;

use super::{PORT, TARGET, WEB, points, row};

pub(crate) const CASE: Case = row(
    &["slice-union"],
    "the endpoints of all EndpointSlices of a Service are served together, whatever the order of events",
    |cx| Box::pin(run(cx)),
);

/// How many slices there are, and how many of them before the Service.
#[derive(Clone, Copy, Debug)]
struct Slices {
    count: usize,
    before: usize,
}

const TWO: usize = 2;
const MANY: usize = 9;
const VARIANTS: [(Slices, &str); 4] = [
    (slices(TWO, 0), "the Service first"),
    (slices(TWO, 1), "the Service between two slices"),
    (slices(TWO, 2), "the Service last"),
    (slices(MANY, 4), "252 endpoints"),
];

const fn slices(count: usize, before: usize) -> Slices {
    Slices { count, before }
}

/// Addresses of which each of many slices lists all.
const BACKENDS: usize = 28;

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: slices before and after their Services");
    let namespace = cx.namespace().await?;
    let points = points(cx, &VARIANTS);
    let most = points
        .iter()
        .map(|point| point.variant.count)
        .max()
        .unwrap_or(TWO);
    let names: Vec<String> = (1..=if most == MANY { BACKENDS } else { TWO })
        .map(|number| format!("b{number:02}"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let ports: Vec<u16> = (0..most).map(target).collect();
    let all = frontends::serving(cx, &namespace, &names, &ports, &ports[..1]).await?;
    let (mut two, mut many, mut direct, mut written) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for point in points {
        let (axis, family, Slices { count, before }) = (point.axis(), point.family, point.variant);
        let namespace = cx.namespace().await?;
        let mut slices = Vec::new();
        let mut by: Vec<(&Backend, u16)> = Vec::new();
        for number in 0..count {
            let listed = if count == MANY {
                &all[..]
            } else {
                &all[number..=number]
            };
            let target = if count == MANY { target(number) } else { TARGET };
            let ports = Port::both(WEB, target);
            let slice = Slice::new(&namespace, &format!("s-{number}"), "s", family, &ports);
            slices.push((slice, endpoints(listed, family)?));
            by.extend(listed.iter().map(|backend| (backend, target)));
        }
        cx.shuffle(&mut slices);
        let (first, last) = slices.split_at(before);
        for (slice, entries) in first {
            slice.create(cx, entries.clone()).await?;
        }
        let service = Service::create(cx, &axis, &namespace, "s", family, &Port::both(WEB, PORT)).await?;
        for (slice, entries) in last {
            slice.create(cx, entries.clone()).await?;
        }
        if count == MANY {
            let meets = service.meets_by(cx, &[Transport::Tcp], PORT, &by)?;
            many.push(meets.at_cluster_ips());
        } else {
            two.push(service.meets(cx, PORT, &by)?);
        }
        let first_ports: Vec<_> = by.into_iter().filter(|(_, target)| *target == TARGET).collect();
        direct.extend(themselves(&axis, family, &first_ports)?);
        written.extend(slices.into_iter().map(|(slice, _)| slice));
    }
    let (two, many) = (Dialled::all(two), Dialled::all(many));
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;

    cx.phase("control: backends answer at their own addresses");
    let client = &cx.clients()[..1];
    probing::control(cx, "backends answer without the Service", client, &direct, within).await?;

    cx.phase("verdict: both endpoints, and after every slice was written again in another order all");
    two.judge_briefly(cx, within).await?;
    cx.shuffle(&mut written);
    for slice in &written {
        cx.objects()
            .patch(slice.key(), annotation("plumbline-written", "again"))
            .await?;
    }
    let within = Within::from_now(cx.limits().endpoints);
    fence::pass(cx).await?;
    two.judge(cx, within).await?;
    many.judge_briefly(cx, within).await
}

/// The backends' port in a slice of this number.
fn target(slice: usize) -> u16 {
    TARGET + u16::try_from(slice).unwrap_or_default()
}
