//! Numbers, checksums and quotes of answers.

use super::*;

#[test]
fn a_reset_has_the_numbers_of_rfc_9293() {
    let reset = |sequence, acknowledgement, flags| Numbers {
        sequence,
        acknowledgement,
        flags,
    };
    for (flags, payload, expected) in [
        (SYN, 0, reset(0, 101, RST | ACK)),
        (SYN | FIN, 7, reset(0, 109, RST | ACK)),
        (FIN, 10, reset(0, 111, RST | ACK)),
        (0, 0, reset(0, 100, RST | ACK)),
        (ACK, 50, reset(900, 0, RST)),
        (SYN | ACK, 0, reset(900, 0, RST)),
    ] {
        assert_eq!(
            numbers(100, 900, flags, payload),
            expected,
            "{flags:#b}, {payload} bytes"
        );
    }
}

#[test]
fn acknowledgement_numbers_wrap() {
    assert_eq!(numbers(u32::MAX, 0, SYN, 3).acknowledgement, 3);
}
