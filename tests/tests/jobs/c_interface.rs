//! The C interface as a compiler, a linker and a careless application see it.

use scr_tests::{
    compile, on_each_mpi, repository, run_if_there, stage, with_compiler, Cluster, Mpi, Program,
};
use std::collections::BTreeSet;
use std::process::Command;

/// Every function of `scr.h`.
const FUNCTIONS: [&str; 24] = [
    "SCR_Complete_checkpoint",
    "SCR_Complete_output",
    "SCR_Complete_restart",
    "SCR_Config",
    "SCR_Configf",
    "SCR_Current",
    "SCR_Delete",
    "SCR_Drop",
    "SCR_Finalize",
    "SCR_Get_version",
    "SCR_Have_restart",
    "SCR_Init",
    "SCR_Init_comm",
    "SCR_Last_error",
    "SCR_Need_checkpoint",
    "SCR_Recover",
    "SCR_Restart_file",
    "SCR_Restart_files",
    "SCR_Restart_ranks",
    "SCR_Route_file",
    "SCR_Should_exit",
    "SCR_Start_checkpoint",
    "SCR_Start_output",
    "SCR_Start_restart",
];

/// Further functions, for the interfaces for other languages.
const FOR_LANGUAGES: [&str; 4] =
    ["scr_config_with_code", "scr_init_comm_of_fortran", "scr_recover_of_fortran", "scr_refuse_short"];

/// An application closes all that scr keeps open, and opens files and folders until they have the same numbers. It waits until
/// scr has opened `later`.
fn expect_left_alone(mpi: Mpi, settings: &[(&str, &str)], later: Option<&str>) {
    let mut cluster = Cluster::new(2);
    let own = cluster.scratch().join("own");
    std::fs::create_dir(&own).expect("a folder for the application");
    let job = cluster.job(mpi, 2, Program::ClosesAll).args(["new", &own.display().to_string()]).args(later);
    let run = settings.iter().fold(job, |job, (name, value)| job.env(name, value)).run();
    assert!(run.succeeded() && run.prints("START ckpt.1 0") && !run.prints("CLOSED 0"));
    let harms: Vec<_> = run.lines().filter(|line| line.contains("HARM")).collect();
    let unharmed = harms.iter().filter(|line| line.ends_with("HARMS 0")).count();
    assert!(unharmed == 2 && !run.prints("HARMED"), "{harms:?}");
    assert!(!run.prints("COMPLETE ckpt.2 0"), "what is written then goes nowhere");
    assert!(run.prints("was closed by somebody else, and its number stands for another file now"));
    assert!(run.prints("FINALIZE 1") && !run.prints("FINALIZE 0"));
    expect_first_is_whole(&mut cluster, mpi);
}

/// Where the machine is overloaded, a thread may be held up between its look at a number and the use of it. That is rare.
fn expect_threads_leave_alone(mpi: Mpi, settings: &[(&str, &str)], later: &str) {
    let look = || expect_left_alone(mpi, settings, Some(later));
    std::panic::catch_unwind(look).unwrap_or_else(|_| look());
}

/// The next run gets every byte of the checkpoint that was complete before.
fn expect_first_is_whole(cluster: &mut Cluster, mpi: Mpi) {
    let restored = cluster.job(mpi, 2, Program::ClosesAll).args(["restore"]).run();
    assert!(restored.succeeded());
    assert_eq!(restored.lines().filter(|line| line.ends_with("RESTORED ckpt.1 1")).count(), 2);
}

#[test]
fn the_header_compiles_as_c_from_two_files() {
    with_compiler("gcc", "the header as C", || {
        ["-std=c99", "-std=c17"].into_iter().for_each(|standard| compile_header("gcc", "c", standard));
    });
}

#[test]
fn the_header_compiles_as_cpp_from_two_files() {
    with_compiler("g++", "the header as C++", || {
        ["-std=c++98", "-std=c++17"].into_iter().for_each(|standard| compile_header("g++", "c++", standard));
    });
}

fn compile_header(compiler: &str, language: &str, standard: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let programs = repository().join("tests/programs");
    let mut command = Command::new(compiler);
    command.args(["-c", "-x", language, standard, "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"]);
    command.arg(repository().join("ffi/include")).current_dir(folder.path());
    compile(command.arg(programs.join("prototypes.c")).arg(programs.join("prototypes_again.c")));
}

