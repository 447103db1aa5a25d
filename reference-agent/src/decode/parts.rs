//! Parts of several kinds of objects.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use serde_json::Value;

use super::Defect;
use crate::{
    endpoint_address::{Family, Protocol, Range, is_usable},
    findings::Reason,
};

/// A port's name, number and protocol; `None`: it is invalid.
pub(super) fn port(
    field: &str,
    value: &Value,
    defects: &mut Vec<Defect>,
) -> Option<(Arc<str>, u16, Protocol)> {
    let protocol = match &value["protocol"] {
        Value::Null => Protocol::Tcp,
        found => match found.as_str() {
            Some("TCP") => Protocol::Tcp,
            Some("UDP") => Protocol::Udp,
            Some("SCTP") => Protocol::Sctp,
            _ => {
                defects.push(expected(&format!("{field}.protocol"), "TCP, UDP or SCTP", found));
                return None;
            }
        },
    };
    let name = match &value["name"] {
        Value::Null => "",
        found => match found.as_str() {
            Some(name) => name,
            None => {
                defects.push(expected(&format!("{field}.name"), "a name", found));
                return None;
            }
        },
    };
    let number = number(&format!("{field}.port"), &value["port"], defects);
    Some((name.into(), number?, protocol))
}

/// A port's number.
pub(super) fn number(field: &str, value: &Value, defects: &mut Vec<Defect>) -> Option<u16> {
    let number = value.as_u64().and_then(|port| u16::try_from(port).ok());
    let number = number.filter(|&port| port > 0);
    if number.is_none() {
        defects.push(expected(field, "a number from 1 to 65535", value));
    }
    number
}

/// A port's number; 0 and `null` mean none.
pub(super) fn optional_number(field: &str, value: &Value, defects: &mut Vec<Defect>) -> Option<u16> {
    let none = value.is_null() || value.as_u64() == Some(0);
    (!none).then(|| number(field, value, defects)).flatten()
}

/// An address of a frontend or backend, of a family or of any. `reason`: for a special address, such as loopback.
pub(super) fn address(
    field: &str,
    family: Option<Family>,
    reason: Reason,
    value: &Value,
    defects: &mut Vec<Defect>,
) -> Option<IpAddr> {
    let what = match family {
        Some(family) => format!("an {family} address"),
        None => "an IP address".to_owned(),
    };
    let Some(address) = ip(value) else {
        defects.push(expected(field, &what, value));
        return None;
    };
    let mapped = matches!(address, IpAddr::V6(v6) if is_mapped(v6));
    let other = family.is_some_and(|family| Family::of(address) != family);
    let what = if mapped || other {
        what
    } else if is_usable(address) {
        return Some(address);
    } else {
        format!("{what} that can be reached")
    };
    let defect = expected(field, &what, value);
    defects.push(Defect { reason, ..defect });
    None
}

/// Any address.
pub(super) fn ip(value: &Value) -> Option<IpAddr> {
    value.as_str()?.parse().ok()
}

/// A range of addresses. As in the API, blanks around it are allowed.
pub(super) fn range(value: &Value) -> Option<Range> {
    let (address, length) = value.as_str()?.trim().split_once('/')?;
    let address = ip(&address.into())?;
    let mapped = matches!(address, IpAddr::V6(v6) if is_mapped(v6));
    let plain = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    let length = length.parse().ok().filter(|_| plain && !mapped)?;
    Range::new(address, length)
}

/// Whether an address is IPv4-mapped: in the maps it would be an IPv4 address.
pub(super) fn is_mapped(address: Ipv6Addr) -> bool {
    address.to_ipv4_mapped().is_some()
}

/// A value of an enumeration; the default for `null`, empty and unknown names.
pub(super) fn choice<T: Copy + Default>(
    field: &str,
    value: &Value,
    choices: &[(&str, T)],
    defects: &mut Vec<Defect>,
) -> T {
    let text = match value {
        Value::Null => return T::default(),
        Value::String(text) if text.is_empty() => return T::default(),
        _ => value.as_str(),
    };
    if let Some((_, choice)) = choices.iter().find(|(name, _)| Some(*name) == text) {
        return *choice;
    }
    let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
    defects.push(malformed(
        field,
        &names.join(" or "),
        value,
        "taken for the default",
    ));
    T::default()
}

/// The items of a list that may be absent or `null`, each with the path of its field.
pub(super) fn items<'a>(field: &str, list: &'a Value, defects: &mut Vec<Defect>) -> Vec<(String, &'a Value)> {
    match list {
        Value::Null => Vec::new(),
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items
                .map(|(index, item)| (format!("{field}[{index}]"), item))
                .collect()
        }
        found => {
            defects.push(expected(field, "a list", found));
            Vec::new()
        }
    }
}

/// A defect of a part that is left out.
pub(super) fn expected(field: &str, what: &str, found: &Value) -> Defect {
    malformed(field, what, found, "left out")
}

fn malformed(field: &str, what: &str, found: &Value, instead: &str) -> Defect {
    /// Enough to recognise the value by, in a log line.
    const SHOWN: usize = 80;
    let mut found = found.to_string();
    if let Some((end, _)) = found.char_indices().nth(SHOWN) {
        found.truncate(end);
        found.push('…');
    }
    Defect {
        reason: Reason::Malformed,
        field: field.to_owned(),
        problem: format!("expected {what}, found {found}; {instead}"),
    }
}
