//! The kernel for x86-64 with byte shuffles: a product is two look-ups of sixteen entries, one for each half
//! of a byte, done for 32 bytes at once (AVX2).
//!
//! This is the only file of the crate with `unsafe` code. Each block relies on two facts: the CPU has the instructions (checked
//! right before the call), and all slices of a pass are equally long.

use super::{portable, Pass, Table};
use std::arch::x86_64::*;

/// Bytes of a register.
const BYTES: usize = 32;

/// Runs a pass. Only to be called where the CPU has the instructions, which is checked here once more
/// since the answer is cached.
pub(super) fn avx2(mut pass: Pass<'_, '_>) {
    let len = pass.inputs.first().map_or(0, |input| input.len());
    let whole = len - len % (2 * BYTES);
    let same = pass.inputs.iter().all(|input| input.len() == len)
        && pass.ones.iter().all(|output| output.len() == len)
        && pass
            .scaled
            .iter()
            .all(|(output, tables)| output.len() == len && tables.len() == pass.inputs.len());
    if !same || !is_x86_feature_detected!("avx2") {
        return portable::run(pass, 0);
    }
    // SAFETY: the CPU has the instructions, all slices are `len` long and there is a table for each
    // input, as was checked just now; `whole` is at most `len` and whole pairs of registers.
    unsafe {
        match (pass.ones.is_some(), pass.scaled.len()) {
            (true, 0) => sums::<true, 0>(&mut pass, whole),
            (true, 1) => sums::<true, 1>(&mut pass, whole),
            (true, 2) => sums::<true, 2>(&mut pass, whole),
            (true, 3) => sums::<true, 3>(&mut pass, whole),
            (false, 1) => sums::<false, 1>(&mut pass, whole),
            (false, 2) => sums::<false, 2>(&mut pass, whole),
            (false, 3) => sums::<false, 3>(&mut pass, whole),
            _ => return portable::run(pass, 0),
        }
    }
    if whole < len {
        portable::run(pass, whole);
    }
}

/// # Safety
/// The CPU has the instructions; `pass` has a row of ones if `ONES`, and `SCALED` others; every slice
/// of it is at least `whole` long, which is a multiple of two registers; every scaled output has a
/// table per input.
#[target_feature(enable = "avx2")]
unsafe fn sums<const ONES: bool, const SCALED: usize>(pass: &mut Pass<'_, '_>, whole: usize) {
    let mask = _mm256_set1_epi8(15);
    let mut tables = [std::ptr::null::<Table>(); SCALED];
    let mut outputs = [std::ptr::null_mut::<u8>(); SCALED];
    for (index, (output, of_output)) in pass.scaled.iter_mut().enumerate().take(SCALED) {
        tables[index] = of_output.as_ptr();
        outputs[index] = output.as_mut_ptr();
    }
    let ones = pass.ones.as_mut().map_or(std::ptr::null_mut(), |output| output.as_mut_ptr());
    let mut at = 0;
    while at < whole {
        let mut plain = [_mm256_setzero_si256(); 2];
        let mut sums = [[_mm256_setzero_si256(); 2]; SCALED];
        for (index, input) in pass.inputs.iter().enumerate() {
            // SAFETY: `at` and a pair of registers lie within `whole`, and so within the input.
            let (a, b) = unsafe {
                let from = input.as_ptr().add(at);
                (_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(BYTES).cast()))
            };
            if ONES {
                plain = [_mm256_xor_si256(plain[0], a), _mm256_xor_si256(plain[1], b)];
            }
            if SCALED > 0 {
                let low = [_mm256_and_si256(a, mask), _mm256_and_si256(b, mask)];
                let high = [
                    _mm256_and_si256(_mm256_srli_epi64::<4>(a), mask),
                    _mm256_and_si256(_mm256_srli_epi64::<4>(b), mask),
                ];
                for row in 0..SCALED {
                    // SAFETY: there is a table for every input.
                    let (of_low, of_high) = unsafe { wide_table(tables[row].add(index)) };
                    for half in 0..2 {
                        let product = _mm256_xor_si256(
                            _mm256_shuffle_epi8(of_low, low[half]),
                            _mm256_shuffle_epi8(of_high, high[half]),
                        );
                        sums[row][half] = _mm256_xor_si256(sums[row][half], product);
                    }
                }
            }
        }
        // SAFETY: `at` and a pair of registers lie within `whole`, and so within every output.
        unsafe {
            if ONES {
                _mm256_storeu_si256(ones.add(at).cast(), plain[0]);
                _mm256_storeu_si256(ones.add(at + BYTES).cast(), plain[1]);
            }
            for row in 0..SCALED {
                _mm256_storeu_si256(outputs[row].add(at).cast(), sums[row][0]);
                _mm256_storeu_si256(outputs[row].add(at + BYTES).cast(), sums[row][1]);
            }
        }
        at += 2 * BYTES;
    }
}

/// Both halves of a table, each in both lanes of a register.
///
/// # Safety
/// `table` points to a table, and the CPU has AVX2.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn wide_table(table: *const Table) -> (__m256i, __m256i) {
    // SAFETY: both halves are 16 bytes of the table.
    unsafe {
        let low = _mm_loadu_si128((*table).low.as_ptr().cast());
        let high = _mm_loadu_si128((*table).high.as_ptr().cast());
        (_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high))
    }
}