on_each_mpi! {
    fn an_application_written_for_c_scr_builds_and_links(mpi: Mpi) {
        let folder = tempfile::tempdir().unwrap();
        let programs = repository().join("tests/programs");
        let (include, lib) = (stage(mpi).join("include"), stage(mpi).join("lib"));
        let mut command = Command::new(mpi.compiler());
        command.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-DWITH_MAIN", "-o"]);
        command.arg(folder.path().join("app")).arg("-I").arg(include);
        command.arg(programs.join("prototypes.c")).arg(programs.join("prototypes_again.c"));
        compile(command.arg("-L").arg(&lib).arg("-lscr").arg(format!("-Wl,-rpath,{}", lib.display())));
    }

    fn the_library_exports_the_functions_of_the_header_and_nothing_else(mpi: Mpi) {
        for (library, options) in [("libscr.so", &["-D"][..]), ("libscr.a", &["-g"])] {
            let library = stage(mpi).join("lib").join(library);
            let exported = output(Command::new("nm").args(options).arg("--defined-only").arg(&library));
            let names = exported.lines().filter_map(|line| line.split_whitespace().nth(2));
            assert_eq!(names.collect::<BTreeSet<_>>(), FUNCTIONS.into_iter().chain(FOR_LANGUAGES).collect());
        }
    }

    fn a_library_of_another_mpi_is_refused_before_it_is_used(mpi: Mpi) {
        let other = if mpi == Mpi::OpenMpi { Mpi::Mpich } else { Mpi::OpenMpi };
        run_if_there(other, "a library of another MPI", |other| {
            let mut cluster = Cluster::new(1);
            let (program, lib) = (cluster.scratch().join("other"), stage(other).join("lib"));
            let mut command = Command::new(mpi.compiler());
            command.args(["-std=c99", "-DUSE_SCR", "-o"]).arg(&program);
            command.arg(repository().join("examples/heat2d.c")).arg("-I").arg(stage(other).join("include"));
            command.arg("-L").arg(&lib).arg("-lscr").arg(format!("-Wl,-rpath,{}", lib.display()));
            // The other MPI's library comes with libscr.so, and is not on this one's path.
            compile(command.arg("-Wl,--allow-shlib-undefined"));
            let run = cluster.job(mpi, 2, Program::Heat2d).executable(&program).run();
            assert!(!run.succeeded() && !run.timed_out());
            assert!(run.prints("and this program runs under another MPI, `"), "the library says what is wrong");
            assert!(run.prints("SCR_Init failed"), "the program continues after the call");
        });
    }

    fn the_library_has_the_soname_that_applications_ask_for(mpi: Mpi) {
        let dynamic = output(Command::new("readelf").arg("-d").arg(stage(mpi).join("lib/libscr.so")));
        assert!(dynamic.contains("Library soname: [libscr.so]"), "{dynamic}");
    }

    fn every_wrong_call_is_refused_and_harms_nothing(mpi: Mpi) {
        let mut cluster = Cluster::new(2);
        let run = cluster.job(mpi, 2, Program::ApiMisuse).run().expect_success();
        assert!(run.prints("ERROR: rank 1 on n1: SCR_Route_file: "), "errors tell who says them");
        // The job runs with the settings of the application, and keeps them for the commands; but no password.
        assert!(run.prints("SCR_CHECKPOINT_SECONDS=5400") && run.prints("SCR_LOG_DB_PASS=***"));
        assert!(run.prints("SCR_CHECKPOINT_SECONDS is set after SCR_Init"));
        assert!(run.prints("rank 1 differs from rank 0 in what it has set with SCR_Config"));
        let kept = std::fs::read_to_string(cluster.prefix().join(".scr/app.conf")).unwrap();
        assert!(kept.contains("SCR_CHECKPOINT_SECONDS=5400\n"), "{kept}");
        assert!(!kept.contains("hunter2") && !run.prints("hunter2"), "the password was shown");
        let shown = cluster.scr(mpi, &["config"]);
        assert!(shown.status.success() && !String::from_utf8_lossy(&shown.stdout).contains("hunter2"));
    }

    /// Each call failed with the words of the system, and the end was a success.
    fn an_application_that_closes_the_files_of_scr_is_told_and_the_end_is_no_success(mpi: Mpi) {
        let mut cluster = Cluster::new(2);
        let run = cluster.job(mpi, 2, Program::ClosesAll).args(["/scr.tests"]).run();
        assert!(run.succeeded() && run.prints("START ckpt.1 0") && !run.prints("CLOSED 0"));
        assert!(!run.prints("START ckpt.2 0"), "what is written then goes nowhere");
        assert!(run.prints("a file that scr keeps open was closed by somebody else"));
        assert!(run.prints("SCR_Finalize: the application has closed files that scr keeps open"));
        assert!(run.prints("FINALIZE 1") && !run.prints("FINALIZE 0"));
        expect_first_is_whole(&mut cluster, mpi);
    }

    /// scr made folders in those of the application, wrote into its files, and closed them.
    fn files_that_an_application_opens_under_the_numbers_of_scr_are_left_alone(mpi: Mpi) {
        expect_left_alone(mpi, &[("SCR_LOG_ENABLE", "1")], None);
    }

    fn threads_that_protect_leave_files_of_the_application_alone_that_have_the_numbers_of_theirs(mpi: Mpi) {
        expect_threads_leave_alone(mpi, &[("SCR_ENCODE_ASYNC", "1")], "socket:");
    }

    fn threads_that_flush_leave_files_of_the_application_alone_that_have_the_numbers_of_theirs(mpi: Mpi) {
        let behind = [("SCR_FLUSH", "1"), ("SCR_FLUSH_ASYNC", "1"), ("SCR_FLUSH_TYPE", "PTHREAD")];
        let slow = [("SCR_FLUSH_ASYNC_BW", "500KB")];
        expect_threads_leave_alone(mpi, &[&behind[..], &slow[..]].concat(), "/prefix/ckpt.1/");
    }

    fn a_job_that_writes_in_place_leaves_files_of_the_application_alone_that_have_the_numbers_of_its_own(mpi: Mpi) {
        expect_left_alone(mpi, &[("SCR_CACHE_BYPASS", "1")], None);
    }

    fn a_forgotten_finalize_is_reported_and_the_job_ends_normally(mpi: Mpi) {
        let mut cluster = Cluster::new(2);
        let run = cluster.job(mpi, 2, Program::CkptTest).options(&[("no-finalize", 1)]).run().expect_success();
        let said = run.lines().filter(|line| line.contains("MPI_Finalize was called without SCR_Finalize"));
        assert_eq!(said.count(), 1, "each rank said the same");
    }

    fn any_thread_routes_files_whatever_it_may_do_with_mpi(mpi: Mpi) {
        let mut cluster = Cluster::new(2);
        let mut run = || {
            let job = cluster.job(mpi, 2, Program::CkptTest).options(&[("thread", 1), ("datasets", 2)]);
            job.run().expect_success()
        };
        assert_eq!(run().last_complete(), Some("ckpt.2"));
        assert_eq!(run().restarted_from(), Some("ckpt.2"));
    }

    fn an_exit_handler_may_call_the_library_whatever_it_was_before(mpi: Mpi) {
        let mut cluster = Cluster::new(2);
        for (is_enabled, says) in [("0", "SCR is disabled by SCR_ENABLE=0"), ("1", "SCR_Finalize: SCR is shut down")] {
            let job = cluster.job(mpi, 2, Program::CkptTest).options(&[("at-exit", 1), ("datasets", 1)]);
            let run = job.env("SCR_ENABLE", is_enabled).run();
            assert!(run.succeeded() && run.prints(says), "SCR_ENABLE={is_enabled}");
        }
    }

    /// They hung without a word, or with one that named nobody.
    fn a_rank_that_has_not_come_is_named_and_may_come_later(mpi: Mpi) {
        for (late, call, named) in [
            (2, "init", "rank 0: SCR_Init has waited"),
            (0, "init", "rank 3: SCR_Init has waited"),
            (3, "start", "SCR_Start_output has waited"),
        ] {
            let mut cluster = Cluster::new(2);
            let come = cluster.scratch().join("come");
            let job = cluster.job(mpi, 4, Program::Late).args([&late.to_string(), call, &come.display().to_string()]);
            let mut job = job.env("SCR_LATE_SECS", 1).start();
            job.wait_for(&format!("s for 1 of 4 ranks to call it: rank {late}"));
            std::fs::write(&come, "").unwrap();
            let done = job.finish().expect_success();
            assert!(done.prints(named), "{late} {call}");
            let left = std::fs::read_dir(cluster.prefix().join(".scr")).unwrap().flatten();
            assert!(!left.into_iter().any(|left| left.file_name().to_string_lossy().starts_with("arrived")));
        }
    }

    fn an_installed_tree_works_after_it_was_moved(mpi: Mpi) {
        let mut cluster = Cluster::new(2);
        let moved = cluster.scratch().join("moved tree");
        let copied = Command::new("cp").arg("-r").arg(stage(mpi)).arg(&moved).status().unwrap();
        assert!(copied.success());
        let job = |cluster: &mut Cluster| {
            // Comes before the folder that the program was linked with.
            cluster.job(mpi, 2, Program::CkptTest).env("LD_LIBRARY_PATH", moved.join("lib").display()).run()
        };
        job(&mut cluster).expect_success();
        std::fs::remove_dir_all(moved.join("lib/scr/plugins")).unwrap();
        let without = job(&mut cluster);
        assert!(without.prints("moved tree/lib/scr/plugins"), "the plugins were those of another tree");
    }
}

#[test]
fn the_header_declares_the_functions_that_are_tested() {
    let header = std::fs::read_to_string(repository().join("ffi/include/scr.h")).unwrap();
    let words = header.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    // A function's name has a small letter after its first; macros have none.
    let is_function = |word: &&str| {
        word.strip_prefix("SCR_").is_some_and(|rest| rest.chars().any(|c| c.is_ascii_lowercase()))
    };
    let declared: BTreeSet<_> = words.filter(is_function).collect();
    assert_eq!(declared, BTreeSet::from(FUNCTIONS));
}

fn output(command: &mut Command) -> String {
    let output = command.output().expect("the command can be started");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
