//! What an apply is refused for, as upstream words it.

use super::{
    Manager, Operation,
    entries::Entries,
    set::{FieldSet, Path, display},
};
use crate::status::Status;

/// Refuses a configuration that changes what others own.
///
/// # Errors
/// 409 with a cause for each field.
pub(super) fn check(others: &Entries, written: &FieldSet) -> Result<(), Status> {
    let conflicts: Vec<(&Manager, Vec<Path>)> = others
        .of
        .iter()
        .map(|(manager, owned)| (manager, owned.fields.intersection(written).paths()))
        .filter(|(_, paths)| !paths.is_empty())
        .collect();
    if conflicts.is_empty() {
        return Ok(());
    }
    let causes: Vec<(String, String)> = conflicts
        .iter()
        .flat_map(|(manager, paths)| {
            let message = format!("conflict with {}", words(manager));
            paths.iter().map(move |path| (message.clone(), display(path)))
        })
        .collect();
    let message = match causes.as_slice() {
        [(message, path)] => format!("Apply failed with 1 conflict: {message}: {path}"),
        all => {
            let mut lines = Vec::new();
            for (manager, paths) in &conflicts {
                lines.push(format!("conflicts with {}:", words(manager)));
                lines.extend(paths.iter().map(|path| format!("- {}", display(path))));
            }
            format!("Apply failed with {} conflicts: {}", all.len(), lines.join("\n"))
        }
    };
    Err(Status::apply_conflict(message, &causes))
}

fn words(manager: &Manager) -> String {
    let mut words = format!("{:?}", manager.name);
    if !manager.subresource.is_empty() {
        words.push_str(&format!(" with subresource {:?}", manager.subresource));
    }
    if manager.operation == Operation::Update {
        words.push_str(&format!(" using {}", manager.api_version));
    }
    words
}
