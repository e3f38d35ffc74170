//! `scr run` and its like as users type them: launchers and resource managers are stand-ins on PATH.

use crate::finished_job::FinishedJob;
use crate::installation::put_command;
use rustix::process::{kill_process, Pid, Signal};
use scr_base::fs::RealFiles;
use scr_prefix::{DatasetDescriptor, FlushFile, Halt, LastRun, Location, Prefix};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A prefix directory, and programs on PATH.
struct World {
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let world = Self { dir: tempfile::tempdir().expect("a folder for the test") };
        for folder in ["prefix", "bin"] {
            std::fs::create_dir(world.path(folder)).expect("a folder");
        }
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Puts a shell script on PATH. `$HERE` is the folder of the test.
    fn program(self, name: &str, script: &str) -> Self {
        let path = self.path("bin").join(name);
        let here = self.dir.path().display();
        std::fs::write(&path, format!("#!/bin/sh\nHERE={here}\n{script}\n")).expect("a program");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it can be run");
        self
    }

    /// A launcher that notes how it was started, and runs the script.
    fn launcher(self, name: &str, script: &str) -> Self {
        self.program(name, &format!("echo {name} \"$@\" >> $HERE/starts\n{script}"))
    }

    fn command(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
        self.prepare(Command::new(env!("CARGO_BIN_EXE_scr")), arguments, variables)
    }

    /// The same, with the signal of a terminal that goes away treated like this: `default` or `ignore`.
    fn command_with_hangup(&self, treated: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("/usr/bin/env");
        // A shell that runs the tests in the background ignores these for them.
        let own = "--default-signal=INT,QUIT";
        command.args([own, &format!("--{treated}-signal=HUP"), env!("CARGO_BIN_EXE_scr")]);
        self.prepare(command, arguments, &[("SCR_RUNS", "-1")])
    }

    fn prepare(&self, mut command: Command, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
        command.args(arguments).env_clear().current_dir(self.path("prefix")).stdin(Stdio::null());
        command.env("PATH", format!("{}:/usr/bin:/bin", self.path("bin").display())).env("USER", "tester");
        command.env("SCR_CACHE_BASE", self.path("cache")).env("SCR_CNTL_BASE", self.path("cache"));
        command.envs(variables.iter().copied());
        command
    }

    fn scr(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        self.command(arguments, variables).output().expect("the command starts")
    }

    /// Starts a command, and waits until it has started a launcher.
    fn started(&self, command: &mut Command) -> Child {
        let child = command.stderr(Stdio::piped()).spawn().expect("the command starts");
        until(|| !self.starts().is_empty());
        child
    }

    /// How the launchers were started, in their order.
    fn starts(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("starts")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn prefix(&self) -> Prefix {
        let prefix = Prefix::new(self.path("prefix"));
        prefix.make_scr_dir(&RealFiles).expect("the hidden folder");
        prefix
    }
}

fn until(condition: impl Fn() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < limit, "it never came");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const FIVE_NODES: (&str, &str) = ("SCR_NODELIST", "n[0-4]");

/// A way to nodes that leads nowhere where a file `NODE.down` says so.
const SSH: &str = "while [ \"${1#-}\" != \"$1\" ]; do shift; done\n\
                   node=$1; shift\n\
                   [ ! -e $HERE/$node.down ] || { echo \"ssh: no route to $node\" >&2; exit 255; }\n\
                   exec sh -c \"$*\"";

/// Prints the host file that a launcher has got as its second argument.
const SHOW_HOSTS: &str = "[ \"$1\" != -machinefile ] || echo hosts $(cat \"$2\") >> $HERE/starts";

#[test]
fn a_job_on_this_machine_runs_once_and_its_answer_is_passed_on() {
    let world = World::new().launcher("mpirun", "echo result; exit 3");
    let run = world.scr(&["run", "mpirun", "-n", "4", "./app", "--runs"], &[]);
    assert_eq!((run.status.code(), printed(&run).as_str()), (Some(3), "result\n"));
    assert_eq!(world.starts(), ["mpirun -n 4 ./app --runs"]);
    assert!(said(&run).starts_with("scr run: run 1 ended with status 3\n"), "{}", said(&run));
    assert!(said(&run).contains("started once, which is what SCR_RUNS allows"), "{}", said(&run));
    let world = World::new().launcher("mpirun", "");
    let run = world.scr(&["run", "mpirun", "./app"], &[("SCR_RUNS", "-1")]);
    assert_eq!((run.status.code(), said(&run).as_str(), world.starts().len()), (Some(0), "", 1));
}

/// C SCR's tests look for the names of what runs before and after, and take `exit' with a digit for an error.
#[test]
fn with_debug_lines_it_says_what_it_starts_before_and_after_a_run() {
    let world = World::new().launcher("srun", "");
    let run = world.scr(&["run", "srun", "./app"], &[("SCR_DEBUG", "1")]);
    let expected = ["scr_prerun: Started", "run 1: srun -K1 ./app", "scr_postrun: Started"];
    let said = said(&run);
    let lines: Vec<_> = said.lines().filter_map(|line| line.strip_prefix("scr run: ")).collect();
    assert!(run.status.success() && lines == expected, "{said}");
}

#[test]
fn a_job_that_fails_is_started_again_until_it_succeeds_or_has_no_runs_left() {
    let world = World::new().launcher("mpirun", "[ $(wc -l < $HERE/starts) -ge 3 ]");
    let run = world.scr(&["run", "mpirun", "./app"], &[("SCR_RUNS", "3")]);
    assert_eq!((run.status.code(), world.starts().len()), (Some(0), 3));
    let run = world.scr(&["run", "sh", "-c", "echo again; exit 7"], &[("SCR_RUNS", "2")]);
    assert_eq!((run.status.code(), printed(&run).as_str()), (Some(7), "again\nagain\n"));
    assert!(said(&run).contains("started 2 times, which is what SCR_RUNS allows"), "{}", said(&run));
}

/// An upgrade of the packages while a job runs.
#[test]
fn a_job_is_started_again_after_the_program_of_scr_run_was_replaced() {
    let replaces = "cp $HERE/bin/scr $HERE/bin/new && mv $HERE/bin/new $HERE/bin/scr; exit 1";
    let world = World::new().launcher("mpirun", replaces);
    put_command(&world.path("bin/scr"));
    let command = Command::new(world.path("bin/scr"));
    let nodes = [("SCR_NODELIST", "localhost"), ("SCR_RUNS", "2")];
    let run = world.prepare(command, &["run", "mpirun", "./app"], &nodes).output().expect("it starts");
    assert_eq!(world.starts().len(), 2, "{}", said(&run));
    assert!(!said(&run).contains("is left out"), "{}", said(&run));
}

#[test]
fn a_run_knows_the_job_as_the_command_does() {
    let world = World::new();
    let script = "echo $SCR_PREFIX $SCR_JOB_ID $SCR_END_TIME $SCR_NODELIST";
    let variables =
        [("LSB_JOBID", "12"), ("LSB_MCPU_HOSTS", "a 1"), ("SCR_END_TIME", "4000000000"), ("SCR_RUNS", "1")];
    let world = world.program("blaunch", "shift; exec \"$@\"").program("bhosts", "");
    let run = world.scr(&["run", "sh", "-c", script], &variables);
    let prefix = world.path("prefix");
    assert_eq!(printed(&run), format!("{} 12 4000000000 a\n", prefix.display()), "{}", said(&run));
}

/// The prefix directory was full when the job wrote its last checkpoints. `scr postrun' said that there was nothing to save.
#[test]
fn the_last_checkpoint_of_a_finished_job_is_saved_also_if_no_flush_file_lists_it_unless_it_was_dropped() {
    for (is_dropped, is_listed) in [(false, true), (false, false), (true, false)] {
        let id = format!("u{}", std::process::id());
        let settings = [("SCR_FLUSH", "0"), ("SCR_JOB_ID", id.as_str())];
        let job = FinishedJob::with_settings(&settings);
        let scr = |arguments: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_scr"));
            command.env_clear().current_dir(job.prefix()).env("USER", "user1").envs(settings);
            command.env("SCR_CACHE_BASE", job.node(0)).env("SCR_CNTL_BASE", job.node(0));
            command.env("SCR_REPORT", "0").env("SCR_PLUGIN_PATH", job.plugins());
            command.args(arguments).output().unwrap()
        };
        if is_dropped {
            scr(&["index", "--drop", "ckpt.1"]);
        }
        if !is_listed {
            std::fs::remove_file(job.prefix().join(".scr/flush.scr")).unwrap();
        }
        std::fs::write(job.prefix().join(".scrconf"), "SCR_SCAVENGE=0\n").unwrap();
        let unwanted = scr(&["postrun"]);
        assert!(said(&unwanted).contains("is not saved") && !job.prefix().join("ckpt.1").exists());
        let is_announced = || said(&scr(&["index"])).contains("`scr postrun' there copies it");
        assert!(!is_announced());
        std::fs::remove_file(job.prefix().join(".scrconf")).unwrap();
        assert_eq!(is_announced(), !is_dropped && is_listed);
        let ended = scr(&["postrun"]);
        assert_eq!(ended.status.code(), Some(0), "{}", said(&ended));
        let is_saved =
            job.prefix().join("ckpt.1/rank_0").exists() && job.prefix().join("ckpt.1/rank_1").exists();
        assert_eq!(is_saved, !is_dropped, "{}", said(&ended));
    }
}

