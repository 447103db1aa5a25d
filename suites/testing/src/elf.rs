//! Programs that are never run, for tests that build images or archives.

/// The header of a 64-bit little-endian program without segments.
#[must_use]
pub fn static_program() -> Vec<u8> {
    let mut elf = vec![0; 64];
    elf[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    elf[16] = 2; // e_type: executable
    elf[18] = 62; // e_machine: x86-64
    elf[20] = 1; // e_version
    elf[52] = 64; // e_ehsize
    elf
}
