//! Each mutant misreads policies in one place, and is the production agent everywhere else.

use mutants::policies_misread::{Misread, PoliciesMisread};
use reference_agent::{
    control::{DesiredState, Planner},
    model::{Event, Policy, Service},
    plan::Perspective,
    testing::objects::{service, slice},
};
use rstest::rstest;

fn planner() -> Planner {
    Planner::new(Perspective {
        node: "here".to_owned(),
        ..Perspective::default()
    })
}

/// Of a Service with these policies, one after the other: what clients inside meet at the cluster IP, and inside and
/// outside at the node port. `2`: both backends, `1`: the one of this node, which is not local where that is misread.
fn met(mut desired: impl DesiredState, policies: &[[Policy; 2]]) -> [String; 3] {
    desired.apply(Event::SliceApplied(slice(
        "t/1",
        "x",
        &["TCP 80"],
        &["1.1.1.1@here", "1.1.1.2@there"],
    )));
    let mut ids = Vec::new();
    for &[internal_policy, external_policy] in policies {
        let service = Service {
            internal_policy,
            external_policy,
            ..service("t/x", "10.96.0.1", &["TCP 80  @30080"])
        };
        ids.extend(desired.apply(Event::ServiceApplied(service)));
    }
    let plan = desired.plan_service(*ids.last().expect("the Service"));
    let port = plan.ports.values().next().expect("a port");
    let sets = |is_node_port: bool| {
        let mut frontends = port.frontends.iter();
        let found = frontends.find(|(at, _)| at.address.is_unspecified() == is_node_port);
        let (_, frontend) = found.expect("a frontend");
        [frontend.internal, frontend.external].map(|set| {
            let backends = port.set(set);
            let own = if backends.iter().any(|backend| backend.local) {
                ""
            } else {
                " as of others"
            };
            format!("{}{own}", backends.len())
        })
    };
    let ([cluster_ip, _], [inside, outside]) = (sets(false), sets(true));
    [cluster_ip, inside, outside]
}

const CLUSTER: [Policy; 2] = [Policy::Cluster, Policy::Cluster];
const INTERNAL: [Policy; 2] = [Policy::Local, Policy::Cluster];
const EXTERNAL: [Policy; 2] = [Policy::Cluster, Policy::Local];

#[rstest]
#[case(Misread::InternalIgnored, &[INTERNAL], ["1", "2", "2"], ["2", "2", "2"])]
#[case(Misread::InternalIgnored, &[EXTERNAL], ["2", "2", "1"], ["2", "2", "1"])]
#[case(Misread::ExternalIgnored, &[EXTERNAL], ["2", "2", "1"], ["2", "2", "2"])]
#[case(Misread::ExternalIgnored, &[INTERNAL], ["1", "2", "2"], ["1", "2", "2"])]
#[case(Misread::Coupled, &[INTERNAL], ["1", "2", "2"], ["1", "2", "1"])]
#[case(Misread::Coupled, &[EXTERNAL], ["2", "2", "1"], ["1", "2", "1"])]
#[case(Misread::Coupled, &[CLUSTER], ["2", "2", "2"], ["2", "2", "2"])]
#[case(Misread::Once, &[CLUSTER, EXTERNAL], ["2", "2", "1"], ["2", "2", "2"])]
#[case(Misread::Once, &[INTERNAL, CLUSTER], ["2", "2", "2"], ["1", "2", "2"])]
#[case(Misread::ExternalInside, &[EXTERNAL], ["2", "2", "1"], ["2", "1", "1"])]
#[case(Misread::ExternalInside, &[INTERNAL], ["1", "2", "2"], ["1", "2", "2"])]
#[case(Misread::SourceLost, &[EXTERNAL], ["2", "2", "1"], ["2", "2", "1 as of others"])]
#[case(Misread::SourceLost, &[CLUSTER], ["2", "2", "2"], ["2", "2", "2"])]
fn clients_meet(
    #[case] misread: Misread,
    #[case] policies: &[[Policy; 2]],
    #[case] right: [&str; 3],
    #[case] wrong: [&str; 3],
) {
    assert_eq!(met(planner(), policies), right);
    assert_eq!(met(PoliciesMisread::new(planner(), misread), policies), wrong);
}