#[test]
fn a_job_that_is_to_halt_is_not_started_and_not_started_again() {
    let world = World::new().launcher(
        "mpirun",
        "cp $HERE/halt prefix/.scr/halt.scr 2>/dev/null; cp $HERE/halt .scr/halt.scr; exit 1",
    );
    let prefix = world.prefix();
    Halt::update(&RealFiles, &prefix, |halt| halt.exit_reason = Some("enough".to_owned())).unwrap();
    let run = world.scr(&["run", "mpirun", "./app"], &[("SCR_RUNS", "-1")]);
    assert_eq!((run.status.code(), world.starts().len()), (Some(1), 0));
    assert!(said(&run).contains("the halt file gives the reason enough"), "{}", said(&run));
    assert!(said(&run).contains("remove"), "{}", said(&run));
    std::fs::rename(prefix.halt_file(), world.path("halt")).unwrap();
    let run = world.scr(&["run", "mpirun", "./app"], &[("SCR_RUNS", "-1")]);
    assert_eq!((run.status.code(), world.starts().len()), (Some(1), 1), "{}", said(&run));
    let asked = world.scr(&["retries-halt"], &[]);
    assert_eq!(
        (asked.status.code(), printed(&asked).as_str()),
        (Some(0), "scr_retries_halt: HALT RUN: Reason: enough.\n")
    );
}

/// The word SCR_FINALIZE_CALLED hid a mistyped launcher.
#[test]
fn a_job_that_has_finished_is_not_started_and_the_reason_is_given_in_words() {
    let world = World::new().launcher("mpirun", "");
    Halt::end(&RealFiles, &world.prefix(), 0, false).unwrap();
    let run = world.scr(&["run", "mpirum", "./app"], &[]);
    assert_eq!(run.status.code(), Some(2), "{}", said(&run));
    assert!(said(&run).contains("cannot start mpirum: there is no such program"), "{}", said(&run));
    let run = world.scr(&["run", "mpirun", "./app"], &[]);
    assert_eq!((run.status.code(), world.starts().len()), (Some(1), 0));
    assert!(said(&run).contains("the application has called SCR_Finalize"), "{}", said(&run));
    let cure = format!("`scr halt --remove {}' lets it run again", world.path("prefix").display());
    assert!(said(&run).contains(&cure), "{}", said(&run));
}

#[test]
fn a_job_is_not_started_again_near_the_end_of_its_allocation() {
    let world = World::new().launcher("mpirun", "exit 1");
    let soon = [("SCR_RUNS", "-1"), ("SCR_END_TIME", "1000")];
    let run = world.scr(&["run", "mpirun", "./app"], &soon);
    assert_eq!((run.status.code(), world.starts().len()), (Some(1), 0));
    assert!(said(&run).contains("the allocation has ended"), "{}", said(&run));
    let later = seconds_from_now(3000);
    let variables = [("SCR_RUNS", "-1"), ("SCR_END_TIME", later.as_str()), ("SCR_HALT_SECONDS", "1h")];
    let run = world.scr(&["run", "mpirun", "./app"], &variables);
    assert_eq!(world.starts().len(), 0);
    assert!(said(&run).contains("are left in the allocation"), "{}", said(&run));
}

