//! Where the kernel keeps whether a socket is IPV6_V6ONLY, which it shows to no program: a bit of `struct sock_common`,
//! whose place is in the kernel's BTF.

use std::{fs, io};

use crate::{
    Hook, LoaderError,
    sys::program::{Kind, log},
};

/// The kernel's own types (`Documentation/bpf/btf.rst`).
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";

/// A bit of a structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Bit {
    /// The byte it is in.
    pub(crate) offset: u32,
    /// The bit in that byte; 0: it is not known where it is.
    pub(crate) mask: u32,
}

/// Where `skc_ipv6only` is; of mask 0 where programs can't read it, or the kernel does not say where it is.
pub(crate) fn bit() -> Result<Bit, LoaderError> {
    if !offered().map_err(LoaderError::kernel(
        "find out whether the kernel offers bpf_probe_read_kernel",
    ))? {
        return Ok(Bit::default());
    }
    match fs::read(KERNEL_TYPES) {
        Ok(types) => Ok(member(&types, b"sock_common", b"skc_ipv6only").unwrap_or_default()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Bit::default()),
        Err(error) => Err(LoaderError::path("read", KERNEL_TYPES)(error)),
    }
}

/// Whether the kernel offers `bpf_probe_read_kernel` to programs at `bind`, found out by loading one: not under
/// lockdown, and not without CAP_PERFMON.
fn offered() -> io::Result<bool> {
    let program = [
        // r3 = r1: the socket.
        [0xbf, 0x13, 0, 0, 0, 0, 0, 0],
        // r1 = r10 - 8, with eight bytes of zero there.
        [0x7a, 0x0a, 0xf8, 0xff, 0, 0, 0, 0],
        [0xbf, 0xa1, 0, 0, 0, 0, 0, 0],
        [0x07, 0x01, 0, 0, 0xf8, 0xff, 0xff, 0xff],
        // r2 = 1, and the call (`BPF_FUNC_probe_read_kernel`).
        [0xb7, 0x02, 0, 0, 1, 0, 0, 0],
        [0x85, 0, 0, 0, 113, 0, 0, 0],
        // r0 = 1: let it be bound.
        [0xb7, 0, 0, 0, 1, 0, 0, 0],
        [0x95, 0, 0, 0, 0, 0, 0, 0],
    ];
    match log(Kind::Socket, Hook::PostBind6.attach_type(), &program, None) {
        Ok(_) => Ok(true),
        Err(error) => match error.raw_os_error() {
            Some(libc::EINVAL | libc::EPERM | libc::EACCES) => Ok(false),
            _ => Err(error),
        },
    }
}

/// Where a bit field of one bit is in a structure, both by name. `None`: it is not there, or this is not BTF of this
/// machine's byte order.
fn member(types: &[u8], structure: &[u8], field: &[u8]) -> Option<Bit> {
    const MAGIC: u16 = 0xeb9f;
    const STRUCTURE: u32 = 4;
    let header = Reader(types);
    if header.u16(0)? != MAGIC {
        return None;
    }
    let after_header = types.get(header.size(4)?..)?;
    let part = |at: usize| after_header.get(header.size(at)?..)?.get(..header.size(at + 4)?);
    let (mut rest, strings) = (part(8)?, part(16)?);
    let named = |offset: u32, name: &[u8]| {
        let at = usize::try_from(offset)
            .ok()
            .and_then(|offset| strings.get(offset..));
        at.and_then(|at| at.strip_prefix(name))
            .is_some_and(|end| end.first() == Some(&0))
    };
    while !rest.is_empty() {
        let this = Reader(rest);
        let (name, info) = (this.u32(0)?, this.u32(4)?);
        let (kind, count) = ((info >> 24) & 0x1f, info & 0xffff);
        let members = rest
            .get(12..)?
            .get(..following(kind, usize::try_from(count).ok()?)?)?;
        if kind == STRUCTURE && named(name, structure) {
            let (members, _) = members.as_chunks::<12>();
            let found = members
                .iter()
                .map(|member| Reader(member))
                .find(|member| member.u32(0).is_some_and(|name| named(name, field)))?;
            // Of a structure with bit fields: the size in bits in the upper eight bits, the offset below.
            let (bits, offset) = (found.u32(8)? >> 24, found.u32(8)? & 0x00ff_ffff);
            return (info >> 31 == 1 && bits == 1).then_some(Bit {
                offset: offset / 8,
                mask: 1 << (offset % 8),
            });
        }
        rest = rest.get(12 + members.len()..)?;
    }
    None
}

