//! One end of a veth pair.

use std::{
    fs::File,
    os::fd::{AsRawFd as _, RawFd},
};

use rtnetlink::LinkMessageBuilder;

/// One end of a veth pair; what is not set is the kernel's choice.
#[derive(Clone, Copy, Debug)]
pub struct Device<'a> {
    name: &'a str,
    index: Option<u32>,
    link_address: Option<[u8; 6]>,
    mtu: Option<u32>,
    namespace: Option<&'a File>,
}

impl<'a> Device<'a> {
    /// In the namespace of the [`Links`](crate::Links) that make the pair.
    #[must_use]
    pub const fn named(name: &'a str) -> Self {
        Self {
            name,
            index: None,
            link_address: None,
            mtu: None,
            namespace: None,
        }
    }

    /// In another namespace.
    pub(crate) const fn inside(namespace: &'a File, name: &'a str) -> Self {
        Self {
            namespace: Some(namespace),
            ..Self::named(name)
        }
    }

    /// With this index.
    #[must_use]
    pub const fn index(self, index: u32) -> Self {
        Self {
            index: Some(index),
            ..self
        }
    }

    /// With this Ethernet address.
    #[must_use]
    pub const fn link_address(self, address: [u8; 6]) -> Self {
        Self {
            link_address: Some(address),
            ..self
        }
    }

    /// With this MTU, in bytes from the IP header on.
    #[must_use]
    pub const fn mtu(self, mtu: u32) -> Self {
        Self {
            mtu: Some(mtu),
            ..self
        }
    }

    pub(crate) const fn name(&self) -> &'a str {
        self.name
    }

    pub(crate) const fn namespace(&self) -> Option<&'a File> {
        self.namespace
    }

    pub(crate) fn describe<T>(&self, message: LinkMessageBuilder<T>) -> LinkMessageBuilder<T> {
        let mut message = message.name(self.name);
        if let Some(index) = self.index {
            message = message.index(index);
        }
        if let Some(address) = self.link_address {
            message = message.address(address.to_vec());
        }
        if let Some(mtu) = self.mtu {
            message = message.mtu(mtu);
        }
        if let Some(namespace) = self.namespace {
            let descriptor: RawFd = namespace.as_raw_fd();
            message = message.setns_by_fd(descriptor);
        }
        message
    }
}
