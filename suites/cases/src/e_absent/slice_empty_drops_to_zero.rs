//! `slice-empty-drops-to-zero`: once the last endpoint leaves the EndpointSlice, and, in a second Service, once all
//! turn unready, every frontend reaches no backend within the endpoint propagation limit, and for the hold time.
//!
//! The former backends still listen, and answer when they are dialled directly: they are the traps. Where they were
//! deleted, as most suites do it, an implementation that keeps them would look right.
use std::time::Duration;

use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    frontend_kinds::Kind,
    verdict::Halt,
};
use oracle::check::Permitted;

use super::emptied::{self, Emptied, Loss};

pub(crate) const CASE: Case = Case {
    id: "slice-empty-drops-to-zero",
    area: super::AREA,
    claims: &["slice-empty-drops-to-zero"],
    sentence: "no frontend reaches the last endpoint once it has left the EndpointSlice or turned unready",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Api,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("emptied.yaml"),
    longest: Duration::from_secs(450),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

async fn run(cx: &Context) -> Result<(), Halt> {
    let staged = Emptied::stage(cx, &[Loss::Left, Loss::Unready], &Kind::ALL).await?;
    let dialled = staged.dialled_everywhere(cx);
    let within = staged.lose(cx, &dialled).await?;

    cx.phase("verdict: no frontend reaches a backend, for the hold time after the fence");
    emptied::judge(cx, &dialled, |_| Permitted::None, within).await?;
    staged.answer_directly(cx).await
}
