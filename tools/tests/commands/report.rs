//! `scr report` as users type it: every figure against the log, many jobs, the page, and wrong input.

use crate::answer::{code, err, out};
use crate::installation::Installation;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;

/// The log of a job that fails three times, and of each run the seconds of its entries. It computes for ten seconds, writes a
/// checkpoint in two, and waits a second for its flush.
fn failing(job: &str, began: u64) -> String {
    let mut text = String::new();
    let mut at = began;
    let mut dataset = 0;
    let mut say = |later: u64, fields: String| {
        at += later;
        let time = jiff::Timestamp::new(i64::try_from(at).unwrap(), 250_000_000).unwrap();
        let _ = writeln!(text, "{}: host=n0, jobid={job}{fields}", time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ"));
    };
    for run in 1..=4 {
        say(1, format!(", event=RUN_START, note=\"run={run}\""));
        let mut of_run = |later: u64, fields: &str| say(later, format!(", run={run}, {fields}"));
        of_run(2, "user=\"ann\", event=START, procs=8, nodes=4");
        of_run(1, "event=COMPUTE_START");
        if run > 1 {
            of_run(0, &format!("event=RESTART_START, dset={dataset}"));
            of_run(3, &format!("event=RESTART_SUCCESS, dset={dataset}"));
        }
        for _ in 0..3 {
            dataset += 1;
            let (ssd, pfs) = ("from=/ssd, to=/ssd/1", "from=/ssd/1, to=/pfs");
            let size = format!("dset={dataset}, secs=2.000000, bytes=8000000.000000, files=8");
            of_run(10, "event=COMPUTE_END, secs=10.000000");
            of_run(0, &format!("event=CHECKPOINT_START, dset={dataset}"));
            of_run(2, &format!("xfer=WRITE, {ssd}, {size}"));
            of_run(0, &format!("xfer=ENCODE, {ssd}, {size}, scheme=\"XOR\""));
            of_run(0, &format!("event=CHECKPOINT_END, dset={dataset}, secs=2.000000"));
            of_run(0, &format!("xfer=CHECKPOINT, {ssd}, {size}"));
            of_run(0, &format!("event=FLUSH_START, dset={dataset}"));
            of_run(1, &format!("event=FLUSH_SUCCESS, dset={dataset}, secs=1.000000"));
            of_run(0, &format!("xfer=FLUSH_SYNC, {pfs}, {size}"));
            of_run(0, "event=FLUSH_WAIT, secs=1.000000");
            of_run(0, "event=COMPUTE_START");
        }
        match run {
            4 => of_run(5, "event=HALT, note=\"SCR_FINALIZE_CALLED\""),
            _ => say(7, format!(", event=RUN_END, note=\"run={run}, status=9\", secs=50.0")),
        }
    }
    text
}

fn with_log(text: &str) -> Installation {
    let scr = Installation::with_system_file("");
    scr.write("prefix/.scr/events", text);
    scr
}

fn json(scr: &Installation, arguments: &[&str]) -> Value {
    let output = scr.in_prefix(&[&["report", "--json"], arguments].concat()).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    crate::answer::json_of(&output)
}

#[test]
fn every_figure_of_a_job_with_three_failures_adds_up() {
    let scr = with_log(&failing("7", 1_795_228_000));
    let report = json(&scr, &[]);
    let job = &report["jobs"][0];
    assert_eq!(report["jobs"].as_array().unwrap().len(), 1);
    // Each run has 3 s to start, 3 to read the checkpoint (not the first run), 30 to compute, 6 for checkpoints, 3 for flushes,
    // and 7 of computing that is lost, or 5 until the end. A second lies between two runs.
    let expected = [
        ("computing", 4.0 * 30.0 + 5.0),
        ("lost", 3.0 * 7.0),
        ("checkpoint", 4.0 * 6.0),
        ("flush", 4.0 * 3.0),
        ("restart", 4.0 * 3.0 + 3.0 * 3.0),
        ("down", 3.0),
        ("saving", 0.0),
    ];
    let mut sum = 0.0;
    for (class, seconds) in expected {
        assert_eq!(job["seconds"][class], seconds, "{class}: {}", job["seconds"]);
        sum += seconds;
    }
    assert_eq!(job["elapsed_seconds"], sum);
    assert_eq!(
        (job["runs"].as_u64(), job["failures"].as_u64(), job["restarts"].as_u64()),
        (Some(4), Some(3), Some(3))
    );
    assert_eq!(
        (job["checkpoints"]["count"].as_u64(), job["checkpoints"]["seconds"].as_f64()),
        (Some(12), Some(24.0))
    );
    assert_eq!(job["goodput"].as_f64(), Some(125.0 / sum));
    assert_eq!((job["user"].as_str(), job["state"].as_str()), (Some("ann"), Some("finished")));
    for level in job["levels"].as_array().unwrap() {
        assert_eq!(
            (level["bytes"].as_u64(), level["count"].as_u64()),
            (Some(12 * 8_000_000), Some(12)),
            "{level}"
        );
        assert_eq!(level["bytes_per_second"], 4e6);
    }
    let timeline = job["timeline"].as_array().unwrap();
    for (class, seconds) in expected {
        let of_class = timeline.iter().filter(|part| part[0] == class);
        let micros: u64 = of_class.map(|part| part[2].as_u64().unwrap() - part[1].as_u64().unwrap()).sum();
        assert_eq!(micros as f64 / 1e6, seconds, "{class}");
    }
    assert!(timeline.windows(2).all(|pair| pair[0][2] == pair[1][1]), "without gaps");
    assert_eq!(job["failed_at_micros"].as_array().unwrap().len(), 3);
    let text = out(&scr.in_prefix(&["report"]).output().unwrap());
    for part in [
        "goodput: 60.7 % of 3 min 26 s (4 runs, 3 failures)",
        "computed twice",
        "encoded with XOR",
        "best interval",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn brief_says_of_the_newest_job_who_it_was_and_what_it_has_cost() {
    let scr = with_log(&(failing("7", 1_795_228_000) + &failing("8", 1_795_300_000)));
    let output = scr.in_prefix(&["report", "--brief"]).output().unwrap();
    let text = out(&output);
    assert_eq!((code(&output), text.lines().count()), (0, 7), "{text}");
    assert!(text.starts_with("job 8 of ann, prefix directory "), "{text}");
    let older = out(&scr.in_prefix(&["report", "--brief", "--job", "7"]).output().unwrap());
    assert!(older.starts_with("job 7 of ann"), "{older}");
    let many = out(&scr.in_prefix(&["report"]).output().unwrap());
    assert!(
        many.contains("\n2 jobs together\ngoodput: 60.7 % of 6 min 52 s (8 runs, 6 failures)\n"),
        "{many}"
    );
    let since = out(&scr.in_prefix(&["report", "--since", "2026-11-21 12:00Z"]).output().unwrap());
    assert!(since.starts_with("job 8"), "{since}");
}

#[test]
fn the_log_of_c_scr_is_added_up_too_and_no_entry_counts_twice() {
    let scr = Installation::with_system_file("");
    let theirs =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/c-scr/xor-flush2/raw/prefix/.scr/log");
    scr.write("prefix/.scr/log", fs::read_to_string(theirs).unwrap());
    let job = &json(&scr, &[])["jobs"][0];
    assert_eq!((job["checkpoints"]["count"].as_u64(), job["state"].as_str()), (Some(4), Some("finished")));
    assert_eq!(job["levels"][2]["bytes"].as_u64(), Some(2 * 8226), "{job}");
    // A job that has logged to both files.
    let scr = with_log(&failing("7", 1_795_228_000));
    let both: String = fs::read_to_string(scr.path("prefix/.scr/events")).unwrap();
    let listed: Value = crate::answer::json_of(&scr.in_prefix(&["log", "--json"]).output().unwrap());
    let mut classic = String::new();
    for (line, entry) in both.lines().zip(listed["entries"].as_array().unwrap()) {
        let _ = writeln!(classic, "{}{}", entry["time"].as_str().unwrap(), line.split_at(27).1);
    }
    let before = json(&scr, &[]);
    scr.write("prefix/.scr/log", classic);
    assert_eq!(json(&scr, &[]), before);
}

#[test]
fn the_page_needs_nothing_from_elsewhere_and_can_be_heard() {
    let scr = with_log(&failing("7<b>", 1_795_228_000));
    let output = scr.in_prefix(&["report", "--html", "page.html"]).output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    let page = fs::read_to_string(scr.path("prefix/page.html")).unwrap();
    for elsewhere in ["http:", "https:", "src=", "href=", "@import", "url(", "<script", "<link", "<b>"] {
        assert!(!page.contains(elsewhere), "{elsewhere}");
    }
    for part in [
        "<html lang=\"en\">",
        "prefers-color-scheme:dark",
        "@media print",
        "<h2 id=\"life\">",
        "role=\"img\" aria-labelledby=\"lt ld\"",
        "<desc id=\"ld\">In 3 min 26 s there were 4 runs and 3 failures. In total: computing 2 min 5 s, computed twice 21 s, ",
        "<title id=\"b0t\">Bandwidth: written to /ssd</title>",
        "<title id=\"it\">Expected loss over the interval</title>",
        ">present: 10 s, ",
        ">best: ",
        "7&lt;b&gt;",
    ] {
        assert!(page.contains(part), "{part}");
    }
    crate::answer::assert_balanced(&page);
}

#[test]
fn a_mistyped_folder_is_an_error_and_the_others_are_reported_all_the_same() {
    let scr = with_log(&failing("7", 1_795_228_000));
    scr.write("prefix/file", "");
    for wrong in ["missing", "file"] {
        let alone = scr.in_prefix(&["report", wrong]).output().unwrap();
        assert_eq!(code(&alone), 2, "{wrong}: {}", out(&alone));
        let path = scr.path("prefix").join(wrong);
        let why = format!("scr: there is no prefix directory {}; correct the name", path.display());
        assert!(err(&alone).starts_with(&why), "{}", err(&alone));
        let both = scr.in_prefix(&["report", wrong, "."]).output().unwrap();
        assert!(code(&both) == 2 && err(&both).starts_with(&why) && out(&both).starts_with("job 7"));
    }
}

#[test]
fn whatever_is_in_the_log_the_report_ends() {
    let good = failing("7", 1_795_228_000);
    let torn: String = good.lines().map(|line| format!("{}\n", &line[..line.len() * 2 / 3])).collect();
    let mut bytes = good.clone().into_bytes();
    bytes.iter_mut().step_by(7).for_each(|byte| *byte ^= 0x80);
    for (what, log, expected) in [
        ("empty", Vec::new(), 1),
        ("torn", torn.into_bytes(), 0),
        ("flipped", bytes, 1),
        (
            "in another order",
            good.lines().rev().flat_map(|line| [line, "\n"]).collect::<String>().into_bytes(),
            0,
        ),
        (
            "an end only",
            b"2026-11-21T02:28:24.000001Z: host=a, jobid=7, event=RUN_END, note=\"status=0\"\n".to_vec(),
            0,
        ),
    ] {
        let scr = Installation::with_system_file("");
        scr.write("prefix/.scr/events", log);
        let output = scr.in_prefix(&["report", "--html", "page.html"]).output().unwrap();
        assert_eq!(code(&output), expected, "{what}: {}", err(&output));
    }
    let scr = with_log(&good);
    for (arguments, words) in [
        (&["report", ".."][..], "there is no log at "),
        (&["report", "--job", "9"][..], "no job is in the logs"),
        (&["report", "--since", "soon"][..], "--since cannot be understood"),
        (&["report", "--html", "/nowhere/page.html"][..], "cannot write /nowhere/page.html"),
        (&["report", "--brief", "--json"][..], "cannot be used with"),
    ] {
        let output = scr.in_prefix(arguments).output().unwrap();
        assert_ne!(code(&output), 0, "{arguments:?}");
        assert!(err(&output).contains(words), "{arguments:?}: {}", err(&output));
    }
}

/// Its jobs were added up twice.
#[test]
fn a_directory_that_is_named_twice_counts_once() {
    let scr = with_log(&failing("5132", 1_795_228_000));
    let report = |arguments: &[&str]| {
        out(&scr.in_prefix(&[&["report", "--csv"], arguments].concat()).output().unwrap())
    };
    assert_eq!(report(&[".", "../prefix", "."]), report(&["."]));
    assert_eq!(report(&["."]).lines().count(), 2);
}

/// The rows had the job and the user, which are the same in all directories of a user without a resource manager.
#[test]
fn a_report_of_many_directories_says_which_row_is_which_and_finds_the_worst() {
    let scr = Installation::with_system_file("");
    let (good, bob) = (failing("7", 1_795_228_000), failing("8", 1_795_228_000).replace("ann", "bob,jr"));
    let first_run = good.find("run=1, status").and_then(|at| Some(at + good[at..].find('\n')? + 1)).unwrap();
    for (dir, log) in [("runs/a", &good), ("runs/deep/b", &bob), ("runs/c", &good[..first_run].to_owned())] {
        scr.write(format!("prefix/{dir}/.scr/events"), log);
    }
    let all = ["report", "runs/a", "runs/deep/b", "runs/c"];
    let report = |more: &[&str]| {
        let output = scr.in_prefix(&[&all[..], more].concat()).output().unwrap();
        assert_eq!(code(&output), 0, "{more:?}: {}", err(&output));
        out(&output)
    };
    let ends = |text: &str| -> Vec<String> {
        let rows = text.lines().skip(1).take_while(|line| !line.is_empty());
        rows.map(|row| row.rsplit(' ').next().unwrap().to_owned()).collect()
    };
    let table = report(&[]);
    assert!(table.lines().next().unwrap().ends_with("FAILURES  PREFIX"), "{table}");
    assert_eq!(ends(&table), [".../a", ".../deep/b", ".../c"], "{table}");
    assert_eq!(ends(&report(&["--sort", "goodput"])), [".../a", ".../deep/b", ".../c"]);
    assert_eq!(ends(&report(&["--sort", "elapsed", "--worst", "2"])), [".../a", ".../deep/b"]);
    assert!(report(&["--user", "bob,jr"]).starts_with("job 8 of bob,jr, prefix directory "));
    assert!(report(&["--worst", "1", "--sort", "lost"]).starts_with("job 7 of ann"));
    let users = report(&["--by", "user"]);
    let rows: Vec<_> =
        users.lines().take(3).map(|row| row.split_whitespace().take(2).collect::<Vec<_>>()).collect();
    assert_eq!(rows, [["USER", "JOBS"], ["ann", "2"], ["bob,jr", "1"]], "{users}");
    let csv = report(&["--csv", "--worst", "1"]);
    let head = "prefix,job_id,user,state,elapsed,goodput,computing,lost,checkpoint,flush,restart,down,saving,runs,failures,checkpoints";
    let row = format!("{},7,ann,finished,206,0.60", scr.path("prefix/runs/a").display());
    assert!(csv.starts_with(&format!("{head}\n{row}")) && csv.ends_with(",4,3,12\n"), "{csv}");
    let csv = report(&["--csv", "--by", "user"]);
    assert!(csv.starts_with("user,jobs,elapsed,") && csv.contains("\n\"bob,jr\",1,206,"), "{csv}");
    let by_user = json(&scr, &["--by", "user", "runs/a", "runs/deep/b"]);
    assert_eq!(
        (by_user["users"][1]["user"].as_str(), by_user["users"][1]["jobs"].as_u64()),
        (Some("bob,jr"), Some(1))
    );
}
