//! Each parser with random bytes, and with damaged valid inputs.
//!
//! `SCR_WRITE_CORPUS=1` writes the first inputs of the fuzz targets.

use super::samples::samples;
use super::{Parser, PARSERS};
use proptest::prelude::*;
use proptest::sample::Index;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts what each thread takes.
struct Counting;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that ends has no counters any more.
    let _ = NOW.try_with(|now| {
        now.set(now.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(now.get())));
    });
}

// SAFETY: everything is passed on to the allocator of the system; counting takes no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The most memory that was in use at a time meanwhile.
fn memory_of(work: impl FnOnce()) -> usize {
    let before = NOW.get();
    MOST.set(before);
    work();
    usize::try_from(MOST.get() - before).unwrap_or(0)
}

/// Tables and messages that do not depend on the input.
const ANYWAY: usize = 256 << 10;

fn check(parser: &Parser, bytes: &[u8]) {
    let taken = memory_of(|| (parser.parse)(bytes));
    let most = parser.factor * bytes.len() + ANYWAY;
    assert!(taken <= most, "{} took {taken} bytes for {} bytes", parser.name, bytes.len());
}

/// One way to damage bytes.
#[derive(Debug, Clone)]
enum Damage {
    Flip(Index, u8),
    Cut(Index),
    Insert(Index, Vec<u8>),
    /// Puts a part in another place once more.
    Repeat(Index, Index, u8),
    /// Makes all digits from here on another number.
    Number(Index, &'static str),
}

fn damage() -> impl Strategy<Value = Damage> {
    let numbers = prop::sample::select(vec![
        "4294967295",
        "4294967296",
        "18446744073709551615",
        "99999999999999999999",
        "9223372036854775807",
        "-9223372036854775808",
        "-1",
        "0",
        "",
        "1e9",
        "0x",
    ]);
    prop_oneof![
        any::<(Index, u8)>().prop_map(|(at, bit)| Damage::Flip(at, bit)),
        any::<Index>().prop_map(Damage::Cut),
        any::<(Index, Vec<u8>)>().prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        any::<(Index, Index, u8)>().prop_map(|(from, to, len)| Damage::Repeat(from, to, len)),
        (any::<Index>(), numbers.clone()).prop_map(|(at, number)| Damage::Number(at, number)),
        (any::<Index>(), numbers).prop_map(|(at, number)| Damage::Number(at, number)),
    ]
}

fn damaged(mut bytes: Vec<u8>, all: &[Damage]) -> Vec<u8> {
    for damage in all {
        let at = |index: &Index| if bytes.is_empty() { 0 } else { index.index(bytes.len()) };
        match damage {
            Damage::Flip(index, bit) => {
                let at = at(index);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << (bit % 8);
                }
            }
            Damage::Cut(index) => bytes.truncate(at(index)),
            Damage::Insert(index, more) => {
                let at = at(index);
                bytes.splice(at..at, more.iter().copied());
            }
            Damage::Repeat(from, to, len) => {
                let (from, to) = (at(from), at(to));
                let part = bytes[from..bytes.len().min(from + usize::from(*len))].to_vec();
                bytes.splice(to..to, part);
            }
            Damage::Number(index, number) => {
                let begin =
                    bytes.iter().skip(at(index)).position(u8::is_ascii_digit).map(|found| found + at(index));
                let Some(begin) = begin else { continue };
                let len = bytes[begin..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                bytes.splice(begin..begin + len, number.bytes());
            }
        }
    }
    bytes
}

proptest! {
    #[test]
    fn any_bytes_give_a_value_or_an_error_in_bounded_memory(bytes: Vec<u8>) {
        PARSERS.iter().for_each(|parser| check(parser, &bytes));
    }
}

#[test]
fn damaged_bytes_give_a_value_or_an_error_in_bounded_memory() {
    for parser in PARSERS {
        for sample in samples(parser) {
            check(parser, &sample);
            let mut runner = proptest::test_runner::TestRunner::default();
            let run = runner.run(&prop::collection::vec(damage(), 1..6), |all| {
                check(parser, &damaged(sample.clone(), &all));
                Ok(())
            });
            run.unwrap_or_else(|error| panic!("{}: {error}", parser.name));
        }
    }
}

/// The shapes that take the most memory, or time, for their bytes.
#[test]
fn the_worst_bytes_stay_within_the_memory_limit() {
    let count = |number: u32| number.to_be_bytes();
    let leaf = |key: String| [key.as_bytes(), b"\0\0\0\0\0"].concat();
    let wide = |keys: u32| {
        let keys = (0..keys).map(|key| leaf(key.to_string())).collect::<Vec<_>>();
        [&count(keys.len() as u32)[..], &keys.concat()].concat()
    };
    // A level with a key in it takes the most for its bytes; just too many keys for the short form take the second most.
    let chains = (0..1_000_u32)
        .flat_map(|key| [key.to_string().as_bytes(), b"\0\0\0\0\x01A\0\0\0\0\x01B\0\0\0\0\0"].concat());
    let chains = [&count(1_000)[..], &chains.collect::<Vec<_>>()].concat();
    let middle = (0..1_000_u32).flat_map(|key| [key.to_string().as_bytes(), b"\0", &wide(17)].concat());
    let middle = [&count(1_000)[..], &middle.collect::<Vec<_>>()].concat();
    let deep = [&[0, 0, 0, 1, b'A', 0][..]].repeat(99).concat();
    let lines = |line: &str| line.repeat(20_000).into_bytes();
    let worst = [
        wide(20_000),
        chains,
        middle,
        [deep, count(0).to_vec()].concat(),
        [&count(u32::MAX)[..], &[0; 20_000]].concat(),
        lines("x\n"),
        lines("\n"),
        lines("="),
        lines(", "),
        lines("CKPT=0 A=1 "),
        (0..5_000).map(|number| format!("CKPT={number}\n")).collect::<String>().into_bytes(),
        (0..2_000).map(|number| format!("CKPT=0 A{number}=1\n")).collect::<String>().into_bytes(),
        (0..2_000).map(|number| format!("STORE=/{number}\n")).collect::<String>().into_bytes(),
        b"\x7fELF\x02\x01\x01".iter().copied().chain([0xff; 1000]).collect(),
        [b"[option]\n".repeat(1000), b"a=".to_vec(), b"[".repeat(5_000)].concat(),
        [b"2026-11-21T03:28:24: ".to_vec(), lines("host=, ")].concat(),
    ];
    for bytes in &worst {
        assert!(
            scr_plugin_api::KvTree::unpack(bytes).is_err() || {
                let taken = memory_of(|| drop(scr_plugin_api::KvTree::unpack(bytes)));
                taken <= scr_plugin_api::kvtree::MEMORY_FACTOR * bytes.len() + 1024
            }
        );
        PARSERS.iter().for_each(|parser| check(parser, bytes));
    }
}

#[test]
fn every_parser_takes_its_samples_and_they_are_the_corpus() {
    for parser in PARSERS {
        let folder =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(parser.name);
        for (number, sample) in samples(parser).iter().enumerate() {
            let path = folder.join(format!("sample.{number}"));
            if std::env::var_os("SCR_WRITE_CORPUS").is_some() {
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(&path, sample).unwrap();
            }
            assert!(path.exists(), "SCR_WRITE_CORPUS=1 writes {}", path.display());
        }
        // A parser without a corpus is not fuzzed.
        assert!(folder.join("sample.0").exists(), "{} has no sample", folder.display());
    }
}
