//! Which operations of a life a fault is tried at.

/// About `some` of the operations `1..=all`, evenly spread; each of them where `SCR_TEST_EVERY_FAULT` is set, as in
/// `make nightly`.
///
/// The step shares no factor with 2, 3 and 5: a test that takes every second or third of them in another way takes both ways.
pub fn moments(all: u64, some: u64) -> impl Iterator<Item = u64> {
    let least = if takes_all() { 1 } else { all / some.max(1) };
    let is_fit = |step: &u64| *step > 0 && [2, 3, 5].iter().all(|factor| !step.is_multiple_of(*factor));
    let step = (least..).find(is_fit).and_then(|step| usize::try_from(step).ok()).expect("numbers go on");
    (1..=all).step_by(step)
}

/// Whether a test is to try each fault that it knows, however long that takes.
pub fn takes_all() -> bool {
    std::env::var_os("SCR_TEST_EVERY_FAULT").is_some()
}
