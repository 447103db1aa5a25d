//! UDP sockets end with any Service that their backend leaves.
//!
//! Cilium 1.19.5: when a backend leaves a Service, every connected socket to its address and port is ended, whichever
//! Service the socket has dialled. A socket to a Service that still has the backend gets EDESTADDRREQ or ECONNABORTED.

use std::io;

use lb_loader::LoaderError;
use reference_agent::{
    datapath::Datapath,
    maps::{LbMaps as _, Map},
};

use crate::{
    datapath_decorator::{Flaw, Flawed},
    udp_ending::Ending,
};

/// The production agent's datapath, for which a socket has dialled every Service.
pub fn sockets_by_address<D: Datapath<Maps: 'static>>(inner: D) -> Flawed<D, SocketsByAddress> {
    Flawed::new(inner, SocketsByAddress)
}

/// The flaw.
#[derive(Debug)]
pub struct SocketsByAddress;

impl<D: Datapath<Maps: 'static>> Flaw<D> for SocketsByAddress {
    type Maps = D::Maps;

    fn maps(&self, inner: &D) -> D::Maps {
        inner.maps()
    }

    fn connections(&self, inner: &D) -> Result<Ending<D::Connections>, LoaderError> {
        let maps = inner.maps();
        let all = move || {
            let contents = maps.contents_of(Map::Frontends);
            let contents = contents.map_err(io::Error::other);
            let contents = contents.map_err(LoaderError::kernel("read FRONTENDS"))?;
            Ok(contents.frontends.into_iter().map(|(key, _)| key).collect())
        };
        Ok(Ending::by_address(inner.connections()?, Box::new(all)))
    }
}
