//! The cost of a job on pretend nodes: it fails three times, and every figure of its report is added up against its log in
//! another way. Its page is opened in a browser, and its metrics are scraped by a node exporter, and asked for by all
//! queries of the dashboard.

use scr_tests::{
    expect_well_shown, needs_namespaces, on_any_mpi, repository, take_picture, with_optional, Cluster, Job,
    Mpi, Program, Server, Theme, NODE_EXPORTER,
};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// An entry of the event log, read with as little as possible.
struct Entry {
    micros: u64,
    name: String,
    line: String,
}

impl Entry {
    fn of(line: &str) -> Self {
        let (time, rest) = line.split_at(27);
        let time = time.parse::<jiff::Timestamp>().expect("a time").as_microsecond();
        let name = field(rest, "event").or_else(|| field(rest, "xfer")).expect("a name");
        Self { micros: u64::try_from(time).expect("after the epoch"), name, line: rest.to_owned() }
    }

    fn number(&self, key: &str) -> f64 {
        field(&self.line, key).map_or(0.0, |text| text.parse().expect("a number"))
    }
}

fn field(line: &str, key: &str) -> Option<String> {
    let (_, rest) = line.split_once(&format!(" {key}="))?;
    Some(rest.split(", ").next()?.trim_matches('"').to_owned())
}

fn log_of(cluster: &Cluster) -> Vec<Entry> {
    let text = std::fs::read_to_string(cluster.prefix().join(".scr/events")).expect("a log");
    let mut entries: Vec<_> = text.lines().map(Entry::of).collect();
    entries.sort_by_key(|entry| entry.micros);
    entries
}

fn count(log: &[Entry], name: &str) -> u64 {
    log.iter().filter(|entry| entry.name == name).count() as u64
}

fn sum(log: &[Entry], name: &str, key: &str) -> f64 {
    log.iter().filter(|entry| entry.name == name).map(|entry| entry.number(key)).sum()
}

/// Seconds from each entry of one name to the next that has one of the others, without waits for flushes between them.
fn between(log: &[Entry], from: &str, until: &[&str]) -> f64 {
    let stretch = |(at, begin): (usize, &Entry)| {
        let rest = &log[at + 1..];
        let end = rest.iter().position(|entry| until.contains(&entry.name.as_str()))?;
        Some((rest[end].micros - begin.micros) as f64 / 1e6 - sum(&rest[..end], "FLUSH_WAIT", "secs"))
    };
    log.iter().enumerate().filter(|(_, entry)| entry.name == from).filter_map(stretch).sum()
}

/// Whether the pictures of the documents are to be made. Their job computes for some seconds.
fn makes_pictures() -> bool {
    std::env::var_os("SCR_WRITE_PICTURES").is_some()
}

fn heat<'a>(cluster: &'a mut Cluster, mpi: Mpi, metrics: &Path) -> Job<'a> {
    let pause = if makes_pictures() { "300" } else { "10" };
    let options = ["--size", "200", "--steps", "60", "--every", "10", "--pause-ms", pause];
    let job = cluster.job(mpi, 4, Program::Heat2d).args(options);
    job.env("SCR_METRICS_DIR", metrics.display()).env("SCR_FLUSH", 2).env("SCR_FLUSH_ASYNC", 1)
}

/// Three runs that die at the same step, and one that goes on after a node was lost.
fn fail_three_times(cluster: &mut Cluster, mpi: Mpi, metrics: &Path) {
    std::fs::create_dir(metrics).expect("a folder for metrics");
    let dying = heat(cluster, mpi, metrics).by_scr_run(1).env("SCR_RUNS", 3);
    let failed = dying.args(["--kill-rank", "1", "--kill-step", "47"]).run();
    assert!(!failed.succeeded() && !failed.timed_out());
    assert!(failed.prints("scr run: goodput: ") && failed.prints("(3 runs, 3 failures)"));
    assert!(!failed.prints("rank 0 on n0: goodput"), "the runs do not say it, too");
    cluster.lose_node(2);
    let ended = heat(cluster, mpi, metrics).on(&[0, 1, 4, 3]).by_scr_run(1).run();
    assert!(ended.succeeded() && ended.prints("heat2d: restarted from heat.0000"), "it did not go on");
    assert!(ended.prints("(4 runs, 3 failures)"));
}

