//! `kubesvc-reachable`: from pods and hosts on every node a TLS handshake with the ClusterIP of `default/kubernetes`
//! completes with a certificate that is valid for `kubernetes.default.svc`.
//!
//! The ClusterIP is dialled, not a name and not an API server's own address. The certificate tells an API server from
//! any other listener on port 443.
use std::{collections::BTreeSet, time::Duration};

use cluster::Capability;
use harness::{
    background::Background,
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    destination::Destination,
    verdict::Halt,
};
use oracle::history::{Attempt, Outcome};

use super::kubernetes::{VALID_FOR, frontend, handshakes};

pub(crate) const CASE: Case = Case {
    id: "kubesvc-reachable",
    area: super::AREA,
    claims: &["kubesvc-reachable"],
    sentence: "the address of default/kubernetes answers pods and hosts of every node with an API server's certificate",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 1,
        families: Families::Any,
        rights: Rights::Api,
        also: &[Capability::ApiServers],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("kubesvc_reachable.yaml"),
    longest: Duration::from_secs(120),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

async fn run(cx: &Context) -> Result<(), Halt> {
    let (family, address) = frontend(cx).await?;
    cx.phase("verdict: every handshake completes, with a certificate for it");
    let axis = family.to_string();
    let target = [Destination::certified(&axis, "kubernetes", address, VALID_FOR)];
    let window = Background::start(cx, cx.clients(), &target, handshakes(cx.limits())).await?;
    let attempts = window.hold(cx).await?;
    let answered: BTreeSet<&str> = attempts.iter().filter_map(by).collect();
    let answered: Vec<&str> = answered.into_iter().collect();
    cx.record(
        "certificates of the API servers that answered",
        answered.join("; "),
    );
    Ok(())
}

fn by(attempt: &Attempt) -> Option<&str> {
    match &attempt.outcome {
        Outcome::Answered { answer, .. } => Some(&answer.identity),
        _ => None,
    }
}