/// The next allocation did nothing.
#[test]
fn a_job_that_has_stopped_before_its_allocation_ended_is_started_in_the_next_one() {
    let world = World::new().launcher("mpirun", "! grep -q FINALIZE $SCR_PREFIX/.scr/halt.scr");
    Halt::end(&RealFiles, &world.prefix(), 3600, true).unwrap();
    for (left, starts, code) in [(3000, 0, 1), (9000, 1, 0)] {
        let end = seconds_from_now(left);
        let variables = [("SCR_END_TIME", end.as_str()), ("SCR_HALT_SECONDS", "1h")];
        let run = world.scr(&["run", "mpirun", "./app"], &variables);
        assert_eq!(world.starts().len(), starts, "{}", said(&run));
        assert_eq!(run.status.code(), Some(code), "the watchdog sees how the last run ended");
    }
}

/// A job whose time limit was extended halted at the old end, and one whose limit was shortened was killed without a checkpoint.
#[test]
fn an_end_of_the_allocation_that_changes_is_asked_for_and_the_job_is_told() {
    let squeue =
        "[ -e $HERE/asked ] && date -d '+2 hours' +%FT%T || date -d '+1 hour' +%FT%T; touch $HERE/asked";
    let wait =
        "for i in $(seq 1200); do grep -q AllocationEnd .scr/halt.scr && exit 0; sleep 0.05; done; exit 4";
    let world = World::new().program("squeue", squeue).program("sinfo", "").program(
        "srun",
        &format!("case \"$*\" in *check-node) exit 0;; esac; echo $SCR_END_TIME >> $HERE/starts\n{wait}"),
    );
    let run = world.scr(&["run", "srun", "./app"], &SLURM);
    assert_eq!(run.status.code(), Some(0), "{}", said(&run));
    assert!(said(&run).contains("the end of the allocation has changed: 7"), "{}", said(&run));
    let told = Halt::read(&RealFiles, &world.prefix()).unwrap().unwrap().changed_end.unwrap();
    let first: i64 = world.starts()[0].parse().unwrap();
    assert_eq!((told.job_id.as_str(), (told.time - first) / 60), ("77", 60));
}

#[test]
fn before_a_job_halts_at_the_end_of_its_allocation_the_end_is_asked_for_again() {
    for (answer, starts) in [("2126-01-01T00:00:00", 1), ("2001-01-01T00:00:00", 0), ("", 0)] {
        let world = World::new().program("squeue", &format!("echo {answer}")).program("sinfo", "");
        let world =
            world.program("srun", "case \"$*\" in *check-node) ;; *) echo srun >> $HERE/starts;; esac");
        let soon = seconds_from_now(1800);
        let variables =
            [&SLURM[..], &[("SLURM_JOB_END_TIME", soon.as_str()), ("SCR_HALT_SECONDS", "1h")]].concat();
        let run = world.scr(&["run", "srun", "./app"], &variables);
        assert_eq!(world.starts().len(), starts, "{answer}: {}", said(&run));
        // The end that the user gives counts.
        let given = [&variables[..], &[("SCR_END_TIME", soon.as_str())]].concat();
        std::fs::remove_file(world.path("prefix/.scr/halt.scr")).ok();
        let run = world.scr(&["run", "srun", "./app"], &given);
        assert_eq!(world.starts().len(), starts, "{answer}: {}", said(&run));
    }
}

fn seconds_from_now(seconds: u64) -> String {
    let now = std::time::UNIX_EPOCH.elapsed().expect("the clock is after 1970");
    (now.as_secs() + seconds).to_string()
}

#[test]
fn nodes_that_are_left_out_or_have_gone_get_no_ranks() {
    let world = World::new().program("ssh", SSH);
    let world = world
        .launcher("mpirun", &format!("{SHOW_HOSTS}; touch $HERE/n1.down; [ $(wc -l < $HERE/starts) -ge 4 ]"));
    let variables =
        [FIVE_NODES, ("SCR_EXCLUDE_NODES", "n4,login"), ("SCR_RUNS", "2"), ("SCR_MIN_NODES", "3")];
    let run = world.scr(&["run", "mpirun", "-n", "3", "./app"], &variables);
    assert_eq!(run.status.code(), Some(0), "{}", said(&run));
    let starts = world.starts();
    assert_eq!((starts[1].as_str(), starts[3].as_str()), ("hosts n0 n1 n2 n3", "hosts n0 n2 n3"));
    assert!(starts[2].ends_with("-n 3 ./app"), "{}", starts[2]);
    assert!(
        said(&run).contains("node n4 is left out: User excluded via SCR_EXCLUDE_NODES"),
        "{}",
        said(&run)
    );
    assert!(said(&run).contains("node n1 is left out: ssh: no route to n1"), "{}", said(&run));
    let no_node = "SCR_EXCLUDE_NODES names login, which is no node of this job; its nodes are n[0-4]";
    assert_eq!(said(&run).matches(no_node).count(), 1, "{}", said(&run));
    let down = world.scr(&["list-down-nodes"], &variables);
    assert_eq!((down.status.code(), printed(&down).as_str()), (Some(0), "n[1,4]\n"));
    std::fs::remove_file(world.path("n1.down")).unwrap();
    assert_eq!(printed(&world.scr(&["list-down-nodes"], &[FIVE_NODES])), "\n");
}

