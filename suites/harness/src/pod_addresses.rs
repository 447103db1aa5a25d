//! An address that passes from one pod to another of its node, as those of pods that end do sooner or later: staged, and not
//! waited for.

use cluster::{Family, Place};

use crate::{commands, context::Context, frontends::node_addresses, pods::Backend, verdict::Halt};

/// Nothing that is sent to a pod is answered any more, not even by an error: it has no routes.
///
/// # Errors
/// If a command fails in the pod.
pub async fn silence(cx: &Context, families: &[Family], pod: &Backend) -> Result<(), Halt> {
    for family in families {
        let flush = format!("{} route flush table main", ip(*family));
        commands::change(cx, &place(pod), &flush).await?;
    }
    Ok(())
}

/// Takes a pod's addresses of these families from it, and gives them to another pod of its node, which keeps its own.
///
/// # Errors
/// If a command fails, in a pod or on the node.
pub async fn pass(cx: &Context, families: &[Family], from: &Backend, to: &Backend) -> Result<(), Halt> {
    let host = Place::Host {
        node: from.node.clone(),
    };
    for &family in families {
        let (address, own) = (from.address(family)?, to.address(family)?);
        let device = |address| format!("$(ip -o address show to {address} | awk '{{print $2; exit}}')");
        let (length, flag) = match family {
            Family::IPv4 => (32, ""),
            Family::IPv6 => (128, "nodad"),
        };
        let gives = format!(
            "with=$(ip -o address show to {address} | awk '{{print $4; exit}}'); ip address del $with dev {}",
            device(address)
        );
        commands::change(cx, &place(from), &gives).await?;
        let takes = format!("ip address add {address}/{length} dev {} {flag}", device(own));
        commands::change(cx, &place(to), &takes).await?;
        // What the node itself sends there comes from its InternalIP, as before.
        let nodes = node_addresses(cx, family).into_iter();
        let source = nodes
            .filter(|(node, _)| *node == from.node)
            .map(|(_, of)| format!(" src {of}"));
        let ip = ip(family);
        let leads = format!(
            "dev=$({ip} -o route get {own} | sed 's/.* dev \\([^ ]*\\).*/\\1/'); {ip} route replace {address}/{length} dev $dev{}",
            source.take(1).collect::<String>()
        );
        commands::change(cx, &host, &leads).await?;
    }
    Ok(())
}

fn ip(family: Family) -> &'static str {
    if family == Family::IPv6 { "ip -6" } else { "ip" }
}

fn place(pod: &Backend) -> Place {
    Place::Pod {
        namespace: pod.namespace.clone(),
        name: pod.in_api.clone(),
    }
}
