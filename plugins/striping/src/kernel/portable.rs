//! The kernel in plain Rust: for other processors, and for what is left at the end of a slice.

use super::Pass;

/// Computes what lies from `start` to the end of the slices.
pub(super) fn run(pass: Pass<'_, '_>, start: usize) {
    let inputs = pass.inputs.iter().map(|input| &input[start..]);
    if let Some(output) = pass.ones {
        let output = &mut output[start..];
        output.fill(0);
        for input in inputs.clone() {
            output.iter_mut().zip(input).for_each(|(sum, value)| *sum ^= value);
        }
    }
    for (output, tables) in pass.scaled {
        let output = &mut output[start..];
        output.fill(0);
        for (input, table) in inputs.clone().zip(tables) {
            output.iter_mut().zip(input).for_each(|(sum, &value)| *sum ^= table.product(value));
        }
    }
}