/// The job landed on the bad node again, and nothing was said.
#[test]
fn a_node_is_known_with_and_without_its_domain_and_in_upper_and_lower_case() {
    for (named, listed) in
        [("n[0-2]", "N1.c.org"), ("n0.c.org,n1.c.org,n2.c.org", "n1"), ("N0,N1,N2", "n1.c.org")]
    {
        let world = World::new().program("ssh", SSH).launcher("mpirun", SHOW_HOSTS);
        let world = world.program("pbsnodes", &format!("echo '{listed} offline'"));
        let excluded =
            world.scr(&["run", "mpirun", "./app"], &[("SCR_NODELIST", named), ("SCR_EXCLUDE_NODES", listed)]);
        let hosts = world.starts().pop().unwrap();
        assert!(hosts.split(' ').count() == 3 && !hosts.contains('1'), "{hosts}: {}", said(&excluded));
        std::fs::write(world.path("nodefile"), named.replace("n[0-2]", "n0,n1,n2").replace(',', "\n"))
            .unwrap();
        let nodefile = world.path("nodefile").display().to_string();
        let down = world.scr(&["list-down-nodes"], &[("PBS_JOBID", "6"), ("PBS_NODEFILE", &nodefile)]);
        assert!(printed(&down).to_lowercase().starts_with("n1"), "{named} {listed}: {}", printed(&down));
    }
}

#[test]
fn where_no_nodes_are_known_the_settings_for_nodes_are_said_to_do_nothing() {
    let world = World::new().launcher("mpirun", "exit 0");
    let run = world.scr(&["run", "--pause", "1m", "mpirun", "./app"], &[("SCR_EXCLUDE_NODES", "n1")]);
    assert_eq!(run.status.code(), Some(0), "{}", said(&run));
    let expected = "SCR_EXCLUDE_NODES has no effect, as the nodes of the job are not known: set SCR_NODELIST";
    assert!(said(&run).contains(expected) && !said(&run).contains("SCR_MIN_NODES"), "{}", said(&run));
}

#[test]
fn with_too_few_nodes_a_job_is_not_started_again() {
    let go = |variables: &[(&str, &str)], script: &str| {
        let world = World::new().program("ssh", SSH);
        let nodes = world.prefix().nodes_file();
        let world = world.launcher("mpirun", &format!("{script}; touch $HERE/n1.down $HERE/n2.down; exit 9"));
        LastRun { nodes: vec![String::new(); 5], ..LastRun::default() }
            .write(&RealFiles, &world.prefix())
            .unwrap();
        std::fs::copy(&nodes, world.path("five")).unwrap();
        LastRun { nodes: vec![String::new(); 3], ..LastRun::default() }
            .write(&RealFiles, &world.prefix())
            .unwrap();
        std::fs::copy(&nodes, world.path("three")).unwrap();
        LastRun { nodes: vec![String::new(); 2], ..LastRun::default() }
            .write(&RealFiles, &world.prefix())
            .unwrap();
        let run =
            world.scr(&["run", "mpirun", "./app"], &[variables, &[FIVE_NODES, ("SCR_RUNS", "2")]].concat());
        assert_eq!(run.status.code(), Some(9));
        (world.starts().len(), said(&run))
    };
    let (starts, said) = go(&[("SCR_MIN_NODES", "4")], "true");
    assert!(starts == 1 && said.contains("3 nodes can be used and 4 are needed: SCR_MIN_NODES"), "{said}");
    let (starts, said) = go(&[], "cp $HERE/five .scr/new; mv .scr/new .scr/nodes.scr");
    assert!(starts == 1 && said.contains("5 are needed: the last run had as many"), "{said}");
    let (starts, said) = go(&[], "cp $HERE/three .scr/new; mv .scr/new .scr/nodes.scr");
    assert!(starts == 2, "{said}");
    // The number that was there before belongs to another job.
    let (starts, said) = go(&[], "true");
    assert!(starts == 1 && said.contains("5 are needed: the last run has not recorded"), "{said}");
}

#[test]
fn a_host_file_keeps_its_lines() {
    let world = World::new().program("ssh", SSH).launcher("mpirun", SHOW_HOSTS);
    std::fs::write(world.path("hosts"), "n0 slots=2\nn1 slots=4\n").unwrap();
    let hosts = world.path("hosts");
    let run = world.scr(
        &["run", "--hostfile", hosts.to_str().unwrap(), "mpirun", "./app"],
        &[("SCR_EXCLUDE_NODES", "n0")],
    );
    assert_eq!(
        (run.status.code(), world.starts()[1].as_str()),
        (Some(0), "hosts n1 slots=4"),
        "{}",
        said(&run)
    );
}

/// In Slurm's terms: node n1 is reported down, n2 does not answer.
fn slurm() -> World {
    let world = World::new().program("squeue", "[ $2 = --jobs=77 ] && echo 2126-01-01T00:00:00");
    let world = world.program("sinfo", "printf 'n0 mixed\\nn1 down*\\nn2 idle*\\nn3 allocated\\n'");
    world.program(
        "srun",
        "case \"$*\" in *n2*check-node) echo 'srun: error: n2 is silent' >&2; exit 1;; *check-node) exit 0;; esac\n\
         echo srun \"$@\" >> $HERE/starts",
    )
}

const SLURM: [(&str, &str); 2] = [("SLURM_JOB_ID", "77"), ("SLURM_JOB_NODELIST", "n[0-3]")];

#[test]
fn under_slurm_srun_gets_the_nodes_to_exclude() {
    let world = slurm();
    let link = world.path("bin/scr_srun");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_scr"), &link).unwrap();
    let command = world.command(&["-n2", "./app"], &SLURM);
    let variables = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let mut by_link = Command::new(&link);
    by_link.args(command.get_args()).current_dir(world.path("prefix")).env_clear().envs(variables);
    let run = by_link.output().expect("the command starts");
    assert_eq!(run.status.code(), Some(0), "{}", said(&run));
    assert_eq!(world.starts(), ["srun -K1 --exclude=n[1-2] -n2 ./app"]);
    assert!(said(&run).contains("node n1 is left out: Slurm reports it down"), "{}", said(&run));
    assert!(said(&run).contains("node n2 is left out: srun: error: n2 is silent"), "{}", said(&run));
    let printed_by = |what| printed(&world.scr(&["env", what], &SLURM));
    assert_eq!(
        (printed_by("--jobid"), printed_by("--nodes"), printed_by("--down")),
        ("77\n".into(), "n0,n1,n2,n3\n".into(), "n1\n".into())
    );
    assert!(printed_by("--endtime").trim().parse::<u64>().unwrap() > 4_900_000_000);
}

