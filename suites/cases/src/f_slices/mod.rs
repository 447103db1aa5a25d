//! What an EndpointSlice means: which entries of which slices a Service serves, at which ports.
//!
//! All slices are hand-written, of Services without a selector (`harness::slices`), and all backends stay alive: what
//! is not served is not served because of a slice.
pub(crate) mod churn_converges;
pub(crate) mod slice_duplicate_and_move;
pub(crate) mod slice_ghost_terminating;
pub(crate) mod slice_labels_and_names;
pub(crate) mod slice_namespace_bound;
pub(crate) mod slice_odd_contents_ignored;
pub(crate) mod slice_port_name_match;
pub(crate) mod slice_port_per_pod;
pub(crate) mod slice_ready_is_what_counts;
pub(crate) mod slice_relabelled;
pub(crate) mod slice_same_address_other_port;
pub(crate) mod slice_union;

use std::time::Duration;

use cluster::Family;
use futures::future::BoxFuture;
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    verdict::Halt,
};

/// Name of the area in the catalogue.
const AREA: &str = "F what an EndpointSlice means";
const NEEDS: Needs = Needs {
    nodes: 1,
    families: Families::Any,
    rights: Rights::Api,
    also: &[],
    target: &[],
};

/// The case of a claim of the core. Its id is the claim's.
const fn row(
    claims: &'static [&'static str],
    sentence: &'static str,
    run: for<'a> fn(&'a Context) -> BoxFuture<'a, Result<(), Halt>>,
) -> Case {
    Case {
        id: claims[0],
        area: AREA,
        claims,
        sentence,
        tier: Tier::Core,
        features: &[],
        needs: NEEDS,
        disruptive: false,
        manifest: include_str!("slices.yaml"),
        longest: Duration::from_secs(300),
        takes_at_least: Duration::ZERO,
        run,
    }
}

/// The name of a Service's port, its number, and that of its backends' ports.
const WEB: &str = "web";
const PORT: u16 = 7480;
const TARGET: u16 = 8080;
/// Another port of backends.
const OTHER_TARGET: u16 = 9090;

/// A point of a case's axes: a family and a variant.
#[derive(Clone, Copy, Debug)]
struct Point<V> {
    family: Family,
    variant: V,
    name: &'static str,
}

impl<V> Point<V> {
    fn axis(&self) -> String {
        format!("{}, {}", self.family, self.name)
    }
}

/// Every variant in every family.
fn points<V: Copy>(cx: &Context, variants: &[(V, &'static str)]) -> Vec<Point<V>> {
    let of_family = |family| {
        let point = move |&(variant, name)| Point {
            family,
            variant,
            name,
        };
        variants.iter().map(point)
    };
    let points = cx.families().into_iter().flat_map(of_family).collect();
    cx.axes().choose(points, Point::axis)
}
