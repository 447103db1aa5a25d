//! Puts a program at a device: by a link of TCX, or as a filter of clsact.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use super::{AttachedDevice, DeviceManner, device_programs::manner, scan::Owners};
use crate::{
    Device, DeviceHook, DeviceMode, HeldProgram, LoaderError,
    map::pins::Pins,
    sys::{
        self,
        clsact::{self, Carrier, Filter, Place},
        link::{self, Target},
        netlink::Netlink,
        tcx,
    },
};

/// Priority of filters that stand for [`DeviceMode::First`].
const FIRST: u16 = 1;
/// Priority of filters that stand for [`DeviceMode::Last`].
const LAST: u16 = u16::MAX;

/// A program that is to be at a hook of a device.
pub(crate) struct Attaching<'a> {
    pub(crate) netlink: &'a mut Netlink,
    pub(crate) pins: &'a Pins,
    pub(crate) device: &'a Device,
    pub(crate) hook: DeviceHook,
    pub(crate) program: &'a HeldProgram,
}

impl Attaching<'_> {
    /// Attaches it, or switches what is there of an earlier start to it. A link is given back to be held, and is
    /// pinned.
    pub(crate) fn attach(
        mut self,
        mode: DeviceMode,
    ) -> Result<(AttachedDevice, Option<OwnedFd>), LoaderError> {
        let (first, priority) = match mode {
            DeviceMode::First => (true, FIRST),
            DeviceMode::Last => (false, LAST),
            DeviceMode::Filter { priority } => return Ok((self.filter(priority)?, None)),
        };
        let direction = self.hook.direction();
        let attached =
            tcx::query(self.device.index, direction.attach_type()).map_err(self.failed("look at"))?;
        let Some(attached) = attached else {
            tracing::debug!(device = %self.device, "this kernel has no TCX: attaching a filter of clsact");
            return Ok((self.filter(priority)?, None));
        };
        let links: Vec<u32> = attached.iter().filter_map(|entry| entry.link_id).collect();
        self.link(first, &links)
    }

    /// By a link; `links`: those that are at the device.
    fn link(&mut self, first: bool, links: &[u32]) -> Result<(AttachedDevice, Option<OwnedFd>), LoaderError> {
        let direction = self.hook.direction();
        let pin = self.pins.device(self.device.index, direction);
        self.pins.recover_link(&pin)?;
        let (link, updated) = match self.adoptable(&pin, links)? {
            Some(link) => {
                link::update(link.as_fd(), self.program.as_fd())
                    .map_err(self.failed("switch the link to"))?;
                (link, true)
            }
            None => {
                let created = tcx::create(
                    self.device.index,
                    self.program.as_fd(),
                    direction.attach_type(),
                    first,
                );
                let link = created.map_err(self.failed("attach"))?;
                self.pins.pin_link(&pin, link.as_fd())?;
                (link, false)
            }
        };
        let id = link::describe(link.as_fd())
            .map_err(self.failed("look at the link of"))?
            .id;
        Ok((self.done(DeviceManner::Link { id }, updated), Some(link)))
    }

    /// The pinned link, if it is of this device: the index may have been that of another one, also in another network
    /// namespace.
    fn adoptable(&self, pin: &std::path::Path, links: &[u32]) -> Result<Option<OwnedFd>, LoaderError> {
        let link = match sys::open_pinned(pin, 0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            link => link.map_err(LoaderError::path("open the pinned link", pin))?,
        };
        let described = link::describe(link.as_fd()).map_err(self.failed("look at the link of"))?;
        let here = Target::Device {
            ifindex: self.device.index,
            attach_type: self.hook.direction().attach_type(),
        };
        Ok((described.target == here && links.contains(&described.id)).then_some(link))
    }

    /// As a filter: in the place of one of an earlier load, or a new one.
    fn filter(&mut self, priority: u16) -> Result<AttachedDevice, LoaderError> {
        let (device, direction) = (self.device.index, self.hook.direction());
        match clsact::add_clsact(self.netlink, device).map_err(self.failed("make clsact for"))? {
            Carrier::Clsact => {}
            Carrier::Ingress => {
                return Err(LoaderError::NoEgress {
                    device: self.device.clone(),
                });
            }
        }
        let ours = self.ours()?;
        let in_place = ours.iter().find(|filter| filter.priority == priority);
        let place = in_place.map_or(
            Place::New {
                parent: direction.parent(),
                priority,
            },
            |filter| Place::Replace(*filter),
        );
        let put = clsact::put(
            self.netlink,
            device,
            place,
            self.program.as_fd(),
            self.hook.name(),
        );
        put.map_err(self.failed("attach as a filter"))?;
        // Of another priority than is wanted now: the new one runs already.
        for filter in ours.iter().filter(|filter| filter.priority != priority) {
            clsact::remove(self.netlink, device, filter).map_err(self.failed("remove a filter before"))?;
        }
        let now = clsact::filters(self.netlink, device, direction.parent())
            .map_err(self.failed("look at the filters of"))?;
        let Some(filter) = now
            .into_iter()
            .find(|filter| filter.program_id == self.program.id())
        else {
            let gone = io::Error::new(
                io::ErrorKind::NotFound,
                "another program removed the filter at once",
            );
            return Err(self.failed("attach as a filter")(gone));
        };
        Ok(self.done(manner(&filter), in_place.is_some()))
    }

    /// Filters of any load of ours there.
    fn ours(&mut self) -> Result<Vec<Filter>, LoaderError> {
        let parent = self.hook.direction().parent();
        let all = clsact::filters(self.netlink, self.device.index, parent)
            .map_err(self.failed("look at the filters of"))?;
        let mut owners = Owners::new(&[]);
        let mut ours = Vec::new();
        for filter in all {
            if owners.is_ours(filter.program_id)? {
                ours.push(filter);
            }
        }
        Ok(ours)
    }

    fn done(&self, manner: DeviceManner, updated: bool) -> AttachedDevice {
        AttachedDevice {
            hook: self.hook,
            device: self.device.clone(),
            program_id: self.program.id(),
            manner,
            updated,
        }
    }

    fn failed(&self, what: &str) -> impl FnOnce(io::Error) -> LoaderError + use<> {
        LoaderError::kernel(format!(
            "{what} {} (program {}) at {}",
            self.hook,
            self.program.id(),
            self.device
        ))
    }
}