#[test]
fn nodes_are_found_under_lsf_pbs_and_flux_too() {
    let world = World::new()
        .program("bhosts", "printf 'b ok - 4\\nc unavail - 4\\n'")
        .program("bjobs", "echo '1:30 L'")
        .program("blaunch", "exit 0")
        .program("pbsnodes", "echo 'b state-unknown,down'")
        .program("ssh", SSH)
        .program("flux", "case \"$*\" in 'getattr jobid') echo f1;; *--states=all*) echo 'a,b,c';; *--states=down*) echo c;; \
                  *timeleft*) echo 100;; *check-node) ;; *) echo flux \"$@\" >> $HERE/starts;; esac")
        .launcher("jsrun", "")
        .launcher("mpirun", SHOW_HOSTS);
    std::fs::write(world.path("nodefile"), "a\na\nb\nc\n").unwrap();
    let nodefile = world.path("nodefile");
    let lsf = [("LSB_JOBID", "5"), ("LSB_MCPU_HOSTS", "a 2 b 2 c 2")];
    let pbs = [("PBS_JOBID", "6.host"), ("PBS_NODEFILE", nodefile.to_str().unwrap())];
    let flux = [("FLUX_JOB_ID", "f1")];
    let cases = [
        (&lsf[..], &["jsrun", "./app"][..], "jsrun --exclude_hosts=c ./app"),
        (&pbs, &["mpirun", "./app"], "hosts a a c"),
        (&flux, &["flux", "run", "-N2", "./app"], "flux run --requires=-host:c -N2 ./app"),
    ];
    for (variables, command, start) in cases {
        let run = world.scr(&[&["run"], command].concat(), variables);
        assert_eq!(run.status.code(), Some(0), "{}", said(&run));
        assert_eq!(world.starts().last().map(String::as_str), Some(start), "{}", said(&run));
    }
}

/// bjobs answers for an array with a line for each element, pending ones first.
#[test]
fn an_element_of_an_array_of_lsf_knows_its_own_end() {
    let world = World::new().program(
        "bjobs",
        "case \"$*\" in *'9[3]') echo '0:30 L';; *) printf -- '-\\n0:10 L\\n2:00 L\\n';; esac",
    );
    let end = |index: &str| {
        let job = [("LSB_JOBID", "9"), ("LSB_JOBINDEX", index), ("LSB_MCPU_HOSTS", "a 2")];
        let printed = printed(&world.scr(&["env", "--endtime"], &job));
        let left = printed.trim().parse::<u64>().unwrap() - seconds_from_now(0).parse::<u64>().unwrap();
        left.div_ceil(60)
    };
    assert_eq!((end("3"), end("0")), (30, 10), "of several answers the earliest counts");
}

/// It was counted, failed its check, and reached jsrun as a host to exclude.
#[test]
fn the_launch_node_of_lsf_with_csm_is_no_node_of_the_job() {
    let world = World::new();
    let nodes = |csm: &[(&str, &str)]| {
        let lsf = [("LSB_JOBID", "5"), ("LSB_MCPU_HOSTS", "batch1 1 a 40 b 40"), ("SCR_END_TIME", "1")];
        printed(&world.scr(&["env", "--nodes"], &[&lsf, csm].concat()))
    };
    assert_eq!(nodes(&[("CSM_ALLOCATION_ID", "81")]), "a,b\n");
    assert_eq!(nodes(&[]), "batch1,a,b\n");
}

/// Only the nodes of its first component were known.
#[test]
fn a_heterogeneous_job_of_slurm_has_the_nodes_of_all_its_components() {
    let world = World::new().program("sinfo", "").program("squeue", "echo NONE").program(
        "srun",
        "case \"$*\" in\n\
         *--nodelist=n[01]*--het-group=0*check-node|*--nodelist=g[12]*--het-group=1*check-node) exit 0;;\n\
         *check-node) echo \"srun: error: Requested node configuration is not available: $*\" >&2; exit 1;;\n\
         *) echo srun \"$@\" >> $HERE/starts;; esac",
    );
    let job = [
        ("SLURM_JOB_ID", "77"),
        ("SLURM_JOB_NODELIST", "n[0-1]"),
        ("SLURM_HET_SIZE", "2"),
        ("SLURM_JOB_NODELIST_HET_GROUP_0", "n[0-1]"),
        ("SLURM_JOB_NODELIST_HET_GROUP_1", "g[1-2]"),
    ];
    assert_eq!(printed(&world.scr(&["env", "--nodes"], &job)), "n0,n1,g1,g2\n");
    let run = world.scr(&["run", "srun", "-n2", "./a", ":", "-n2", "./b"], &job);
    assert_eq!((run.status.code(), said(&run).as_str()), (Some(0), ""));
    assert_eq!(world.starts(), ["srun -K1 -n2 ./a : -n2 ./b"]);
}

/// The end of the allocation was not understood, and srun refused to reach any node.
#[test]
fn options_in_the_environment_of_a_job_change_no_answer_to_scr() {
    let world = World::new()
        .program("squeue", "[ -n \"$SLURM_TIME_FORMAT\" ] && echo 'in 3 hours' || echo 2126-01-01T00:00:00")
        .program("sinfo", "[ -n \"$SINFO_FORMAT\" ] && echo 'up n0' || echo 'n0 down*'")
        .program(
            "srun",
            "case \"$*\" in *check-node) ;; *) echo srun \"$@\" $SLURM_CPU_BIND >> $HERE/starts; exit 0;; esac\n\
             if [ -n \"$SLURM_MEM_PER_CPU\" ]; then\n\
             echo 'srun: fatal: SLURM_MEM_PER_CPU and SLURM_MEM_PER_NODE are mutually exclusive.' >&2; exit 1; fi",
        );
    let options = [
        ("SLURM_TIME_FORMAT", "relative"),
        ("SINFO_FORMAT", "%a %n"),
        ("SLURM_MEM_PER_CPU", "4000"),
        ("SLURM_CPU_BIND", "none"),
    ];
    let job = [&SLURM[..], &options].concat();
    let run = world.scr(&["run", "srun", "./app"], &job);
    assert_eq!(said(&run), "scr run: node n0 is left out: Slurm reports it down [SCR-522]\n");
    assert_eq!(world.starts(), ["srun -K1 --exclude=n0 ./app none"]);
    assert!(printed(&world.scr(&["env", "-e"], &job)).trim().parse::<u64>().unwrap() > 4_900_000_000);
}

