//! Filters of clsact: programs at network devices the way of before TCX; and the devices themselves.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
};

use super::netlink::{
    CREATE, EXCLUSIVE, Message, Netlink, REPLACE, attributes, errno, push_attribute, u16_at, u32_at,
};

/// Where filters of ingress hang: `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)`.
pub(crate) const INGRESS: u32 = 0xffff_fff2;
/// Where filters of egress hang.
pub(crate) const EGRESS: u32 = 0xffff_fff3;

/// `TC_H_CLSACT`, as a parent.
const CLSACT: u32 = 0xffff_fff1;
/// The handle that it gets.
const CLSACT_HANDLE: u32 = 0xffff_0000;
/// What it is called.
const CLSACT_KIND: &[u8] = b"clsact\0";
/// `ETH_P_ALL`.
const ALL_PROTOCOLS: u16 = 3;

/// `IFLA_XDP`.
const XDP: u16 = 43;

const RTM_GETLINK: u16 = 18;
const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_GETQDISC: u16 = 38;
const RTM_NEWTFILTER: u16 = 44;
const RTM_DELTFILTER: u16 = 45;
const RTM_GETTFILTER: u16 = 46;

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_CHAIN: u16 = 11;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
const TCA_BPF_ID: u16 = 11;

/// A network device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    pub(crate) ifindex: u32,
    pub(crate) name: String,
    /// `ARPHRD_…` of `linux/if_arp.h`: what its packets begin with.
    pub(crate) hardware: u16,
    /// Its programs of XDP.
    pub(crate) xdp: Vec<Xdp>,
}

/// Where an XDP program runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum XdpMode {
    /// In the driver.
    Native,
    /// After the driver, on packets as all others see them.
    Generic,
    /// On the device itself.
    Hardware,
}

impl XdpMode {
    /// In lower case: `native`, `generic`, `hardware`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
            Self::Hardware => "hardware",
        }
    }
}

/// A program of XDP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Xdp {
    pub(crate) mode: XdpMode,
    pub(crate) program_id: u32,
}

/// A program that is a filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Filter {
    pub(crate) parent: u32,
    pub(crate) priority: u16,
    /// `ETH_P_…`, in network order as the kernel keeps it.
    pub(crate) protocol: u16,
    pub(crate) chain: u32,
    /// Its number among those of the same priority.
    pub(crate) handle: u32,
    pub(crate) program_id: u32,
}

/// The devices of the calling thread's network namespace.
pub(crate) fn devices(netlink: &mut Netlink) -> io::Result<Vec<Link>> {
    const NAME: u16 = 3;
    /// `sizeof(struct ifinfomsg)`.
    const LENGTH: usize = 16;
    let mut found = Vec::new();
    netlink.dump(&Message::new(RTM_GETLINK, 0, &[0; LENGTH]), |body| {
        let (mut name, mut xdp) = (None, Vec::new());
        for (kind, value) in attributes(body.get(LENGTH..).unwrap_or_default()) {
            match kind {
                NAME => name = Some(value.strip_suffix(&[0]).unwrap_or(value)),
                XDP => xdp.extend(attributes(value).filter_map(xdp_program)),
                _ => {}
            }
        }
        if let (Some(hardware), Some(ifindex), Some(name)) = (u16_at(body, 2), u32_at(body, 4), name) {
            found.push(Link {
                ifindex,
                name: String::from_utf8_lossy(name).into_owned(),
                hardware,
                xdp,
            });
        }
    })?;
    Ok(found)
}

/// One of `IFLA_XDP_{DRV,SKB,HW}_PROG_ID`.
fn xdp_program((kind, value): (u16, &[u8])) -> Option<Xdp> {
    let mode = match kind {
        5 => XdpMode::Native,
        6 => XdpMode::Generic,
        7 => XdpMode::Hardware,
        _ => return None,
    };
    let program_id = u32_at(value, 0)?;
    Some(Xdp { mode, program_id })
}