fn expect_near(job: &Value, class: &str, expected: f64) {
    let (found, elapsed) =
        (job["seconds"][class].as_f64().expect("seconds"), job["elapsed_seconds"].as_f64().expect("seconds"));
    assert!((found - expected).abs() < 0.01 * elapsed, "{class}: {found} s, and {expected} s by the log");
}

fn expect_added_up(log: &[Entry], job: &Value) {
    let all = job["seconds"].as_object().expect("classes").values();
    let all: f64 = all.map(|seconds| seconds.as_f64().expect("seconds")).sum();
    let elapsed = (log.last().expect("entries").micros - log[0].micros) as f64 / 1e6;
    assert!(
        (all - elapsed).abs() < 1e-3
            && (job["elapsed_seconds"].as_f64().expect("seconds") - elapsed).abs() < 1e-3
    );
    for (figure, name) in [("runs", "START"), ("restarts", "RESTART_SUCCESS")] {
        assert_eq!(job[figure].as_u64(), Some(count(log, name)), "{figure}");
    }
    assert_eq!((job["runs"].as_u64(), job["failures"].as_u64()), (Some(4), Some(3)));
    let spent = [
        ("checkpoints", "CHECKPOINT_END"),
        ("flushes_in_background", "FLUSH_ASYNC"),
        ("flushes_waited_for", "FLUSH_SYNC"),
        ("flush_waits", "FLUSH_WAIT"),
        ("rebuilds", "REBUILD_SUCCESS"),
        ("fetches", "FETCH"),
    ];
    for (figure, name) in spent {
        assert_eq!(job[figure]["count"].as_u64(), Some(count(log, name)), "{figure}");
        let seconds = job[figure]["seconds"].as_f64().expect("seconds");
        assert!((seconds - sum(log, name, "secs")).abs() < 1e-6, "{figure}");
    }
    assert_eq!(job["rebuilt_processes"].as_f64(), Some(sum(log, "REBUILT", "procs")));
    let levels = [
        ("written to ", "WRITE"),
        ("encoded with XOR", "ENCODE"),
        ("flushed in the background", "FLUSH_ASYNC"),
    ];
    for (level, name) in levels {
        let of_level = job["levels"].as_array().expect("levels").iter();
        let found = of_level.filter(|one| one["level"].as_str().is_some_and(|name| name.starts_with(level)));
        let bytes: f64 = found.map(|one| one["bytes"].as_f64().expect("bytes")).sum();
        assert_eq!(bytes, sum(log, name, "bytes"), "{level}");
    }
    expect_near(job, "flush", sum(log, "FLUSH_WAIT", "secs"));
    expect_near(job, "checkpoint", between(log, "COMPUTE_END", &["COMPUTE_START"]));
    let restarts =
        between(log, "RUN_START", &["COMPUTE_START"]) + between(log, "RESTART_START", &["RESTART_SUCCESS"]);
    expect_near(job, "restart", restarts);
    expect_near(job, "saving", between(log, "POSTRUN_START", &["POSTRUN_END"]));
    let lost: Vec<_> =
        log.split_inclusive(|entry| entry.name == "RUN_END").filter(|run| count(run, "HALT") == 0).collect();
    let lost = lost.iter().filter(|run| count(run, "START") == 1).map(|run| {
        let last = run.iter().rposition(|entry| entry.name == "COMPUTE_START").expect("it has computed");
        between(&run[last..], "COMPUTE_START", &["RUN_END"])
    });
    expect_near(job, "lost", lost.sum());
}

