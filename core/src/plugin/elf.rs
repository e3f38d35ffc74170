//! Checks a library before the dynamic linker maps it.
//!
//! The linker trusts what it maps: a truncated library kills the process with SIGBUS, and one of another machine gives an error
//! that few understand. So this module reads the headers first, and every part that they name must lie inside the file.

use object::elf::{FileHeader64, ET_DYN, PT_DYNAMIC, PT_LOAD, SHT_NOBITS};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::Endianness;
use scr_base::ensure;

type Header = FileHeader64<Endianness>;

/// Checks that `bytes` are a whole shared library for this machine.
pub(crate) fn check(bytes: &[u8]) -> Result<(), String> {
    check_ident(bytes)?;
    let header = Header::parse(bytes).map_err(|error| damaged(&error))?;
    let endian = header.endian().map_err(|error| damaged(&error))?;
    check_machine(header.e_machine(endian))?;
    check_type(header.e_type(endian))?;
    check_tables(header, endian, bytes.len() as u64)?;
    check_segments(header, endian, bytes)?;
    check_sections(header, endian, bytes)
}

/// The first bytes: the magic ones, the width and the byte order of the machine.
fn check_ident(bytes: &[u8]) -> Result<(), String> {
    ensure(bytes.starts_with(b"\x7fELF"), || not_library(looks_like(bytes)))?;
    check_range("header", 0, size_of::<Header>() as u64, bytes.len() as u64)?;
    match (bytes.get(4), bytes.get(5)) {
        (Some(2), Some(1)) if cfg!(all(target_pointer_width = "64", target_endian = "little")) => Ok(()),
        (Some(2), Some(2)) if cfg!(all(target_pointer_width = "64", target_endian = "big")) => Ok(()),
        (Some(class), Some(order)) => {
            let order = if *order == 2 { "big-endian" } else { "little-endian" };
            let found = format!("a {order} machine of {} bits", if *class == 1 { "32" } else { "64" });
            Err(other_machine(&found))
        }
        _ => Err(not_library("too short")),
    }
}

fn looks_like(bytes: &[u8]) -> &'static str {
    match bytes {
        [] => "empty",
        bytes if bytes.starts_with(b"#!") => "a script",
        bytes if bytes.starts_with(b"!<arch>") => "a static library",
        bytes if bytes.starts_with(b"version https://git-lfs") => "a pointer of git-lfs",
        bytes if bytes.iter().take(512).all(|&byte| byte >= 0x20 || byte.is_ascii_whitespace()) => "a text",
        _ => "something else",
    }
}

/// Machines by their number: those that scr is built for.
const MACHINES: [(u16, &str); 8] = [
    (object::elf::EM_X86_64, "x86_64"),
    (object::elf::EM_AARCH64, "aarch64"),
    (object::elf::EM_PPC64, "powerpc64"),
    (object::elf::EM_RISCV, "riscv64"),
    (object::elf::EM_LOONGARCH, "loongarch64"),
    (object::elf::EM_S390, "s390x"),
    (object::elf::EM_386, "x86"),
    (object::elf::EM_ARM, "arm"),
];

fn check_machine(number: u16) -> Result<(), String> {
    let expected = std::env::consts::ARCH;
    let name = MACHINES.iter().find(|(known, _)| *known == number).map(|(_, name)| *name);
    // A machine that the list does not know is left to the linker.
    if name == Some(expected) || !MACHINES.iter().any(|(_, name)| *name == expected) {
        return Ok(());
    }
    let found = name.map_or_else(|| format!("machine {number}"), str::to_owned);
    Err(other_machine(&found))
}

fn check_type(number: u16) -> Result<(), String> {
    let found = match number {
        ET_DYN => return Ok(()),
        object::elf::ET_EXEC => "a program",
        object::elf::ET_REL => "an object file",
        object::elf::ET_CORE => "a core dump",
        _ => "an ELF file of an unknown type",
    };
    Err(not_library(found))
}

/// Both tables of headers lie inside the file.
fn check_tables(header: &Header, endian: Endianness, len: u64) -> Result<(), String> {
    let sections = (header.e_shoff(endian), header.e_shentsize(endian), header.e_shnum(endian));
    let segments = (header.e_phoff(endian), header.e_phentsize(endian), header.e_phnum(endian));
    for (part, (offset, entry, count)) in [("program headers", segments), ("section headers", sections)] {
        check_range(part, offset, u64::from(entry) * u64::from(count), len)?;
    }
    Ok(())
}

