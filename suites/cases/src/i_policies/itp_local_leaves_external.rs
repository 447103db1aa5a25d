//! `itp-local-leaves-external`: the two traffic policies are independent. A Service whose internal policy becomes
//! `Local` goes on to serve node ports of every node, from inside and outside, and one whose external policy becomes
//! `Local` its ClusterIP. The extended part: addresses of load balancers, as node ports.
//!
//! The only backend is on the first node, so that on all others a policy that counts for the wrong frontend leaves
//! none. The same frontends served before, with both policies `Cluster`.
use std::time::Duration;

use cluster::Capability;
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    client::Client,
    context::Context,
    fence,
    policies::Policies,
    verdict::Halt,
    waiting::Within,
};

use super::staging::{self, Kind, On, Staged};

pub(crate) const CASE: Case = Case {
    id: "itp-local-leaves-external",
    area: super::AREA,
    claims: &["itp-local-leaves-external"],
    sentence: "internalTrafficPolicy Local does not restrict node ports, nor externalTrafficPolicy Local a ClusterIP",
    tier: Tier::Core,
    features: &[],
    needs: Needs {
        nodes: 2,
        families: Families::Any,
        rights: Rights::Namespaced,
        also: &[Capability::Outside],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("policies.yaml"),
    longest: Duration::from_secs(240),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx, Kind::NodePorts)),
};
pub(crate) const LB: Case = Case {
    id: "itp-local-leaves-external-lb",
    sentence: "internalTrafficPolicy Local does not restrict load balancer addresses",
    features: &["loadbalancer"],
    needs: Needs {
        rights: Rights::Api,
        also: &[Capability::Outside, Capability::SecondNetwork],
        ..CASE.needs
    },
    run: |cx| Box::pin(run(cx, Kind::LoadBalancer)),
    ..CASE
};

const INTERNAL: &str = "internal";
const EXTERNAL: &str = "external";

async fn run(cx: &Context, external: Kind) -> Result<(), Halt> {
    cx.phase("staging: two Services with a backend on the first node, and both policies Cluster");
    let on = On::FirstNode;
    let rows = [
        (INTERNAL, Policies::CLUSTER, on),
        (EXTERNAL, Policies::CLUSTER, on),
    ];
    let mut services = staging::services(cx, external, &rows).await?;
    if external == Kind::LoadBalancer {
        staging::route(cx, &services).await?;
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let all: Vec<Client> = cx
        .clients()
        .iter()
        .cloned()
        .chain(cx.clients().outside())
        .collect();
    // What is dialled of each Service is what its policy is not about.
    let dialled = |services: &[Staged]| {
        let external = staging::dialled(cx, services, external, &all)?;
        let cluster_ips = staging::dialled(cx, services, Kind::ClusterIp, &all)?;
        Ok::<_, Halt>(
            external
                .only(|target| target.name.starts_with(INTERNAL))
                .and(&cluster_ips.only(|target| target.name.starts_with(EXTERNAL))),
        )
    };
    let what = "served while both policies are Cluster";
    dialled(&services)?.control(cx, what, within).await?;

    cx.phase("fault: the internal policy of one and the external policy of the other become Local");
    for service in &mut services {
        let is_internal = service.is(INTERNAL);
        let policies = if is_internal {
            Policies::INTERNAL
        } else {
            Policies::EXTERNAL
        };
        service.flip(cx, policies).await?;
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;

    cx.phase("verdict: what the policies are not about serves as before");
    dialled(&services)?.judge(cx, within).await?;
    Ok(())
}