#[test]
fn each_part_of_a_command_line_leaves_the_same_nodes_out() {
    let hosts = "case $1 in --version) echo \"$VERSION\"; exit;; esac; echo \"$@\" | sed 's/[^ ]*scr-hosts[^ ]*/HOSTS/g' \
                 >> $HERE/starts";
    let world = World::new().program("ssh", SSH).program("mpirun", hosts);
    let world = world.launcher("srun", "").launcher("jsrun", "");
    let go = |launcher: &str, version: &str| {
        let variables = [FIVE_NODES, ("SCR_EXCLUDE_NODES", "n3"), ("VERSION", version)];
        let run = world.scr(&["run", launcher, "-n", "2", "./a", ":", "./b", ":"], &variables);
        assert_eq!(run.status.code(), Some(0), "{}", said(&run));
        world.starts().pop().unwrap()
    };
    assert_eq!(go("srun", ""), "srun -K1 --exclude=n3 -n 2 ./a : --exclude=n3 ./b : --exclude=n3");
    let file = "-machinefile HOSTS";
    assert_eq!(go("mpirun", "mpirun (Open MPI) 5.0.3"), format!("{file} -n 2 ./a : {file} ./b : {file}"));
    // It refuses a second file.
    assert_eq!(go("mpirun", "HYDRA build details:"), format!("{file} -n 2 ./a : ./b :"));
    assert_eq!(go("jsrun", ""), "jsrun --exclude_hosts=n3 -n 2 ./a : ./b :");
}

#[test]
fn a_run_that_writes_no_checkpoint_is_ended_and_started_again() {
    let world = World::new().launcher("mpirun", "[ $(wc -l < $HERE/starts) -ge 2 ] || exec sleep 1000");
    // The second run, which ends by itself, has time for that on a busy machine.
    let variables = [("SCR_WATCHDOG", "1"), ("SCR_WATCHDOG_TIMEOUT_PFS", "5"), ("SCR_RUNS", "2")];
    let began = Instant::now();
    let run = world.scr(&["run", "mpirun", "./app"], &variables);
    assert_eq!((run.status.code(), world.starts().len()), (Some(0), 2), "{}", said(&run));
    assert!(said(&run).contains("run 1 has written no checkpoint for"), "{}", said(&run));
    assert!(began.elapsed() < Duration::from_secs(500), "it waited for the job");
}

#[test]
fn a_watchdog_without_a_time_says_that_it_watches_nothing() {
    let world = World::new().launcher("mpirun", "");
    let run = world.scr(&["run", "mpirun", "./app"], &[("SCR_WATCHDOG", "1")]);
    assert!(run.status.success() && said(&run).contains("nothing is watched"), "{}", said(&run));
}

#[test]
fn a_signal_ends_the_job_and_it_is_not_started_again() {
    for (signal, hangup) in [(Signal::TERM, "ignore"), (Signal::HUP, "default"), (Signal::QUIT, "default")] {
        let world = World::new().launcher("mpirun", "exec sleep 1000");
        let mut command = world.command_with_hangup(hangup, &["run", "mpirun", "./app"]);
        let child = world.started(&mut command);
        let pid = Pid::from_child(&child);
        // An ignored one, as under nohup, does not end the job.
        if hangup == "ignore" {
            kill_process(pid, Signal::HUP).unwrap();
        }
        kill_process(pid, signal).unwrap();
        let run = child.wait_with_output().unwrap();
        assert_eq!((run.status.code(), world.starts().len()), (Some(128 + 15), 1), "{}", said(&run));
        assert!(said(&run).contains(", and ended the job"), "{}", said(&run));
    }
}

/// They ended `scr run` and not the launcher, and nothing was saved.
#[test]
fn a_notice_of_the_batch_system_reaches_the_launcher_and_what_is_in_cache_is_saved() {
    let script =
        "trap 'echo got USR1 >> $HERE/starts' USR1; trap 'echo got USR2 >> $HERE/starts; exit 1' USR2\n\
                  touch $HERE/ready; while :; do sleep 0.05; done";
    for also in [None, Some(Signal::ALARM), Some(Signal::XCPU)] {
        let world = World::new().launcher("mpirun", script);
        let prefix = Prefix::at(&RealFiles, Path::new(&world.path("prefix")));
        std::fs::create_dir(prefix.scr_dir()).unwrap();
        let job_id = "defjobid".to_owned();
        let dataset = DatasetDescriptor { id: 1, checkpoint: true, job_id, ..DatasetDescriptor::default() };
        FlushFile::update(&RealFiles, &prefix, |flush| flush.record(&dataset, Location::Cache)).unwrap();
        let log = [("SCR_RUNS", "-1"), ("SCR_LOG_ENABLE", "1"), ("SCR_LOG_SYSLOG_ENABLE", "0")];
        let child = world.started(&mut world.command(&["run", "mpirun", "./app"], &log));
        let pid = Pid::from_child(&child);
        until(|| world.path("ready").exists());
        kill_process(pid, Signal::USR1).unwrap();
        until(|| world.starts().len() == 2);
        kill_process(pid, also.unwrap_or(Signal::USR2)).unwrap();
        let run = child.wait_with_output().unwrap();
        let code = also.map_or(1, |signal| 128 + signal.as_raw());
        assert_eq!(run.status.code(), Some(code), "{}", said(&run));
        assert_eq!(world.starts()[1], "got USR1");
        assert!(
            said(&run).contains("the job is not started again: it has failed after SIG"),
            "{}",
            said(&run)
        );
        let log = std::fs::read_to_string(world.path("prefix/.scr/log")).unwrap();
        assert!(log.contains("POSTRUN_END"), "{log}");
    }
}

