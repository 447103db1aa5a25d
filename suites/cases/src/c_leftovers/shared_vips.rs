//! A VIP of each family, served by `b_old` (the trap) and then by others, for cases in which families share one fault.

use std::time::Instant;

use cluster::Family;
use harness::{
    context::Context,
    destination::Destination,
    names::Key,
    pods::{Backend, endpoints},
    verdict::Halt,
};
use serde_json::json;

use super::generations::{
    CONNECT, SENDMSG,
    vips::{ALL, TARGET, Vips, backends},
};

/// A family's VIP, and its backends before and after.
pub(super) struct Shop {
    family: Family,
    namespace: String,
    vips: Vips,
    pub(super) old: Backend,
    new: Vec<Backend>,
}

impl Shop {
    /// One for each family, served by its `b_old`; its axis is the name of the connect hook.
    pub(super) async fn stage(cx: &Context, node: &str) -> Result<Vec<Self>, Halt> {
        let mut shops = Vec::new();
        for family in cx.families() {
            shops.push(Self::of(cx, family, node).await?);
        }
        Ok(shops)
    }

    async fn of(cx: &Context, family: Family, node: &str) -> Result<Self, Halt> {
        let namespace = cx.namespace().await?;
        let (old, new) = backends(cx, &namespace, node).await?;
        let values = json!({
            "namespace": namespace, "family": family.to_string(),
            "endpoints": endpoints([&old], family)?, "target": TARGET,
        });
        let vips = Vips {
            axis: of_family(CONNECT, family).to_owned(),
            shop: cx.apply_service("shop", &values).await?,
            gone: None,
        };
        Ok(Self {
            family,
            namespace,
            vips,
            old,
            new,
        })
    }

    pub(super) fn axis(&self) -> &str {
        &self.vips.axis
    }

    /// The same VIP, for another axis.
    pub(super) fn for_axis(mut self, suffix: &str) -> Self {
        self.vips.axis += suffix;
        self
    }

    /// What is permitted while `b_old` serves.
    pub(super) fn by_old(&self) -> Vec<Destination> {
        self.vips.serve(std::slice::from_ref(&self.old), ALL)
    }

    /// What is permitted once the others serve.
    pub(super) fn by_new(&self) -> Vec<Destination> {
        self.vips.serve(&self.new, ALL)
    }

    /// Replaces `b_old` by the others; returns when the write was acknowledged.
    pub(super) async fn replace(&self, cx: &Context) -> Result<Instant, Halt> {
        let slice = Key::slice(&self.namespace, "shop");
        let changed = json!({ "endpoints": endpoints(&self.new, self.family)? });
        Ok(cx.objects().patch(&slice, changed).await?.at)
    }
}

/// The connect and sendmsg hooks of the cluster's families.
pub(super) fn hooks(cx: &Context) -> Vec<&'static str> {
    let both = |family| [CONNECT, SENDMSG].map(|hooks| of_family(hooks, family));
    cx.families().into_iter().flat_map(both).collect()
}

fn of_family(hooks: [&'static str; 2], family: Family) -> &'static str {
    match family {
        Family::IPv4 => hooks[0],
        Family::IPv6 => hooks[1],
    }
}
