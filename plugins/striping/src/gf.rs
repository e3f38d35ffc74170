//! Arithmetic in GF(2^8) with the polynomial 0x11D, one element at a time: for matrices and tables. [`kernel`](crate::kernel)
//! handles blocks of data.

const POLYNOMIAL: u16 = 0x11D;

/// Powers of the generator 2, twice over, so that a sum of two logarithms needs no reduction; and logarithms.
const TABLES: ([u8; 510], [u8; 256]) = tables();

const fn tables() -> ([u8; 510], [u8; 256]) {
    let mut exp = [0_u8; 510];
    let mut log = [0_u8; 256];
    let mut value = 1_u16;
    let mut power = 0;
    while power < 255 {
        exp[power] = value as u8;
        exp[power + 255] = value as u8;
        log[value as usize] = power as u8;
        value <<= 1;
        if value & 0x100 != 0 {
            value ^= POLYNOMIAL;
        }
        power += 1;
    }
    (exp, log)
}

/// The product.
pub(crate) fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    let (exp, log) = (&TABLES.0, &TABLES.1);
    exp[usize::from(log[usize::from(a)]) + usize::from(log[usize::from(b)])]
}

/// The inverse of `a`, or `None` for zero, which has none.
pub(crate) fn inverse(a: u8) -> Option<u8> {
    if a == 0 {
        return None;
    }
    let (exp, log) = (&TABLES.0, &TABLES.1);
    Some(exp[255 - usize::from(log[usize::from(a)])])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiplication as it is defined: polynomials, bit by bit.
    fn slow_mul(a: u8, b: u8) -> u8 {
        let mut sum = 0_u16;
        for bit in 0..8 {
            if b >> bit & 1 == 1 {
                sum ^= u16::from(a) << bit;
            }
        }
        for bit in (8..16).rev() {
            if sum >> bit & 1 == 1 {
                sum ^= POLYNOMIAL << (bit - 8);
            }
        }
        sum as u8
    }

    #[test]
    fn products_are_those_of_the_definition_and_of_another_library() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(mul(a, b), slow_mul(a, b), "{a} * {b}");
                assert_eq!(mul(a, b), reed_solomon_erasure::galois_8::mul(a, b), "{a} * {b}");
            }
        }
    }

    #[test]
    fn a_number_times_its_inverse_is_one() {
        assert_eq!(inverse(0), None);
        for a in 1..=255 {
            assert_eq!(mul(a, inverse(a).unwrap()), 1, "{a}");
        }
    }
}