/// As `bkill` of LSF sends them.
#[test]
fn a_second_signal_of_another_kind_does_not_keep_the_job_from_being_saved() {
    let world = World::new().launcher(
        "mpirun",
        "trap 'echo end >> $HERE/starts' TERM; touch $HERE/ready\n\
                                                 until [ -e $HERE/go ]; do sleep 0.05; done; exit 3",
    );
    let child = world.started(&mut world.command_with_hangup("default", &["run", "mpirun", "./app"]));
    let pid = Pid::from_child(&child);
    until(|| world.path("ready").exists());
    kill_process(pid, Signal::INT).unwrap();
    until(|| world.starts().len() == 2);
    kill_process(pid, Signal::TERM).unwrap();
    std::fs::write(world.path("go"), "").unwrap();
    let run = child.wait_with_output().unwrap();
    assert_eq!(run.status.code(), Some(3), "{}", said(&run));
    assert!(said(&run).contains("received SIGINT, and ended the job"), "{}", said(&run));
}

#[test]
fn without_scr_a_signal_reaches_the_launcher() {
    let script = "trap 'exit 5' USR1; touch $HERE/ready; for i in $(seq 999); do sleep 0.05; done";
    let world = World::new().launcher("mpirun", script);
    let child = world.started(&mut world.command(&["run", "mpirun", "./app"], &[("SCR_ENABLE", "0")]));
    until(|| world.path("ready").exists());
    kill_process(Pid::from_child(&child), Signal::USR1).unwrap();
    let run = child.wait_with_output().unwrap();
    assert_eq!(run.status.code(), Some(5), "{}", said(&run));
}

#[test]
fn a_job_that_is_to_halt_at_once_is_ended_and_not_started_again() {
    let world = World::new().launcher("mpirun", "cp $HERE/halt .scr/halt.scr; exec sleep 1000");
    let prefix = world.prefix();
    let at_once =
        |halt: &mut Halt| (halt.exit_reason, halt.immediate) = (Some(Halt::HALTED.to_owned()), true);
    Halt::update(&RealFiles, &prefix, at_once).unwrap();
    std::fs::rename(prefix.halt_file(), world.path("halt")).unwrap();
    let run = world.scr(&["run", "mpirun", "./app"], &[("SCR_RUNS", "-1")]);
    assert_eq!((run.status.code(), world.starts().len()), (Some(128 + 15), 1), "{}", said(&run));
    assert!(said(&run).contains("run 1 was ended: the job is to halt at once"), "{}", said(&run));
}

#[test]
fn without_scr_the_job_is_just_started() {
    let world = World::new().launcher("mpirun", "exit 4");
    let run = world.scr(&["run", "mpirun", "./app"], &[("SCR_ENABLE", "0"), ("SCR_RUNS", "3")]);
    assert_eq!((run.status.code(), world.starts().len()), (Some(4), 1));
    assert!(!world.path("prefix/.scr").exists());
}

#[test]
fn a_missing_prefix_directory_is_created_and_a_message_says_so() {
    let world = World::new().launcher("mpirun", "");
    let prefix = world.path("mistyped").display().to_string();
    for is_new in [true, false] {
        let run = world.scr(&["run", "mpirun", "./app"], &[("SCR_PREFIX", &prefix)]);
        assert_eq!(run.status.code(), Some(0), "{}", said(&run));
        assert_eq!(said(&run).contains("mistyped (SCR_PREFIX) was not there"), is_new, "{}", said(&run));
    }
}

#[test]
fn obstacles_to_a_job_are_reported_before_it_starts() {
    let world = World::new().launcher("mpirun", "");
    std::fs::write(world.path("file"), "").unwrap();
    let file = world.path("file/prefix");
    for (arguments, variables, words) in [
        (
            &["run", "mpirun", "./app"][..],
            [("SCR_PREFIX", file.to_str().unwrap())],
            "cannot use the prefix directory",
        ),
        (&["prerun"], [("SCR_PREFIX", file.to_str().unwrap())], "cannot use the prefix directory"),
        (&["run", "mpirun", "./app"], [("SCR_EXCLUDE_NODES", "n[1-")], "in SCR_EXCLUDE_NODES"),
        (&["run", "mpirun", "./app"], [("SCR_NODELIST", "n[1-")], "in SCR_NODELIST"),
        (
            &["run", "--resource-manager", "moab", "mpirun", "./app"],
            [("A", "")],
            "there is no resource manager `moab'",
        ),
        (&["run", "/no/such/launcher", "./app"], [("A", "")], "cannot start /no/such/launcher"),
    ] {
        let run = world.scr(arguments, &variables);
        assert_eq!(run.status.code(), Some(2), "{arguments:?}: {}", said(&run));
        assert!(said(&run).contains(words), "{arguments:?}: {}", said(&run));
    }
    assert!(world.starts().is_empty());
}

#[test]
fn the_log_records_what_happened() {
    let world = World::new().program("ssh", SSH).launcher("mpirun", "touch $HERE/n1.down; exit 2");
    let variables = [
        FIVE_NODES,
        ("SCR_RUNS", "2"),
        ("SCR_MIN_NODES", "2"),
        ("SCR_LOG_ENABLE", "1"),
        ("SCR_LOG_SYSLOG_ENABLE", "0"),
    ];
    world.scr(&["run", "mpirun", "./app"], &variables);
    let log = std::fs::read_to_string(Path::new(&world.path("prefix/.scr/log"))).unwrap();
    let events: Vec<_> = log
        .lines()
        .map(|line| line.split("event=").nth(1).unwrap_or(line).split(", secs").next().unwrap())
        .collect();
    assert_eq!(
        events,
        [
            "RUN_START, note=\"run=1\"",
            "RUN_END, note=\"run=1, status=2\"",
            "NODE_FAIL, note=\"n1: ssh: no route to n1\"",
            "RUN_START, note=\"run=2\"",
            "RUN_END, note=\"run=2, status=2\"",
        ],
        "nothing was to be saved"
    );
}

