//! The same work in several threads.

use std::thread::Builder;

/// Does `work` in so many threads at a time, of which this is one: in fewer if the system gives no more. Each is to take what the
/// others have left.
pub(crate) fn at_once(threads: usize, work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        let start = |_| Builder::new().spawn_scoped(scope, &work);
        (1..threads).map(start).take_while(Result::is_ok).for_each(drop);
        work();
    });
}
