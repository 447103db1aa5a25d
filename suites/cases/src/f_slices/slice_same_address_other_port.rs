//! `slice-same-address-other-port`: two slices list one address with different port numbers. For two Service ports,
//! each reaches its own number; for one Service port, both numbers are served. Removing one slice leaves the other: the
//! remaining Service port fails no connection, and what the removed slice listed is not served any more.
//!
//! This is what the mirror of an Endpoints object with two subsets looks like. The backend answers on both numbers
//! throughout, with an identity of each.
use futures::future::try_join;
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
    &["slice-same-address-other-port"],
    "one address at different ports in two EndpointSlices serves by both, and removing one leaves the other",
    |cx| Box::pin(run(cx)),
);

/// The other Service port, where there are two.
const ADMIN: &str = "admin";
const OTHER_PORT: u16 = 7481;
const TARGETS: [u16; 2] = [TARGET, OTHER_TARGET];

/// What the two slices are for, and which of them is removed.
#[derive(Clone, Copy, Debug)]
struct Shape {
    service_ports: usize,
    removed: usize,
}

const SHAPES: [(Shape, &str); 4] = [
    (shape(2, 0), "two Service ports, the first slice removed"),
    (shape(2, 1), "two Service ports, the second slice removed"),
    (shape(1, 0), "one Service port, the first slice removed"),
    (shape(1, 1), "one Service port, the second slice removed"),
];

const fn shape(service_ports: usize, removed: usize) -> Shape {
    Shape {
        service_ports,
        removed,
    }
}

struct Staged {
    shape: Shape,
    service: Service,
    slices: [Slice; 2],
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: two slices with one address");
    let namespace = cx.namespace().await?;
    let backend = frontends::serving(cx, &namespace, &["b"], &TARGETS, &TARGETS)
        .await?
        .remove(0);
    let mut all = Vec::new();
    for point in points(cx, &SHAPES) {
        all.push(stage(cx, &point, &backend).await?);
    }
    let before = |staged: &Staged| staged.meets(cx, &backend, &[0, 1]);
    let before = Dialled::all(all.iter().map(before).collect::<Result<Vec<_>, _>>()?);
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;

    cx.phase("verdict: by both slices");
    before.judge_briefly(cx, within).await?;

    cx.phase("fault: one slice of each is deleted");
    let stays = all.iter().filter(|staged| staged.shape.service_ports == 2);
    let stays = stays.map(|staged| staged.port_of(cx, &backend, staged.stays()));
    let window = Dialled::all(stays.collect::<Result<Vec<_>, _>>()?)
        .window(cx)
        .await?;
    for staged in &all {
        staged.slices[staged.shape.removed].delete(cx).await?;
    }
    let within = Within::from_now(cx.limits().endpoints);
    fence::pass(cx).await?;

    cx.phase("verdict: by the slice that stays, and for the hold time");
    let after = |staged: &Staged| staged.meets(cx, &backend, &[staged.stays()]);
    let after = Dialled::all(all.iter().map(after).collect::<Result<Vec<_>, _>>()?);
    after.judge_briefly(cx, within).await?;
    try_join(window.hold(cx), after.hold(cx)).await?;
    Ok(())
}

async fn stage(cx: &Context, point: &Point<Shape>, backend: &Backend) -> Result<Staged, Halt> {
    let (family, shape) = (point.family, point.variant);
    let namespace = cx.namespace().await?;
    let names = if shape.service_ports == 2 {
        [WEB, ADMIN]
    } else {
        [WEB, WEB]
    };
    let mut ports = Port::both(WEB, PORT).to_vec();
    if shape.service_ports == 2 {
        ports.extend(Port::both(ADMIN, OTHER_PORT));
    }
    let service = Service::create(cx, &point.axis(), &namespace, "s", family, &ports).await?;
    let slice = |at: usize| service.slice(&format!("s-{at}"), &Port::both(names[at], TARGETS[at]));
    let slices = [slice(0), slice(1)];
    for slice in &slices {
        slice.create(cx, endpoints([backend], family)?).await?;
    }
    Ok(Staged {
        shape,
        service,
        slices,
    })
}

impl Staged {
    /// The slice that stays.
    fn stays(&self) -> usize {
        1 - self.shape.removed
    }

    /// With these slices.
    fn meets(&self, cx: &Context, backend: &Backend, slices: &[usize]) -> Result<Dialled, Halt> {
        let listed = |at: &usize| (backend, TARGETS[*at]);
        if self.shape.service_ports == 1 {
            let by: Vec<_> = slices.iter().map(listed).collect();
            return self.service.meets(cx, PORT, &by);
        }
        let port = |at: usize| {
            let by: Vec<_> = slices.iter().filter(|slice| **slice == at).map(listed).collect();
            self.service.meets(cx, [PORT, OTHER_PORT][at], &by)
        };
        Ok(Dialled::all([port(0)?, port(1)?]))
    }

    /// The Service port of a slice, where there are two.
    fn port_of(&self, cx: &Context, backend: &Backend, at: usize) -> Result<Dialled, Halt> {
        self.service
            .meets(cx, [PORT, OTHER_PORT][at], &[(backend, TARGETS[at])])
    }
}
