//! The file by which the container runtime wires pods (<https://www.cni.dev/docs/spec/>).

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, ErrorKind, Write as _},
    path::{Path, PathBuf},
};

use ipnet::IpNet;
use serde_json::{Value, json};

use super::NAME;

/// Runtimes take the first by name; kindnet, Calico, flannel and others choose 10, too.
const FILE: &str = "10-plumbline.conflist";
/// No runtime reads files that end in this.
const TEMPORARY: &str = ".10-plumbline.conflist.new";
/// What runtimes read (`libcni.ConfFiles`).
const EXTENSIONS: [&str; 3] = ["conf", "conflist", "json"];
/// Where host-local notes which addresses are taken: it ends with the boot, as the pods do, so that none is lost then.
const ADDRESSES: &str = "/run/plumbline/pod-addresses";

/// The folder of runtimes' configurations, and this agent's in it.
#[derive(Clone, Debug)]
pub struct Conflist {
    folder: PathBuf,
}

impl Conflist {
    /// In this folder, which need not be there.
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    /// What the file says for pods of a node that have addresses of these ranges, one of each; without an MTU, that of the
    /// kernel's choice.
    pub fn render(node: &str, ranges: &[IpNet], mtu: Option<u32>) -> String {
        let defaults: BTreeSet<&str> = ranges
            .iter()
            .map(|range| match range {
                IpNet::V4(_) => "0.0.0.0/0",
                IpNet::V6(_) => "::/0",
            })
            .collect();
        let routes: Vec<Value> = defaults.into_iter().map(|to| json!({"dst": to})).collect();
        let ranges: Vec<Value> = ranges
            .iter()
            .map(|range| json!([{"subnet": range.to_string()}]))
            .collect();
        let mut link = json!({
            "type": "ptp",
            "ipMasq": false,
            "ipam": {"type": "host-local", "dataDir": ADDRESSES, "ranges": ranges, "routes": routes},
        });
        if let Some(mtu) = mtu {
            link["mtu"] = mtu.into();
        }
        // The first version in which plugins check that pods are still wired.
        let list = json!({
            "cniVersion": "0.4.0",
            "name": NAME,
            // Runtimes mind no name that they don't know.
            NAME: {"node": node},
            "plugins": [link, {"type": "portmap", "capabilities": {"portMappings": true}}],
        });
        format!("{list:#}\n")
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    /// Whether it is there, and this agent's.
    ///
    /// # Errors
    /// It can't be read.
    pub fn is_there(&self) -> io::Result<bool> {
        match fs::read_to_string(self.path()) {
            Ok(text) => Ok(is_ours(&text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether it is there, this agent's, and that of a node: a file lasts longer than what a boot has of the network.
    ///
    /// # Errors
    /// It can't be read.
    pub fn is_of(&self, node: &str) -> io::Result<bool> {
        match fs::read_to_string(self.path()) {
            Ok(text) => Ok(serde_json::from_str::<Value>(&text)
                .is_ok_and(|list| list["name"] == NAME && list[NAME]["node"] == node)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Configurations of others, by name.
    ///
    /// # Errors
    /// The folder can't be read; that it is not there is none.
    pub fn foreign(&self) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let ours = self.is_there()?;
        let mut found = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let extension = Path::new(&name)
                .extension()
                .and_then(|extension| extension.to_str());
            if extension.is_some_and(|it| EXTENSIONS.contains(&it)) && !(ours && name == FILE) {
                found.push(name.to_string_lossy().into_owned());
            }
        }
        found.sort();
        Ok(found)
    }

    /// What is said about those of others, if there are any.
    pub fn warning(&self, foreign: &[String], ours: bool) -> Option<String> {
        let first = foreign.first()?;
        let (folder, all) = (self.folder.display(), foreign.join(", "));
        Some(match (ours, first.as_str() < FILE) {
            (false, _) => format!(
                "another CNI is at work: {folder} has {all}, so no pod network is set up here; remove what it has left, \
                 or run without --pod-network"
            ),
            (true, true) => format!(
                "{folder} has {all} beside {FILE}: the container runtime takes {first}, and new pods have another network \
                 than this agent's; remove one of them"
            ),
            (true, false) => format!(
                "{folder} has {all} beside {FILE}: the container runtime takes the latter; remove one of them"
            ),
        })
    }

    /// Writes it whole or not at all, if it says something else; makes the folder. The result is whether it did.
    ///
    /// # Errors
    /// It can't be written; then it is as it was.
    pub fn write(&self, text: &str) -> io::Result<bool> {
        let path = self.path();
        if fs::read_to_string(&path).is_ok_and(|before| before == text) {
            return Ok(false);
        }
        fs::create_dir_all(&self.folder)?;
        let temporary = self.folder.join(TEMPORARY);
        let mut file = File::create(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        File::open(&self.folder)?.sync_all()?;
        Ok(true)
    }

    /// Removes it if it is this agent's; the result is whether it was there.
    ///
    /// # Errors
    /// It can't be removed.
    pub fn remove(&self) -> io::Result<bool> {
        match fs::remove_file(self.folder.join(TEMPORARY)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        if !self.is_there()? {
            return Ok(false);
        }
        fs::remove_file(self.path())?;
        File::open(&self.folder)?.sync_all()?;
        Ok(true)
    }
}

/// A file of that name that somebody else wrote is somebody else's.
fn is_ours(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|list| list["name"] == NAME)
}

#[cfg(test)]
mod tests;
