//! Whole sets: lost files are rebuilt byte for byte, with no more messages than needed.

use scr_conformance::scheme::{Call, SetUp};
use scr_plugin_api::{PluginErrorKind, Scheme};
use scr_striping::{Striping, FORMAT};
use std::sync::Arc;

fn content(member: usize, len: usize) -> Vec<u8> {
    let mut state = member as u64 + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn protected(k: u32, lens: &[usize]) -> (Arc<dyn Scheme>, SetUp) {
    protected_as(7, k, lens)
}

fn protected_as(dataset: u64, k: u32, lens: &[usize]) -> (Arc<dyn Scheme>, SetUp) {
    let scheme: Arc<dyn Scheme> = Arc::new(Striping::new(k));
    let data = lens.iter().enumerate().map(|(member, &len)| content(member, len)).collect();
    let mut set = SetUp::new(&*scheme, data).expect("a legal shape");
    set.dataset = dataset;
    let outcome = set.call(&scheme, Call::Protect);
    assert!(outcome.is_clean(), "{}", outcome.summary());
    set.members = outcome.members;
    (scheme, set)
}

fn every_loss_comes_back(k: u32, lens: &[usize]) {
    // The members of a set have two processors each for an odd dataset, and one for an even one.
    for dataset in [7, 8] {
        every_loss_of(dataset, k, lens);
    }
}

fn every_loss_of(dataset: u64, k: u32, lens: &[usize]) {
    let (scheme, set) = protected_as(dataset, k, lens);
    let n = lens.len();
    for bits in 0..1_u32 << n {
        let lost: Vec<bool> = (0..n).map(|member| bits >> member & 1 == 1).collect();
        let before = set.losing(&lost);
        let outcome = before.call(&scheme, Call::Rebuild(FORMAT));
        if bits.count_ones() <= k {
            assert!(outcome.is_clean(), "{lens:?} {lost:?}: {}", outcome.summary());
            assert!(outcome.members == set.members, "{lens:?}, lost {lost:?}: other bytes");
        } else {
            assert!(!outcome.is_clean() && outcome.members == before.members, "{lens:?} {lost:?}");
            assert!(outcome.summary().contains("TooManyLost"), "{}", outcome.summary());
        }
    }
}

#[test]
fn every_promised_loss_of_small_sets_comes_back() {
    for n in 2..=6_usize {
        for k in 1..n as u32 {
            every_loss_comes_back(k, &(0..n).map(|member| 1000 + 17 * member).collect::<Vec<_>>());
            every_loss_comes_back(k, &(0..n).map(|member| member * member * 5).collect::<Vec<_>>());
        }
    }
}

#[test]
fn empty_and_nearly_empty_members_come_back() {
    every_loss_comes_back(1, &[0, 0, 0]);
    every_loss_comes_back(2, &[0, 0, 0, 1]);
    every_loss_comes_back(2, &[1, 0, 100_000, 3, 0]);
}

#[test]
fn chunks_of_many_blocks_come_back() {
    every_loss_comes_back(1, &[3 << 20, (3 << 20) - 1, 3_000_001, 5]);
    every_loss_comes_back(2, &[3 << 20, (3 << 20) - 1, 3_000_001, 5]);
}

#[test]
fn protecting_sends_one_chunk_less_than_there_are_members_in_each_stripe() {
    for (n, k, len) in [(4_usize, 1_u32, 3_000_000_usize), (4, 2, 3_000_000), (8, 3, 1_000_000)] {
        let scheme: Arc<dyn Scheme> = Arc::new(Striping::new(k));
        let set = SetUp::new(&*scheme, (0..n).map(|member| content(member, len)).collect()).unwrap();
        let outcome = set.call(&scheme, Call::Protect);
        let chunk = len / (n - k as usize);
        assert!(
            outcome.each(|member| member.sent).iter().all(|&sent| sent == (chunk * (n - 1)) as u64),
            "{:?}",
            outcome.each(|member| member.sent)
        );
        assert_eq!(outcome.each(|member| member.sent), outcome.each(|member| member.received));
    }
}

#[test]
fn stored_bytes_do_not_depend_on_the_length_of_messages() {
    let lens = [300_000, 299_999, 70_001, 5];
    for k in [1, 2] {
        let (scheme, set) = protected(k, &lens);
        for message_bytes in [4096, 100_000, 1 << 20] {
            let short = SetUp { message_bytes, ..set.losing(&[false; 4]) };
            let outcome = short.call(&scheme, Call::Protect);
            assert!(outcome.members == set.members, "{message_bytes}: other bytes");
            let lost = SetUp { message_bytes, ..set.losing(&[false, true, false, false]) };
            let outcome = lost.call(&scheme, Call::Rebuild(FORMAT));
            assert!(outcome.is_clean() && outcome.members == set.members, "{message_bytes}");
            let largest =
                outcome.each(|member| member.sent)[0].div_ceil(outcome.each(|member| member.messages)[0]);
            assert!(largest <= message_bytes, "{largest} bytes on average");
        }
    }
}

#[test]
fn padding_is_not_sent() {
    let scheme: Arc<dyn Scheme> = Arc::new(Striping::new(1));
    let set = SetUp::new(&*scheme, vec![content(0, 900_000), vec![], vec![], vec![]]).unwrap();
    let outcome = set.call(&scheme, Call::Protect);
    assert_eq!(outcome.each(|member| member.sent), [900_000, 0, 0, 0]);
}

#[test]
fn a_small_checkpoint_takes_one_batch_with_xor_and_two_with_more() {
    for (k, batches) in [(1, 1), (2, 2)] {
        let scheme: Arc<dyn Scheme> = Arc::new(Striping::new(k));
        let set = SetUp::new(&*scheme, (0..4).map(|member| content(member, 4096)).collect()).unwrap();
        let outcome = set.call(&scheme, Call::Protect);
        assert_eq!(outcome.each(|member| member.exchanges), [batches; 4]);
        // Three chunks to others, and nothing but one read, one write and the batches.
        assert_eq!(outcome.each(|member| member.messages), [3; 4]);
        assert!(
            outcome.each(|member| member.calls).iter().all(|&calls| calls <= batches + 2 + 2),
            "{:?}",
            outcome.each(|member| member.calls)
        );
    }
}

#[test]
fn nobody_receives_more_than_about_twice_its_data_in_a_rebuild() {
    for (n, k, losses) in [(4_usize, 1_u32, 1_usize), (4, 2, 2), (8, 3, 3), (8, 3, 1), (9, 2, 2)] {
        let len = 8_000_000 / n;
        let (scheme, set) = protected(k, &vec![len; n]);
        let lost: Vec<bool> = (0..n).map(|member| member < losses).collect();
        let outcome = set.losing(&lost).call(&scheme, Call::Rebuild(FORMAT));
        assert!(outcome.is_clean(), "{}", outcome.summary());
        let own = len as f64 * n as f64 / (n - k as usize) as f64;
        for (member, &received) in outcome.each(|member| member.received).iter().enumerate() {
            let most = if lost[member] { own * 1.001 } else { len as f64 * 2.2 };
            assert!(received as f64 <= most, "n {n}, k {k}, member {member}: {received} of {len}");
        }
    }
}

#[test]
fn a_header_of_another_dataset_or_with_a_flipped_bit_is_corrupt() {
    let (scheme, set) = protected(1, &[100, 200, 300]);
    let lost = [false, true, false];
    let mut other = set.losing(&lost);
    other.dataset += 1;
    let outcome = other.call(&scheme, Call::Rebuild(FORMAT));
    assert!(outcome.summary().contains("says dataset 7, but 8 was expected"), "{}", outcome.summary());
    for byte in 0..4096 {
        let mut flipped = set.losing(&lost);
        flipped.members[2].redundancy[byte] ^= 1 << (byte % 8);
        let outcome = flipped.call(&scheme, Call::Rebuild(FORMAT));
        assert!(outcome.summary().contains("Corrupt"), "{byte}: {}", outcome.summary());
        assert!(outcome.members[1].data.iter().all(|&byte| byte == 0), "nothing is invented");
        if byte > 100 {
            break;
        }
    }
}

#[test]
fn a_format_of_a_later_version_is_refused() {
    let (scheme, set) = protected(1, &[100, 200]);
    let outcome = set.losing(&[true, false]).call(&scheme, Call::Rebuild(FORMAT + 1));
    assert!(outcome.summary().contains("format 2"), "{}", outcome.summary());
}

#[test]
fn a_set_of_one_is_warned_about_and_promises_nothing() {
    for k in [1, 2] {
        let scheme: Arc<dyn Scheme> = Arc::new(Striping::new(k));
        assert_eq!(scheme.losses_survived(1).unwrap(), 0);
        let set = SetUp::new(&*scheme, vec![content(0, 1000)]).unwrap();
        let outcome = set.call(&scheme, Call::Protect);
        assert!(outcome.is_clean());
        assert!(outcome.logged[0].1.contains("one member"));
        let outcome = set.losing(&[true]).call(&scheme, Call::Rebuild(FORMAT));
        assert!(outcome.summary().contains("TooManyLost"));
    }
}

#[test]
fn as_many_failures_as_members_are_refused() {
    let error = Striping::new(2).losses_survived(2).unwrap_err();
    assert_eq!(error.kind, PluginErrorKind::Refused);
    assert!(error.text.contains("N = 2, k = 2"), "{error}");
}

#[test]
fn the_largest_set_works() {
    let (scheme, set) = protected(6, &[501; 250]);
    let lost: Vec<bool> = (0..250).map(|member| member % 45 == 3).collect();
    let outcome = set.losing(&lost).call(&scheme, Call::Rebuild(FORMAT));
    assert!(outcome.is_clean(), "{}", outcome.summary());
    assert!(outcome.members == set.members);
}
