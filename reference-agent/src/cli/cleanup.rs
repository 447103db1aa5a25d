//! Takes the datapath away.

use clap::Args;

use super::{Bpffs, Cgroup};

/// What to clean.
#[derive(Debug, Args)]
pub struct Cleanup {
    #[command(flatten)]
    cgroup: Cgroup,
    #[command(flatten)]
    bpffs: Bpffs,
}

pub(super) fn cleanup(
    Cleanup {
        cgroup: Cgroup { cgroup },
        bpffs: Bpffs { bpffs },
    }: &Cleanup,
) -> anyhow::Result<()> {
    let lb_loader::Cleanup {
        detached,
        devices,
        unpinned,
    } = lb_loader::cleanup(bpffs, cgroup)?;
    for attachment in &detached {
        println!(
            "detached program {} from {}",
            attachment.program_id, attachment.hook
        );
    }
    for lb_loader::DeviceAttachment {
        program_id,
        direction,
        device,
        ..
    } in &devices
    {
        println!("detached program {program_id} from {direction} of {device}");
    }
    for path in &unpinned {
        println!("removed {}", path.display());
    }
    if detached.is_empty() && devices.is_empty() && unpinned.is_empty() {
        println!("nothing to clean");
    }
    Ok(())
}
