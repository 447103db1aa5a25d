//! The state file: addresses for the next start. It may be missing or wrong.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// Its name in the folder of `--state`.
pub const STATE_FILE: &str = "api-servers.json";
/// A larger file is not the agent's.
pub const STATE_MOST: u64 = 64 * 1024;

/// The file's contents. Unknown fields, of another version, are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Remembered {
    /// Endpoints of API servers, latest first.
    #[serde(default)]
    pub(super) endpoints: Vec<SocketAddr>,
    /// The last addresses of each name of the configuration, by `host:port`.
    #[serde(default)]
    pub(super) names: BTreeMap<String, Vec<SocketAddr>>,
}

/// The state file.
#[derive(Clone, Debug)]
pub(super) struct StateFile(PathBuf);

impl StateFile {
    pub(super) fn new(folder: &Path) -> Self {
        Self(folder.join(STATE_FILE))
    }

    /// Reads what an earlier start has left. A file that can't be read counts as none, and is logged.
    pub(super) fn read(&self) -> Remembered {
        match self.try_read() {
            Ok(remembered) => remembered,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Remembered::default(),
            Err(error) => {
                tracing::warn!(
                    file = %self.0.display(), %error,
                    "the remembered addresses of API servers are ignored; the file is written anew with the next ones"
                );
                Remembered::default()
            }
        }
    }

    fn try_read(&self) -> io::Result<Remembered> {
        let mut text = String::new();
        let length = File::open(&self.0)?
            .take(STATE_MOST + 1)
            .read_to_string(&mut text)?;
        if length as u64 > STATE_MOST {
            return Err(io::Error::other(format!(
                "expected at most {STATE_MOST} bytes, found more"
            )));
        }
        Ok(serde_json::from_str(&text)?)
    }

    /// Replaces it atomically.
    pub(super) fn write(&self, remembered: &Remembered) -> io::Result<()> {
        if let Some(folder) = self.0.parent() {
            fs::create_dir_all(folder)?;
        }
        let next = self.0.with_extension("json.next");
        let mut file = File::create(&next)?;
        file.write_all(&serde_json::to_vec(remembered)?)?;
        file.sync_all()?;
        fs::rename(next, &self.0)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remembered() -> Remembered {
        Remembered {
            endpoints: vec!["10.0.0.1:6443".parse().expect("an address")],
            names: [(
                "api.example.org:443".to_owned(),
                vec!["[2001:db8::1]:443".parse().expect("an address")],
            )]
            .into(),
        }
    }

    #[test]
    fn what_was_written_is_read_and_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = StateFile::new(&folder.path().join("of/the/agent"));
        assert_eq!(file.read(), Remembered::default(), "nothing yet");
        file.write(&Remembered::default()).expect("written");
        file.write(&remembered()).expect("replaced");
        assert_eq!(file.read(), remembered());
        let left: Vec<_> = fs::read_dir(file.path().parent().expect("a folder"))
            .expect("readable")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        assert_eq!(left, [STATE_FILE], "nothing else is left behind");
    }

    #[test]
    fn a_file_that_makes_no_sense_counts_as_none_and_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = StateFile::new(folder.path());
        let huge = format!("{{\"endpoints\":[]}}{}", " ".repeat(70_000));
        for wrong in [
            "",
            "{",
            "[]",
            r#"{"endpoints":["10.0.0.1"]}"#,
            "\u{0}\u{1}",
            &huge,
        ] {
            fs::write(file.path(), wrong).expect("written");
            assert_eq!(file.read(), Remembered::default(), "{wrong:.20}");
        }
        fs::write(file.path(), [0xff, 0xfe]).expect("written");
        assert_eq!(file.read(), Remembered::default(), "not UTF-8");
        file.write(&remembered()).expect("replaced");
        assert_eq!(file.read(), remembered());
    }

    #[test]
    fn what_a_later_version_has_added_is_left_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = StateFile::new(folder.path());
        fs::write(file.path(), r#"{"endpoints":["10.0.0.1:6443"],"weights":[3]}"#).expect("written");
        assert_eq!(file.read().endpoints, remembered().endpoints);
    }
}
