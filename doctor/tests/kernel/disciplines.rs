//! Queueing disciplines of devices, asked of rtnetlink by another way than the loader's.

use futures::TryStreamExt as _;
use rtnetlink::packet_route::tc::TcAttribute;

use crate::network::{here, index};

/// Whether a device has the queueing discipline that carries filters.
pub(crate) fn has_clsact(device: &'static str) -> bool {
    has_discipline(device, "clsact")
}

/// Gives a device the queueing discipline that carries filters at ingress alone.
pub(crate) fn add_ingress(device: &'static str) {
    let index = index(device).cast_signed();
    here().request(async |handle| {
        let add = handle.qdisc().add(index).ingress();
        add.execute().await.expect("the discipline `ingress`");
    });
}

/// Whether a device has a queueing discipline of a kind.
pub(crate) fn has_discipline(device: &'static str, kind: &'static str) -> bool {
    let index = index(device).cast_signed();
    here().request(async |handle| {
        let listed: Vec<_> = handle
            .qdisc()
            .get()
            .index(index)
            .execute()
            .try_collect()
            .await
            .expect("the disciplines");
        let kind = TcAttribute::Kind(kind.to_owned());
        listed
            .iter()
            .any(|found| found.header.index == index && found.attributes.contains(&kind))
    })
}
