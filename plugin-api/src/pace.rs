//! Limits on work beside the application: bytes per second, and the share of a processor.
//!
//! Each limit is a token bucket. A thread takes out the cost of a block after it was copied or sent, and waits until the bucket
//! is no longer in debt. So over any time the limit is exceeded by at most the size of the bucket and one block.
//!
//! The cost of a block is all processor time of its thread since the last one, including syncs and the search for work. In a
//! process that only copies, it is all processor time of the process.

use crate::kvtree::FieldError;
use crate::{held, KvTree};
use rustix::time::{clock_gettime_dynamic, ClockId, DynamicClockId};
use serde::{Deserialize, Serialize};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The content of a bucket: the most that may be taken at once after a rest.
const MOMENT: Duration = Duration::from_millis(100);
/// How often a waiter looks whether it should stop.
const LOOK: Duration = Duration::from_millis(20);
/// A block is copied in this time or less, so that a slow copy still goes in small steps.
const STEPS_PER_SECOND: u64 = 20;

/// The limits of all threads that share them.
#[derive(Debug, Default)]
pub struct Pace {
    /// That of bytes, and that of seconds of processor time.
    buckets: Mutex<[Option<Bucket>; 2]>,
    /// The processor time that is accounted for, of a process that does nothing else.
    process: Option<Mutex<Duration>>,
}

/// The limits themselves; none where nothing is said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes per second; 0 for no limit.
    pub bytes_per_second: u64,
    /// Percent of one processor; 0 for no limit.
    pub percent: f64,
}

impl Limits {
    /// The limits in a transport's options `BW` (bytes per second) and `PERCENT`.
    ///
    /// # Errors
    /// One of them is no number.
    pub fn from_options(options: &KvTree) -> Result<Self, FieldError> {
        Ok(Self {
            bytes_per_second: options.parse("BW")?.unwrap_or(0),
            percent: options.parse("PERCENT")?.filter(|percent: &f64| percent.is_finite()).unwrap_or(0.0),
        })
    }
}

impl Pace {
    /// Keeps to these limits.
    pub fn new(limits: Limits) -> Self {
        let pace = Self::default();
        pace.set(limits);
        pace
    }

    /// For a process that does nothing but copy: whatever it does is work. Without limits until they are [set](Self::set).
    pub fn of_process() -> Self {
        Self { process: Some(Mutex::new(time_of(ClockId::ProcessCPUTime))), ..Self::default() }
    }

    /// Accounts for what the whole process has done since it was last asked. To be called often, also when nothing is copied, or
    /// a long time of little work would have to be paid at once.
    pub fn account_for_process(&self) {
        let work = self.work_of_process();
        let _ = self.take(now(), 0, work.unwrap_or_default());
    }

    /// The work that was not accounted for, of a process that does nothing but copy.
    fn work_of_process(&self) -> Option<Duration> {
        let mut accounted = held(self.process.as_ref()?);
        let worked = time_of(ClockId::ProcessCPUTime);
        Some(worked.saturating_sub(std::mem::replace(&mut *accounted, worked)))
    }

    /// Keeps to these limits from now on. Earlier use still counts.
    pub fn set(&self, limits: Limits) {
        let rates = [limits.bytes_per_second as f64, limits.percent / 100.0];
        for (bucket, rate) in held(&self.buckets).iter_mut().zip(rates) {
            match bucket.as_mut() {
                _ if !(rate > 0.0 && rate.is_finite()) => *bucket = None,
                Some(bucket) => bucket.rate = rate,
                None => *bucket = Some(Bucket { rate, paid: Duration::ZERO }),
            }
        }
    }

    /// A block as large as was asked for, or what the limit allows in a small part of a second.
    pub fn block_bytes(&self, wanted: usize) -> usize {
        let rate = held(&self.buckets)[0].as_ref().map(|bucket| bucket.rate as u64);
        let most = rate.map_or(u64::MAX, |rate| (rate / STEPS_PER_SECOND).max(SMALLEST_STEP));
        wanted.min(usize::try_from(most).unwrap_or(usize::MAX))
    }

    /// Takes out what a block has cost, and gives how long to wait.
    fn take(&self, now: Duration, bytes: u64, work: Duration) -> Duration {
        let mut buckets = held(&self.buckets);
        let costs = buckets.iter_mut().zip([bytes as f64, work.as_secs_f64()]);
        let waits = costs.filter_map(|(bucket, cost)| Some(bucket.as_mut()?.take(now, cost)));
        waits.max().unwrap_or_default()
    }

    fn is_unlimited(&self) -> bool {
        held(&self.buckets).iter().all(Option::is_none)
    }
}

/// One thread's account: what of its processor time is accounted for.
#[derive(Debug)]
pub struct Account(Duration);

impl Account {
    /// Nothing is due yet.
    pub fn open() -> Self {
        Self(time_of(ClockId::ThreadCPUTime))
    }

    /// Pays for a block, and waits as long as that takes, or until it should stop or there are no limits any more.
    pub fn pay(&mut self, pace: &Pace, bytes: u64, should_stop: impl Fn() -> bool) {
        let worked = time_of(ClockId::ThreadCPUTime);
        let own = worked.saturating_sub(std::mem::replace(&mut self.0, worked));
        if pace.is_unlimited() {
            return;
        }
        let work = pace.work_of_process().unwrap_or(own);
        let until = now() + pace.take(now(), bytes, work);
        while !should_stop() && !pace.is_unlimited() {
            let left = until.saturating_sub(now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(LOOK));
        }
    }
}

