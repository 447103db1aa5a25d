//! The datapath at network devices.

use std::os::fd::AsFd as _;

use super::Datapath;
use crate::{
    AttachedDevice, DeviceAttachment, DeviceHook, DeviceId, DeviceKind, Direction, LoaderError, Ownership,
    device::{self, attach::Attaching},
    sys::{
        clsact,
        link::{self, Target},
    },
};

impl Datapath {
    /// Attaches the programs of a kind of device to one, or switches the links or filters of an earlier start to them
    /// without a gap. Idempotent; a device that has become one of the other kind gets the other programs. The loopback device
    /// takes in what is from the node's own address then, and from any other (`net.ipv4.conf.lo.accept_local`, `rp_filter`: loose);
    /// that stays when it is detached.
    ///
    /// A device that goes takes its attachments with it. One that comes under its name or index is another one, and is
    /// attached anew.
    ///
    /// # Errors
    /// [`LoaderError::NoDevice`], [`LoaderError::NotEthernet`].
    pub fn attach_device<'a>(
        &mut self,
        device: impl Into<DeviceId<'a>>,
        kind: DeviceKind,
    ) -> Result<Vec<AttachedDevice>, LoaderError> {
        let mut netlink = device::netlink()?;
        let device = device::find_of(&mut netlink, device.into(), kind)?;
        self.forget_gone()?;
        if kind == DeviceKind::Loopback {
            clsact::take_in_all(&mut netlink, device.index).map_err(LoaderError::kernel(
                "have the loopback device take in the node's own packets",
            ))?;
        }
        for hook in kind.hooks() {
            self.programs.load_device(*hook)?;
        }
        let attach = |hook: &DeviceHook| {
            let hook = *hook;
            let attaching = Attaching {
                netlink: &mut netlink,
                pins: &self.pins,
                device: &device,
                hook,
                program: self.programs.device(hook)?,
            };
            let (attached, link) = attaching.attach(self.mode)?;
            let key = (device.index, hook.direction());
            match link {
                Some(link) => self.device_links.insert(key, link),
                None => self.device_links.remove(&key),
            };
            Ok::<_, LoaderError>(attached)
        };
        kind.hooks().iter().map(attach).collect()
    }

    /// Ends every attachment of ours, of any load, at a device, and says what was ended; a device that is not there
    /// has none.
    pub fn detach_device<'a>(
        &mut self,
        device: impl Into<DeviceId<'a>>,
    ) -> Result<Vec<DeviceAttachment>, LoaderError> {
        let mut netlink = device::netlink()?;
        self.forget_gone()?;
        let device = match device::find(&mut netlink, device.into()) {
            Err(LoaderError::NoDevice { .. }) => return Ok(Vec::new()),
            device => device?,
        };
        let mut ended = Vec::new();
        for attachment in device::scan::at(&mut netlink, [device.clone()], Some(&self.programs))? {
            if attachment.ownership != Ownership::Foreign && device::scan::end(&mut netlink, &attachment)? {
                ended.push(attachment);
            }
        }
        for direction in Direction::ALL {
            self.device_links.remove(&(device.index, direction));
            self.pins.unpin(&self.pins.device(device.index, direction))?;
        }
        Ok(ended)
    }

    /// What is attached to the devices of the calling thread's network namespace, and whose it is; by device, then by
    /// direction, then in the order of running.
    pub fn scan_devices(&self) -> Result<Vec<DeviceAttachment>, LoaderError> {
        device::scan::attachments(&mut device::netlink()?, Some(&self.programs))
    }

    /// Lets go of the links of devices that are gone.
    fn forget_gone(&mut self) -> Result<(), LoaderError> {
        let mut gone = Vec::new();
        for (key, link) in &self.device_links {
            let link = link::describe(link.as_fd())
                .map_err(LoaderError::kernel("look at the link of a network device"))?;
            if matches!(link.target, Target::Device { ifindex: 0, .. }) {
                gone.push(*key);
            }
        }
        for (index, direction) in gone {
            self.device_links.remove(&(index, direction));
            self.pins.unpin(&self.pins.device(index, direction))?;
        }
        Ok(())
    }
}
