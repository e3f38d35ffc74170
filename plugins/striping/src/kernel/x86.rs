//! The kernel for x86-64 with byte shuffles: a product is two look-ups of sixteen entries, one for each half
//! of a byte, done for 32 (AVX2) or 16 (SSSE3) bytes at once.
//!
//! This is the only file of the crate with `unsafe` code. Each block relies on two facts: the CPU has the instructions (checked
//! right before the call), and all slices of a pass are equally long.

use super::{portable, Pass, Table};
use std::arch::x86_64::*;

/// One width of register: the function that runs a pass, and the generic one that it instantiates.
macro_rules! kernel {
    ($run:ident, $sums:ident, $feature:tt, $bytes:expr, $load:ident, $store:ident,
     $xor:ident, $and:ident, $shift:ident, $shuffle:ident, $zero:ident, $table:expr, $mask:expr) => {
        /// Runs a pass. Only to be called where the CPU has the instructions, which is checked here once more
        /// since the answer is cached.
        pub(super) fn $run(mut pass: Pass<'_, '_>) {
            let len = pass.inputs.first().map_or(0, |input| input.len());
            let whole = len - len % (2 * $bytes);
            let same = pass.inputs.iter().all(|input| input.len() == len)
                && pass.ones.iter().all(|output| output.len() == len)
                && pass
                    .scaled
                    .iter()
                    .all(|(output, tables)| output.len() == len && tables.len() == pass.inputs.len());
            if !same || !is_x86_feature_detected!($feature) {
                return portable::run(pass, 0);
            }
            // SAFETY: the CPU has the instructions, all slices are `len` long and there is a table for each
            // input, as was checked just now; `whole` is at most `len` and whole pairs of registers.
            unsafe {
                match (pass.ones.is_some(), pass.scaled.len()) {
                    (true, 0) => $sums::<true, 0>(&mut pass, whole),
                    (true, 1) => $sums::<true, 1>(&mut pass, whole),
                    (true, 2) => $sums::<true, 2>(&mut pass, whole),
                    (true, 3) => $sums::<true, 3>(&mut pass, whole),
                    (false, 1) => $sums::<false, 1>(&mut pass, whole),
                    (false, 2) => $sums::<false, 2>(&mut pass, whole),
                    (false, 3) => $sums::<false, 3>(&mut pass, whole),
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
        #[target_feature(enable = $feature)]
        unsafe fn $sums<const ONES: bool, const SCALED: usize>(pass: &mut Pass<'_, '_>, whole: usize) {
            let mask = $mask;
            let mut tables = [std::ptr::null::<Table>(); SCALED];
            let mut outputs = [std::ptr::null_mut::<u8>(); SCALED];
            for (index, (output, of_output)) in pass.scaled.iter_mut().enumerate().take(SCALED) {
                tables[index] = of_output.as_ptr();
                outputs[index] = output.as_mut_ptr();
            }
            let ones = pass.ones.as_mut().map_or(std::ptr::null_mut(), |output| output.as_mut_ptr());
            let mut at = 0;
            while at < whole {
                let mut plain = [$zero(); 2];
                let mut sums = [[$zero(); 2]; SCALED];
                for (index, input) in pass.inputs.iter().enumerate() {
                    // SAFETY: `at` and a pair of registers lie within `whole`, and so within the input.
                    let (a, b) = unsafe {
                        let from = input.as_ptr().add(at);
                        ($load(from.cast()), $load(from.add($bytes).cast()))
                    };
                    if ONES {
                        plain = [$xor(plain[0], a), $xor(plain[1], b)];
                    }
                    if SCALED > 0 {
                        let low = [$and(a, mask), $and(b, mask)];
                        let high = [$and($shift::<4>(a), mask), $and($shift::<4>(b), mask)];
                        for row in 0..SCALED {
                            // SAFETY: there is a table for every input.
                            let (of_low, of_high) = unsafe { $table(tables[row].add(index)) };
                            for half in 0..2 {
                                let product =
                                    $xor($shuffle(of_low, low[half]), $shuffle(of_high, high[half]));
                                sums[row][half] = $xor(sums[row][half], product);
                            }
                        }
                    }
                }
                // SAFETY: `at` and a pair of registers lie within `whole`, and so within every output.
                unsafe {
                    if ONES {
                        $store(ones.add(at).cast(), plain[0]);
                        $store(ones.add(at + $bytes).cast(), plain[1]);
                    }
                    for row in 0..SCALED {
                        $store(outputs[row].add(at).cast(), sums[row][0]);
                        $store(outputs[row].add(at + $bytes).cast(), sums[row][1]);
                    }
                }
                at += 2 * $bytes;
            }
        }
    };
}

kernel!(
    avx2,
    sums_avx2,
    "avx2",
    32,
    _mm256_loadu_si256,
    _mm256_storeu_si256,
    _mm256_xor_si256,
    _mm256_and_si256,
    _mm256_srli_epi64,
    _mm256_shuffle_epi8,
    _mm256_setzero_si256,
    wide_table,
    _mm256_set1_epi8(15)
);
kernel!(
    ssse3,
    sums_ssse3,
    "ssse3",
    16,
    _mm_loadu_si128,
    _mm_storeu_si128,
    _mm_xor_si128,
    _mm_and_si128,
    _mm_srli_epi64,
    _mm_shuffle_epi8,
    _mm_setzero_si128,
    narrow_table,
    _mm_set1_epi8(15)
);

/// Both halves of a table, each in both lanes of a register.
///
/// # Safety
/// `table` points to a table, and the CPU has AVX2.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn wide_table(table: *const Table) -> (__m256i, __m256i) {
    // SAFETY: both halves are 16 bytes of the table.
    unsafe {
        let (low, high) = narrow_table(table);
        (_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high))
    }
}

/// Both halves of a table.
///
/// # Safety
/// `table` points to a table, and the CPU has SSSE3.
#[target_feature(enable = "ssse3")]
#[inline]
unsafe fn narrow_table(table: *const Table) -> (__m128i, __m128i) {
    // SAFETY: both halves are 16 bytes of the table.
    unsafe { (_mm_loadu_si128((*table).low.as_ptr().cast()), _mm_loadu_si128((*table).high.as_ptr().cast())) }
}
