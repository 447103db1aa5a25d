//! Attachments at the cgroup of a [`Node`](super::node::Node), as the kernel describes them.

use std::time::Duration;

use doctor::{CgroupState, Found, Manner, Place, ProgramDescription};
use lb_loader::{ALLOW_MULTI, Attachment, Ownership};

/// As the kernel describes an attachment to the cgroup of a [`Node`](super::node::Node).
pub fn as_found(attachment: &Attachment) -> Found {
    let Attachment {
        hook,
        program_id,
        link_id,
        ..
    } = *attachment;
    Found {
        place: Place::Cgroup {
            id: 1,
            path: Some("/cgroup".into()),
            state: CgroupState::Visible,
            attach_type: 0,
            attach_name: hook.name(),
        },
        order: 0,
        program: description(program_id),
        manner: match link_id {
            Some(id) => Manner::Link {
                id,
                pinned_at: Vec::new(),
                held_by: Vec::new(),
            },
            None => Manner::Legacy { flags: ALLOW_MULTI },
        },
        ownership: Ownership::Earlier,
    }
}

pub(super) fn description(id: u32) -> ProgramDescription {
    ProgramDescription {
        id,
        name: "connect4".to_owned(),
        program_type: 18,
        type_name: "cgroup_sock_addr",
        tag: [0; 8],
        loaded_at: Duration::ZERO,
        uid: 0,
        maps: Vec::new(),
        pinned_at: Vec::new(),
        held_by: Vec::new(),
    }
}
