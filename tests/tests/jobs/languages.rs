//! The example heat2d in every language, built by the lines that the pages give from an installed tree that was moved, and
//! nothing else: checkpointed, a node lost, restarted, and the right answer to the last byte.

use scr_tests::{
    compile, on_any_mpi, on_each_mpi, repository, stage, with_compiler, Cluster, Mpi, Outcome, Program,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const SIZE: u32 = 64;
const STEPS: u32 = 60;
const EVERY: u32 = 10;

on_each_mpi! {
    fn heat2d_in_c_survives_a_lost_node(mpi: Mpi) {
        let tree = Tree::new(mpi);
        tree.make("heat2d");
        tree.expect_right_answer(&tree.examples().join("heat2d"), &options(true), &options(false));
    }

    #[ignore = "long"]
    fn heat2d_in_c_restarts_with_any_number_of_ranks(mpi: Mpi) {
        let tree = Tree::new(mpi);
        tree.make("heat2d");
        let program = tree.examples().join("heat2d");
        let each = |left| [1, 2, 3, 6, 8].map(|ranks| (ranks, left));
        let restarts = [Left::Cache, Left::OneNode, Left::Prefix].map(each).concat();
        tree.expect_right_answer_of(&restarts, &program, &options(true), &options(false));
    }

    fn heat2d_in_fortran_90_restarts_with_any_number_of_ranks(mpi: Mpi) {
        with_compiler("gfortran", "heat2d in Fortran 90", || {
            let tree = Tree::new(mpi);
            tree.make("heat2d_f90");
            let program = tree.examples().join("heat2d_f90");
            let restarts = [(1, Left::Prefix), (2, Left::Cache), (3, Left::OneNode), (6, Left::Cache), (8, Left::OneNode)];
            tree.expect_right_answer_of(&restarts, &program, &numbers(true), &numbers(false));
        });
    }

    #[ignore = "long"]
    fn heat2d_survives_a_lost_node_where_it_holds_the_library(mpi: Mpi) {
        let tree = Tree::new(mpi);
        for (compiler, language, source, package, arguments) in [
            ("gcc", "cc", "heat2d.c", "scr", [options(true), options(false)]),
            ("g++", "cxx", "heat2d.cpp", "scr", [numbers(true), numbers(false)]),
            ("gfortran", "f90", "heat2d.f", "scrf", [numbers(true), numbers(false)]),
        ] {
            with_compiler(compiler, source, || {
                let program = tree.scratch.path().join(language);
                let mut asked = Command::new("pkg-config");
                asked.args(["--static", "--cflags", "--libs", package]);
                let flags = asked.env("PKG_CONFIG_PATH", tree.path.join("lib/pkgconfig")).output().unwrap();
                let mut command = Command::new(mpi.compiler_of(language));
                command.arg("-DUSE_SCR").arg(tree.examples().join(source)).arg("-o").arg(&program);
                let flags = String::from_utf8(flags.stdout).unwrap();
                compile(command.arg("-Wl,-Bstatic").args(flags.split_whitespace()));
                assert!(!linked(&program).contains("libscr"), "{}", linked(&program));
                tree.expect_right_answer(&program, &arguments[0], &arguments[1]);
            });
        }
        // Moved again, it is where the archive was installed.
        std::fs::remove_dir_all(&tree.path).unwrap();
        tree.expect_right_answer(&tree.scratch.path().join("cc"), &options(true), &options(false));
    }

    fn heat2d_in_fortran_77_style_survives_a_lost_node(mpi: Mpi) {
        with_compiler("gfortran", "heat2d in Fortran 77 style", || built_survives(mpi, "heat2d_f77"));
    }

    fn heat2d_in_fortran_90_survives_a_lost_node(mpi: Mpi) {
        with_compiler("gfortran", "heat2d in Fortran 90", || built_survives(mpi, "heat2d_f90"));
    }
}

on_any_mpi! {
    fn heat2d_in_python_restarts_with_any_number_of_ranks(mpi: Mpi) {
        let Some(python) = scr_tests::python(mpi, "heat2d in Python") else { return };
        let tree = Tree::new(mpi);
        let script = tree.examples().join("heat2d.py").display().to_string();
        let arguments = |kill: bool| [vec![script.clone()], numbers(kill)].concat();
        let restarts = [(1, Left::OneNode), (2, Left::Prefix), (3, Left::Cache), (6, Left::OneNode), (8, Left::Prefix)];
        tree.expect_right_answer_of(&restarts, &python, &arguments(true), &arguments(false));
    }

    fn heat2d_in_cpp_survives_a_lost_node(mpi: Mpi) {
        with_compiler("g++", "heat2d in C++", || built_survives(mpi, "heat2d_cpp"));
    }

    fn heat2d_in_python_survives_a_lost_node(mpi: Mpi) {
        let Some(python) = scr_tests::python(mpi, "heat2d in Python") else { return };
        let tree = Tree::new(mpi);
        let script = tree.examples().join("heat2d.py").display().to_string();
        let arguments = |kill: bool| [vec![script.clone()], numbers(kill)].concat();
        tree.expect_right_answer(&python, &arguments(true), &arguments(false));
    }

    fn any_number_of_ranks_reads_all_files_that_python_lists(mpi: Mpi) {
        let Some(python) = scr_tests::python(mpi, "other ranks in Python") else { return };
        let tree = Tree::new(mpi);
        let mut cluster = Cluster::new(2);
        let script = cluster.scratch().join("any_ranks.py");
        std::fs::write(&script, ANY_RANKS_PY).unwrap();
        let run = |cluster: &mut Cluster, ranks| {
            let job = cluster.job(mpi, ranks, Program::Heat2d).executable(&python).args([script.display()]);
            job.env("PYTHONPATH", tree.path.join("share/scr/python").display()).run()
        };
        assert!(run(&mut cluster, 4).succeeded());
        let read = run(&mut cluster, 3);
        assert!(read.succeeded());
        assert_eq!(read.lines().filter(|line| *line == "READ 0123 of 4").count(), 3);
    }

    fn python_gets_the_librarys_message_and_may_leave_without_finalize(mpi: Mpi) {
        let Some(python) = scr_tests::python(mpi, "errors in Python") else { return };
        let tree = Tree::new(mpi);
        let mut cluster = Cluster::new(1);
        let script = cluster.scratch().join("leave.py");
        std::fs::write(&script, LEAVE_PY).unwrap();
        // Two ranks on one node, whose interpreter unloads what it likes before MPI ends.
        let job = cluster.job(mpi, 2, Program::Heat2d).executable(&python).args([script.display()]);
        let run = job.env("PYTHONPATH", tree.path.join("share/scr/python").display()).run();
        assert!(run.succeeded());
        assert_eq!(run.lines().filter(|line| line.starts_with("REFUSED 3 SCR_Start_output: ")).count(), 2);
        assert!(run.prints("MPI_Finalize was called without SCR_Finalize"));
    }

    fn pip_installs_the_python_module_which_finds_its_tree(mpi: Mpi) {
        let Some(python) = scr_tests::python(mpi, "pip install") else { return };
        let tree = Tree::new(mpi);
        let (module, copied) = (tree.path.join("share/scr/python"), tree.scratch.path().join("copied"));
        let installs_from = |source: &Path, site: &str, tree: &str| {
            let site = source.with_file_name(site);
            let pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--target"];
            compile(Command::new(&python).args(pip).arg(&site).arg(source).env("SCR_DIR", tree));
            let mut asked = Command::new(&python);
            asked.args(["-c", "from mpi4py import MPI; import scr; print(scr.__file__, scr.version() == 'v' + scr.__version__)"]);
            let output = asked.env("PYTHONPATH", &site).env_remove("SCR_DIR").output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(said.starts_with(&site.display().to_string()) && said.trim_end().ends_with(" True"), "{output:?}");
            assert!(site.join("scr/py.typed").is_file(), "checkers of types look for it");
        };
        let files = || {
            let mut names: Vec<_> = std::fs::read_dir(&module).unwrap().map(|file| file.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let before = files();
        installs_from(&module, "site", "");
        assert_eq!(files(), before, "the tree may belong to an administrator");
        // Older versions of pip copy the module away and build it there.
        assert!(Command::new("cp").arg("-r").arg(&module).arg(&copied).status().unwrap().success());
        installs_from(&copied, "other-site", &tree.path.display().to_string());
    }

    fn an_exception_in_cpp_ends_neither_the_job_nor_a_good_checkpoint(mpi: Mpi) {
        with_compiler("g++", "exceptions in C++", || {
            let tree = Tree::new(mpi);
            let program = tree.compile("cxx", "phases.cpp", &["-std=c++17", "-Wall", "-Wextra", "-Werror", "-DOMPI_SKIP_MPICXX"]);
            let read = tree.expect_unharmed_by_errors(&program);
            assert!(read.lines().filter(|line| *line == "MISTAKES REFUSED").count() == 2);
        });
    }

    #[ignore = "long"]
    fn an_error_or_panic_in_rust_ends_neither_the_job_nor_a_good_checkpoint(mpi: Mpi) {
        let tree = Tree::new(mpi);
        let source = repository().join("tests/programs/phases.rs");
        std::fs::copy(source, tree.path.join("share/scr/rust/examples/phases.rs")).unwrap();
        tree.expect_unharmed_by_errors(&tree.cargo("phases"));
    }

    fn wrong_calls_in_fortran_are_refused_and_leave_nothing_open(mpi: Mpi) {
        with_compiler("gfortran", "wrong calls in Fortran", || {
            let tree = Tree::new(mpi);
            let module = tree.path.join("include/scr.f90").display().to_string();
            let program = tree.compile("f90", "misuse.f90", &[&module]);
            let mut cluster = Cluster::new(1);
            let job = cluster.job(mpi, 1, Program::Heat2d).executable(&program).env("SCR_COPY_TYPE", "SINGLE");
            let run = job.run();
            assert!(run.succeeded());
            let source = std::fs::read_to_string(repository().join("tests/programs/misuse.f90")).unwrap();
            let expected = source.lines().filter_map(|line| line.split_once("print '(a)', '")?.1.strip_suffix('\''));
            expected.for_each(|line| assert!(run.prints_line(line), "{line}"));
            let words = ["ERROR: rank 0 on n", ": SCR_Have_restart: the answer has 6 characters and the variable for it 3;", " [SCR-722]"];
            assert!(run.lines().any(|line| words.iter().all(|word| line.contains(word))), "no {words:?}");
        });
    }

    fn a_rank_that_python_gives_no_path_lets_the_others_go_on(mpi: Mpi) {
        let Some(python) = scr_tests::python(mpi, "a restart in Python") else { return };
        let tree = Tree::new(mpi);
        let mut cluster = Cluster::new(2);
        let script = cluster.scratch().join("no_path.py");
        std::fs::write(&script, NO_PATH_PY).unwrap();
        let job = cluster.job(mpi, 2, Program::Heat2d).executable(&python).args([script.display()]);
        let run = job.env("PYTHONPATH", tree.path.join("share/scr/python").display()).run();
        assert!(run.succeeded());
        assert_eq!(run.lines().filter(|line| *line == "REFUSED two").count(), 2);
        assert_eq!(run.lines().filter(|line| *line == "READ one").count(), 2);
        assert!(run.lines().any(|line| line.starts_with("CONFIG 4 SCR_Config: there is no parameter SCR_FLUSHH")), "a wrong setting is refused");
    }

    fn halves_of_a_job_in_python_have_one_session_after_the_other(mpi: Mpi) {
        let Some(python) = scr_tests::python(mpi, "communicators in Python") else { return };
        let tree = Tree::new(mpi);
        let mut cluster = Cluster::new(2);
        let script = cluster.scratch().join("halves.py");
        std::fs::write(&script, HALVES_PY).unwrap();
        let job = cluster.job(mpi, 4, Program::Heat2d).executable(&python).args([script.display()]);
        let job = job.without(&["SCR_PREFIX"]).env("PYTHONPATH", tree.path.join("share/scr/python").display());
        let run = job.run();
        assert!(run.succeeded());
        for line in ["READ half.0 None", "READ half.0 step.0", "READ half.1 None", "READ half.1 step.0"] {
            assert_eq!(run.lines().filter(|found| *found == line).count(), 2, "{line}");
        }
        assert_eq!(run.lines().filter(|line| line.starts_with("REFUSED 3 SCR_Init_comm: ")).count(), 4);
    }

    #[ignore = "long"]
    fn the_exercisers_write_and_restart_with_every_option(mpi: Mpi) {
        with_compiler("gfortran", "the exercisers", || {
            let tree = Tree::new(mpi);
            for program in ["test_api", "test_api_multiple", "test_ckpt", "test_ckpt_F", "test_ckpt_F90"] {
                tree.make(program);
                tree.expect_restart(program, &[]);
            }
            tree.make("test_api");
            for options in EXERCISES {
                tree.expect_restart("test_api", options);
            }
        });
    }

    fn heat2d_in_rust_survives_a_lost_node(mpi: Mpi) {
        let tree = Tree::new(mpi);
        tree.expect_right_answer(&tree.cargo("heat2d"), &numbers(true), &numbers(false));
    }

    fn a_copy_of_the_examples_finds_its_installation(mpi: Mpi) {
        let (tree, stage) = (Tree::new(mpi), stage(mpi));
        let pkg_config = tree.path.join("lib/pkgconfig");
        for (variable, value, found) in [
            ("SCR_DIR", tree.path.as_path(), &tree.path),
            ("SCR_ROOT", tree.path.as_path(), &tree.path),
            ("PKG_CONFIG_PATH", pkg_config.as_path(), &tree.path),
            ("PKG_CONFIG_PATH", Path::new("/nowhere"), &stage),
        ] {
            let copy = tree.scratch.path().join("copy");
            let copied = Command::new("cp").arg("-r").arg(tree.examples()).arg(&copy).status();
            assert!(copied.is_ok_and(|status| status.success()), "the examples can be copied");
            let make = || {
                let mut make = Command::new("make");
                make.env_remove("SCR_DIR").env_remove("SCR_ROOT");
                make.arg(format!("MPICC={}", mpi.compiler())).env(variable, value).current_dir(&copy);
                make
            };
            compile(make().arg("heat2d"));
            let linked = linked(&copy.join("heat2d"));
            assert!(linked.contains(&format!("{}/", found.display())), "{variable}={}: {linked}", value.display());
            let elsewhere = make().arg("clean").output().unwrap();
            assert!(elsewhere.status.success(), "{elsewhere:?}");
            let missing = make().args(["SCR_DIR=/nowhere", "heat2d"]).output().unwrap();
            let message = String::from_utf8_lossy(&missing.stderr).into_owned();
            assert!(!missing.status.success() && message.contains("no include/scr.h in /nowhere: set SCR_DIR"), "{message}");
            std::fs::remove_dir_all(&copy).unwrap();
        }
    }

    #[ignore = "long"]
    fn a_tree_whose_libraries_lie_in_lib64_is_found_by_all_its_parts(mpi: Mpi) {
        let scratch = tempfile::Builder::new().prefix("scr-tests.").tempdir().expect("a temporary folder");
        let (made, path) = (scratch.path().join("made"), scratch.path().join("moved"));
        let install = |variable: &str, value: &str| {
            let mut script = Command::new(repository().join("scripts/install.sh"));
            script.arg(mpi.name()).arg(&made).arg("target/debug").env(variable, value);
            script.current_dir(repository()).output().unwrap()
        };
        for (variable, value) in [("LIBDIR", "lib32"), ("DATADIR", "/data"), ("SYSCONFDIR", "/etc"), ("LIBEXECDIR", "/x")] {
            let refused = install(variable, value);
            let message = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(!refused.status.success() && message.contains(variable) && message.contains(value), "{message}");
        }
        // What an older version had besides goes, and what the site has written stays.
        assert!(install("LIBDIR", "lib").status.success());
        std::fs::write(made.join("etc/scr.conf"), "SCR_DEBUG=0\n").unwrap();
        let installed = install("LIBDIR", "lib64");
        assert!(installed.status.success(), "{installed:?}");
        std::fs::rename(&made, &path).unwrap();
        assert!(!path.join("lib").exists());
        let tree = Tree { mpi, path, scratch };
        tree.make("heat2d");
        tree.expect_right_answer(&tree.examples().join("heat2d"), &options(true), &options(false));
        let doctor = Command::new(tree.path.join("bin/scr")).arg("doctor").output().unwrap();
        let checks = String::from_utf8_lossy(&doctor.stdout).into_owned();
        assert!(checks.contains("lib64/libscr.so") && checks.contains("PARTNER"), "{checks}");
        let mut linked = Command::new("pkg-config");
        linked.env("PKG_CONFIG_PATH", tree.path.join("lib64/pkgconfig")).args(["--libs", "scrf"]);
        let linked = linked.output().unwrap();
        assert!(String::from_utf8_lossy(&linked.stdout).contains("lib64 -lscrf -lscr"), "{linked:?}");
        std::fs::remove_dir_all(tree.examples()).unwrap(); // programs were built there
        let mut uninstall = Command::new(repository().join("scripts/install.sh"));
        let removed = uninstall.arg("--uninstall").arg(&tree.path).output().unwrap();
        let message = String::from_utf8_lossy(&removed.stderr).into_owned();
        assert!(removed.status.success() && message.contains("etc/scr.conf was changed, and stays"), "{message}");
        let left: Vec<_> = std::fs::read_dir(&tree.path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["etc"]);
        assert_eq!(std::fs::read_to_string(tree.path.join("etc/scr.conf")).unwrap(), "SCR_DEBUG=0\n");
    }

    #[ignore = "long"]
    fn cmake_finds_an_installed_tree(mpi: Mpi) {
        with_compiler("cmake", "find_package(scr)", || {
            let tree = Tree::new(mpi);
            let folder = tree.scratch.path().join("cmake");
            std::fs::create_dir(&folder).unwrap();
            let configure = |project: &str| {
                _ = std::fs::remove_dir_all(folder.join("build"));
                std::fs::write(folder.join("CMakeLists.txt"), project).unwrap();
                let mut cmake = Command::new("cmake");
                cmake.args(["-S", ".", "-B", "build"]).current_dir(&folder);
                cmake.arg(format!("-DCMAKE_PREFIX_PATH={}", tree.path.display()));
                cmake.arg(format!("-DEXAMPLES={}", tree.examples().display()));
                cmake
            };
            for (languages, body, programs) in CMAKE_PROJECTS {
                let head = "cmake_minimum_required(VERSION 3.13)\nadd_compile_definitions(USE_SCR)\n";
                compile(&mut configure(&format!("{head}project(app {languages})\n{body}")));
                compile(Command::new("cmake").args(["--build", "build"]).current_dir(&folder));
                for program in *programs {
                    let linked = linked(&folder.join("build").join(program));
                    let (own, other) = if mpi == Mpi::OpenMpi { ("libmpi.so", "libmpich") } else { ("libmpich", "libmpi.so") };
                    assert!(linked.contains(own) && !linked.contains(other), "{program}: {linked}");
                    assert_ne!(linked.contains("libscr"), program.contains("static"), "{program}: {linked}");
                    if program.contains("static_alone") {
                        tree.expect_right_answer(&folder.join("build").join(program), &numbers(true), &numbers(false));
                    }
                }
            }
            std::fs::remove_file(tree.path.join("lib/libscr.a")).unwrap();
            let shared = "if(TARGET scr::scr-static OR TARGET scr::scrf-static)\nmessage(FATAL_ERROR static)\nendif()\n";
            compile(&mut configure(&format!("project(app C)\nfind_package(scr REQUIRED)\n{shared}")));
            std::fs::remove_file(tree.path.join("lib/libscrf.so")).unwrap();
            let missing = configure("project(app C)\nfind_package(scr REQUIRED)\n").output().unwrap();
            let message = String::from_utf8_lossy(&missing.stderr).into_owned();
            assert!(!missing.status.success() && message.contains("lib/libscrf.so is missing"), "{message}");
        });
    }
}

/// Each is run twice, and the second run restarts from what the first one wrote.
const EXERCISES: &[&[&str]] = &[
    &["10K", "3", "0"],
    &["--size", "1M", "--times", "2"],
    &["--path", "sub/folder"],
    &["--flush", "2", "--output", "3", "--seconds", "0"],
    &["--config-api", "SCR_COPY_TYPE=PARTNER", "--config-api", "SCR_FLUSH=1"],
    &["--global-store"],
    &["--shared-file", "--config-api", "SCR_CACHE_BYPASS=1"],
];

/// A call that fails, and an end without `scr.finalize`.
const LEAVE_PY: &str =
    "from mpi4py import MPI\nimport scr\nscr.init()\ntry:\n    scr.start_output('x' * 2000, 1)\n\
    except scr.Error as error:\n    print(f'REFUSED {error.code} {error}\\n', end='', flush=True)\n";

/// Reads what any number of ranks wrote, or writes.
const ANY_RANKS_PY: &str = r#"
from mpi4py import MPI
import scr
rank = MPI.COMM_WORLD.rank
scr.init({"SCR_RESTART_OTHER_RANKS": 1})
if scr.have_restart():
    with scr.restart() as checkpoint:
        text = "".join(checkpoint.route(name).read_text() for name in checkpoint.files)
        print(f"READ {text} of {checkpoint.ranks}\n", end="", flush=True)
        assert checkpoint.files_of(2) == ["one/rank_2"]
else:
    with scr.output("one") as dataset:
        dataset.route(f"one/rank_{rank}").write_text(str(rank))
scr.finalize()
"#;

/// Two checkpoints, of which rank 1 asks for a file that is not there in the newer one.
const NO_PATH_PY: &str = r#"
from mpi4py import MPI
import scr

rank = MPI.COMM_WORLD.rank
try:
    scr.init({"SCR_FLUSHH": 1})
except scr.Error as error:
    print(f"CONFIG {error.code} {error}\n", end="", flush=True)
scr.init({"SCR_CACHE_SIZE": 2})
for name in "one", "two":
    with scr.output(name) as dataset:
        dataset.route(f"{name}/rank_{rank}").write_text(name)
while scr.have_restart():
    with scr.restart() as checkpoint:
        missing = checkpoint.name == "two" and rank == 1
        text = checkpoint.route(f"{checkpoint.name}/" + ("missing" if missing else f"rank_{rank}")).read_text()
    if checkpoint.complete:
        print(f"READ {text}\n", end="", flush=True)
        break
    print(f"REFUSED {checkpoint.name}\n", end="", flush=True)
scr.finalize()
"#;

/// Each half of the ranks has two sessions, with a prefix directory of its own.
const HALVES_PY: &str = r#"
from mpi4py import MPI
import scr

half = MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank % 2, 0)
prefix = f"half.{MPI.COMM_WORLD.rank % 2}"
try:
    scr.init(comm=MPI.COMM_NULL)
except scr.Error as error:
    print(f"REFUSED {error.code} {error}\n", end="", flush=True)
for session in range(2):
    scr.init({"SCR_PREFIX": prefix}, comm=half)
    if session == 1:
        scr.recover(half)
    found = scr.have_restart()
    if found:
        with scr.restart() as checkpoint:
            text = checkpoint.route(f"{found}/rank_{half.rank}").read_text()
            if text != f"{prefix} {half.rank}":
                raise SystemExit("this is not what was written")
    print(f"READ {prefix} {found}\n", end="", flush=True)
    with scr.output(f"step.{session}") as dataset:
        dataset.route(f"step.{session}/rank_{half.rank}").write_text(f"{prefix} {half.rank}")
    scr.finalize()
"#;

/// The languages of a project, the rest of it, and what it makes.
const CMAKE_PROJECTS: &[(&str, &str, &[&str])] = &[
    (
        "C CXX Fortran",
        r#"
foreach(asked scr "scr;3" "scr;3.0" "scr;3.1.0;EXACT" "scr;2...<4" SCR "SCR;3.0" "scr;1" "scr;1.0.0;EXACT")
  unset(scr_FOUND)
  unset(SCR_FOUND)
  find_package(${asked} QUIET)
  if(NOT scr_FOUND AND NOT SCR_FOUND)
    message(FATAL_ERROR "not found: ${asked}")
  endif()
endforeach()
foreach(asked "scr;4" "scr;3.2" "scr;2" "scr;1.1" "scr;3...<3.1" "scr;4...5" "scr;3.0;EXACT")
  find_package(${asked} QUIET)
  if(scr_FOUND)
    message(FATAL_ERROR "found: ${asked} as ${scr_VERSION}")
  endif()
endforeach()
find_package(scr 3.1 REQUIRED)
add_executable(in_c ${EXAMPLES}/heat2d.c)
target_link_libraries(in_c scr::scr)
add_executable(in_c_by_scrf ${EXAMPLES}/heat2d.c)
target_link_libraries(in_c_by_scrf scr::scrf)
add_executable(in_cpp ${EXAMPLES}/heat2d.cpp)
target_compile_features(in_cpp PRIVATE cxx_std_17)
target_link_libraries(in_cpp scr::scr)
add_executable(in_fortran ${EXAMPLES}/heat2d.f)
target_link_libraries(in_fortran scr::scrf)
add_executable(in_c_static ${EXAMPLES}/heat2d.c)
target_link_libraries(in_c_static scr::scr-static)
add_executable(in_cpp_static ${EXAMPLES}/heat2d.cpp)
target_compile_features(in_cpp_static PRIVATE cxx_std_17)
target_link_libraries(in_cpp_static scr::scrf-static)
"#,
        &["in_c", "in_c_by_scrf", "in_cpp", "in_fortran", "in_c_static", "in_cpp_static"],
    ),
    (
        "Fortran",
        "find_package(scr REQUIRED)\nadd_executable(alone ${EXAMPLES}/heat2d.f)\n\
         target_link_libraries(alone scr::scrf)\nadd_executable(static_alone ${EXAMPLES}/heat2d.f)\n\
         target_link_libraries(static_alone scr::scrf-static)\n",
        &["alone", "static_alone"],
    ),
    (
        "C",
        "find_package(SCR REQUIRED)\nadd_executable(by_variables ${EXAMPLES}/heat2d.c)\n\
         target_include_directories(by_variables PRIVATE ${SCR_INCLUDE_DIRS})\n\
         target_link_libraries(by_variables ${SCR_LIBRARIES})\n",
        &["by_variables"],
    ),
];

fn built_survives(mpi: Mpi, program: &str) {
    let tree = Tree::new(mpi);
    tree.make(program);
    tree.expect_right_answer(&tree.examples().join(program), &numbers(true), &numbers(false));
}

/// The libraries that a program is linked with.
fn linked(program: &Path) -> String {
    String::from_utf8_lossy(&Command::new("ldd").arg(program).output().unwrap().stdout).into_owned()
}

/// `SIZE STEPS EVERY RESULT [KILL_RANK KILL_STEP]`
fn numbers(kill: bool) -> Vec<String> {
    let mut arguments = vec![SIZE.to_string(), STEPS.to_string(), EVERY.to_string(), "heat.out".to_owned()];
    arguments.extend(kill.then_some(["1", "35"]).into_iter().flatten().map(str::to_owned));
    arguments
}

/// The options of heat2d in C.
fn options(kill: bool) -> Vec<String> {
    let mut options = vec![("size", SIZE), ("steps", STEPS), ("every", EVERY)];
    options.extend(if kill { &[("kill-rank", 1), ("kill-step", 35)][..] } else { &[][..] });
    let options = options.iter().flat_map(|(name, value)| [format!("--{name}"), value.to_string()]);
    options.chain(["--result".to_owned(), "heat.out".to_owned()]).collect()
}

/// The remains of the checkpoint of a job that died on two nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// Both caches. A job of one rank runs on the first node, and for it the other one counts as lost.
    Cache,
    /// One cache.
    OneNode,
    /// The copy in the prefix directory.
    Prefix,
}

/// A copy of the installed tree at another place.
struct Tree {
    mpi: Mpi,
    path: PathBuf,
    scratch: tempfile::TempDir,
}

impl Tree {
    fn new(mpi: Mpi) -> Self {
        let scratch = tempfile::Builder::new().prefix("scr-tests.").tempdir().expect("a temporary folder");
        let path = scratch.path().join("moved-tree");
        let copied = Command::new("cp").arg("-r").arg(stage(mpi)).arg(&path).status();
        assert!(copied.is_ok_and(|status| status.success()), "the tree cannot be copied");
        Self { mpi, path, scratch }
    }

    fn examples(&self) -> PathBuf {
        self.path.join("share/scr/examples")
    }

    /// Builds an example as its README says.
    fn make(&self, program: &str) {
        let tools = [("MPICC", "cc"), ("MPICXX", "cxx"), ("MPIFC", "f90")];
        let tools = tools.map(|(name, language)| format!("{name}={}", self.mpi.compiler_of(language)));
        compile(Command::new("make").args(tools).arg(program).current_dir(self.examples()));
    }

    /// Builds a program of the tests in C++ or Fortran.
    fn compile(&self, language: &str, source: &str, arguments: &[&str]) -> PathBuf {
        let (program, lib) = (self.scratch.path().join("program"), self.path.join("lib"));
        let mut command = Command::new(self.mpi.compiler_of(language));
        command.arg("-o").arg(&program).arg("-I").arg(self.path.join("include")).arg("-L").arg(&lib);
        command
            .args(arguments)
            .arg(repository().join("tests/programs").join(source))
            .current_dir(self.scratch.path());
        command.arg(format!("-Wl,-rpath,{0},-rpath-link,{0}", lib.display()));
        compile(command.args(if language == "cxx" { ["-lscr"] } else { ["-lscrf"] }));
        program
    }

    /// Builds an example of the crate: a package of its own, as an application would have it. Only what was downloaded and
    /// compiled is shared.
    fn cargo(&self, example: &str) -> PathBuf {
        let target = scr_tests::target(self.mpi).join("rust");
        compile(
            Command::new(env!("CARGO"))
                .args(["build", "--quiet", "--example", example, "--manifest-path"])
                .arg(self.path.join("share/scr/rust/Cargo.toml"))
                .arg("--target-dir")
                .arg(&target)
                .env("SCR_DIR", &self.path)
                .env("MPICC", self.mpi.compiler()),
        );
        target.join("debug/examples").join(example)
    }

    /// Runs `phases` of the tests: it fails once with two checkpoints, once while it reads one, and then reads it.
    fn expect_unharmed_by_errors(&self, program: &Path) -> Outcome {
        let mut cluster = Cluster::new(2);
        let run = |cluster: &mut Cluster, mode: &str| {
            let job = cluster.job(self.mpi, 2, Program::Heat2d).executable(program).args([mode]);
            job.env("SCR_CACHE_SIZE", 2).without(&["SCR_FLUSH"]).run()
        };
        let is_finished = |cluster: &Cluster| {
            let halt = std::fs::read(cluster.prefix().join(".scr/halt.scr")).unwrap_or_default();
            String::from_utf8_lossy(&halt).contains("SCR_FINALIZE_CALLED")
        };
        let failed = run(&mut cluster, "fail");
        assert!(!failed.succeeded() && !failed.timed_out());
        for line in ["WROTE one", "CUT cut", "WROTE two"] {
            assert_eq!(failed.lines().filter(|found| *found == line).count(), 2, "{line}");
        }
        assert!(failed
            .lines()
            .any(|line| line.starts_with("CONFIG 4 SCR_Config: there is no parameter SCR_FLUSHH")));
        assert!(failed.prints_line("SCR_FLUSH=7"));
        assert!(!is_finished(&cluster), "the program has failed");
        let failed = run(&mut cluster, "throw");
        assert!(!failed.succeeded() && !failed.timed_out() && !failed.prints("READ"));
        assert!(!is_finished(&cluster), "the program has failed again");
        let read = run(&mut cluster, "read");
        assert!(read.succeeded());
        assert_eq!(
            read.lines().filter(|line| *line == "READ two").count(),
            2,
            "the checkpoint is as good as before"
        );
        assert_eq!(read.lines().filter(|line| *line == "AGAIN two").count(), 2, "a session takes its place");
        assert!(is_finished(&cluster));
        read
    }

    /// Runs an exerciser twice on two nodes.
    fn expect_restart(&self, program: &str, options: &[&str]) {
        let mut cluster = Cluster::new(2);
        for run in ["first", "second"] {
            let job = cluster.job(self.mpi, 2, Program::Heat2d).executable(&self.examples().join(program));
            // The options of the program count, and not what the harness sets for other jobs.
            let outcome =
                job.args(options).without(&["SCR_CACHE_BYPASS", "SCR_FLUSH", "SCR_COPY_TYPE"]).run();
            assert!(
                outcome.succeeded() && outcome.prints("All was right."),
                "{program} {options:?}: {run} run"
            );
            assert_eq!(outcome.prints("Restarted from "), run == "second", "{program} {options:?}");
        }
    }

    /// A run of four ranks is killed. For each restart, one of so many ranks finds what is left, and has the answer of a run
    /// without failures.
    fn expect_right_answer_of(
        &self,
        restarts: &[(u32, Left)],
        executable: &Path,
        killed: &[String],
        restarted: &[String],
    ) {
        for flush in [false, true] {
            let mut cluster = Cluster::new(2);
            let wanted = answer(&mut cluster, self.mpi);
            let job = |cluster: &mut Cluster, ranks: u32, arguments: &[String]| {
                let hosts: Vec<u32> = (0..ranks.min(2)).collect();
                let job =
                    cluster.job(self.mpi, ranks, Program::Heat2d).executable(executable).args(arguments);
                let job = job.on(&hosts).env("SCR_FLUSH", i64::from(flush));
                job.env("PYTHONPATH", self.path.join("share/scr/python").display()).run()
            };
            let died = job(&mut cluster, 4, killed);
            assert!(!died.succeeded() && !died.timed_out(), "the job was to die");
            assert!(died.prints("checkpoint heat.000030 is complete"));
            cluster.save();
            for &(ranks, left) in restarts.iter().filter(|(_, left)| flush == (*left == Left::Prefix)) {
                let case = format!("{ranks} ranks, {left:?}");
                cluster.restore();
                match left {
                    Left::Cache => (),
                    Left::OneNode => cluster.lose_node(1),
                    Left::Prefix => (0..2).for_each(|node| cluster.lose_node(node)),
                }
                let done = job(&mut cluster, ranks, restarted);
                assert!(done.succeeded(), "{case}");
                assert!(done.prints("restarted from heat.000030"), "{case}");
                assert_eq!(done.prints("it is read in the caches of the nodes"), !flush, "{case}");
                assert!(!done.prints("is made whole in the prefix directory"), "{case}");
                let found =
                    std::fs::read(cluster.prefix().join("heat.out")).expect("the job wrote its answer");
                assert!(found == wanted, "{case}: the answer differs from that of a run without failures");
            }
        }
    }

    /// One run is killed, its node is lost, and the next one restarts and has the answer of a run without failures.
    fn expect_right_answer(&self, executable: &Path, killed: &[String], restarted: &[String]) {
        let mut cluster = Cluster::new(4);
        let wanted = answer(&mut cluster, self.mpi);
        let run = |cluster: &mut Cluster, arguments: &[String]| {
            let job = cluster.job(self.mpi, 4, Program::Heat2d).executable(executable).args(arguments);
            job.env("PYTHONPATH", self.path.join("share/scr/python").display()).run()
        };
        let died = run(&mut cluster, killed);
        assert!(!died.succeeded() && !died.timed_out(), "the job was to die");
        assert!(died.prints("checkpoint heat.000030 is complete"));
        cluster.lose_node(1);
        let done = run(&mut cluster, restarted);
        assert!(done.succeeded());
        assert!(done.prints("restarted from heat.000030"));
        let found = std::fs::read(cluster.prefix().join("heat.out")).expect("the job wrote its answer");
        assert!(found == wanted, "the answer differs from that of a run without failures");
    }
}

/// The answer of a run that nothing happens to, without SCR.
fn answer(cluster: &mut Cluster, mpi: Mpi) -> &'static [u8] {
    static OF_OPENMPI: OnceLock<Vec<u8>> = OnceLock::new();
    static OF_MPICH: OnceLock<Vec<u8>> = OnceLock::new();
    let known = match mpi {
        Mpi::OpenMpi => &OF_OPENMPI,
        Mpi::Mpich => &OF_MPICH,
    };
    known.get_or_init(|| {
        let options = [("size", SIZE), ("steps", STEPS), ("every", EVERY)];
        let options = options.map(|(name, value)| (name, i64::from(value)));
        let plain = cluster.job(mpi, 4, Program::Heat2d).options(&options);
        assert!(plain.args(["--no-scr", "--result", "plain.out"]).run().succeeded());
        std::fs::read(cluster.prefix().join("plain.out")).expect("the job wrote its answer")
    })
}
