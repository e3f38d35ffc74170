//! Jobs that log to a database, on a real MariaDB: rows for events and transfers, and jobs that continue whatever the database
//! does.

use scr_tests::{on_any_mpi, repository, stage, Cluster, Job, MariaDb, Mpi, Outcome, Program};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};

const PASSWORD: &str = "hunter2-of-the-test";

fn variables(host: &Path) -> Vec<(&'static str, String)> {
    vec![
        ("SCR_LOG_ENABLE", "1".to_owned()),
        ("SCR_LOG_SYSLOG_ENABLE", "0".to_owned()),
        ("SCR_LOG_DB_ENABLE", "1".to_owned()),
        ("SCR_LOG_DB_HOST", host.display().to_string()),
        ("SCR_LOG_DB_NAME", "site log".to_owned()),
        ("SCR_LOG_DB_USER", "scr".to_owned()),
        ("SCR_LOG_DB_PASS", PASSWORD.to_owned()),
    ]
}

/// Two checkpoints of four ranks on two nodes, the second of which is flushed.
fn job<'a>(cluster: &'a mut Cluster, mpi: Mpi, host: &Path) -> Job<'a> {
    let job = cluster.job(mpi, 4, Program::CkptTest).options(&[("datasets", 2), ("size", 1000)]);
    let job =
        job.env("SCR_FLUSH", 2).env("SCR_JOB_NAME", "sim").env("SCR_USER_NAME", "ann").env("SCR_DEBUG", 0);
    variables(host).into_iter().fold(job, |job, (name, value)| job.env(name, value))
}

/// A server that knows the user, who may make one database.
fn with_user(test: &str, body: impl FnOnce(&mut MariaDb)) {
    MariaDb::run(test, |database| {
        let grant = "GRANT ALL ON `site log`.* TO scr@localhost";
        database.ask(&format!("CREATE USER scr@localhost IDENTIFIED BY '{PASSWORD}'; {grant}"));
        body(database);
    });
}

