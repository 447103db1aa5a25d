//! The maps as text: sorted, without ids, so that two agents' dumps can be compared line by line.
//!
//! ```text
//! frontends
//! TCP 10.96.0.1:443 -> 10.0.0.7:6443 10.0.0.8:6443
//! UDP 10.96.0.10:53 -> refused
//! defects
//! slot 0 of service 7 generation 3: not current
//! ```

use std::fmt::Write;

use crate::{maps::Contents, resolve};

/// The canonical text of map contents: one line for each frontend, then one for each defect. The line `defects`
/// is there only if there are any.
pub fn dump(contents: &Contents) -> String {
    let (frontends, defects) = resolve::resolve(contents);
    let mut text = String::from("frontends\n");
    for (frontend, backends) in &frontends {
        let _ = write!(text, "{frontend} ->");
        for backend in backends {
            let _ = write!(
                text,
                " {}",
                std::net::SocketAddr::new(backend.address, backend.port)
            );
        }
        text.push_str(if backends.is_empty() { " refused\n" } else { "\n" });
    }
    if !defects.is_empty() {
        text.push_str("defects\n");
    }
    for defect in &defects {
        let _ = writeln!(text, "{defect}");
    }
    text
}
