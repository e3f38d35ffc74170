//! A vendor with an installed tree and nothing else: `scr plugin new`, and on to a job that uses the plugin.

use scr_tests::{on_any_mpi, repository, stage, Cluster, Job, Mpi, Program};
use std::collections::BTreeMap;
use std::fs::{create_dir_all, remove_dir_all};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

on_any_mpi! {
    #[ignore = "long"]
    fn a_new_scheme_passes_the_kit_and_brings_a_job_through_a_node_loss(mpi: Mpi) {
        let mut cluster = Cluster::new(4);
        let plugins = Vendor::new(mpi, &cluster).plugin("scheme", "my-mirror", "conformance");
        let scheme = [("SCR_COPY_TYPE", "MY-MIRROR")];
        job(&mut cluster, mpi, &plugins, &scheme).options(&[("datasets", 2)]).run().expect_success();
        cluster.lose_node(2);
        let again = job(&mut cluster, mpi, &plugins, &scheme).options(&[("read-only", 1)]).run().expect_success();
        assert_eq!(again.restarted_from(), Some("ckpt.2"));
    }

    #[ignore = "long"]
    fn a_new_transport_passes_the_kit_and_flushes_a_job(mpi: Mpi) {
        let mut cluster = Cluster::new(2);
        let plugins = Vendor::new(mpi, &cluster).plugin("transport", "carry", "conformance");
        let transport = [("SCR_FLUSH", "1"), ("SCR_FLUSH_TYPE", "CARRY")];
        job(&mut cluster, mpi, &plugins, &transport).options(&[("datasets", 1)]).run().expect_success();
        (0..2).for_each(|node| cluster.lose_node(node));
        let again = job(&mut cluster, mpi, &plugins, &transport).options(&[("read-only", 1)]).run();
        let again = again.expect_success();
        assert_eq!(again.restarted_from(), Some("ckpt.1"));
    }

    #[ignore = "long"]
    fn a_new_log_sink_gets_the_events_of_a_job(mpi: Mpi) {
        let mut cluster = Cluster::new(2);
        let plugins = Vendor::new(mpi, &cluster).plugin("log-sink", "lines", "check");
        let lines = cluster.scratch().join("lines.log");
        let name = lines.display().to_string();
        let sink = [("SCR_LOG_ENABLE", "1"), ("SCR_LOG_DB_ENABLE", "1"), ("SCR_LOG_DB_HOST", &name)];
        let done = job(&mut cluster, mpi, &plugins, &sink).options(&[("datasets", 1)]).run().expect_success();
        let text = std::fs::read_to_string(&lines).unwrap_or_else(|error| {
            panic!("{}: {error}; {:#?}", lines.display(), done.lines().collect::<Vec<_>>())
        });
        assert!(text.lines().any(|line| line.contains("CHECKPOINT")), "{text}");
    }
}

fn job<'a>(cluster: &'a mut Cluster, mpi: Mpi, plugins: &Path, settings: &[(&str, &str)]) -> Job<'a> {
    let job =
        cluster.job(mpi, 4, Program::CkptTest).options(&[("files", 2), ("uneven", 1), ("size", 20_000)]);
    let job = job.env("SCR_PLUGIN_PATH", plugins.display());
    settings.iter().fold(job, |job, (name, value)| job.env(name, value))
}

/// Somebody who writes a plugin, in a folder of its own, with the tree of one MPI. The plugin is for all of them.
struct Vendor {
    mpi: Mpi,
    folder: PathBuf,
}

impl Vendor {
    fn new(mpi: Mpi, cluster: &Cluster) -> Self {
        Self { mpi, folder: cluster.scratch().to_owned() }
    }

    /// Gives the folder with a plugin that passes the kit.
    fn plugin(&self, kind: &str, name: &str, try_it: &str) -> PathBuf {
        static BUILT: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
        let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        let plugins = built.entry(name.to_owned()).or_insert_with(|| self.build(kind, name));
        let manifest = plugins.join(format!("{}.toml", name.replace('-', "_")));
        self.scr(&["plugin", try_it, &manifest.display().to_string()]);
        plugins.clone()
    }

    /// Follows the README of a new plugin step by step.
    fn build(&self, kind: &str, name: &str) -> PathBuf {
        self.scr(&["plugin", "new", kind, name, "--into", "elsewhere"]);
        // Apart from the workspace's own, but the same for all of these tests: most of it is the crates of others, which are
        // compiled once for one path. A new plugin needs nothing of the place that it was written in.
        let target = repository().join("target/new-plugin");
        let (source, plugins) = (target.join("source"), target.join("plugins").join(name));
        [&source, &plugins].into_iter().for_each(|old| _ = remove_dir_all(old));
        create_dir_all(&plugins).expect("a folder for plugins");
        succeeds(Command::new("mv").arg(self.folder.join("elsewhere")).arg(&source));
        // The only third-party crates that it has are those that came with scr.
        let home = self.folder.join("no-registry");
        for verb in ["test", "build"] {
            let mut cargo = Command::new(env!("CARGO"));
            // The workspace's tests set what a vendor has not.
            cargo
                .env("CARGO_HOME", &home)
                .env_remove("CARGO_TARGET_DIR")
                .args([verb, "--offline", "--target-dir"])
                .arg(&target);
            succeeds(cargo.current_dir(&source));
        }
        let plugin = name.replace('-', "_");
        for file in [target.join(format!("debug/libscr_{plugin}.so")), source.join(format!("{plugin}.toml"))]
        {
            let to = plugins.join(file.file_name().expect("a file has a name"));
            succeeds(Command::new("install").args(["-m", "644"]).args([&file, &to]));
        }
        plugins
    }

    fn scr(&self, arguments: &[&str]) -> Output {
        succeeds(Command::new(stage(self.mpi).join("bin/scr")).args(arguments).current_dir(&self.folder))
    }
}

fn succeeds(command: &mut Command) -> Output {
    let output = command.output().expect("the command can be started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}:\n{}{}", text(&output.stdout), text(&output.stderr));
    output
}
