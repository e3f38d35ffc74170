//! Commands in a Slurm allocation of two nodes, with stand-ins for the commands of Slurm on PATH: scripts that were written for
//! C SCR, and nodes that hold data.

use crate::answer::{code, err, out};
use crate::finished_job::FinishedJob;
use scr_base::fs::RealFiles;
use scr_prefix::{Halt, LastRun, Prefix};
use std::fs;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::process::{Command, Output};

/// The application fails and takes node n1 with it. Commands for nodes run here, with the name of the node.
const SRUN: &str = r#"#!/bin/sh
case "$*" in
    *--nodelist=*) node=${*#*--nodelist=}; node=${node%% *} ;;
    *) echo srun "$@" >> $HERE/starts; touch $HERE/n1.down; exit 1 ;;
esac
[ ! -e $HERE/$node.down ] || { echo "srun: error: $node is silent" >&2; exit 1; }
while [ "${1#-}" != "$1" ]; do shift; done
SCR_NODE_NAME=$node exec "$@"
"#;

/// The remains of a job of two nodes in cache, with Slurm and the classic commands on PATH.
fn allocation() -> FinishedJob {
    let job = FinishedJob::with_settings(&[("SCR_FLUSH", "0"), ("SCR_JOB_ID", "77")]);
    let bin = job.path().join("bin");
    fs::create_dir(&bin).unwrap();
    for (name, script) in [("srun", SRUN), ("sinfo", "#!/bin/sh\n"), ("squeue", "#!/bin/sh\necho N/A\n")] {
        fs::write(bin.join(name), script).unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    for name in [
        "prerun",
        "postrun",
        "should_exit",
        "list_down_nodes",
        "retries_halt",
        "inspect",
        "glob_hosts",
        "hostlist",
        "env",
    ] {
        symlink(env!("CARGO_BIN_EXE_scr"), bin.join(format!("scr_{name}"))).unwrap();
    }
    symlink(env!("CARGO_BIN_EXE_scr"), bin.join("scr")).unwrap();
    job
}

fn sh(job: &FinishedJob, script: &str) -> Output {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", script]).env_clear().current_dir(job.prefix()).env("USER", "user1");
    shell.env("PATH", format!("{}:/usr/bin:/bin", job.path().join("bin").display()));
    shell.env("HERE", job.path()).env("P", job.prefix());
    shell.env("SLURM_JOB_ID", "77").env("SLURM_JOB_NODELIST", "n[0-1]");
    shell.env("SCR_CACHE_BASE", job.path().join("nodes/$SCR_NODE_NAME")).env("SCR_CNTL_BASE", job.path());
    shell.env("SCR_PLUGIN_PATH", job.plugins()).env("SCR_LOG_SYSLOG_ENABLE", "0");
    shell.output().unwrap()
}

/// The calls, and what depends on their exit codes and output, of the scripts that C SCR ships for srun, jsrun and flux.
#[test]
fn a_loop_around_srun_leaves_out_lost_nodes_and_saves_the_last_checkpoint() {
    let job = allocation();
    let script = r#"
        scr_prerun -p $P -v || exit 90
        down="" runs=2
        while :; do
            srun ${down:+--exclude $down} ./app
            runs=$((runs - 1))
            scr_should_exit -p $P --runs $runs -v && break
            down=$(scr_list_down_nodes -j srun ${down:+--down $down})
            scr_should_exit -p $P ${down:+--down $down} -v && exit 91
        done
        scr_postrun -p $P -j srun -v
    "#;
    let ended = sh(&job, &format!("export SCR_MIN_NODES=1; {script}"));
    assert_eq!(code(&ended), 0, "{}", err(&ended));
    let starts = fs::read_to_string(job.path().join("starts")).unwrap();
    assert_eq!(starts, "srun ./app\nsrun --exclude n1 ./app\n", "{}", err(&ended));
    for rank in [0, 1] {
        let saved = fs::read(job.prefix().join(format!("ckpt.1/rank_{rank}"))).unwrap();
        assert_eq!(saved, [b'x'; 1000], "rank {rank}");
    }
}

#[test]
fn a_job_is_over_where_too_few_nodes_are_left_of_those_that_are_not_down() {
    let job = allocation();
    LastRun { nodes: vec![String::new(); 2], ..LastRun::default() }
        .write(&RealFiles, &Prefix::new(job.prefix()))
        .unwrap();
    for (script, exit) in [
        ("scr_should_exit -p $P", 1),
        ("scr_should_exit -p $P --down n1", 0),
        ("scr_should_exit -p $P --down n1 --min-nodes 1", 1),
        ("scr_should_exit -p $P --down n7", 1),
        ("scr_should_exit -p $P --runs 1", 1),
        ("scr_should_exit -p $P --runs 0", 0),
        ("scr_should_exit -p $P --down n1 -v", 0),
        // As with C SCR, the script has asked which nodes are down. Ours asks them itself.
        ("touch $HERE/n1.down; scr_should_exit -p $P", 1),
        ("scr should-exit -p $P", 0),
        // Before the first run all nodes are needed.
        ("rm $HERE/n1.down .scr/nodes.scr; scr_should_exit -p $P --down n0", 0),
    ] {
        let answer = sh(&job, script);
        let said = if script.ends_with("-v") { "nodes_remaining=1 < nodes_needed=2\n" } else { "" };
        assert_eq!((code(&answer), out(&answer).as_str()), (exit, said), "{script}: {}", err(&answer));
    }
}

#[test]
fn down_nodes_are_those_that_are_known_and_those_that_fail_now() {
    let job = allocation();
    fs::write(job.path().join("n1.down"), "").unwrap();
    for (script, printed) in [
        ("scr_list_down_nodes -j srun -f", "n1\n"),
        ("scr_list_down_nodes -j srun --down n[0,7]", "n[0-1]\n"),
        ("scr_list_down_nodes --joblauncher=srun -v n0", "\n"),
        ("scr_list_down_nodes -j srun n0 n1", "n1\n"),
    ] {
        let answer = sh(&job, script);
        assert_eq!((code(&answer), out(&answer).as_str()), (0, printed), "{script}: {}", err(&answer));
    }
    let reason = out(&sh(&job, "scr_list_down_nodes -j srun -r -d n0"));
    assert_eq!(reason, "n0: Specified as down\nn1: srun: error: n1 is silent\n");
    let excluded = out(&sh(&job, "SCR_EXCLUDE_NODES=n0 scr_list_down_nodes -j srun -r n0"));
    assert_eq!(excluded, "n0: User excluded via SCR_EXCLUDE_NODES\n");
    sh(&job, "SCR_LOG_ENABLE=1 scr_list_down_nodes -j srun -l -s 90 -d n0");
    let log = fs::read_to_string(job.prefix().join(".scr/log")).unwrap();
    let failed: Vec<_> = log.lines().filter_map(|line| Some(line.split_once("event=NODE_FAIL")?.1)).collect();
    assert_eq!(failed.len(), 1, "{log}");
    assert!(failed[0].contains("n1: srun: error: n1 is silent") && failed[0].contains("secs=90"), "{log}");
}

#[test]
fn a_script_learns_from_the_directory_whether_the_job_is_to_halt() {
    let job = allocation();
    assert_eq!(code(&sh(&job, "cd /; scr_retries_halt --dir $P")), 1);
    Halt::update(&RealFiles, &Prefix::new(job.prefix()), |halt| halt.checkpoints_left = Some(0)).unwrap();
    for script in ["cd /; scr_retries_halt --dir $P", "cd /; scr_retries_halt -d $P"] {
        let halt = sh(&job, script);
        assert_eq!(code(&halt), 0, "{script}: {}", err(&halt));
    }
}

/// The end of its last hour, which only the resource manager knows.
#[test]
fn a_job_is_to_halt_before_the_end_of_its_allocation() {
    let job = allocation();
    let late = "export SCR_HALT_SECONDS=2d; echo 'date -d 1day +%FT%T' >> $HERE/bin/squeue";
    sh(&job, &format!("sed -i '/N\\/A/d' $HERE/bin/squeue; {late}; scr halt --seconds 2d"));
    for (script, exit) in [
        ("scr_retries_halt", 0),
        ("scr_retries_halt --resource-manager none", 1),
        // As with C SCR, the directory is enough.
        ("scr_retries_halt --hostfile /no/such/file", 1),
        ("scr halt --immediate; scr_retries_halt --hostfile /no/such/file", 0),
        ("scr halt --unset-reason", 0),
        ("scr_should_exit", 0),
        ("scr halt --list --json | grep -q '\"holds\": \"[0-9]* seconds are left'", 0),
        ("unset SLURM_JOB_ID SLURM_JOB_NODELIST; scr halt --list --json | grep -q '\"holds\": null'", 0),
        ("scr_prerun --resource-manager moab", 1),
        ("scr prerun --hostfile /no/such/file", 2),
        ("scr_prerun", 0),
    ] {
        let answer = sh(&job, script);
        assert_eq!(code(&answer), exit, "{script}: {}{}", out(&answer), err(&answer));
    }
}

#[test]
fn datasets_that_can_be_rebuilt_are_listed_by_their_ids_for_a_script_that_names_a_control_directory() {
    let job = allocation();
    for options in ["-u n0", "--jobset n[0-1] --down n1", "-j n0 -v", ""] {
        let answer = sh(&job, &format!("scr_inspect {options} --from /dev/shm/nowhere"));
        assert_eq!((code(&answer), out(&answer).as_str()), (0, "1\n"), "{options}: {}", err(&answer));
    }
    let lost = sh(&job, "SCR_JOB_ID=78 scr_inspect -f /dev/shm/nowhere");
    assert_eq!((code(&lost), out(&lost).as_str()), (1, ""), "{}", err(&lost));
}

#[test]
fn lists_of_nodes_are_computed_with_the_options_of_c_scr_as_well() {
    let job = allocation();
    for (options, exit, printed) in [
        ("--count --hosts n[1-3]", 0, "3\n"),
        ("-c -h n[1-3]", 0, "3\n"),
        ("--count n[1-3] n9", 0, "4\n"),
        ("-c -m n[1-3]:n2", 0, "2\n"),
        ("-m n[1-4] n2 n3", 0, "n[1,4]\n"),
        ("-n 2 -h n[1-3]", 0, "n2\n"),
        ("--nth -1 --hosts n[1-3]", 0, "n3\n"),
        ("--nth 2 n[1-3]", 0, "n2\n"),
        ("--nth 4 --hosts n[1-3]", 1, ""),
        ("--nth -4 --hosts n[1-3]", 1, ""),
        ("--hosts n1,n2", 0, "n[1-2]\n"),
        ("n1 n2 n5", 0, "n[1-2,5]\n"),
        ("-i n[1-3]:n[2-5]", 0, "n[2-3]\n"),
        ("-i n[1-3] n9", 0, "\n"),
        ("-m n1 n1", 0, "\n"),
        ("-C n1,n2", 0, "n[1-2]\n"),
        ("-e n[1-3]", 0, "n1,n2,n3\n"),
        ("-e -d ' ' n[1-3]", 0, "n1 n2 n3\n"),
        ("-e -d '\\n' n[1-3]", 0, "n1\nn2\nn3\n"),
        ("-s 2 n[1-5]", 0, "n[1-2]\n"),
        ("-e -s -2 n[1-5]", 0, "n4,n5\n"),
        ("-c -s 9 n[1-5]", 0, "5\n"),
        ("-c", 2, ""),
        ("-c -e n1", 2, ""),
        ("-m -i n1 n2", 2, ""),
    ] {
        for name in ["scr_glob_hosts", "scr_hostlist"] {
            let answer = sh(&job, &format!("{name} {options}"));
            assert_eq!(
                (code(&answer), out(&answer).as_str()),
                (exit, printed),
                "{options}: {}",
                err(&answer)
            );
        }
    }
    for (options, classic, ours) in [
        ("-j", "77", "77\n"),
        ("-n", "n0,n1", "n0,n1\n"),
        ("-u", "user1", "user1\n"),
        ("-p $P -r", "2", "2\n"),
        ("-n -u -e", "user10n0,n1", "user1\n0\nn0,n1\n"),
        ("-d", "", "\n"),
        ("-p $HERE -r", "0", "0\n"),
    ] {
        let answers = ["scr_env", "scr env"].map(|name| sh(&job, &format!("{name} {options}")));
        assert_eq!(answers.each_ref().map(code), [0, 0], "{options}");
        assert_eq!(answers.each_ref().map(out), [classic, ours], "{options}");
    }
    assert_eq!(out(&sh(&job, "scr_env")), "");
}

/// Excluded, without room, or silent once: none of this keeps a node from giving what it holds.
#[test]
fn a_node_that_no_job_may_use_is_asked_for_what_it_holds() {
    let job = allocation();
    let excluded = "export SCR_EXCLUDE_NODES=n[0-1]; scr_list_down_nodes";
    let found = sh(&job, &format!("{excluded}; scr inspect"));
    assert!(code(&found) == 0 && out(&found).starts_with("n[0-1]\n"), "{}", out(&found));
    assert!(out(&found).trim_end().ends_with("whole"), "{}", out(&found));
    // The batch system has tidied up already.
    let saved = sh(&job, &format!("{excluded}; TMPDIR=$HERE/gone scr postrun"));
    assert_eq!(code(&saved), 0, "{}", err(&saved));
    assert!(
        !err(&saved).contains("were rebuilt") && !err(&saved).contains("is not asked"),
        "{}",
        err(&saved)
    );
    let bytes = fs::read(job.prefix().join("ckpt.1/rank_1")).unwrap();
    assert_eq!(bytes, [b'x'; 1000]);
}

/// Each node failed, and nothing was saved.
#[test]
fn what_the_nodes_have_is_saved_though_no_file_of_numbers_is_in_the_prefix_directory() {
    for makes in ["mkfifo", "mkdir", "ln -s nowhere"] {
        let job = allocation();
        let ids = job.prefix().join(".scr/ids.scr");
        let saved = sh(&job, &format!("rm {0}; {makes} {0}; scr postrun", ids.display()));
        let message = err(&saved);
        if ids.is_symlink() {
            // The file may be where the link leads, once that is there.
            assert_eq!(code(&saved), 1, "{message}");
            assert!(
                message.contains("node n1 is not asked for what it holds: it could not look: cannot read")
            );
            continue;
        }
        assert_eq!(code(&saved), 0, "{makes}: {message}");
        let bytes = fs::read(job.prefix().join("ckpt.1/rank_1")).unwrap();
        assert_eq!(bytes, [b'x'; 1000]);
    }
}

#[test]
fn a_node_that_is_not_asked_for_what_it_holds_is_named_with_the_reason() {
    for (setup, why) in [
        ("touch $HERE/n1.down", "it did not answer: srun: error: n1 is silent"),
        ("echo \"echo 'n1 down*'\" >> $HERE/bin/sinfo", "Slurm reports it down"),
    ] {
        let job = allocation();
        let saved = sh(&job, &format!("{setup}; scr postrun"));
        assert_eq!(code(&saved), 0, "{}", err(&saved));
        let message = err(&saved);
        assert!(message.contains(&format!("node n1 is not asked for what it holds: {why}")), "{message}");
        assert!(
            message.contains("saving it from 1 node") && message.contains("ranks 1 were rebuilt"),
            "{message}"
        );
        let bytes = fs::read(job.prefix().join("ckpt.1/rank_1")).unwrap();
        assert_eq!(bytes, [b'x'; 1000]);
    }
    let job = allocation();
    let found = sh(&job, "echo \"echo 'n1 down*'\" >> $HERE/bin/sinfo; scr inspect");
    assert!(
        err(&found).contains("node n1 is not asked for what it holds: Slurm reports it down"),
        "{}",
        err(&found)
    );
    assert!(out(&found).trim_end().ends_with("can be rebuilt"), "{}", out(&found));
}
