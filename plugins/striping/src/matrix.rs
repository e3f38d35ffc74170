//! The matrix that makes parity from data, and its reversal.
//!
//! Part of the on-disk format under [`MATRIX_ID`]: a Cauchy matrix with `x = 255 - row` and `y = column`, every
//! column divided by its entry in row 0. So row 0 is all ones (plain XOR), every square part can be
//! inverted, and an entry depends neither on the size of the set nor on the number of rows.

use crate::gf;

/// Names the matrix in the header.
pub(crate) const MATRIX_ID: u32 = 1;

/// The factor of parity `row` for data chunk `column`. Row and column are those of a set of at most 256 in all.
pub(crate) fn entry(row: u32, column: u32) -> u8 {
    let (row, column) = (row as u8, column as u8);
    let denominator = gf::inverse((255 - row) ^ column);
    gf::mul(255 ^ column, denominator.unwrap_or(0))
}

/// A table of coefficients: one row for each output, one column for each input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Coefficients {
    columns: usize,
    values: Vec<u8>,
}

impl Coefficients {
    /// All zero.
    pub(crate) fn zero(rows: usize, columns: usize) -> Self {
        Self { columns, values: vec![0; rows * columns] }
    }

    /// One row.
    pub(crate) fn row(&self, row: usize) -> &[u8] {
        &self.values[row * self.columns..][..self.columns]
    }

    pub(crate) fn row_mut(&mut self, row: usize) -> &mut [u8] {
        &mut self.values[row * self.columns..][..self.columns]
    }
}

/// The coefficients that make the chunks at the positions `wanted` of a stripe from those at `known`.
///
/// A stripe has its parity rows at the positions `0..k` and its data columns at `k..k + columns`. `known` must be
/// as many different positions as there are columns. `None` only if that is broken.
pub(crate) fn solve(k: u32, columns: u32, known: &[u32], wanted: &[u32]) -> Option<Coefficients> {
    let unknown: Vec<u32> = (0..columns).filter(|column| !known.contains(&(k + column))).collect();
    let unknowns = unknown_columns(k, known, &unknown)?;
    let mut result = Coefficients::zero(wanted.len(), known.len());
    for (index, &position) in wanted.iter().enumerate() {
        let row = result.row_mut(index);
        if position >= k {
            let place = unknown.iter().position(|&column| column == position - k)?;
            row.copy_from_slice(unknowns.row(place));
            continue;
        }
        for (value, &from) in row.iter_mut().zip(known).filter(|(_, &from)| from >= k) {
            *value = entry(position, from - k);
        }
        for (place, &column) in unknown.iter().enumerate() {
            add_scaled(row, unknowns.row(place), entry(position, column));
        }
    }
    Some(result)
}

/// The coefficients of the data columns that are not known themselves: the known parity rows are as many
/// equations as there are such columns.
fn unknown_columns(k: u32, known: &[u32], unknown: &[u32]) -> Option<Coefficients> {
    let parities: Vec<(usize, u32)> =
        known.iter().copied().enumerate().filter(|&(_, position)| position < k).collect();
    if parities.len() != unknown.len() {
        return None;
    }
    let mut left = Coefficients::zero(unknown.len(), unknown.len());
    let mut right = Coefficients::zero(unknown.len(), known.len());
    for (equation, &(index, parity)) in parities.iter().enumerate() {
        for (value, &column) in left.row_mut(equation).iter_mut().zip(unknown) {
            *value = entry(parity, column);
        }
        let row = right.row_mut(equation);
        for (value, &from) in row.iter_mut().zip(known).filter(|(_, &from)| from >= k) {
            *value = entry(parity, from - k);
        }
        row[index] = 1;
    }
    eliminate(&mut left, &mut right)?;
    Some(right)
}

/// Gauss and Jordan: makes `left` the identity, doing the same to `right`.
fn eliminate(left: &mut Coefficients, right: &mut Coefficients) -> Option<()> {
    let size = left.columns;
    for pivot in 0..size {
        let found = (pivot..size).find(|&row| left.row(row)[pivot] != 0)?;
        for table in [&mut *left, &mut *right] {
            for column in 0..table.columns {
                table.values.swap(pivot * table.columns + column, found * table.columns + column);
            }
        }
        let scale = gf::inverse(left.row(pivot)[pivot])?;
        for table in [&mut *left, &mut *right] {
            table.row_mut(pivot).iter_mut().for_each(|value| *value = gf::mul(*value, scale));
        }
        for row in (0..size).filter(|&row| row != pivot) {
            let factor = left.row(row)[pivot];
            for table in [&mut *left, &mut *right] {
                let source = table.row(pivot).to_vec();
                add_scaled(table.row_mut(row), &source, factor);
            }
        }
    }
    Some(())
}

fn add_scaled(row: &mut [u8], other: &[u8], factor: u8) {
    for (value, &more) in row.iter_mut().zip(other) {
        *value ^= gf::mul(more, factor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All ways to choose `count` of `0..size`.
    fn choices(size: u32, count: u32) -> Vec<Vec<u32>> {
        (0..1_u32 << size)
            .filter(|bits| bits.count_ones() == count)
            .map(|bits| (0..size).filter(|bit| bits >> bit & 1 == 1).collect())
            .collect()
    }

    #[test]
    fn the_first_row_is_all_ones() {
        assert!((0..255).all(|column| entry(0, column) == 1));
    }

    #[test]
    fn the_matrix_of_the_format_never_changes() {
        let corner: Vec<Vec<u8>> =
            (0..3).map(|row| (0..4).map(|column| entry(row, column)).collect()).collect();
        assert_eq!(corner, GOLDEN);
        let divide = reed_solomon_erasure::galois_8::div;
        for (row, column) in [(0, 0), (1, 5), (7, 240), (100, 100), (1, 253)] {
            assert_eq!(entry(row, column), divide(255 ^ column as u8, (255 - row as u8) ^ column as u8));
        }
    }
    const GOLDEN: [[u8; 4]; 3] = [[1, 1, 1, 1], [127, 252, 126, 254], [226, 255, 230, 253]];

    #[test]
    fn any_positions_as_many_as_columns_give_back_all_others() {
        for (k, columns) in [(1, 1), (1, 4), (2, 2), (3, 2), (2, 5), (3, 6), (4, 1)] {
            let size = k + columns;
            let data: Vec<u8> = (0..columns).map(|column| (column * 37 + 11) as u8).collect();
            let value = |position: u32| match position.checked_sub(k) {
                Some(column) => data[column as usize],
                None => (0..columns).fold(0, |sum, c| sum ^ gf::mul(entry(position, c), data[c as usize])),
            };
            for known in choices(size, columns) {
                let wanted: Vec<u32> = (0..size).filter(|position| !known.contains(position)).collect();
                let table = solve(k, columns, &known, &wanted).unwrap();
                for (row, &position) in wanted.iter().enumerate() {
                    let found =
                        table.row(row).iter().zip(&known).fold(0, |sum, (&c, &p)| sum ^ gf::mul(c, value(p)));
                    assert_eq!(
                        found,
                        value(position),
                        "k {k}, {columns} columns, known {known:?}, wanted {position}"
                    );
                }
            }
        }
    }

    #[test]
    fn too_few_known_positions_solve_nothing() {
        assert_eq!(solve(1, 3, &[0, 1], &[2]), None);
    }
}
