//! Conflicts of an apply, in upstream's words.

use super::{
    Manager, Operation,
    entries::Entries,
    set::{FieldSet, Path, display},
};
use crate::status::Status;

/// Refuses a configuration that changes fields of other managers.
///
/// # Errors
/// 409 with a cause for each field.
pub(super) fn check(others: &Entries, written: &FieldSet) -> Result<(), Status> {
    let conflicts: Vec<(&Manager, Vec<Path>)> = others
        .owners()
        .map(|(manager, fields)| (manager, fields.intersection(written).paths()))
        .filter(|(_, paths)| !paths.is_empty())
        .collect();
    if conflicts.is_empty() {
        return Ok(());
    }
    let causes: Vec<(String, String)> = conflicts
        .iter()
        .flat_map(|(manager, paths)| {
            let message = format!("conflict with {}", display_manager(manager));
            paths.iter().map(move |path| (message.clone(), display(path)))
        })
        .collect();
    let message = match causes.as_slice() {
        [(message, path)] => format!("Apply failed with 1 conflict: {message}: {path}"),
        all => {
            let mut lines = Vec::new();
            for (manager, paths) in &conflicts {
                lines.push(format!("conflicts with {}:", display_manager(manager)));
                lines.extend(paths.iter().map(|path| format!("- {}", display(path))));
            }
            format!("Apply failed with {} conflicts: {}", all.len(), lines.join("\n"))
        }
    };
    Err(Status::apply_conflict(message, &causes))
}

fn display_manager(manager: &Manager) -> String {
    let mut text = format!("{:?}", manager.name);
    if !manager.subresource.is_empty() {
        text.push_str(&format!(" with subresource {:?}", manager.subresource));
    }
    if manager.operation == Operation::Update {
        text.push_str(&format!(" using {}", manager.api_version));
    }
    text
}
