//! What the model is sure of without a kernel: what others have written down.

use lb_abi::{Address, Port, TCP, Tuple};

use super::{Read, Route, Routes, checksum, maglev_slot, read};

#[test]
fn the_internet_checksum_is_that_of_rfc_1071() {
    let example = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(checksum::sum(&example), 0xddf2);
    assert_eq!(checksum::internet(&example), !0xddf2);
    assert_eq!(checksum::sum(&[0xff, 0xff, 0x12]), 0x1200);
}

#[test]
fn a_checksum_changes_as_rfc_1624_says() {
    // Its example: 0xdd2f, of which a word goes from 0x5555 to 0x3285, becomes 0x0000.
    let changed = checksum::changed(0xdd2f, &0x5555_u16.to_be_bytes(), &0x3285_u16.to_be_bytes());
    assert_eq!(changed, 0x0000);
}

#[test]
fn crc32c_is_that_of_rfc_3720() {
    for (bytes, expected) in [
        (vec![0_u8; 32], [0xaa, 0x36, 0x91, 0x8a]),
        (vec![0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
        ((0..32).collect(), [0x4e, 0x79, 0xdd, 0x46]),
    ] {
        assert_eq!(checksum::crc32c(&bytes), expected, "{bytes:02x?}");
    }
}

#[test]
fn the_longest_prefix_is_the_way() {
    let narrow = Route::Via { mtu: 1300 };
    let routes = Routes::default()
        .with(Address::v4([10, 0, 0, 0]), 8, Route::Via { mtu: 1500 })
        .with(Address::v4([10, 1, 0, 0]), 16, narrow)
        .with(Address::v4([10, 1, 2, 3]), 32, Route::None);
    assert_eq!(routes.to(Address::v4([10, 2, 0, 1])), Route::Via { mtu: 1500 });
    assert_eq!(routes.to(Address::v4([10, 1, 0, 1])), narrow);
    assert_eq!(routes.to(Address::v4([10, 1, 2, 3])), Route::None);
    assert_eq!(routes.to(Address::v4([11, 0, 0, 1])), Route::None);
    assert_eq!(
        routes.to(Address::UNSPECIFIED_V6),
        Route::None,
        "of another family"
    );
}

#[test]
fn slots_of_a_table_are_taken_evenly_by_the_hash() {
    const SLOTS: u32 = 8;
    let mut taken = [0_u32; SLOTS as usize];
    for port in 0..8_000 {
        let tuple = Tuple {
            source: Address::v4([198, 51, 100, 7]),
            destination: Address::v4([203, 0, 113, 10]),
            source_port: Port::new(port),
            destination_port: Port::new(80),
            protocol: TCP,
            pad: [0; 3],
        };
        taken[maglev_slot(&tuple, SLOTS) as usize] += 1;
    }
    // A thousand each; five deviations of a binomial distribution are 148.
    assert!(
        taken.iter().all(|times| (852..1_148).contains(times)),
        "{taken:?}"
    );
}

#[test]
fn what_is_no_packet_is_not_read() {
    for frame in [
        &[][..],
        &[0; 14],
        &[[0; 12].as_slice(), &[0x08, 0x06, 0, 1]].concat(),
        // Three tags.
        &[
            [0; 12].as_slice(),
            &[0x81, 0, 0, 1].repeat(3),
            &[0x08, 0x00, 0x45],
        ]
        .concat(),
    ] {
        assert_eq!(read(frame, false), Read::Other, "{frame:02x?}");
    }
    let cut_off = [[0; 12].as_slice(), &[0x08, 0x00], &[0x45; 19]].concat();
    assert_eq!(read(&cut_off, false), Read::Unreadable);
}
