//! Checks the linked object, and strips it for the commit.

use anyhow::ensure;
use object::{
    build::elf::{Builder, SectionData},
    elf::{SHN_UNDEF, SHT_STRTAB},
};

/// Removes DWARF sections, their relocations and their symbols; BTF, which the kernel reads, stays.
///
/// # Errors
/// The object has an undefined symbol: the programs' panic handler calls such a function.
pub(super) fn debug_sections(object: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut builder = Builder::read(object)?;
    let undefined: Vec<String> = builder
        .symbols
        .iter()
        .filter(|symbol| symbol.section.is_none() && symbol.st_shndx == SHN_UNDEF)
        .map(|symbol| symbol.name.to_string())
        .collect();
    ensure!(
        undefined.is_empty(),
        "the programs refer to what is not there: {}",
        undefined.join(", ")
    );
    for section in &mut builder.sections {
        section.delete = is_debug(section.name.as_slice());
        // LLVM keeps the names of symbols and sections in one table; the writer needs two.
        if matches!(section.data, SectionData::SectionString) {
            section.data = SectionData::String;
        }
    }
    let names = builder.sections.add();
    names.name = b".shstrtab".as_slice().into();
    names.sh_type = SHT_STRTAB;
    names.sh_addralign = 1;
    names.data = SectionData::SectionString;
    let mut stripped = Vec::new();
    builder.write(&mut stripped)?;
    Ok(stripped)
}

fn is_debug(name: &[u8]) -> bool {
    let name = name.strip_prefix(b".rel").unwrap_or(name);
    name.starts_with(b".debug_")
}

#[cfg(test)]
mod tests {
    use super::is_debug;

    #[test]
    fn dwarf_goes_and_btf_stays() {
        for name in [
            ".debug_info",
            ".rel.debug_info",
            ".debug_line",
            ".rel.debug_frame",
        ] {
            assert!(is_debug(name.as_bytes()), "{name}");
        }
        for name in [
            ".BTF",
            ".rel.BTF",
            ".BTF.ext",
            ".maps",
            "cgroup/connect4",
            ".relcgroup/connect4",
            ".rodata",
            "license",
        ] {
            assert!(!is_debug(name.as_bytes()), "{name}");
        }
    }
}
