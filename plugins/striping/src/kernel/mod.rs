//! Sums of scaled blocks over GF(2^8): all outputs in one pass over the inputs.
//!
//! Memory bandwidth dominates, so every input byte is loaded once for up to four outputs, the sums stay in registers, and the
//! work is done in slices that fit into the first-level cache. The instructions are chosen at run time; without any of the known
//! ones a portable loop does the same.

mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::gf;
use crate::matrix::Coefficients;

/// Bytes of each input that are worked on at a time.
const SLICE: usize = 4096;

/// Most rows with coefficients other than one that one pass computes, beside one row of ones.
const SCALED_AT_ONCE: usize = 3;

/// The products of one coefficient with all low and all high halves of a byte.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(32))]
pub(crate) struct Table {
    low: [u8; 16],
    high: [u8; 16],
}

impl Table {
    fn new(coefficient: u8) -> Self {
        let mut table = Self { low: [0; 16], high: [0; 16] };
        for half in 0..16_u8 {
            table.low[usize::from(half)] = gf::mul(coefficient, half);
            table.high[usize::from(half)] = gf::mul(coefficient, half << 4);
        }
        table
    }

    fn product(&self, value: u8) -> u8 {
        self.low[usize::from(value & 15)] ^ self.high[usize::from(value >> 4)]
    }
}

/// Which instructions do the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Instructions {
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

impl Instructions {
    fn of_this_cpu() -> Self {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            return Self::Avx2;
        }
        Self::Portable
    }
}

/// One pass: what is read, with a table per output, and where the sums go. All slices are equally long.
struct Pass<'a, 'b> {
    inputs: &'a [&'b [u8]],
    /// The plain sum of all inputs.
    ones: Option<&'a mut [u8]>,
    /// For every scaled output its sums and one table per input.
    scaled: Vec<(&'a mut [u8], &'a [Table])>,
}

/// Makes each output the sum of the inputs, each times its coefficient. An input that is shorter than an output
/// counts as followed by zeros; outputs need not be equally long.
pub(crate) fn combine(coefficients: &Coefficients, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
    combine_with(Instructions::of_this_cpu(), coefficients, inputs, outputs);
}

fn combine_with(
    instructions: Instructions,
    coefficients: &Coefficients,
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
) {
    let mut ends: Vec<usize> = outputs.iter().map(|output| output.len()).collect();
    ends.extend(inputs.iter().map(|input| input.len()));
    ends.sort_unstable();
    ends.dedup();
    let mut start = 0;
    for end in ends {
        if end > start {
            combine_part(instructions, coefficients, inputs, outputs, start..end);
            start = end;
        }
    }
}

/// A part in which every input and every output is either there all along or not at all.
fn combine_part(
    instructions: Instructions,
    coefficients: &Coefficients,
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    part: std::ops::Range<usize>,
) {
    let present: Vec<usize> = (0..inputs.len()).filter(|&input| inputs[input].len() >= part.end).collect();
    let wanted: Vec<usize> = (0..outputs.len()).filter(|&output| outputs[output].len() >= part.end).collect();
    if present.is_empty() {
        wanted.iter().for_each(|&output| outputs[output][part.clone()].fill(0));
        return;
    }
    let rows: Vec<OutputRow> =
        wanted.iter().map(|&output| OutputRow::new(coefficients, output, &present)).collect();
    let mut start = part.start;
    while start < part.end {
        let end = part.end.min(start + SLICE);
        let sources: Vec<&[u8]> = present.iter().map(|&input| &inputs[input][start..end]).collect();
        let mut rows = rows.iter().peekable();
        let mut targets = outputs
            .iter_mut()
            .filter(|output| output.len() >= part.end)
            .map(|output| &mut output[start..end]);
        while rows.peek().is_some() {
            let mut pass = Pass { inputs: &sources, ones: None, scaled: Vec::with_capacity(SCALED_AT_ONCE) };
            while let Some(row) = rows.next_if(|row| pass.has_room_for(row)) {
                match (row, targets.next()) {
                    (OutputRow::Ones, target) => pass.ones = target,
                    (OutputRow::Scaled(tables), Some(target)) => pass.scaled.push((target, tables)),
                    (OutputRow::Scaled(_), None) => break,
                }
            }
            pass.run(instructions);
        }
        start = end;
    }
}

/// The terms of an output from the inputs that are present.
enum OutputRow {
    Ones,
    Scaled(Vec<Table>),
}

impl OutputRow {
    fn new(coefficients: &Coefficients, output: usize, present: &[usize]) -> Self {
        let row = coefficients.row(output);
        if present.iter().all(|&input| row[input] == 1) {
            return Self::Ones;
        }
        Self::Scaled(present.iter().map(|&input| Table::new(row[input])).collect())
    }
}

impl Pass<'_, '_> {
    fn has_room_for(&self, row: &OutputRow) -> bool {
        match row {
            OutputRow::Ones => self.ones.is_none(),
            OutputRow::Scaled(_) => self.scaled.len() < SCALED_AT_ONCE,
        }
    }

    fn run(self, instructions: Instructions) {
        match instructions {
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => x86::avx2(self),
            Instructions::Portable => portable::run(self, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all_instructions() -> Vec<Instructions> {
        let mut all = vec![Instructions::Portable];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            all.push(Instructions::Avx2);
        }
        all
    }

    /// The definition, byte by byte.
    fn slow(coefficients: &Coefficients, inputs: &[Vec<u8>], lens: &[usize]) -> Vec<Vec<u8>> {
        let byte = |output: usize, at: usize| {
            let row = coefficients.row(output);
            inputs
                .iter()
                .zip(row)
                .fold(0, |sum, (input, &c)| sum ^ gf::mul(c, input.get(at).copied().unwrap_or(0)))
        };
        lens.iter().enumerate().map(|(output, &len)| (0..len).map(|at| byte(output, at)).collect()).collect()
    }

    fn input() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..300),
            (0..200_usize, any::<u8>()).prop_map(|(len, seed)| {
                (0..SLICE - 100 + len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
            }),
        ]
    }

    proptest! {
        #[test]
        fn every_kernel_agrees_with_the_definition(
            inputs in proptest::collection::vec(input(), 0..6),
            lens in proptest::collection::vec(prop_oneof![0..300_usize, SLICE - 50..SLICE + 50], 0..9),
            seed in any::<u64>(),
        ) {
            let mut coefficients = Coefficients::zero(lens.len(), inputs.len());
            let mut state = seed;
            for row in 0..lens.len() {
                let ones = row == seed as usize % 4;
                for value in coefficients.row_mut(row) {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    *value = if ones { 1 } else { (state >> 56) as u8 };
                }
            }
            let expected = slow(&coefficients, &inputs, &lens);
            for instructions in all_instructions() {
                let mut found: Vec<Vec<u8>> = lens.iter().map(|&len| vec![0xEE; len]).collect();
                let mut outputs: Vec<&mut [u8]> = found.iter_mut().map(Vec::as_mut_slice).collect();
                let sources: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
                combine_with(instructions, &coefficients, &sources, &mut outputs);
                prop_assert_eq!(&found, &expected, "{:?}", instructions);
            }
        }
    }
}
