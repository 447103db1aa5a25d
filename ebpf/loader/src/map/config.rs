//! CONFIG: one value.

use std::{io, os::fd::OwnedFd};

use lb_abi::Config;

use super::table::Table;
use crate::{MapError, MapName, Operation};

/// The only key.
const KEY: u32 = 0;

/// How the node is set up.
#[derive(Debug)]
pub struct ConfigTable(Table<u32, Config>);

impl ConfigTable {
    /// The map must have the layout of CONFIG.
    pub(crate) const fn new(map: OwnedFd) -> Self {
        Self(Table::new(MapName::Config, map))
    }

    /// As it is now.
    pub fn get(&self) -> Result<Config, MapError> {
        self.0.get(&KEY)?.ok_or_else(|| MapError {
            map: MapName::Config,
            operation: Operation::Get,
            source: io::ErrorKind::NotFound.into(),
        })
    }

    /// Replaces it. The kernel copies the value into its place: a program that runs meanwhile may see some fields of
    /// the old one and some of the new.
    pub fn put(&self, config: &Config) -> Result<(), MapError> {
        self.0.put(&KEY, config)
    }
}