/// A job and its nodes have it from a variable, and scr replaces variables in settings.
#[test]
fn a_dollar_in_the_name_of_the_prefix_directory_stays() {
    let world = World::new().program("ssh", SSH).launcher("mpirun", "cd /; exec $SCR prerun");
    std::fs::create_dir(world.path("a$b")).unwrap();
    let prefix = world.path("a$b").display().to_string();
    let variables = [("SCR_NODELIST", "n[0-1]"), ("SCR", env!("CARGO_BIN_EXE_scr"))];
    let run = world.scr(&["run", "--prefix", &prefix, "mpirun", "./app"], &variables);
    assert!(said(&run).contains(&format!("scr: {prefix} is ready for a job\n")), "{}", said(&run));
    let down = world.scr(&["list-down-nodes", "--prefix", &prefix, "--reason"], &variables);
    assert_eq!((down.status.code(), printed(&down)), (Some(0), String::new()), "{}", said(&down));
}

#[test]
fn a_node_checks_its_own_places() {
    let world = World::new();
    let bare = world.path("prefix/.scrconf");
    std::fs::write(&bare, format!("STORE={} SIZE=1PB\n", world.path("big").display())).unwrap();
    let check = world.scr(&["check-node"], &[]);
    assert_eq!(check.status.code(), Some(1), "{}", said(&check));
    assert!(said(&check).contains("bytes, and 1125899906842624 are expected"), "{}", said(&check));
    std::fs::write(&bare, format!("STORE={} MKDIR=0\n", world.path("big").display())).unwrap();
    let check = world.scr(&["check-node"], &[]);
    assert_eq!(check.status.code(), Some(1), "{}", said(&check));
    assert!(said(&check).contains("big, and MKDIR=0 says that SCR does not make it"), "{}", said(&check));
    // It was called good, and no job could make a folder there.
    std::fs::write(&bare, "STORE=/proc/x\n").unwrap();
    let check = world.scr(&["check-node"], &[]);
    assert_eq!(check.status.code(), Some(1), "{}", said(&check));
    std::fs::remove_file(&bare).unwrap();
    assert_eq!(world.scr(&["check-node"], &[]).status.code(), Some(0));
    // A job cannot make a folder in it, since another user could replace that.
    let base = world.path("base");
    std::fs::create_dir(&base).unwrap();
    std::fs::set_permissions(&base, PermissionsExt::from_mode(0o777)).unwrap();
    std::fs::write(&bare, format!("STORE={}\n", base.display())).unwrap();
    let check = world.scr(&["check-node"], &[]);
    assert_eq!(check.status.code(), Some(1), "{}", said(&check));
    assert!(said(&check).contains("no job can have a folder of its own there"), "{}", said(&check));
    std::fs::remove_file(&bare).unwrap();
    std::fs::write(world.path("cache"), "a file in the way").unwrap();
    let check = world.scr(&["check-node"], &[]);
    assert_eq!(check.status.code(), Some(1), "{}", said(&check));
}

/// It said that there was no space, and `df` that there was. A node without room was called good.
#[test]
fn a_node_without_inodes_or_room_says_what_it_lacks() {
    for (option, fill, why) in [
        (
            "nr_inodes=8",
            "while touch \"$0/$((i+=1))\" 2>/dev/null; do :; done",
            "all inodes of its file system are in use",
        ),
        ("size=1m", "cat /dev/zero >\"$0/full\" 2>/dev/null", "no storage space"),
    ] {
        let world = World::new();
        let cache = world.path("cache");
        std::fs::create_dir(&cache).unwrap();
        let fill = format!("mount -t tmpfs -o {option} tmpfs \"$0\" || exit 99\n{fill}\nexec \"$@\"");
        let run = |words: &[&str]| {
            let mut command = Command::new("unshare");
            command.args(["-m", "sh", "-c", &fill]).arg(&cache).arg(env!("CARGO_BIN_EXE_scr"));
            world.prepare(command, words, &[]).output().unwrap()
        };
        let check = run(&["check-node"]);
        if check.status.code() == Some(99) || said(&check).contains("unshare failed") {
            return println!("skipped: without root there is no mount namespace of the test's own");
        }
        assert_eq!(check.status.code(), Some(1), "{option}: {}", said(&check));
        let why = format!("cannot write to {}: {why}", cache.display());
        assert!(said(&check).contains(&why), "{why}: {}", said(&check));
        let doctor = printed(&run(&["doctor"]));
        let is_it = |line: &str| line.starts_with("BAD") && line.contains("store ") && line.contains(&why);
        assert!(doctor.lines().any(is_it), "{doctor}");
    }
}

#[test]
fn a_program_without_a_launcher_is_named() {
    let world = World::new().program("app", "").launcher("mpirun", "");
    let run = world.scr(&["run", "app", "-x"], &[]);
    assert_eq!(run.status.code(), Some(0));
    assert!(said(&run).contains("app is no launcher that scr knows"), "{}", said(&run));
    let run = world.scr(&["run", "mpirun", "app"], &[]);
    assert!(!said(&run).contains("launcher"), "{}", said(&run));
}

#[test]
fn prerun_and_postrun_with_nothing_to_do_say_that_all_is_well() {
    let world = World::new();
    let ready = world.scr(&["prerun"], &[]);
    assert_eq!(said(&ready), format!("scr: {} is ready for a job\n", world.path("prefix").display()));
    let safe = world.scr(&["postrun"], &[]);
    assert_eq!(said(&safe), "scr: no dataset is in cache only: there is nothing to save\n");
    assert_eq!(printed(&ready) + &printed(&safe), "");
    assert_eq!((ready.status.code(), safe.status.code()), (Some(0), Some(0)));
}

/// It was taken for the launcher: cannot start --prefx.
#[test]
fn a_mistyped_option_is_reported_with_a_suggestion() {
    let world = World::new().launcher("mpirun", "exit 0");
    for (option, meant) in [
        ("--prefx", "`--prefix'"),
        ("--resource-manger=slurm", "`--resource-manager'"),
        ("--pauze", "`--pause'"),
    ] {
        let output = world.scr(&["run", option, "mpirun", "./app"], &[]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(2) && text.contains(&format!("did you mean {meant}?")),
            "{text}"
        );
    }
    let output = world.scr(&["run", "-n", "4", "./app"], &[]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("there is no option `-n'; options of the launcher come after it"), "{text}");
    assert!(world.starts().is_empty());
}
