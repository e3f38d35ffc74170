//! Whole sets: every pattern of losses that leaves a copy is rebuilt, and no unneeded bytes are sent.

use scr_conformance::scheme::{Call, SetUp};
use scr_partner::{Partner, FORMAT, REPLICAS};
use scr_plugin_api::{KvTree, Scheme};
use std::sync::Arc;

fn protected(replicas: u32, lens: &[usize]) -> (Arc<dyn Scheme>, SetUp) {
    let mut options = KvTree::new();
    options.set(REPLICAS, replicas);
    let scheme: Arc<dyn Scheme> = Arc::new(Partner::new(&options).expect("a legal count"));
    let content =
        |(member, &len): (usize, &usize)| (0..len).map(|at| (at * 7 + at / 251 + member) as u8).collect();
    let mut set =
        SetUp::new(&*scheme, lens.iter().enumerate().map(content).collect()).expect("a legal shape");
    let outcome = set.call(&scheme, Call::Protect);
    assert!(outcome.is_clean(), "{}", outcome.summary());
    let total: usize = lens.iter().sum();
    assert_eq!(outcome.each(|member| member.sent).iter().sum::<u64>(), total as u64 * u64::from(replicas));
    set.members = outcome.members;
    (scheme, set)
}

fn every_loss_that_leaves_a_copy_comes_back(replicas: u32, lens: &[usize]) {
    let (scheme, set) = protected(replicas, lens);
    for bits in 0..1_u32 << lens.len() {
        let lost: Vec<bool> = (0..lens.len()).map(|member| bits >> member & 1 == 1).collect();
        let before = set.losing(&lost);
        let outcome = before.call(&scheme, Call::Rebuild(FORMAT));
        if scheme.recoverable(&lost) {
            assert!(outcome.is_clean(), "{lens:?} {lost:?}: {}", outcome.summary());
            assert!(outcome.members == set.members, "{lens:?}, lost {lost:?}: other bytes");
        } else {
            assert!(bits.count_ones() > replicas);
            assert!(outcome.summary().contains("TooManyLost"), "{}", outcome.summary());
            assert!(outcome.members == before.members);
        }
    }
}

#[test]
fn sets_of_all_sizes_and_counts_of_copies() {
    for n in 2..=6_usize {
        for replicas in 1..n as u32 {
            every_loss_that_leaves_a_copy_comes_back(
                replicas,
                &(0..n).map(|m| 1000 - 17 * m).collect::<Vec<_>>(),
            );
            every_loss_that_leaves_a_copy_comes_back(
                replicas,
                &(0..n).map(|m| m * m * 5).collect::<Vec<_>>(),
            );
        }
    }
}

#[test]
fn empty_and_long_and_uneven_members() {
    every_loss_that_leaves_a_copy_comes_back(1, &[0, 0, 0]);
    every_loss_that_leaves_a_copy_comes_back(2, &[3 << 20, 0, (3 << 20) - 1, 5]);
}

#[test]
fn a_small_checkpoint_takes_one_batch_and_one_message() {
    let scheme: Arc<dyn Scheme> = Arc::new(Partner::new(&KvTree::new()).unwrap());
    let set = SetUp::new(&*scheme, vec![vec![7; 4096]; 4]).unwrap();
    let outcome = set.call(&scheme, Call::Protect);
    assert_eq!(
        (outcome.each(|member| member.exchanges), outcome.each(|member| member.messages)),
        (vec![1; 4], vec![1; 4])
    );
    assert!(
        outcome.each(|member| member.calls).iter().all(|&calls| calls <= 5),
        "{:?}",
        outcome.each(|member| member.calls)
    );
}

#[test]
fn a_header_with_a_flipped_bit_is_found() {
    let (scheme, set) = protected(1, &[100, 200, 300]);
    for byte in (0..4096).step_by(37) {
        let mut flipped = set.losing(&[false, true, false]);
        flipped.members[2].redundancy[byte] ^= 4;
        let outcome = flipped.call(&scheme, Call::Rebuild(FORMAT));
        assert!(outcome.summary().contains("Corrupt"), "{byte}: {}", outcome.summary());
    }
}