/// Bytes that follow the twelve of a type, by its kind. `None`: a kind of later kernels.
fn following(kind: u32, count: usize) -> Option<usize> {
    Some(match kind {
        // INT, VAR, DECL_TAG
        1 | 14 | 17 => 4,
        // PTR, FWD, TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, FLOAT, TYPE_TAG
        2 | 7..=12 | 16 | 18 => 0,
        // ARRAY
        3 => 12,
        // STRUCT, UNION, DATASEC, ENUM64
        4 | 5 | 15 | 19 => count * 12,
        // ENUM, FUNC_PROTO
        6 | 13 => count * 8,
        _ => return None,
    })
}

/// Numbers in bytes, in this machine's order.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn u16(self, at: usize) -> Option<u16> {
        self.0.get(at..)?.first_chunk().copied().map(u16::from_ne_bytes)
    }

    fn u32(self, at: usize) -> Option<u32> {
        self.0.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes)
    }

    fn size(self, at: usize) -> Option<usize> {
        usize::try_from(self.u32(at)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BTF of an integer, a pointer, and two structures that both have the field.
    fn types() -> Vec<u8> {
        let strings = b"\0int\0other\0sock_common\0skc_family\0skc_ipv6only\0";
        let at = |name: &[u8]| {
            let found = strings.windows(name.len()).position(|window| window == name);
            u32::try_from(found.expect("it is one of them")).expect("a short list")
        };
        let (field, family) = (at(b"skc_ipv6only\0"), at(b"skc_family\0"));
        let kind = |kind: u32, count: u32| (kind << 24) | count;
        let words = [
            [at(b"int\0"), kind(1, 0), 4].as_slice(),
            &[32],
            &[0, kind(2, 0), 1],
            &[at(b"other\0"), kind(4, 1) | (1 << 31), 4],
            &[field, 1, (1 << 24) | 7],
            &[at(b"sock_common\0"), kind(4, 2) | (1 << 31), 24],
            &[family, 1, 128],
            &[field, 1, (1 << 24) | 157],
        ]
        .concat();
        let types: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let lengths = [types.len(), strings.len()].map(|length| u32::try_from(length).expect("short"));
        let [types_length, strings_length] = lengths;
        let header = [24, 0, types_length, types_length, strings_length];
        let mut bytes = 0xeb9f_u16.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        bytes.extend(header.iter().flat_map(|word: &u32| word.to_ne_bytes()));
        bytes.extend(types);
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn the_field_of_the_right_structure_is_found() {
        let types = types();
        let find = |structure, field| member(&types, structure, field);
        assert_eq!(
            find(b"sock_common", b"skc_ipv6only"),
            Some(Bit {
                offset: 19,
                mask: 1 << 5
            })
        );
        assert_eq!(
            find(b"other", b"skc_ipv6only"),
            Some(Bit {
                offset: 0,
                mask: 1 << 7
            })
        );
        assert_eq!(find(b"sock_common", b"skc_family"), None, "no bit field");
        assert_eq!(find(b"sock_common", b"skc_ipv6onl"), None);
        assert_eq!(find(b"sock", b"skc_ipv6only"), None);
    }

    #[test]
    fn what_is_cut_off_or_something_else_has_no_field() {
        let types = types();
        for length in 0..types.len() {
            let cut = types.get(..length).unwrap_or_default();
            assert_eq!(
                member(cut, b"sock_common", b"skc_ipv6only"),
                None,
                "{length} bytes"
            );
        }
        let mut other_order = types;
        other_order.swap(0, 1);
        assert_eq!(member(&other_order, b"sock_common", b"skc_ipv6only"), None);
    }
}
