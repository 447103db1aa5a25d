//! `dual-stack-both`: a Service of both families is served at both ClusterIPs, and at node ports of both. Its second
//! family is added to a Service of one, and removed from another: within the Service propagation limit it serves, or
//! serves no more, and the first one never fails.
//!
//! Which family is the first is an axis. The EndpointSlices of both are there from the beginning.
use std::time::Duration;

use cluster::Family;
use futures::try_join;
use harness::{
    case::{Case, Families, Needs, Rights, Tier},
    context::Context,
    fence,
    frontends::{self, Frontends, Vantage, permitting},
    pods::{Backend, endpoints},
    probing::identities,
    verdict::Halt,
    waiting::Within,
};
use oracle::{check::Permitted, history::Transport};
use serde_json::{Value, json};

pub(crate) const CASE: Case = Case {
    id: "dual-stack-both",
    area: super::AREA,
    claims: &["dual-stack-both"],
    sentence: "a dual-stack Service is served in both families, and adding or removing the second does not disturb the first",
    tier: Tier::Core,
    features: &["dual-stack"],
    needs: Needs {
        nodes: 2,
        families: Families::DualStack,
        rights: Rights::Namespaced,
        also: &[],
        target: &[],
    },
    disruptive: false,
    manifest: include_str!("dual_stack_both.yaml"),
    longest: Duration::from_secs(300),
    takes_at_least: Duration::ZERO,
    run: |cx| Box::pin(run(cx)),
};

const PORT: u16 = 7480;
const TARGET: u16 = 8080;
const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Udp];

/// What becomes of the second family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Second {
    Added,
    Removed,
}

/// A Service, by its first family.
struct Staged {
    axis: String,
    families: [Family; 2],
    second: Second,
    /// Of each family that it has at first.
    made: Vec<Frontends>,
}

async fn run(cx: &Context) -> Result<(), Halt> {
    cx.phase("staging: Services of both families, and of one");
    let namespace = cx.namespace().await?;
    let backends = frontends::serving(cx, &namespace, &["b1", "b2"], &[TARGET], &[TARGET]).await?;
    let orders = vec![[Family::IPv4, Family::IPv6], [Family::IPv6, Family::IPv4]];
    let orders = cx.axes().choose(orders, |[first, _]| format!("{first} first"));
    let mut staged = Vec::new();
    for families in orders {
        for second in [Second::Added, Second::Removed] {
            staged.push(stage(cx, &namespace, families, second, &backends).await?);
        }
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;

    cx.phase("verdict: each family that a Service has is served");
    let all = |of: fn(&Staged) -> &[Frontends]| -> Result<Vec<Vantage>, Halt> {
        let each = staged
            .iter()
            .map(|one| dialled(cx, &one.axis, of(one), &backends));
        let vantages = each.collect::<Result<Vec<_>, Halt>>()?.concat();
        Ok(frontends::joined(&vantages))
    };
    // N probes of each family follow, where it is the first.
    frontends::judge_all_briefly(cx, &all(|one| &one.made)?, within).await?;

    cx.phase("verdict: the second family is added and removed, and the first never fails");
    let hold = cx.limits().hold;
    let first = frontends::begin_all(cx, &all(|one| &one.made[..1])?, hold).await?;
    let (mut added, mut removed) = (Vec::new(), Vec::new());
    for one in &staged {
        let written = cx.objects().patch(&one.made[0].service, one.change()).await?;
        match one.second {
            Second::Added => {
                let made = Frontends::of_each_family(&written)?;
                added.extend(dialled(cx, &one.axis, &made[1..], &backends)?);
            }
            Second::Removed => removed.extend(dialled(cx, &one.axis, &one.made[1..], &backends)?),
        }
    }
    let within = Within::from_now(cx.limits().service);
    fence::pass(cx).await?;
    let removed: Vec<Vantage> = frontends::joined(&removed)
        .into_iter()
        .map(|(clients, targets)| (clients, permitting(&targets, &Permitted::None)))
        .collect();
    frontends::settle_all(cx, &removed, within).await?;
    frontends::judge_all(cx, &frontends::joined(&added), within).await?;
    let removed = frontends::begin_all(cx, &removed, hold).await?;
    try_join!(frontends::hold_all(cx, removed), frontends::hold_all(cx, first))?;
    Ok(())
}

impl Staged {
    /// The patch that adds or removes the second family.
    fn change(&self) -> Value {
        let [first, second] = self.families.map(|family| family.to_string());
        match self.second {
            Second::Added => {
                json!({ "spec": { "ipFamilyPolicy": "RequireDualStack", "ipFamilies": [first, second] } })
            }
            Second::Removed => {
                let cluster_ips = [self.made[0].cluster_ip];
                json!({ "spec": { "ipFamilyPolicy": "SingleStack", "ipFamilies": [first], "clusterIPs": cluster_ips } })
            }
        }
    }
}

async fn stage(
    cx: &Context,
    namespace: &str,
    families: [Family; 2],
    second: Second,
    backends: &[Backend],
) -> Result<Staged, Halt> {
    let [first, _] = families;
    let names = families.map(|family| family.to_string());
    let (policy, has) = match second {
        Second::Added => ("SingleStack", &names[..1]),
        Second::Removed => ("RequireDualStack", &names[..]),
    };
    let values = json!({
        "namespace": namespace, "service": format!("{second:?}-{first}").to_lowercase(), "policy": policy, "families": has,
        "ipv4": endpoints(backends, Family::IPv4)?, "ipv6": endpoints(backends, Family::IPv6)?,
    });
    let made = Frontends::create_dual(cx, &values).await?;
    for slice in ["${service}-ipv4", "${service}-ipv6"] {
        cx.apply(slice, &values).await?;
    }
    Ok(Staged {
        axis: format!("{first} first, second {}", format!("{second:?}").to_lowercase()),
        families,
        second,
        made,
    })
}

/// ClusterIPs and node ports of these families of a Service, by the clients that dial them.
fn dialled(cx: &Context, axis: &str, made: &[Frontends], backends: &[Backend]) -> Result<Vec<Vantage>, Halt> {
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    for one in made {
        for transport in TRANSPORTS {
            let by = identities(backends, transport, TARGET);
            inside.push(one.at_cluster_ip(axis, transport, PORT, &by));
            outside.extend(one.at_nodes(cx, axis, transport, &by)?);
        }
    }
    inside.extend(outside.clone());
    Ok(frontends::vantages(cx, inside, outside))
}