/// Fills at a rate, and may be in debt.
#[derive(Debug)]
struct Bucket {
    /// Per second.
    rate: f64,
    /// When all that was taken so far is paid.
    paid: Duration,
}

impl Bucket {
    fn take(&mut self, now: Duration, amount: f64) -> Duration {
        let begins = self.paid.max(now.saturating_sub(MOMENT));
        self.paid = begins + Duration::try_from_secs_f64(amount / self.rate).unwrap_or(LONGEST);
        self.paid.saturating_sub(now)
    }
}

/// A block of at least a page, however little is allowed.
const SMALLEST_STEP: u64 = 4 << 10;
/// For a limit so small that the wait cannot be computed.
const LONGEST: Duration = Duration::from_secs(3600);

/// Time on a stopwatch that all threads share.
fn now() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    // Ahead of the first moment, so that the first bucket is full.
    START.get_or_init(Instant::now).elapsed() + MOMENT
}

/// Where a sandbox forbids this clock, nothing is known of the work.
fn time_of(clock: ClockId) -> Duration {
    let Ok(time) = clock_gettime_dynamic(DynamicClockId::Known(clock)) else { return Duration::ZERO };
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies blocks of so many bytes, each with so much work, on a clock of the test's own, until the time is over;
    /// gives the bytes and the work.
    fn copy_for(pace: &Pace, time: Duration, bytes: u64, work: Duration) -> (u64, Duration) {
        let (mut now, mut copied, mut worked) = (MOMENT, 0, Duration::ZERO);
        let end = now + time;
        while now < end {
            copied += bytes;
            worked += work;
            now += work;
            now += pace.take(now, bytes, work);
        }
        (copied, worked)
    }

    #[test]
    fn bytes_keep_to_their_rate_whatever_the_blocks() {
        let rate = 50_000_000;
        for block in [4096, 100_000, 1 << 20, 64 << 20] {
            let pace = Pace::new(Limits { bytes_per_second: rate, percent: 0.0 });
            let (copied, _) = copy_for(&pace, Duration::from_secs(10), block, Duration::from_micros(1));
            let allowed = 10 * rate + rate / 10 + block;
            assert!(copied <= allowed && copied >= 10 * rate - block, "{copied} bytes in blocks of {block}");
        }
    }

    #[test]
    fn work_keeps_to_its_share_of_a_processor() {
        for percent in [1.0, 20.0, 75.0] {
            let pace = Pace::new(Limits { bytes_per_second: 0, percent });
            let (_, worked) = copy_for(&pace, Duration::from_secs(10), 1 << 20, Duration::from_millis(1));
            let share = worked.as_secs_f64() / 10.0 * 100.0;
            assert!((percent * 0.95..percent * 1.05 + 0.1).contains(&share), "{share} of {percent} percent");
        }
    }

    #[test]
    fn many_threads_share_one_limit() {
        let pace = Pace::new(Limits { bytes_per_second: 1_000_000, percent: 0.0 });
        let waits: Vec<_> =
            (0..10).map(|_| pace.take(MOMENT, 1_000_000, Duration::ZERO).as_secs_f64().round()).collect();
        assert_eq!(waits, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]);
    }

    #[test]
    fn a_rest_saves_up_no_more_than_a_moment() {
        let pace = Pace::new(Limits { bytes_per_second: 1000, percent: 0.0 });
        assert!(pace.take(Duration::from_secs(1_000_000), 100, Duration::ZERO).is_zero());
        let wait = pace.take(Duration::from_secs(1_000_000), 1000, Duration::ZERO);
        assert_eq!(wait.as_secs_f64().round(), 1.0);
    }

    #[test]
    fn a_limit_that_is_changed_or_taken_away_counts_at_once() {
        let pace = Pace::default();
        let second = |pace: &Pace| pace.take(MOMENT, 1000, Duration::from_secs(1)).as_secs_f64().round();
        assert_eq!((second(&pace), pace.is_unlimited()), (0.0, true));
        pace.set(Limits { bytes_per_second: 100, percent: 0.0 });
        assert_eq!(second(&pace), 10.0);
        pace.set(Limits { bytes_per_second: 0, percent: -1.0 });
        assert_eq!((second(&pace), pace.is_unlimited()), (0.0, true));
    }

    #[test]
    fn a_small_limit_makes_small_blocks() {
        let limited = |bytes_per_second| Pace::new(Limits { bytes_per_second, percent: 0.0 });
        assert_eq!(limited(0).block_bytes(64 << 20), 64 << 20);
        assert_eq!(limited(20 << 20).block_bytes(64 << 20), 1 << 20);
        assert_eq!(limited(1).block_bytes(64 << 20), 4096);
        assert_eq!(limited(1 << 40).block_bytes(4096), 4096);
    }

    #[test]
    fn a_cancelled_wait_returns_at_once() {
        let pace = Pace::new(Limits { bytes_per_second: 1, percent: 0.0 });
        Account::open().pay(&pace, 1 << 40, || true);
    }
}
