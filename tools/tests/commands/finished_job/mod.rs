//! A job of two ranks on two nodes, in this process, and what it leaves.
use scr_base::fs::RealFiles;
use scr_comm::{thread, Comm};
use scr_config::param::AppConfig;
use scr_core::session::{OutputFlags, Session};
use scr_test_kit::TestEnv;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use tempfile::TempDir;

/// The remains of a job of two ranks on two nodes: one checkpoint in cache, and flushed.
pub(crate) struct FinishedJob(TempDir);

impl FinishedJob {
    pub(crate) fn new() -> Self {
        Self::with_settings(&[("SCR_FLUSH", "1")])
    }

    pub(crate) fn with_settings(settings: &[(&str, &str)]) -> Self {
        let job = Self(tempfile::tempdir().unwrap());
        fs::create_dir(job.prefix()).unwrap();
        job.install_plugins();
        thread::run(2, |comm| job.run(Rc::new(comm), settings)).unwrap();
        job
    }

    /// The same as this user, by root, with a record of where it has kept its datasets.
    pub(crate) fn recording(settings: &[(&str, &str)], uid: u32) -> Self {
        let job = Self(tempfile::tempdir().unwrap());
        for folder in [job.prefix(), job.path().join("record")] {
            fs::create_dir(folder).unwrap();
        }
        job.install_plugins();
        thread::run(2, |comm| job.run(Rc::new(comm), settings)).unwrap();
        let mut chown = std::process::Command::new("chown");
        chown.arg("-R").arg(format!("{uid}:{uid}")).args([job.prefix(), job.node(0), job.node(1)]);
        assert!(chown.arg(job.path().join("record/user1")).status().unwrap().success());
        // The user reaches all of that.
        fs::set_permissions(job.path(), fs::Permissions::from_mode(0o755)).unwrap();
        job
    }

    pub(crate) fn path(&self) -> PathBuf {
        fs::canonicalize(self.0.path()).unwrap()
    }

    pub(crate) fn prefix(&self) -> PathBuf {
        self.path().join("prefix")
    }

    pub(crate) fn node(&self, number: u32) -> PathBuf {
        self.path().join(format!("nodes/n{number}"))
    }

    pub(crate) fn plugins(&self) -> PathBuf {
        self.path().join("plugins")
    }

    pub(crate) fn install_plugins(&self) {
        fs::create_dir(self.plugins()).unwrap();
        let built = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../etc/plugins.d");
        for name in ["xor", "sync"] {
            let library = format!("libscr_{name}.so");
            fs::copy(built.join(&library), self.plugins().join(&library)).unwrap();
            let manifest = format!("{name}.toml");
            fs::copy(manifests.join(&manifest), self.plugins().join(&manifest)).unwrap();
        }
    }

    /// A run that looks at what there is, and ends.
    pub(crate) fn begin(&self, settings: &[(&str, &str)]) {
        thread::run(2, |comm| drop(self.session(Rc::new(comm), settings))).unwrap();
    }

    pub(crate) fn run(&self, comm: Rc<dyn Comm>, settings: &[(&str, &str)]) {
        let rank = comm.rank();
        let mut session = self.session(comm, settings);
        session.start_output(Some(b"ckpt.1"), OutputFlags { checkpoint: true, output: false }).unwrap();
        let path = session.route_file(format!("ckpt.1/rank_{rank}").as_bytes()).unwrap();
        fs::write(std::ffi::OsStr::from_bytes(&path), [b'x'; 1000]).unwrap();
        session.complete_output(true).unwrap();
    }

    fn session(&self, comm: Rc<dyn Comm>, settings: &[(&str, &str)]) -> Session {
        let rank = comm.rank();
        let base = self.path().join("nodes/$SCR_NODE_NAME").display().to_string();
        let env = TestEnv::new(Arc::new(RealFiles), self.prefix())
            .with_user(
                "user1",
                fs::metadata(self.path()).map(|meta| std::os::unix::fs::MetadataExt::uid(&meta)).unwrap(),
            )
            .with_variable("SCR_NODE_NAME", &format!("n{rank}"))
            .with_variable("SCR_CACHE_BASE", &base)
            .with_variable("SCR_CNTL_BASE", &base)
            .with_variable("SCR_CACHE_BYPASS", "0")
            .with_variable("SCR_PLUGIN_PATH", &self.plugins().display().to_string());
        let record = self.path().join("record");
        let env = if record.is_dir() { env.with_record_base(record) } else { env };
        let env = settings.iter().fold(env, |env, (name, value)| env.with_variable(name, value));
        Session::init(comm, env.env(), &AppConfig::default()).unwrap()
    }
}
