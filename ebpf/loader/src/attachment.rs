//! What is attached to a cgroup, and whose it is.

use std::{
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
};

use crate::{
    HeldProgram, Hook, LoaderError,
    cgroup::Cgroup,
    link::links,
    sys::{
        cgroup as bpf,
        link::{Link, Target},
    },
};

/// Whose program it is: by a map that it uses, never by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ownership {
    /// Ours: one of those that this [`Datapath`](crate::Datapath) has loaded.
    Current,
    /// Ours, of another load: an earlier start, or another process.
    Earlier,
    /// Ours, loaded for another node that this kernel runs too: its network namespace is another one. It stays.
    OtherNode,
    /// Another project's. It stays.
    Foreign,
}

/// One attachment of one program to one hook of a cgroup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attachment {
    /// The hook.
    pub hook: Hook,
    /// The program.
    pub program_id: u32,
    /// The link that attaches it; `None`: attached the legacy way (`BPF_PROG_ATTACH`).
    pub link_id: Option<u32>,
    /// Whose it is.
    pub ownership: Ownership,
    /// The program's name as the kernel keeps it, for people only: at most 15 bytes, not unique.
    pub name: String,
    /// Ids of the maps it uses.
    pub map_ids: Vec<u32>,
}

/// Ids of the programs at a hook of a cgroup, in the order in which they run; an id appears once for each time
/// that the program is attached. `effective`: with those that are inherited from the cgroups above.
pub fn programs_attached(cgroup: &Path, hook: Hook, effective: bool) -> Result<Vec<u32>, LoaderError> {
    query(&Cgroup::open(cgroup)?, hook, effective)
}

/// Attaches a program the way of before bpf_link: it stays until it is detached or the cgroup is removed, whatever
/// process ends. `flags`: [`ALLOW_MULTI`](crate::ALLOW_MULTI), [`ALLOW_OVERRIDE`](crate::ALLOW_OVERRIDE), or 0, as the kernel has them.
///
/// # Errors
/// [`LoaderError::Kernel`] with EPERM where what is attached there or above lets no other in.
pub fn attach_legacy(
    cgroup: &Path,
    hook: Hook,
    program: &HeldProgram,
    flags: u32,
) -> Result<(), LoaderError> {
    bpf::attach(
        Cgroup::open(cgroup)?.as_fd(),
        program.as_fd(),
        hook.attach_type(),
        flags,
    )
    .map_err(LoaderError::kernel(attach_to(cgroup, hook, program)))
}

/// Attaches a program by a link without a pin: it stays for as long as the descriptor, or another one of the link, is
/// open, and until the link is detached.
pub fn attach_link(cgroup: &Path, hook: Hook, program: &HeldProgram) -> Result<OwnedFd, LoaderError> {
    bpf::link_create(Cgroup::open(cgroup)?.as_fd(), program.as_fd(), hook.attach_type())
        .map_err(LoaderError::kernel(attach_to(cgroup, hook, program)))
}

fn attach_to(cgroup: &Path, hook: Hook, program: &HeldProgram) -> String {
    format!(
        "attach program {} to {hook} of {}",
        program.id(),
        cgroup.display()
    )
}

/// Undoes [`attach_legacy`]; not attached is no error. `true`: it was.
pub fn detach_legacy(cgroup: &Path, hook: Hook, program: &HeldProgram) -> Result<bool, LoaderError> {
    let detached = Cgroup::open(cgroup)?.detach(hook.attach_type(), program);
    detached.map_err(LoaderError::kernel(format!(
        "detach program {} from {hook} of {}",
        program.id(),
        cgroup.display()
    )))
}

/// What is attached to our hooks at a cgroup; `current`: ids of the programs that are [`Ownership::Current`].
pub(crate) fn attachments(cgroup: &Cgroup, current: &[u32]) -> Result<Vec<Attachment>, LoaderError> {
    let mut links = links()?;
    links.retain(|link| matches!(link.target, Target::Cgroup { id, .. } if id == cgroup.id()));
    let mut found = Vec::new();
    for hook in Hook::ALL {
        for program_id in query(cgroup, hook, false)? {
            // It may have been detached since, by its owner.
            let Some(program) = HeldProgram::find(program_id)? else {
                continue;
            };
            let ownership = match (current.contains(&program_id), program.is_ours()?) {
                (true, _) => Ownership::Current,
                (false, true) => Ownership::Earlier,
                (false, false) => Ownership::Foreign,
            };
            // A program may be attached both ways, or by several links: each accounts for one.
            let link = links
                .iter()
                .position(|link| link.program_id == program_id && is_at(link, cgroup, hook))
                .map(|at| links.swap_remove(at));
            found.push(Attachment {
                hook,
                program_id,
                link_id: link.map(|link| link.id),
                ownership,
                name: program.name().to_owned(),
                map_ids: program.map_ids().to_vec(),
            });
        }
    }
    Ok(found)
}

/// Whether a link is of a hook of a cgroup.
pub(crate) fn is_at(link: &Link, cgroup: &Cgroup, hook: Hook) -> bool {
    link.target
        == Target::Cgroup {
            id: cgroup.id(),
            attach_type: hook.attach_type(),
        }
}

fn query(cgroup: &Cgroup, hook: Hook, effective: bool) -> Result<Vec<u32>, LoaderError> {
    let attached = bpf::query(cgroup.as_fd(), hook.attach_type(), effective);
    attached
        .map(|attached| attached.programs)
        .map_err(LoaderError::kernel(format!(
            "ask what is attached to {hook} of {cgroup}"
        )))
}