fn expect_good_metrics(metrics: &Path) {
    let files: Vec<_> =
        std::fs::read_dir(metrics).expect("a folder").flatten().map(|entry| entry.path()).collect();
    assert_eq!(files.len(), 1, "that of rank 0: {files:?}");
    with_optional("promtool", "the metrics by promtool", || {
        for file in &files {
            let text = std::fs::read(file).expect("metrics");
            let mut check = Command::new("promtool")
                .args(["check", "metrics"])
                .stdin(Stdio::piped())
                .spawn()
                .expect("promtool");
            check.stdin.take().expect("a pipe").write_all(&text).expect("it reads");
            assert!(check.wait().expect("it ends").success(), "{}", String::from_utf8_lossy(&text));
        }
    });
    with_optional(NODE_EXPORTER, "the metrics by a node exporter", || {
        let exporter = Server::node_exporter(metrics);
        let scraped = exporter.get("/metrics");
        let value = |name: &str| {
            let line = scraped.lines().find(|line| line.starts_with(&format!("{name}{{jobid=\"tests\"")));
            let line = line.unwrap_or_else(|| panic!("{name} is not in\n{scraped}"));
            line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a number")
        };
        assert_eq!((value("scr_runs_total"), value("scr_failures_total")), (4.0, 3.0));
        assert_eq!((value("scr_job_running"), value("scr_node_losses_survived")), (0.0, 4.0));
        assert!(value("scr_goodput_ratio") > 0.0 && value("scr_rebuilt_ranks_total") == 1.0);
        assert!(scraped.contains("node_textfile_scrape_error 0"), "{scraped}");
        with_optional("prometheus", "the queries of the dashboard by Prometheus", || {
            // As while the job was at work.
            let text = std::fs::read_to_string(&files[0]).expect("metrics");
            let at_work = |line: &str| {
                if line.starts_with("scr_job_running{") {
                    line.replace("} 0", "} 1")
                } else {
                    line.to_owned()
                }
            };
            let text: String = text.lines().map(|line| at_work(line) + "\n").collect();
            std::fs::write(&files[0], text).expect("the same file");
            expect_answered(&exporter);
        });
    });
}

/// A Prometheus calls its own jobs `job`, as it does by default: all queries asked for those.
fn expect_answered(exporter: &Server) {
    let folder = tempfile::tempdir().expect("a folder");
    let prometheus = Server::prometheus(folder.path(), exporter);
    let dashboard = std::fs::read_to_string(repository().join("etc/grafana/scr.json")).expect("a dashboard");
    let dashboard: Value = serde_json::from_str(&dashboard).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let of_job =
        |query: &str| query.replace("$job", "tests").replace("$user", ".*").replace("$__rate_interval", "1m");
    let mut queries: Vec<_> =
        targets.map(|target| of_job(target["expr"].as_str().expect("a query"))).collect();
    assert!(queries.len() > 20);
    // Rates need two scrapes.
    let deadline = Instant::now() + Duration::from_secs(60);
    while !queries.is_empty() {
        assert!(Instant::now() < deadline, "nothing is found by {queries:#?}");
        queries.retain(|query| !prometheus.query(query).contains("\"value\":"));
        std::thread::sleep(Duration::from_millis(100));
    }
    let jobs = prometheus.get("/api/v1/label/jobid/values");
    assert!(jobs.contains("\"tests\""), "the dashboard offers no job: {jobs}");
}

on_any_mpi! {
    #[ignore = "long"]
    fn every_figure_of_a_job_with_three_failures_adds_up_against_its_log(mpi: Mpi) {
        needs_namespaces!();
        let mut cluster = Cluster::new(5);
        let metrics = cluster.scratch().join("metrics");
        fail_three_times(&mut cluster, mpi, &metrics);
        let log = log_of(&cluster);
        let page = cluster.scratch().join("page.html");
        let report = cluster.scr(mpi, &["report", "--json", "--html", page.to_str().expect("UTF-8")]);
        assert!(report.status.success(), "{}", String::from_utf8_lossy(&report.stderr));
        let report: Value = serde_json::from_slice(&report.stdout).expect("JSON");
        assert_eq!(report["jobs"].as_array().map(Vec::len), Some(1), "{report}");
        expect_added_up(&log, &report["jobs"][0]);
        expect_good_metrics(&metrics);
        with_optional("chromium", "the report in a browser", || {
            let profile = cluster.scratch().join("profile");
            for (theme, name) in [(Theme::Light, "light"), (Theme::Dark, "dark")] {
                expect_well_shown(&page, &profile, theme);
                if makes_pictures() {
                    let picture = repository().join(format!("docs/images/report-{name}.png"));
                    take_picture(&page, &profile, theme, &picture);
                }
            }
        });
    }
}
