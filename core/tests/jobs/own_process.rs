//! An application that has closed its standard streams, or has a limit on the size of its files. Both are those of a process, so
//! each test runs again, alone in another one.

use super::world::{contents, file_name, files_below, World};
use rustix::io::{dup2, fcntl_dupfd_cloexec, fcntl_getfd};
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use scr_comm::Rank;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Barrier;

const CHILD: &str = "SCR_TEST_OWN_PROCESS";

/// Runs a test of this file in a process of its own, and gives whether this is that process.
fn is_alone(test: &str) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    let name = format!("own_process::{test}");
    let output =
        again.args(["--exact", &name, "--nocapture", "--include-ignored"]).env(CHILD, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{:?}\n{said}\n{why}", output.status);
    false
}

/// The collector of a site, which is another user, could not read them.
#[test]
fn everybody_may_read_the_metrics_whatever_the_umask() {
    use rustix::fs::Mode;
    use std::os::unix::fs::PermissionsExt;
    if !is_alone("everybody_may_read_the_metrics_whatever_the_umask") {
        return;
    }
    let world = World::new(2, 2);
    let dir = world.dir().join("metrics");
    std::fs::create_dir(&dir).unwrap();
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let world = world.set("SCR_METRICS_DIR", &dir.display().to_string());
    world.run(|application| application.checkpoint(1, uneven).unwrap());
    let file = std::fs::read_dir(&dir).unwrap().next().unwrap().unwrap();
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o644);
}

fn uneven(rank: Rank) -> Vec<usize> {
    vec![40_000 * rank.index() + 3, 0, 7]
}

const PRINTED: &[u8] = b"printed by the application\n";

/// Prints to all three streams, and gives how many of them took it.
fn print() -> usize {
    use rustix::stdio::{stderr, stdin, stdout};
    [stdin(), stdout(), stderr()].iter().filter(|stream| rustix::io::write(stream, PRINTED).is_ok()).count()
}

/// The streams as they were, while none of them is open.
struct Closed([OwnedFd; 3]);

impl Closed {
    fn all() -> Self {
        use rustix::stdio::{stderr, stdin, stdout};
        let kept = [stdin(), stdout(), stderr()].map(|stream| fcntl_dupfd_cloexec(stream, 100).unwrap());
        // SAFETY: nothing owns them, and they are opened again when this is dropped.
        (0..3).for_each(|number| unsafe { rustix::io::close(number) });
        Self(kept)
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        for (number, stream) in self.0.iter().enumerate() {
            // SAFETY: it is forgotten before it could be closed.
            let mut place = unsafe { OwnedFd::from_raw_fd(number as i32) };
            dup2(stream, &mut place).unwrap();
            let _ = place.into_raw_fd();
        }
    }
}

/// A job whose ranks print between all calls. `is_closed_late`: they close the streams after the first checkpoint.
fn job_that_prints(world: &World, is_closed_late: bool) {
    let together = Barrier::new(4);
    let alone = |rank: Rank, act: &dyn Fn()| {
        together.wait();
        if rank == Rank(0) {
            act();
        }
        together.wait();
    };
    let closed = std::sync::Mutex::new((!is_closed_late).then(Closed::all));
    let taken = AtomicUsize::new(0);
    world.run(|application| {
        let rank = application.rank;
        for step in 1..=3 {
            application.checkpoint(step, uneven).unwrap();
            alone(rank, &|| {
                closed.lock().unwrap().get_or_insert_with(Closed::all);
                taken.fetch_add(print(), Ordering::Relaxed);
            });
        }
        alone(rank, &|| {
            taken.fetch_add(print(), Ordering::Relaxed);
        });
        application.finalize().unwrap();
        alone(rank, &|| {
            taken.fetch_add(print(), Ordering::Relaxed);
        });
    });
    assert_eq!(taken.into_inner(), 0, "a file of scr has taken what was printed");
    for number in [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()] {
        assert!(fcntl_getfd(number).is_err(), "nobody has taken it");
    }
    drop(closed);
}

/// The index, flush records, filemaps and files of checkpoints held what the application had printed.
#[test]
fn what_is_printed_to_closed_streams_stands_in_no_file() {
    if !is_alone("what_is_printed_to_closed_streams_stands_in_no_file") {
        return;
    }
    for (transport, is_closed_late) in [("SYNC", false), ("PTHREAD", true), ("PTHREAD", false)] {
        let world = World::new(4, 4)
            .set("SCR_FLUSH", "1")
            .set("SCR_FLUSH_ASYNC", if transport == "SYNC" { "0" } else { "1" })
            .set("SCR_FLUSH_TYPE", transport)
            .set("SCR_CACHE_SIZE", "3");
        job_that_prints(&world, is_closed_late);
        for path in files_below(world.dir()) {
            let bytes = std::fs::read(&path).unwrap();
            assert!(!bytes.windows(PRINTED.len()).any(|text| text == PRINTED), "{}", path.display());
        }
        for (step, rank) in (1..=3).flat_map(|step| (0..4).map(move |rank| (step, Rank(rank)))) {
            for (number, size) in uneven(rank).into_iter().enumerate() {
                let path = world.prefix().join(file_name(step, rank, number));
                assert!(
                    std::fs::read(&path).unwrap() == contents(step, rank, number, size),
                    "{}",
                    path.display()
                );
            }
        }
        world.lose("n1");
        world.run(|application| application.restart(uneven)).all_gave(&Some(3));
    }
}

const MOST: u64 = 200_000;

/// The system ended it.
#[test]
fn an_application_lives_on_when_redundancy_is_larger_than_its_files_may_be() {
    if !is_alone("an_application_lives_on_when_redundancy_is_larger_than_its_files_may_be") {
        return;
    }
    let world = World::new(4, 4).set("SCR_COPY_TYPE", "PARTNER").set("SCR_CACHE_SIZE", "2");
    world.run(|application| application.checkpoint(1, |_| vec![30_000; 3]).unwrap());
    let unlimited = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: Some(MOST), ..unlimited }).unwrap();
    let run = world.run(|application| {
        assert_eq!(application.restart(|_| vec![30_000; 3]), Some(1));
        application.checkpoint(2, |_| vec![150_000; 3]).map_err(|error| error.to_string())
    });
    let text = format!("this process may write no file with more than {MOST} bytes");
    let is_told = |ended: &Result<(), String>| ended.as_ref().is_err_and(|error| error.contains(&text));
    assert!(run.ranks.iter().all(is_told), "{:?}", run.ranks);
    world.lose("n1");
    world.run(|application| application.restart(|_| vec![30_000; 3])).all_gave(&Some(1));
}
