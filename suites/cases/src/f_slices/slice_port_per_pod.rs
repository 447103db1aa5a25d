//! `slice-port-per-pod`: a Service's target port is a name that pods have for different numbers, so its slices have
//! different numbers for one port: each endpoint is dialled at its own number, without a failed connection. When the
//! number of a slice changes, its endpoints are dialled at the new one.
//!
//! This is a Deployment in the middle of an update that moves a named port. Both backends answer on both numbers, with
//! an identity of each.
use harness::{
    case::Case,
    context::Context,
    dialled::Dialled,
    fence, frontends,
    pods::{Backend, endpoints},
    slices::{Port, Service, Slice},
    verdict::Halt,
    waiting::Within,
};

use super::{OTHER_TARGET, PORT, Point, TARGET, WEB, points, row};

pub(crate) const CASE: Case = row(
    &["slice-port-per-pod"],
    "endpoints whose named target port has different numbers are each dialled at their own number",
    |cx| Box::pin(run(cx)),
);

/// The name of the target port.
const HTTP: &str = "http";

/// Numbers of the slices, in the order in which they are created.
const VARIANTS: [([u16; 2], &str); 2] = [
    ([TARGET, OTHER_TARGET], "the lower number first"),
    ([OTHER_TARGET, TARGET], "the higher number first"),
];

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: two slices with one port name and two numbers");
    let namespace = cx.namespace().await?;
    let ports = [TARGET, OTHER_TARGET];
    let backends = frontends::serving(cx, &namespace, &["b1", "b2"], &ports, &ports).await?;
    let mut all = Vec::new();
    for point in points(cx, &VARIANTS) {
        let (service, last) = stage(cx, &point, &backends).await?;
        all.push((point, service, last));
    }
    let meets = |numbers: fn([u16; 2]) -> [u16; 2]| {
        let of = |(point, service, _): &(Point<[u16; 2]>, Service, Slice)| {
            let by: Vec<_> = backends.iter().zip(numbers(point.variant)).collect();
            service.meets(cx, PORT, &by)
        };
        let all = all.iter().map(of).collect::<Result<Vec<_>, Halt>>();
        all.map(Dialled::all)
    };
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;

    cx.phase("verdict: each endpoint at the number of its slice");
    meets(|numbers| numbers)?.judge(cx, within).await?;

    cx.phase("verdict: the second slice gets the number of the first");
    for (point, _, last) in &all {
        last.change_ports(cx, &Port::both(WEB, point.variant[0])).await?;
    }
    let within = Within::from_now(cx.limits().endpoints);
    fence::pass(cx).await?;
    meets(|[first, _]| [first; 2])?.judge(cx, within).await?;
    Ok(())
}

/// A Service with two slices; returns the last one, too.
async fn stage(
    cx: &Context,
    point: &Point<[u16; 2]>,
    backends: &[Backend],
) -> Result<(Service, Slice), Halt> {
    let namespace = cx.namespace().await?;
    let ports = Port::both(WEB, PORT).map(|port| port.to(HTTP));
    let service = Service::create(cx, &point.axis(), &namespace, "s", point.family, &ports).await?;
    let [first, last] =
        [0, 1].map(|at| service.slice(&format!("s-{at}"), &Port::both(WEB, point.variant[at])));
    for (slice, backend) in [&first, &last].into_iter().zip(backends) {
        slice.create(cx, endpoints([backend], point.family)?).await?;
    }
    Ok((service, last))
}