/// Takes a program away from XDP of a device, if it is still that one; `false`: there is no such device.
///
/// # Errors
/// EEXIST if another program has its place by now, EBUSY if a link carries it.
pub(crate) fn remove_xdp(
    netlink: &mut Netlink,
    ifindex: u32,
    mode: XdpMode,
    program: BorrowedFd<'_>,
) -> io::Result<bool> {
    set_xdp(netlink, ifindex, mode, None, Some(program))
}

/// Attaches a program to XDP of a device without a link, if none is there in this mode.
pub(crate) fn put_xdp(
    netlink: &mut Netlink,
    ifindex: u32,
    mode: XdpMode,
    program: BorrowedFd<'_>,
) -> io::Result<bool> {
    set_xdp(netlink, ifindex, mode, Some(program), None)
}

fn set_xdp(
    netlink: &mut Netlink,
    ifindex: u32,
    mode: XdpMode,
    program: Option<BorrowedFd<'_>>,
    expected: Option<BorrowedFd<'_>>,
) -> io::Result<bool> {
    const FD: u16 = 1;
    const FLAGS: u16 = 3;
    const EXPECTED_FD: u16 = 8;
    // `XDP_FLAGS_UPDATE_IF_NOEXIST` and `XDP_FLAGS_REPLACE` of `linux/if_link.h`.
    const IF_NONE: u32 = 1;
    const IF_EXPECTED: u32 = 1 << 4;
    let mode = match mode {
        XdpMode::Generic => 1 << 1,
        XdpMode::Native => 1 << 2,
        XdpMode::Hardware => 1 << 3,
    };
    let raw = |fd: Option<BorrowedFd<'_>>| fd.map_or(-1, |fd| fd.as_raw_fd()).to_ne_bytes();
    let flags: u32 = mode | if expected.is_some() { IF_EXPECTED } else { IF_NONE };
    let mut nested = Vec::new();
    push_attribute(&mut nested, FD, &raw(program))?;
    push_attribute(&mut nested, FLAGS, &flags.to_ne_bytes())?;
    if expected.is_some() {
        push_attribute(&mut nested, EXPECTED_FD, &raw(expected))?;
    }
    set_link(netlink, ifindex, XDP, &nested)
}

/// Has a device take in IPv4 packets that are from an address of this machine (`accept_local`, ip-sysctl), and those that are from
/// any other to which there is a way (`rp_filter`: loose). In a container they can't be written below /proc/sys. `false`: there is
/// no such device.
pub(crate) fn take_in_all(netlink: &mut Netlink, ifindex: u32) -> io::Result<bool> {
    // `IFLA_AF_SPEC` and `IFLA_INET_CONF` of `linux/if_link.h`, `IPV4_DEVCONF_` of `linux/ip.h`.
    const AF_SPEC: u16 = 26;
    /// `NLA_F_NESTED`.
    const NESTED: u16 = 1 << 15;
    const INET: u16 = 2;
    const INET_CONF: u16 = 1;
    const RP_FILTER: u16 = 8;
    const LOOSE: u32 = 2;
    const ACCEPT_LOCAL: u16 = 23;
    let nested = |kind: u16, value: &[u8]| {
        let mut bytes = Vec::new();
        push_attribute(&mut bytes, kind, value).map(|()| bytes)
    };
    let mut settings = nested(ACCEPT_LOCAL, &1_u32.to_ne_bytes())?;
    push_attribute(&mut settings, RP_FILTER, &LOOSE.to_ne_bytes())?;
    let of_family = nested(NESTED | INET_CONF, &settings)?;
    let of_device = nested(NESTED | INET, &of_family)?;
    set_link(netlink, ifindex, NESTED | AF_SPEC, &of_device)
}

