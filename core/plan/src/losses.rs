//! Which losses of nodes a redundancy scheme survives.

use super::stage::power;

/// The probability that sets of `set_size` out of `nodes` nodes survive the loss of `lost` nodes at random, where each set
/// survives the loss of `tolerated` of its members. The last set has the nodes that are left over.
pub fn survival(nodes: u64, set_size: u64, tolerated: u64, lost: u64) -> f64 {
    if lost <= tolerated || lost == 0 {
        return 1.0;
    }
    if lost > nodes || tolerated == 0 {
        return 0.0;
    }
    let set_size = set_size.clamp(1, nodes);
    // Ways to lose j nodes, as the coefficient of x^j, for one set and then for all: x stands for one of `nodes`, so that
    // nothing grows beyond what a number can hold.
    let degree = usize::try_from(lost).unwrap_or(usize::MAX);
    if lost > tolerated.saturating_mul(nodes.div_ceil(set_size)) || degree > MOST_LOST {
        return 0.0;
    }
    let unit = 1.0 / nodes as f64;
    let of_set = |size: u64| ways(size, tolerated.min(size), unit, degree);
    // The polynomial 1.
    let mut one = vec![0.0; degree + 1];
    one[0] = 1.0;
    let mut all = power(of_set(set_size), nodes / set_size, one, |one, other| product(one, other, degree));
    if !nodes.is_multiple_of(set_size) {
        all = product(&all, &of_set(nodes % set_size), degree);
    }
    let possible = ways(nodes, lost, unit, degree);
    (all[degree] / possible[degree]).clamp(0.0, 1.0)
}

/// The same where each node has a copy on the next one in a ring of all nodes: no two neighbours may be lost.
pub fn partner_survival(nodes: u64, lost: u64) -> f64 {
    if lost <= 1 {
        return 1.0;
    }
    if lost > nodes / 2 {
        return 0.0;
    }
    // In a ring, N / (N - m) * C(N - m, m) subsets of m have no two neighbours.
    let (all, rest) = (nodes as f64, (nodes - lost) as f64);
    let factors = (0..lost.min(nodes)).map(|at| (rest - at as f64) / (all - at as f64));
    let chance = factors.take_while(|factor| *factor > 0.0).product::<f64>() * all / rest;
    chance.clamp(0.0, 1.0)
}

/// More nodes than this at once are the loss of all that a scheme could survive.
const MOST_LOST: usize = 64;

/// The coefficients of `(1 + unit x)^size` up to `most`, and 0 above.
fn ways(size: u64, most: u64, unit: f64, degree: usize) -> Vec<f64> {
    let mut coefficients = vec![0.0; degree + 1];
    let mut ways = 1.0;
    for (at, coefficient) in (0..=most).zip(&mut coefficients) {
        *coefficient = ways;
        ways *= (size.saturating_sub(at)) as f64 * unit / (at + 1) as f64;
    }
    coefficients
}

fn product(one: &[f64], other: &[f64], degree: usize) -> Vec<f64> {
    let at = |sum: usize| (0..=sum).map(|part| one[part] * other[sum - part]).sum();
    (0..=degree).map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By counting all losses.
    fn counted(nodes: u32, set_size: u32, tolerated: u32, lost: u32) -> f64 {
        let losses = (0_u32..1 << nodes).filter(|loss| loss.count_ones() == lost);
        let survives = |loss: &u32| {
            let sets = (0..nodes).step_by(set_size as usize);
            sets.map(|first| (loss >> first) & ((1 << set_size) - 1))
                .all(|loss| loss.count_ones() <= tolerated)
        };
        let all = losses.clone().count();
        losses.filter(survives).count() as f64 / all as f64
    }

    #[test]
    fn the_formula_agrees_with_counting_every_loss() {
        for (nodes, set_size, tolerated, lost) in [
            (8, 4, 1, 1),
            (8, 4, 1, 2),
            (8, 4, 2, 3),
            (12, 4, 1, 3),
            (10, 4, 1, 3),
            (12, 2, 1, 4),
            (9, 4, 2, 5),
            (6, 6, 2, 3),
        ] {
            let formula = survival(nodes, set_size, tolerated, lost);
            let counted = counted(nodes as u32, set_size as u32, tolerated as u32, lost as u32);
            assert!(
                (formula - counted).abs() < 1e-12,
                "{nodes} {set_size} {tolerated} {lost}: {formula} {counted}"
            );
        }
    }

    #[test]
    fn partners_are_lost_with_their_neighbours() {
        for (nodes, lost) in [(8_u32, 2_u32), (8, 3), (9, 4), (12, 5), (8, 5)] {
            let losses = (0_u32..1 << nodes).filter(|loss| loss.count_ones() == lost);
            let all = losses.clone().count();
            let ring = |loss: u32| (loss << 1 | loss >> (nodes - 1)) & ((1 << nodes) - 1);
            let counted = losses.filter(|loss| loss & ring(*loss) == 0).count() as f64 / all as f64;
            let formula = partner_survival(nodes.into(), lost.into());
            assert!((formula - counted).abs() < 1e-12, "{nodes} {lost}: {formula} {counted}");
        }
        assert_eq!((partner_survival(2, 1), partner_survival(2, 2), partner_survival(0, 3)), (1.0, 0.0, 0.0));
        assert!(partner_survival(1_000_000, 100_000) < 1e-10);
    }

    #[test]
    fn extremes_are_certain() {
        assert_eq!(survival(8, 4, 0, 1), 0.0, "nothing survives without redundancy");
        assert_eq!(survival(8, 4, 0, 0), 1.0);
        assert_eq!(survival(8, 4, 1, 1), 1.0);
        assert_eq!(survival(8, 4, 1, 3), 0.0, "two sets, three losses");
        assert_eq!(survival(8, 4, 1, 9), 0.0);
        assert_eq!(survival(0, 0, 1, 5), 0.0);
        let many = survival(1_000_000, 8, 1, 4);
        assert!(many > 0.9999 && many < 1.0, "{many}");
        assert!(survival(u64::MAX, 8, 1, 2) > 0.999);
    }
}
