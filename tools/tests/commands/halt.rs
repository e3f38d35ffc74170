//! `scr halt` as users type it.

use crate::installation::Installation;
use scr_base::fs::RealFiles;
use scr_prefix::{LastRun, Prefix};
use std::process::Output;

fn halt(scr: &Installation, arguments: &[&str]) -> Output {
    scr.in_prefix(&["halt"]).args(arguments).env("TZ", "UTC").output().expect("the command starts")
}

/// The conditions as JSON has them, and whether one holds.
fn listed(scr: &Installation) -> (serde_json::Value, bool) {
    let listed = halt(scr, &["--list", "--json"]);
    assert_eq!(listed.status.code(), Some(0));
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    let holds = !listed["holds"].is_null();
    (listed, holds)
}

#[test]
fn the_plain_command_halts_after_the_next_checkpoint_for_good() {
    let scr = Installation::with_system_file("");
    // Before the first run there is nothing of ours.
    std::fs::remove_dir_all(scr.path("prefix/.scr")).expect("a folder of ours");
    assert!(!listed(&scr).1, "no file, no condition");
    // A user in the wrong folder was not told.
    let says = |arguments: &[&str], words: &str| {
        let said = halt(&scr, arguments);
        String::from_utf8_lossy(&said.stderr).contains(words)
    };
    assert!(says(&["--list"], "prefix has no folder .scr: no job has used it"));
    assert!(says(
        &[],
        "no job has used it as its prefix directory; the conditions hold for the next one that does"
    ));
    assert!(!says(&["--list"], "no job has used it"));
    let (found, holds) = listed(&scr);
    assert_eq!((&found["exit_reason"], holds), (&serde_json::json!("JOB_HALTED"), true));
    // The reason was another one than that of `scr status'.
    let status = scr.in_prefix(&["status", "--json", "--offline"]).output().expect("the command starts");
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).expect("JSON");
    assert_eq!(found["holds"], status["halt"]["now"]);
    // The same from elsewhere, by the name that C SCR has, in the folder that is named.
    std::os::unix::fs::symlink(scr.path("bin/scr"), scr.path("bin/scr_halt")).expect("a link");
    let mut classic = std::process::Command::new(scr.path("bin/scr_halt"));
    let classic =
        classic.args(["--checkpoints", "10"]).arg(scr.path("prefix")).current_dir("/").output().unwrap();
    assert_eq!(classic.status.code(), Some(0), "{classic:?}");
    assert_eq!(listed(&scr).0["checkpoints_left"], 10);
}