fn check_segments(header: &Header, endian: Endianness, bytes: &[u8]) -> Result<(), String> {
    let segments = header.program_headers(endian, bytes).map_err(|error| damaged(&error))?;
    let mut loadable = false;
    let mut dynamic = false;
    for (number, segment) in segments.iter().enumerate() {
        let (offset, file_bytes) = segment.file_range(endian);
        check_range(&format!("segment {number}"), offset, file_bytes, bytes.len() as u64)?;
        loadable |= segment.p_type(endian) == PT_LOAD;
        dynamic |= segment.p_type(endian) == PT_DYNAMIC;
        let fits = segment.p_type(endian) != PT_LOAD || segment.p_memsz(endian) >= file_bytes;
        ensure(fits, || damaged(&format!("segment {number} has more bytes in the file than in memory")))?;
    }
    ensure(loadable && dynamic, || damaged(&"nothing in it can be loaded"))
}

fn check_sections(header: &Header, endian: Endianness, bytes: &[u8]) -> Result<(), String> {
    let sections = header.section_headers(endian, bytes).map_err(|error| damaged(&error))?;
    for (number, section) in sections.iter().enumerate() {
        if section.sh_type(endian) != SHT_NOBITS && section.sh_type(endian) != object::elf::SHT_NULL {
            let (offset, len) = (section.sh_offset(endian), section.sh_size(endian));
            check_range(&format!("section {number}"), offset, len, bytes.len() as u64)?;
        }
    }
    Ok(())
}

fn check_range(part: &str, offset: u64, bytes: u64, len: u64) -> Result<(), String> {
    let end = offset.saturating_add(bytes);
    ensure(end <= len, || {
        format!(
            "it is cut short: its {part} should reach to byte {end}, and the file has {len}; copy it again"
        )
    })
}

fn damaged(why: &dyn std::fmt::Display) -> String {
    format!("its headers are damaged: {why}")
}

fn not_library(found: &str) -> String {
    format!("it is {found}, not a shared library")
}

fn other_machine(found: &str) -> String {
    format!("it was built for {found}, and this machine is {}", std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A library that every test machine has: the one with the code of this test.
    fn this_program() -> Vec<u8> {
        std::fs::read("/proc/self/exe").unwrap()
    }

    fn problem(bytes: &[u8]) -> String {
        check(bytes).unwrap_err()
    }

    #[test]
    fn a_position_independent_program_passes_since_it_looks_like_a_library() {
        assert_eq!(check(&this_program()), Ok(()));
    }

    #[test]
    fn cut_short_anywhere_it_is_refused() {
        let whole = this_program();
        let len = whole.len();
        for cut in [1, 4, 5, 16, 63, 64, 65, 500, 4096, len / 3, len / 2, len - 4097, len - 65, len - 1] {
            assert!(check(&whole[..cut]).is_err(), "cut to {cut} of {len}");
        }
        let text = problem(&whole[..len - 1]);
        assert!(text.starts_with("it is cut short: its section headers should reach to byte"), "{text}");
    }

    #[test]
    fn a_file_that_is_no_library_is_described() {
        for (bytes, text) in [
            (&b""[..], "it is empty, not a shared library"),
            (b"#!/bin/sh\n", "it is a script, not a shared library"),
            (b"hello, world\n", "it is a text, not a shared library"),
            (b"!<arch>\n", "it is a static library, not a shared library"),
            (b"\0\x01\x02", "it is something else, not a shared library"),
        ] {
            assert_eq!(problem(bytes), text);
        }
    }

    #[test]
    fn another_machine_width_order_or_type_is_named() {
        let whole = this_program();
        let with = |place: usize, value: u8| {
            let mut bytes = whole.clone();
            bytes[place] = value;
            problem(&bytes)
        };
        let here = std::env::consts::ARCH;
        assert_eq!(with(18, 22), format!("it was built for s390x, and this machine is {here}"));
        assert_eq!(with(18, 77), format!("it was built for machine 77, and this machine is {here}"));
        assert!(with(4, 1).contains("a little-endian machine of 32 bits"));
        assert!(with(5, 2).contains("a big-endian machine of 64 bits"));
        assert_eq!(with(16, 1), "it is an object file, not a shared library");
        assert_eq!(with(16, 2), "it is a program, not a shared library");
    }

    #[test]
    fn any_flipped_byte_of_the_headers_gives_a_verdict_and_no_panic() {
        // In place: a copy for each byte would be a hundred gigabytes.
        let mut bytes = this_program();
        for place in 0..1024.min(bytes.len()) {
            bytes[place] ^= 0xff;
            let _ = check(&bytes);
            bytes[place] ^= 0xff;
        }
    }
}
