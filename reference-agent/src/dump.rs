//! The maps as text: sorted, without ids, so that two agents' dumps can be compared line by line.
//!
//! ```text
//! frontends
//! TCP 10.96.0.1:443 -> 10.0.0.7:6443 10.0.0.8:6443
//! TCP 10.96.0.2:80 -> 10.0.0.7:8080 10.0.0.8:8080 (maglev table of 251: 0123456789abcdef)
//! UDP 10.96.0.10:53 -> refused
//! addresses
//! 10.96.0.1 -> other ports refused
//! defects
//! slot 0 of service 7 generation 3: not current
//! ```

use std::{
    collections::BTreeSet,
    fmt::Write,
    net::{IpAddr, SocketAddr},
};

use lb_abi::address_flags::{SILENT, VIP};

use crate::{
    maglev,
    maps::Contents,
    plan::{Selection, Serving},
    resolve,
};

/// The canonical text of map contents: one line for each frontend, then one for each address, then one for each
/// defect. The line `defects` is there only if there are any. Which backends are local is not shown: nodes differ.
pub fn dump(contents: &Contents) -> String {
    let (frontends, defects) = resolve::resolve(contents);
    let mut text = String::from("frontends\n");
    for (frontend, serving) in &frontends {
        let _ = writeln!(text, "{frontend} ->{}", served(serving));
    }
    text.push_str("addresses\n");
    for &(address, flags) in &contents.addresses {
        let address = IpAddr::from(address);
        let _ = match flags & (VIP | SILENT) {
            VIP => writeln!(text, "{address} -> other ports refused"),
            0 | SILENT => writeln!(text, "{address} -> other ports passed"),
            _ => writeln!(text, "{address} -> other ports dropped"),
        };
    }
    if !defects.is_empty() {
        text.push_str("defects\n");
    }
    for defect in &defects {
        let _ = writeln!(text, "{defect}");
    }
    text
}

fn served(serving: &Serving) -> String {
    if serving.internal.is_empty() {
        return " refused".to_owned();
    }
    let mut text = String::new();
    let backends: BTreeSet<_> = serving.internal.iter().collect();
    for backend in backends {
        let address = backend.address;
        let _ = write!(text, " {}", SocketAddr::new(address.address, address.port));
    }
    if serving.selection == Selection::Maglev {
        let table = serving.internal.iter().map(|backend| backend.address);
        let (slots, digest) = (table.len(), maglev::digest(table));
        let _ = write!(text, " (maglev table of {slots}: {digest:016x})");
    }
    text
}
