//! The encoding: numbered fields, each a varint, a fixed number or some bytes.

/// One field of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Field<'a> {
    pub(crate) number: u64,
    pub(crate) wire: Wire<'a>,
}

/// What stands in it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Four or eight bytes; no field of the kinds here is one.
    Fixed,
}

/// The fields of a message, in their order; after an error there are no more.
pub(crate) fn fields(bytes: &[u8]) -> impl Iterator<Item = Result<Field<'_>, String>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let field = field(&mut rest);
        if field.is_err() {
            rest = &[];
        }
        Some(field)
    })
}

fn field<'a>(rest: &mut &'a [u8]) -> Result<Field<'a>, String> {
    let key = varint(rest)?;
    let wire = match key & 7 {
        0 => Wire::Number(varint(rest)?),
        1 => take(rest, 8).map(|_| Wire::Fixed)?,
        2 => {
            let length = varint(rest)?;
            Wire::Bytes(take(rest, length)?)
        }
        5 => take(rest, 4).map(|_| Wire::Fixed)?,
        other => return Err(format!("found wire type {other}, which protobuf does not have")),
    };
    Ok(Field {
        number: key >> 3,
        wire,
    })
}

fn take<'a>(rest: &mut &'a [u8], length: u64) -> Result<&'a [u8], String> {
    let split = usize::try_from(length)
        .ok()
        .and_then(|length| rest.split_at_checked(length));
    let (taken, left) = split.ok_or_else(|| format!("expected {length} more bytes, found {}", rest.len()))?;
    *rest = left;
    Ok(taken)
}

fn varint(rest: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let Some((byte, left)) = rest.split_first() else {
            return Err("the message breaks off within a number".into());
        };
        *rest = left;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("found a number longer than 64 bits".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_and_broken_ones_refused() {
        let good = [0x08, 0x96, 0x01, 0x12, 0x02, b'h', b'i'];
        let found: Vec<Field<'_>> = fields(&good).map(|field| field.expect("a field")).collect();
        assert_eq!(
            found[0],
            Field {
                number: 1,
                wire: Wire::Number(150)
            }
        );
        assert_eq!(
            found[1],
            Field {
                number: 2,
                wire: Wire::Bytes(b"hi")
            }
        );
        let bad: [&[u8]; 5] = [
            &[0x08],
            &[0x12, 0x05, b'h'],
            &[0x0b],
            &[0x80; 12],
            &[0x12, 0xff, 0xff, 0xff, 0xff, 0x7f],
        ];
        for bytes in bad {
            let all: Vec<_> = fields(bytes).collect();
            assert!(all.len() == 1 && all[0].is_err(), "{bytes:?}: {all:?}");
        }
    }
}