#[test]
fn a_directory_that_is_not_there_does_not_keep_the_others_from_their_conditions() {
    let scr = Installation::with_system_file("");
    let dirs = ["nowhere", "prefix", "no/where"].map(|dir| scr.path(dir).display().to_string());
    let said = halt(&scr, &["--checkpoints", "7", &dirs[0], &dirs[1], &dirs[2]]);
    assert_eq!(said.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!([&dirs[0], &dirs[2]].iter().all(|dir| errors.contains(*dir)), "{errors}");
    assert_eq!(listed(&scr).0["checkpoints_left"], 7);
}

/// `scr index --de` deleted.
#[test]
fn only_a_classic_name_takes_the_beginning_of_an_option() {
    let scr = Installation::with_system_file("");
    assert_eq!(halt(&scr, &["--check", "7"]).status.code(), Some(2));
    std::os::unix::fs::symlink(scr.path("bin/scr"), scr.path("bin/scr_halt")).expect("a link");
    let mut classic = std::process::Command::new(scr.path("bin/scr_halt"));
    let classic = classic.args(["--check", "7"]).arg(scr.path("prefix")).output().expect("it starts");
    assert_eq!(classic.status.code(), Some(0), "{classic:?}");
}

#[test]
fn conditions_are_set_together_changed_and_unset_one_by_one() {
    let scr = Installation::with_system_file("");
    halt(
        &scr,
        &["--checkpoints", "10", "--before", "2011-03-01 02:00", "--after", "@9999999999", "--seconds", "60"],
    );
    let (found, holds) = listed(&scr);
    let numbers = ["checkpoints_left", "exit_before", "exit_after", "halt_seconds"]
        .map(|name| found[name].as_i64().unwrap());
    assert_eq!((numbers, holds), ([10, 1_298_944_800, 9_999_999_999, 60], true), "{found}");
    halt(&scr, &["--unset-before", "--checkpoints", "3"]);
    let (found, holds) = listed(&scr);
    assert!(found["exit_before"].is_null() && found["checkpoints_left"] == 3 && !holds, "{found}");
    halt(&scr, &["--unset-checkpoints", "--unset-after", "--unset-seconds", "--unset-reason"]);
    let words = String::from_utf8(halt(&scr, &["--list"]).stdout).unwrap();
    assert!(words.ends_with("halt.scr:\n  None\n"), "{words}");
}

/// The words of C SCR's scr_halt, which scripts look for.
#[test]
fn conditions_are_listed_in_the_words_of_c_scr() {
    let scr = Installation::with_system_file("");
    halt(
        &scr,
        &["--checkpoints", "10", "--before", "2011-03-01 02:00", "--after", "@1298937600", "--seconds", "60"],
    );
    halt(&scr, &["--checkpoints", "0"]);
    let words = String::from_utf8(halt(&scr, &["--list"]).stdout).unwrap();
    let path = scr.path("prefix/.scr/halt.scr");
    let expected = format!(
        "Halt file settings for {}:\n  ExitReason:      JOB_HALTED\n  CheckpointsLeft: 10\n  \
         ExitAfter:       Tue Mar  1 00:00:00 2011\n  ExitBefore:      Tue Mar  1 02:00:00 2011\n  HaltSeconds:     60\n  \
         ExitBefore - HaltSeconds: Tue Mar  1 01:59:00 2011\n",
        path.display()
    );
    assert!(words.starts_with(&expected), "{words}");
}

#[test]
fn immediate_holds_at_once_until_the_reason_or_the_file_is_removed() {
    let scr = Installation::with_system_file("");
    let immediate = halt(&scr, &["--immediate"]);
    assert!(String::from_utf8_lossy(&immediate.stderr).contains("scancel JOB.STEP"));
    assert_eq!((listed(&scr).0["exit_reason"].as_str(), listed(&scr).1), (Some("JOB_HALTED"), true));
    halt(&scr, &["--unset-reason"]);
    assert!(!listed(&scr).1);
    halt(&scr, &["--immediate"]);
    assert_eq!(halt(&scr, &["--remove"]).status.code(), Some(0));
    assert!(!scr.path("prefix/.scr/halt.scr").exists());
    let again = halt(&scr, &["--remove"]);
    assert_eq!(again.status.code(), Some(1), "as with C SCR");
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(said.contains("there is no ") && said.contains("halt.scr: nothing halts a job here"), "{said}");
}

/// It had no effect without --seconds.
#[test]
fn a_time_to_halt_before_holds_by_itself() {
    let scr = Installation::with_system_file("");
    for (time, holds) in [("2040-01-01", false), ("2011-03-01 02:00", true)] {
        halt(&scr, &["--before", time]);
        assert_eq!(listed(&scr).1, holds, "{time}");
    }
}

/// The condition was set in silence, and halted nothing.
#[test]
fn seconds_before_an_end_that_nobody_knows_are_set_with_a_message() {
    let scr = Installation::with_system_file("");
    let prefix = Prefix::new(scr.path("prefix"));
    let says = |arguments: &[&str]| {
        let said = halt(&scr, arguments);
        String::from_utf8_lossy(&said.stderr)
            .contains("the end of the allocation is not known, so HaltSeconds")
    };
    assert!(says(&["--seconds", "60"]) && says(&["--list"]));
    assert!(!says(&["--before", "2040-01-01"]) && !says(&["--unset-before", "--end", "2040-01-01"]));
    assert!(says(&["--unset-end"]) && !says(&["--unset-seconds"]));
    LastRun { end: Some(9_999_999_999), ..LastRun::default() }.write(&RealFiles, &prefix).unwrap();
    assert!(!says(&["--seconds", "60"]), "the job knows it");
}

#[test]
fn several_directories_are_named_at_once_and_what_is_set_is_said_in_the_words_of_c_scr() {
    let scr = Installation::with_system_file("");
    std::fs::create_dir(scr.path("other")).expect("a folder");
    let folders = ["prefix", "other"].map(|folder| scr.path(folder).display().to_string());
    let [one, other] = folders.each_ref().map(String::as_str);
    let said = |arguments: &[&str]| String::from_utf8(halt(&scr, arguments).stdout).expect("text");
    let file = |folder: &str| format!("Halt file settings for {folder}/.scr/halt.scr:\n");
    let set = |folder| format!("Setting CheckpointsLeft\n\n{}  CheckpointsLeft: 5\n", file(folder));
    assert_eq!(said(&["-c", "5", one, other]), set(one) + &set(other));
    assert_eq!(
        said(&["--unset-checkpoints", one]),
        format!("Unsetting CheckpointsLeft\n\n{}  None\n", file(one))
    );
    let listed = [file(one), "  None\n".to_owned(), file(other), "  CheckpointsLeft: 5\n".to_owned()];
    assert_eq!(said(&["--list", one, other]), listed.concat());
    assert_eq!(said(&["--remove", other]), "");
}

/// The job halted an hour earlier or later than meant, and nobody had been told.
#[test]
fn a_local_time_that_never_comes_or_comes_twice_is_set_with_a_message_how_it_was_read() {
    let scr = Installation::with_system_file("");
    let says = |time: &str| {
        let mut halt = scr.in_prefix(&["halt", "--seconds", "60", "--before", time]);
        let halted = halt.env("TZ", "CET-1CEST,M3.5.0,M10.5.0/3").output().unwrap();
        assert_eq!(halted.status.code(), Some(0), "{time}: {halted:?}");
        (
            String::from_utf8_lossy(&halted.stderr).into_owned(),
            listed(&scr).0["exit_before"].as_i64().unwrap(),
        )
    };
    for (time, doubt, seconds) in [
        ("2040-03-25 02:30", "never comes here", 2_216_251_800),
        ("2040-10-28 02:30", "comes twice here", 2_234_997_000),
        ("2:30am 2040-10-28", "comes twice here", 2_234_997_000),
    ] {
        let (said, set) = says(time);
        assert!(
            said.contains(&format!("`{time}' {doubt}")) && said.contains("it is read as 2040-"),
            "{said}"
        );
        assert!(said.contains(":30:00+02:00; to mean another moment"), "{said}");
        assert_eq!(set, seconds, "{said}");
    }
    for time in
        ["2040-10-28 01:30", "2040-10-28T02:30:00+01:00", "2040-10-28 02:30 UTC", "@2234997000", "+2h"]
    {
        assert_eq!(says(time).0, "", "{time}");
    }
}

#[test]
fn invalid_times_numbers_and_jobs_are_errors_and_change_nothing() {
    let scr = Installation::with_system_file("");
    let cases: [&[&str]; 9] = [
        &["--after", "noonish"],
        &["--before", ""],
        &["--seconds", "soon"],
        &["--checkpoints", "many"],
        &["--seconds", "-1"],
        &["--list", "--remove"],
        &["--remove", "--checkpoints", "3"],
        &["--before", "tomorrow", "--unset-before"],
        &["/no/such/folder"],
    ];
    for arguments in cases {
        assert_eq!(halt(&scr, arguments).status.code(), Some(2), "{arguments:?}");
    }
    assert!(!scr.path("prefix/.scr/halt.scr").exists());
    scr.write("prefix/.scr/halt.scr", "no halt file at all");
    assert_eq!(halt(&scr, &["--list"]).status.code(), Some(2));
    assert_eq!(halt(&scr, &[]).status.code(), Some(2));
}

/// "A job halts now" was said of a job that had long finished.
#[test]
fn a_job_that_has_finished_is_said_to_have_and_not_to_halt() {
    let scr = Installation::with_system_file("");
    let mut finished = scr_plugin_api::KvTree::new();
    finished.set("ExitReason", "SCR_FINALIZE_CALLED");
    scr.write("prefix/.scr/halt.scr", finished.to_file_bytes());
    let said = String::from_utf8_lossy(&halt(&scr, &["--list"]).stderr).into_owned();
    assert!(
        said.contains("the application has called SCR_Finalize") && !said.contains("halts now"),
        "{said}"
    );
    assert!(said.contains("`scr halt --remove /") && said.contains("' lets it run again"), "{said}");
}

#[test]
fn a_changed_end_belongs_to_the_allocation_of_the_newest_job() {
    let scr = Installation::with_system_file("");
    let set = || halt(&scr, &["--end", "2126-01-01 00:00 UTC"]);
    let id = || {
        let tree = std::fs::read(scr.path("prefix/.scr/halt.scr")).unwrap();
        let tree = scr_plugin_api::KvTree::from_file_bytes(&tree).unwrap();
        (tree.text("AllocationId").map(str::to_owned), tree.text("AllocationEnd").map(str::to_owned))
    };
    set();
    assert_eq!(id().0.as_deref(), Some("defjobid"), "no job has begun");
    let last = LastRun { job_id: "77".to_owned(), ..LastRun::default() };
    last.write(&RealFiles, &Prefix::new(scr.path("prefix"))).unwrap();
    let list = String::from_utf8_lossy(&set().stdout).into_owned();
    assert!(list.contains("AllocationEnd:   Tue Jan  1 00:00:00 2126"), "{list}");
    assert_eq!(id(), (Some("77".to_owned()), Some("4922899200".to_owned())));
    assert!(!listed(&scr).1);
    halt(&scr, &["--unset-end"]);
    assert_eq!(listed(&scr).0["allocation_end"], serde_json::Value::Null);
}

#[test]
fn a_file_that_c_scr_wrote_is_read_and_changed() {
    let scr = Installation::with_system_file("");
    let sample = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let sample =
        std::fs::read(sample.join("../tests/fixtures/c-scr/bypass/raw/prefix/.scr/halt.scr")).unwrap();
    scr.write("prefix/.scr/halt.scr", sample);
    assert_eq!((listed(&scr).0["exit_reason"].as_str(), listed(&scr).1), (Some("SCR_FINALIZE_CALLED"), true));
    halt(&scr, &["--unset-reason"]);
    assert!(!listed(&scr).1);
}
