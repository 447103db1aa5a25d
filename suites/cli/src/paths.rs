//! Paths as people read them.

use std::{env, path::Path};

/// The path relative to the current folder, if it is below it.
pub(crate) fn shown(path: &Path) -> String {
    let here = env::current_dir().unwrap_or_default();
    match path.strip_prefix(&here) {
        Ok(below) if below.as_os_str().is_empty() => ".".to_owned(),
        Ok(below) => below.display().to_string(),
        Err(_) => path.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_below_the_current_folder_is_relative_to_it() {
        let here = env::current_dir().unwrap();
        assert_eq!(shown(&here.join("target/report.yaml")), "target/report.yaml");
        assert_eq!(shown(&here), ".");
        assert_eq!(shown(Path::new("/etc/hosts")), "/etc/hosts");
        assert_eq!(shown(Path::new("target/report.yaml")), "target/report.yaml");
    }
}