/// `scr log ARGUMENTS`, about the job's prefix directory.
fn scr_log(mpi: Mpi, cluster: &Cluster, host: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(stage(mpi).join("bin/scr"));
    command.arg("log").args(arguments).envs(variables(host)).env("SCR_PREFIX", cluster.prefix());
    // Each entry in a line of its own.
    command.env("COLUMNS", "1000").current_dir(repository()).output().expect("the command can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The lines about the log, of which there is at most one.
fn about_logging(outcome: &Outcome) -> Vec<&str> {
    assert!(!outcome.prints(PASSWORD), "the password was printed");
    outcome.lines().filter(|line| line.contains("logging to the database")).collect()
}

on_any_mpi! {
    fn events_and_transfers_of_a_job_are_rows_of_the_database(mpi: Mpi) {
        with_user("events_and_transfers_of_a_job_are_rows_of_the_database", |database| {
            let mut cluster = Cluster::new(2);
            let socket = database.socket();
            let made = scr_log(mpi, &cluster, &socket, &["init-db"]);
            assert!(made.status.success(), "{}", text(&made.stderr));
            assert!(text(&made.stdout).contains("made the table transfers"), "{}", text(&made.stdout));
            let again = scr_log(mpi, &cluster, &socket, &["init-db"]);
            assert_eq!(text(&again.stdout), "the database site log has everything already\n");

            let run = job(&mut cluster, mpi, &socket).run().expect_success();
            assert!(about_logging(&run).is_empty(), "{:?}", about_logging(&run));

            let rows = |columns: &str, table: &str, name: &str| {
                database.ask(&format!(
                    "USE `site log`; SELECT {columns} FROM `{table}` e JOIN `types` t ON t.`id` = e.`type_id` \
                     JOIN `jobs` j ON j.`id` = e.`job_id` JOIN `usernames` u ON u.`id` = j.`username_id` \
                     JOIN `jobnames` n ON n.`id` = j.`jobname_id` WHERE t.`name` = '{name}' ORDER BY e.`id`"
                ))
            };
            let who = "u.`name`, n.`name`, e.`jobid`";
            assert_eq!(rows(&format!("{who}, `procs`, `nodes`"), "events", "START"), "ann\tsim\ttests\t4\t2");
            assert_eq!(rows("`dset_id`, `dset_name`", "events", "CHECKPOINT_END"), "1\tckpt.1\n2\tckpt.2");
            assert_eq!(rows("`dset_id`, `dset_name`, `files`", "transfers", "FLUSH_SYNC"), "2\tckpt.2\t4");
            let prefix = cluster.prefix().display().to_string();
            assert_eq!(rows("`to`, `prefix`", "transfers", "FLUSH_SYNC"), format!("{prefix}\t{prefix}"));
            let sane = "`secs` > 0 AND `bytes` >= 4000 AND ABS(`bw` * `secs` / `bytes` - 1) < 0.001 AND `end` >= e.`start`";
            assert_eq!(rows(sane, "transfers", "FLUSH_SYNC"), "1");

            // The event log and the database have the same entries, but for those that C SCR does not know.
            let listed = |arguments: &[&str]| {
                let listed = scr_log(mpi, &cluster, &socket, arguments);
                assert!(listed.status.success(), "{arguments:?}: {}", text(&listed.stderr));
                text(&listed.stdout)
            };
            let names = |table: &str| {
                let mut names: Vec<_> = table.lines().map(|line| line.split_whitespace().nth(3).unwrap_or("").to_owned()).collect();
                names.retain(|name| name != "FLUSH_WAIT");
                names.sort();
                names
            };
            let (by_text, by_database) = (listed(&[]), listed(&["--db"]));
            assert!(names(&by_text).len() > 15, "{by_text}");
            assert_eq!(names(&by_text), names(&by_database), "{by_text}\n{by_database}");
            let second = listed(&["--db", "--dataset", "ckpt.2", "--event", "flush_success", "--since", "1h", "--json"]);
            assert!(second.contains("\"dataset\": 2") && second.contains("\"user\": \"ann\""), "{second}");
            assert_eq!(second.matches("FLUSH_SUCCESS").count(), 1, "{second}");
            let other = scr_log(mpi, &cluster, &socket, &["--db", "--job", "other"]);
            assert_eq!((other.status.code(), text(&other.stdout)), (Some(1), String::new()));

            // A job that finds the server stopped runs on, and says so once.
            database.stop();
            let run = job(&mut cluster, mpi, &socket).run().expect_success();
            assert_eq!(run.last_complete(), Some("ckpt.4"));
            let warnings = about_logging(&run);
            assert_eq!(warnings.len(), 1, "{warnings:?}");
            assert!(warnings[0].contains("WARNING") && warnings[0].contains("the job continues"), "{warnings:?}");
        });
    }

    fn an_unusable_database_is_reported_with_a_remedy(mpi: Mpi) {
        with_user("an_unusable_database_is_reported_with_a_remedy", |database| {
            let mut cluster = Cluster::new(2);
            let socket = database.socket();
            let run = job(&mut cluster, mpi, &socket).run().expect_success();
            let warnings = about_logging(&run);
            assert_eq!(warnings.len(), 1, "{warnings:?}");
            assert!(warnings[0].contains("Unknown database 'site log'") && warnings[0].contains("`scr log init-db`"), "{warnings:?}");

            database.ask("CREATE DATABASE `site log`");
            let run = job(&mut cluster, mpi, &socket).run().expect_success();
            let warnings = about_logging(&run);
            assert!(warnings.len() == 1 && warnings[0].contains("`scr log init-db` makes what is missing"), "{warnings:?}");

            let run = job(&mut cluster, mpi, &socket).env("SCR_LOG_DB_PASS", "wrong-password").run().expect_success();
            let warnings = about_logging(&run);
            assert_eq!(warnings.len(), 1, "{warnings:?}");
            assert!(warnings[0].contains("Access denied") && warnings[0].contains("SCR_LOG_DB_PASS"), "{warnings:?}");
            assert!(!run.prints("wrong-password"));
        });
    }
}

/// A database made from the tables that C SCR has gets what they lack, and keeps its rows.
#[test]
fn a_database_of_c_scr_is_taken_over() {
    with_user("a_database_of_c_scr_is_taken_over", |database| {
        let names = "`id` INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, `name` VARCHAR(512) NOT NULL, UNIQUE INDEX (`name`)";
        let tables =
            ["types", "usernames", "jobnames"].map(|table| format!("CREATE TABLE `{table}` ({names});"));
        let rest = "CREATE TABLE `jobs` (`id` INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, `username_id` INT UNSIGNED NOT NULL,
              `jobname_id` INT UNSIGNED NOT NULL, `start` DATETIME NOT NULL, UNIQUE INDEX (`username_id`, `jobname_id`));
            CREATE TABLE `transfers` (`id` INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, `job_id` INT NOT NULL,
              `type_id` INT UNSIGNED NOT NULL, `dset_id` INT UNSIGNED NOT NULL, `dset_name` VARCHAR(512) NOT NULL,
              `start` DATETIME NOT NULL, `end` DATETIME NOT NULL, `secs` FLOAT NOT NULL, `bytes` FLOAT NOT NULL,
              `files` INT UNSIGNED NOT NULL, `bw` FLOAT NOT NULL, `from` BLOB NOT NULL, `to` BLOB NOT NULL);
            CREATE TABLE `events` (`id` INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, `job_id` INT NOT NULL,
              `type_id` INT UNSIGNED NOT NULL, `dset_id` INT UNSIGNED NULL, `dset_name` VARCHAR(512) NULL,
              `start` DATETIME NULL, `secs` FLOAT NULL, `note` BLOB NULL);
            INSERT INTO `types` VALUES (1, 'NODE_FAIL'); INSERT INTO `usernames` VALUES (1, 'bob');
            INSERT INTO `jobnames` VALUES (1, 'old'); INSERT INTO `jobs` VALUES (1, 1, 1, NOW());
            INSERT INTO `events` VALUES (NULL, 1, 1, 7, NULL, NOW(), NULL, 'n3');";
        database.ask(&format!("CREATE DATABASE `site log`; USE `site log`; {} {rest}", tables.concat()));
        let mpi = [Mpi::OpenMpi, Mpi::Mpich]
            .into_iter()
            .find(|mpi| repository().join("target/stage").join(mpi.name()).exists());
        let mpi = mpi.expect("a tree is staged");
        let mut cluster = Cluster::new(2);
        let socket = database.socket();
        let made = scr_log(mpi, &cluster, &socket, &["init-db"]);
        assert!(
            text(&made.stdout).contains("added to the table events: micros, jobid, host"),
            "{}",
            text(&made.stderr)
        );
        let run = job(&mut cluster, mpi, &socket).run().expect_success();
        assert!(about_logging(&run).is_empty(), "{:?}", about_logging(&run));
        let all = text(&scr_log(mpi, &cluster, &socket, &["--db", "--all"]).stdout);
        assert!(all.contains("NODE_FAIL") && all.contains("FLUSH_SYNC"), "{all}");
    });
}

on_any_mpi! {
    fn a_server_that_never_answers_holds_the_job_up_for_the_stated_time_at_its_end(mpi: Mpi) {
        let mut cluster = Cluster::new(2);
        // A client waits for ever: the connection is never accepted.
        let socket = cluster.scratch().join("mute");
        let _mute = UnixListener::bind(&socket).unwrap();
        let run = job(&mut cluster, mpi, &socket).run().expect_success();
        let warnings = about_logging(&run);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("has not ended within 5 s") && warnings[0].contains("entries are missing there"), "{warnings:?}");
    }
}