/// Changes an attribute of a device.
fn set_link(netlink: &mut Netlink, ifindex: u32, kind: u16, value: &[u8]) -> io::Result<bool> {
    const RTM_SETLINK: u16 = 19;
    // `struct ifinfomsg`: family and type, index, flags, which of them change.
    let header: Vec<u8> = [0, ifindex, 0, 0]
        .into_iter()
        .flat_map(u32::to_ne_bytes)
        .collect();
    let mut message = Message::new(RTM_SETLINK, 0, &header);
    message.attribute(kind, value)?;
    absent_is_false(netlink.request(&message))
}

/// `struct tcmsg`.
fn header(ifindex: u32, handle: u32, parent: u32, info: u32) -> Vec<u8> {
    [0, ifindex, handle, parent, info]
        .into_iter()
        .flat_map(u32::to_ne_bytes)
        .collect()
}

/// The queueing discipline that a device has where filters hang.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carrier {
    /// With filters at ingress and at egress.
    Clsact,
    /// `ingress`, with filters at ingress alone: those that are put at egress, or asked for there, are the same ones.
    Ingress,
}

/// Makes the queueing discipline that carries filters, if there is none. Which one there is.
pub(crate) fn add_clsact(netlink: &mut Netlink, ifindex: u32) -> io::Result<Carrier> {
    match netlink.request(&discipline(
        RTM_NEWQDISC,
        CREATE | EXCLUSIVE,
        ifindex,
        CLSACT_KIND,
    )?) {
        Err(error) if errno(&error) == Some(libc::EEXIST) => {
            let carrier = carrier(netlink, ifindex)?;
            carrier
                .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "another program removed it at once"))
        }
        done => done.map(|()| Carrier::Clsact),
    }
}

