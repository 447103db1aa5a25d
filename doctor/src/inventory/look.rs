//! Puts everything together.

use lb_loader::{Cgroup, LoaderError, expect_privileges, namespace_cookie, pinned_load};

use super::{
    Inventory, Manner, Scope,
    attached::{Attached, attached, describe},
    cgroups::Hierarchy,
    holders,
    names::CGROUP_HOOKS,
    pinned, prog_arrays,
    programs::{Owner, Programs},
    unattached,
};

/// Looks at everything.
///
/// # Errors
/// [`LoaderError::Privileges`]; [`LoaderError::WrongFilesystem`] of the scope. What is there but can't be looked at is
/// no error: it is said in [`Inventory::blind`].
pub fn inventory(scope: &Scope) -> Result<Inventory, LoaderError> {
    expect_privileges()?;
    let hierarchy = Hierarchy::of(Cgroup::open(&scope.cgroup)?)?;
    let mut programs = Programs::default();
    programs.refresh()?;
    let owner = owner(scope)?;
    let hooks: Vec<u32> = CGROUP_HOOKS.iter().map(|(number, _)| *number).collect();
    let Attached { raw, walked } = attached(&hierarchy, &hooks)?;
    let mut found = describe(raw, &mut programs, &owner)?;
    let mut blind = walked.blind;
    let mut prog_arrays = prog_arrays::look(&mut programs, &mut blind)?;
    let mut loose = unattached::programs(&programs, &owner, &found, &prog_arrays)?;
    let mut keepers = holders::look(&mut blind);
    keepers.extend(pinned::look(&mut blind));
    for found in &mut found {
        keepers.fill(&mut found.program);
        if let Manner::Link {
            id,
            pinned_at,
            held_by,
        } = &mut found.manner
        {
            (*pinned_at, *held_by) = keepers.of_link(*id);
        }
    }
    for loose in &mut loose {
        keepers.fill(&mut loose.program);
    }
    for array in &mut prog_arrays {
        keepers.fill_map(&mut array.map);
    }
    Ok(Inventory {
        attachments: found,
        loose,
        prog_arrays,
        blind,
    })
}

/// What counts as current.
fn owner(scope: &Scope) -> Result<Owner, LoaderError> {
    let mut owner = Owner {
        programs: scope.current.iter().copied().collect(),
        meta: None,
        namespace: namespace_cookie()?,
    };
    if let Some(bpffs) = &scope.bpffs {
        let pinned = pinned_load(bpffs)?;
        owner.programs.extend(pinned.programs);
        owner.meta = pinned.meta_id;
    }
    Ok(owner)
}
