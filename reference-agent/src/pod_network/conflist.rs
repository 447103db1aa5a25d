//! The CNI configuration of the container runtime (<https://www.cni.dev/docs/spec/>).

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, ErrorKind, Write as _},
    path::{Path, PathBuf},
};

use ipnet::IpNet;
use serde_json::{Value, json};

use super::NAME;

/// Runtimes take the first file by name; kindnet, Calico, flannel and others use 10, too.
const FILE: &str = "10-plumbline.conflist";
/// Runtimes do not read files of this name.
const TEMPORARY: &str = ".10-plumbline.conflist.new";
/// Extensions of files that runtimes read (`libcni.ConfFiles`).
const EXTENSIONS: [&str; 3] = ["conf", "conflist", "json"];
/// The folder of host-local's address leases. It is emptied by a boot, which ends all pods, so that no lease stays.
const ADDRESSES: &str = "/run/plumbline/pod-addresses";

/// This agent's file in the folder of CNI configurations.
#[derive(Clone, Debug)]
pub struct Conflist {
    folder: PathBuf,
}

impl Conflist {
    /// In this folder, which need not exist.
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    /// The file's contents for pods of a node with an address of each of these ranges. Without an MTU the kernel chooses.
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
        // The first version with CHECK.
        let list = json!({
            "cniVersion": "0.4.0",
            "name": NAME,
            // Runtimes ignore unknown names.
            NAME: {"node": node},
            "plugins": [link, {"type": "portmap", "capabilities": {"portMappings": true}}],
        });
        format!("{list:#}\n")
    }

    /// The path of the file.
    pub fn path(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    /// Whether it exists, and is this agent's.
    ///
    /// # Errors
    /// It can't be read.
    pub fn exists(&self) -> io::Result<bool> {
        match fs::read_to_string(self.path()) {
            Ok(text) => Ok(is_ours(&text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether it exists, and is this agent's for a node. The file outlives a boot, unlike the rest of the network.
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

    /// Configurations of other owners, by name. A missing folder is empty.
    ///
    /// # Errors
    /// The folder can't be read.
    pub fn foreign(&self) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let ours = self.exists()?;
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

    /// The reason about configurations of other owners, if there are any.
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

    /// Writes it atomically, if its contents differ, and makes the folder. The result: whether it was written.
    ///
    /// # Errors
    /// It can't be written, and is unchanged.
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

    /// Removes it if it is this agent's. The result: whether it was removed.
    ///
    /// # Errors
    /// It can't be removed.
    pub fn remove(&self) -> io::Result<bool> {
        match fs::remove_file(self.folder.join(TEMPORARY)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        if !self.exists()? {
            return Ok(false);
        }
        fs::remove_file(self.path())?;
        File::open(&self.folder)?.sync_all()?;
        Ok(true)
    }
}

/// Whether the contents are this agent's: another owner may have a file of the same name.
fn is_ours(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|list| list["name"] == NAME)
}

#[cfg(test)]
mod tests;