/// Which queueing discipline carries filters there; `None`: none does.
pub(crate) fn carrier(netlink: &mut Netlink, ifindex: u32) -> io::Result<Option<Carrier>> {
    for (kind, carrier) in [(CLSACT_KIND, Carrier::Clsact), (b"ingress\0", Carrier::Ingress)] {
        match netlink.request(&discipline(RTM_GETQDISC, 0, ifindex, kind)?) {
            Ok(()) => return Ok(Some(carrier)),
            // It is of another kind than was asked for; where one was removed, of none.
            Err(error) if errno(&error) == Some(libc::EINVAL) => {}
            Err(error) if matches!(errno(&error), Some(libc::ENOENT | libc::ENODEV)) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Removes clsact, if it carries no filters of whatever kind; not there, or of another kind, is no error.
pub(crate) fn remove_empty_clsact(netlink: &mut Netlink, ifindex: u32) -> io::Result<()> {
    if carrier(netlink, ifindex)? != Some(Carrier::Clsact) {
        return Ok(());
    }
    for parent in [INGRESS, EGRESS] {
        let mut any = false;
        netlink.dump(&list(ifindex, parent), |_| any = true)?;
        if any {
            return Ok(());
        }
    }
    match netlink.request(&discipline(RTM_DELQDISC, 0, ifindex, CLSACT_KIND)?) {
        // Another has taken its place since.
        Err(error) if errno(&error) == Some(libc::EINVAL) => Ok(()),
        done => absent_is_false(done).map(drop),
    }
}

/// About the discipline of this kind.
fn discipline(request: u16, flags: u16, ifindex: u32, kind: &[u8]) -> io::Result<Message> {
    let mut message = Message::new(request, flags, &header(ifindex, CLSACT_HANDLE, CLSACT, 0));
    message.attribute(TCA_KIND, kind)?;
    Ok(message)
}

/// The programs at a parent of a device, in the order in which they run.
pub(crate) fn filters(netlink: &mut Netlink, ifindex: u32, parent: u32) -> io::Result<Vec<Filter>> {
    let mut found = Vec::new();
    netlink.dump(&list(ifindex, parent), |body| found.extend(filter(body)))?;
    // The kernel shows those of ingress once more.
    if parent == EGRESS && !found.is_empty() && carrier(netlink, ifindex)? == Some(Carrier::Ingress) {
        found.clear();
    }
    Ok(found)
}

fn list(ifindex: u32, parent: u32) -> Message {
    Message::new(RTM_GETTFILTER, 0, &header(ifindex, 0, parent, 0))
}

fn filter(body: &[u8]) -> Option<Filter> {
    /// `sizeof(struct tcmsg)`.
    const LENGTH: usize = 20;
    let (handle, parent, info) = (u32_at(body, 8)?, u32_at(body, 12)?, u32_at(body, 16)?);
    let (mut is_bpf, mut chain, mut program_id) = (false, 0, None);
    for (kind, value) in attributes(body.get(LENGTH..)?) {
        match kind {
            TCA_KIND => is_bpf = value == b"bpf\0",
            TCA_CHAIN => chain = u32_at(value, 0)?,
            TCA_OPTIONS => {
                program_id = attributes(value)
                    .find(|(kind, _)| *kind == TCA_BPF_ID)
                    .and_then(|(_, id)| u32_at(id, 0));
            }
            _ => {}
        }
    }
    Some(Filter {
        parent,
        priority: u16::try_from(info >> 16).ok()?,
        protocol: u16::try_from(info & 0xffff).ok()?,
        chain,
        handle,
        program_id: program_id.filter(|_| is_bpf)?,
    })
}

/// Where a new filter goes, or which one is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Ahead of those of the same priority, under a handle of the kernel's choice.
    New { parent: u32, priority: u16 },
    /// In the place of this one, which the kernel switches in one step.
    Replace(Filter),
}

/// Makes a program a filter that decides itself (direct-action).
pub(crate) fn put(
    netlink: &mut Netlink,
    ifindex: u32,
    place: Place,
    program: BorrowedFd<'_>,
    name: &str,
) -> io::Result<()> {
    const DIRECT_ACTION: u32 = 1;
    let (parent, handle, info, chain, flags) = match place {
        Place::New { parent, priority } => {
            let protocol = ALL_PROTOCOLS.to_be();
            (parent, 0, info(priority, protocol), 0, CREATE | EXCLUSIVE)
        }
        Place::Replace(filter) => (
            filter.parent,
            filter.handle,
            info(filter.priority, filter.protocol),
            filter.chain,
            CREATE | REPLACE,
        ),
    };
    let mut message = Message::new(RTM_NEWTFILTER, flags, &header(ifindex, handle, parent, info));
    message.attribute(TCA_KIND, b"bpf\0")?;
    if chain != 0 {
        message.attribute(TCA_CHAIN, &chain.to_ne_bytes())?;
    }
    let mut options = Vec::new();
    push_attribute(&mut options, TCA_BPF_FD, &program.as_raw_fd().to_ne_bytes())?;
    push_attribute(&mut options, TCA_BPF_NAME, format!("{name}\0").as_bytes())?;
    push_attribute(&mut options, TCA_BPF_FLAGS, &DIRECT_ACTION.to_ne_bytes())?;
    message.attribute(TCA_OPTIONS, &options)?;
    netlink.request(&message)
}

/// Removes a filter; `false`: it is not there.
pub(crate) fn remove(netlink: &mut Netlink, ifindex: u32, filter: &Filter) -> io::Result<bool> {
    let info = info(filter.priority, filter.protocol);
    let header = header(ifindex, filter.handle, filter.parent, info);
    let mut message = Message::new(RTM_DELTFILTER, 0, &header);
    message.attribute(TCA_KIND, b"bpf\0")?;
    if filter.chain != 0 {
        message.attribute(TCA_CHAIN, &filter.chain.to_ne_bytes())?;
    }
    absent_is_false(netlink.request(&message))
}

fn info(priority: u16, protocol: u16) -> u32 {
    (u32::from(priority) << 16) | u32::from(protocol)
}

/// The kernel says ENOENT of a qdisc or filter that is not there, ENODEV of a device.
fn absent_is_false(result: io::Result<()>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if matches!(errno(&error), Some(libc::ENOENT | libc::ENODEV)) => Ok(false),
        Err(error) => Err(error),
    }
}
