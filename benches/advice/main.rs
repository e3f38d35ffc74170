//! Simulates the plan of `SCR_CHECKPOINT_INTERVAL=AUTO` over a grid of costs and failure rates. Prints the least and the mean
//! share of the best fixed plan's efficiency, and where the least is.
//!
//! `cargo bench -p scr-core --bench advice -- [FAILURES]`

mod compare;

use compare::{Case, Compared};
use scr_plan::Gaps;

fn main() {
    let words = std::env::args().skip(1).find(|word| !word.starts_with("--"));
    let failures: f64 = words.map_or(20_000.0, |word| word.parse().expect("a number of failures"));
    for (name, gaps) in [("exponential", Gaps::EXPONENTIAL), ("Weibull 0.7", Gaps { shape: 0.7 })] {
        let all: Vec<(Case, Compared)> = grid().map(|case| (case, case.compare(gaps, failures))).collect();
        // If even the best plan gets hardly anything done, a share of its efficiency says nothing.
        let kept: Vec<_> = all.iter().filter(|(_, compared)| compared.best.0 > 0.05).collect();
        let share = |compared: &Compared| compared.planned / compared.best.0;
        let mean = kept.iter().map(|(_, compared)| share(compared)).sum::<f64>() / kept.len() as f64;
        println!("{name}: {} cases, mean share {mean:.4}", kept.len());
        if let Some((case, least)) =
            kept.iter().min_by(|one, other| share(&one.1).total_cmp(&share(&other.1)))
        {
            println!("  least share {:.4}: {case:?}, {least:?}", share(least));
        }
        let two = kept.iter().filter(|(_, compared)| compared.auto.flush_every > 1);
        let gains: Vec<f64> = two.map(|(_, compared)| compared.planned - compared.single).collect();
        let least = gains.iter().copied().fold(f64::INFINITY, f64::min);
        let mean = gains.iter().sum::<f64>() / gains.len() as f64;
        println!(
            "  over Young and Daly: {} cases of two levels, gain {least:.4} at least, {mean:.4} on average",
            gains.len()
        );
    }
}

/// Costs from seconds to an hour, a failure each hour to each week.
fn grid() -> impl Iterator<Item = Case> {
    let hour = 3600.0;
    let means = [hour, 6.0 * hour, 24.0 * hour, 168.0 * hour];
    let costs = [1.0, 10.0, 60.0]
        .into_iter()
        .flat_map(|checkpoint| [60.0, 600.0, 3600.0].map(|flush| (checkpoint, flush)));
    let kinds: Vec<_> = costs.flat_map(|costs| [0.02, 0.1, 0.5].map(|fatal| (costs, fatal))).collect();
    means.into_iter().flat_map(move |mean| {
        let kinds = kinds.clone().into_iter();
        kinds.flat_map(move |((checkpoint, flush), fatal)| {
            [0.0, 0.9].map(|hidden| Case { mean, fatal, checkpoint, flush, hidden })
        })
    })
}
