//! What a session works with: ranks, settings, places, plugins. Made once, at its start, and the same on all ranks but for
//! what is a rank's own.

use crate::cache::kept_open::KeptOpen;
use crate::cache::record::Protection;
use crate::cache::sharing::Sharing;
use crate::comm::collective::{broadcast_tree, same_everywhere};
use crate::comm::{Comm, CommError, Differs, Disagreement, Rank};
use crate::control;
use crate::descriptor::{Descriptors, FlushBy, Redundancy};
use crate::env::Env;
use crate::fs::Files;
use crate::log::Log;
use crate::message::Reporter;
use crate::param::{self, AppConfig, Params, RawSettings};
use crate::placement::Placement;
use crate::plugin::check_named;
use crate::plugin::schemes::{Plugins, TransportInUse};
use crate::plugin::PluginHost;
use crate::prefix::{DatasetDescriptor, Prefix};
use crate::redundancy::sets::Sets;
use crate::session::Error;
use crate::store::{self, StoreInUse};
use crate::Described;
use scr_plugin_api::Scheme;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// What a session works with.
pub(crate) struct Context {
    pub(crate) comm: Box<dyn Comm>,
    pub(crate) env: Env,
    pub(crate) report: Reporter,
    pub(crate) params: Params,
    pub(crate) descriptors: Descriptors,
    pub(crate) prefix: Prefix,
    pub(crate) log: Log,
    /// Which ranks share a node.
    pub(crate) nodes: Placement,
    /// Processors for each rank that runs on this machine; at least one.
    pub(crate) processors: u32,
    pub(crate) stores: Vec<StoreInUse>,
    /// The control directory of this node: what processes of the job, and those that outlive it, tell each other.
    pub(crate) control: PathBuf,
    pub(crate) open: KeptOpen,
    plugins: Plugins,
    /// The sets for each way to choose them: failure group and minimum size.
    sets: Vec<((String, u32), Sets)>,
}

impl Context {
    /// Reads the settings, finds out who shares what, and makes the folders. Collective.
    pub(crate) fn begin(comm: Box<dyn Comm>, env: Env, app: &AppConfig) -> Result<Self, Error> {
        let raw = load_settings(&*comm, &env, app)?;
        let (params, problems) = Params::resolve(&raw, &env);
        let node = params.get(&param::NODE_NAME);
        let report = Reporter::new(env.output.clone(), comm.rank(), &node, params.get(&param::DEBUG));
        for problem in problems {
            report.warn(&problem.to_string());
        }
        if !params.get(&param::ENABLE) {
            return Err(Error::Disabled);
        }
        tell_other_requests(&*comm, app, &report)?;
        let descriptors = agreed_descriptors(&*comm, &node, &params, &report)?;
        let nodes = Placement::gather(&*comm, &node)?;
        let processors = processors_for_each(&*comm, &env)?;
        let prefix = prefix_of(&*comm, &*env.files, &params)?;
        let plugins = Plugins::new(&env, &params);
        if comm.rank() == Rank(0) {
            // By their manifests alone. What is mistyped would else be told at the first flush, in some hours.
            for problem in check_named(plugins.host(), &params, &descriptors) {
                report.warn(&problem.to_string());
            }
        }
        let log = Log::begin(comm.rank(), &env, &params, &report, &prefix);
        log.add_database(comm.rank(), &params, plugins.host());
        let mut context = Self {
            comm,
            env,
            report,
            params,
            descriptors,
            prefix,
            log,
            nodes,
            processors,
            stores: Vec::new(),
            control: PathBuf::new(),
            open: KeptOpen::default(),
            plugins,
            sets: Vec::new(),
        };
        context.make_folders()?;
        context.choose_sets()?;
        context.note_needless_redundancy();
        Ok(context)
    }

    /// This rank.
    pub(crate) fn rank(&self) -> Rank {
        self.comm.rank()
    }

    /// The file layer.
    pub(crate) fn files(&self) -> &dyn Files {
        &*self.env.files
    }

    /// The prefix directory as datasets record it.
    pub(crate) fn prefix_bytes(&self) -> &[u8] {
        self.prefix.dir().as_os_str().as_bytes()
    }

    /// One outcome for all ranks, with nodes named where it is bad.
    pub(crate) fn agree<T, E: Display>(
        &self,
        result: Result<T, E>,
    ) -> Result<Result<T, Disagreement>, CommError> {
        together(&*self.comm, self.nodes.name(self.rank()), result)
    }

    /// Where this rank's new datasets go on a store, which may be one that is no longer configured.
    pub(crate) fn cache_of(&self, store: &str) -> PathBuf {
        self.stores.iter().find(|known| known.name == store).map_or_else(
            || self.job_dir(Path::new(&param::expanded(store, &self.env))),
            |known| known.cache.clone(),
        )
    }

    /// Place of a store in the list; one that is not configured counts as the first.
    pub(crate) fn store_index(&self, store: &str) -> usize {
        self.stores.iter().position(|known| known.name == store).unwrap_or(0)
    }

    /// How a new dataset is stored and protected by a descriptor. Collective.
    pub(crate) fn protection_of(
        &self,
        descriptor: &Redundancy,
    ) -> Result<Result<Protection, String>, CommError> {
        self.plugins.protection(self, descriptor)
    }

    /// The scheme that a dataset was written with. Collective the first time it is asked for.
    pub(crate) fn scheme(
        &self,
        protection: &Protection,
    ) -> Result<Result<Arc<dyn Scheme>, String>, CommError> {
        self.plugins.scheme(self, protection)
    }

    /// The flush transport that a store wants. Collective the first time it is asked for.
    pub(crate) fn transport(&self, wanted: &FlushBy) -> Result<Result<TransportInUse, String>, CommError> {
        self.plugins.transport(self, wanted)
    }

    /// Where plugins are found.
    pub(crate) fn plugin_host(&self) -> &PluginHost {
        self.plugins.host()
    }

    /// The ranks of this rank's redundancy set under a descriptor, and their nodes.
    pub(crate) fn members(&self, descriptor: &Redundancy) -> (Vec<Rank>, Vec<String>) {
        let wanted = (&descriptor.group, descriptor.set_size);
        let found = self.sets.iter().find(|((group, size), _)| (group, *size) == wanted);
        let members = found.map_or_else(|| vec![self.rank()], |(_, sets)| sets.of(self.rank()).members);
        let nodes = members.iter().map(|&member| self.nodes.name(member).to_owned()).collect();
        (members, nodes)
    }

    /// The fields of a dataset's description that are the same for all datasets of a job.
    pub(crate) fn descriptor_of_job(&self) -> DatasetDescriptor {
        DatasetDescriptor {
            user: self.params.get(&param::USER_NAME),
            job_id: self.params.get(&param::JOB_ID),
            job_name: self.params.get(&param::JOB_NAME).unwrap_or_default(),
            cluster: self.params.get(&param::CLUSTER_NAME).unwrap_or_default(),
            ..DatasetDescriptor::default()
        }
    }

    /// Microseconds since the epoch.
    pub(crate) fn micros(&self) -> u64 {
        let since = self.env.clock.now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    /// The time of day as the files under the prefix directory give it: local, to the second.
    pub(crate) fn local_time(&self) -> String {
        self.env.local_time()
    }

    /// Time on the stopwatch.
    pub(crate) fn elapsed(&self) -> Duration {
        self.env.clock.elapsed()
    }

    fn job_dir(&self, base: &Path) -> PathBuf {
        base.join(self.job_folder())
    }

    /// `<user>/scr.<allocation>`
    pub(crate) fn job_folder(&self) -> PathBuf {
        job_folder(&self.params)
    }

    /// Makes the hidden folder under the prefix directory, the control directory, and the job's folders in every store.
    fn make_folders(&mut self) -> Result<(), Error> {
        let (at_root, prefix) = (self.rank() == Rank(0), &self.prefix);
        let is_new = at_root && !prefix.is_there(self.files());
        let made = if at_root { prefix.make_scr_dir(self.files()) } else { Ok(()) };
        if is_new && made.is_ok() {
            self.report.notice(&prefix.was_made());
        }
        let made = made.described();
        self.agree(made)?.map_err(|why| Error::Phase {
            doing: "making the folder .scr in the prefix directory (SCR_PREFIX)".to_owned(),
            why,
        })?;
        let sharing = Sharing::new(&*self.comm, self.files(), &self.nodes)?;
        let control = control::open(self, &sharing)?;
        let stores = store::open_all(self, &sharing)?;
        (self.control, self.stores) = (control, stores);
        Ok(())
    }

    /// What this rank is grouped by in a group.
    pub(crate) fn group_value(&self, group: &str) -> Result<String, String> {
        let node = self.params.get(&param::NODE_NAME);
        self.descriptors.groups.value(group, &node, self.rank()).map_err(|error| error.to_string())
    }

    fn choose_sets(&mut self) -> Result<(), Error> {
        let wanted: Vec<_> = {
            let all = self.descriptors.redundancy.all();
            all.iter().map(|descriptor| (descriptor.group.clone(), descriptor.set_size)).collect()
        };
        for (group, size) in wanted {
            if self.sets.iter().any(|(known, _)| *known == (group.clone(), size)) {
                continue;
            }
            let value = self.agree(self.group_value(&group))?;
            let value =
                value.map_err(|why| Error::Phase { doing: format!("finding the group {group}"), why })?;
            let placement = Placement::gather(&*self.comm, &value)?;
            let sets = Sets::choose(placement.numbers(), size);
            self.warn_unprotected(&group, &placement, &sets);
            self.sets.push(((group, size), sets));
        }
        Ok(())
    }

    /// Whether all nodes see a store, so that the loss of one takes nothing from it.
    fn outlives_nodes(&self, store: &str) -> bool {
        self.stores.iter().any(|known| known.name == store && known.is_global)
    }

    /// Says where redundancy costs time and room for little.
    fn note_needless_redundancy(&self) {
        let all = self.descriptors.redundancy.all();
        let needless = all.into_iter().filter(|descriptor| {
            !descriptor.bypass
                && self.outlives_nodes(&descriptor.store)
                && !descriptor.scheme.eq_ignore_ascii_case("SINGLE")
        });
        let pairs: BTreeSet<_> =
            needless.map(|descriptor| (&descriptor.store, descriptor.scheme.as_str())).collect();
        for (store, scheme) in pairs {
            self.report.notice(&format!(
                "all nodes see the store {store}, and the loss of a node takes nothing from it: {scheme} repairs no more than \
                 single files there, while SINGLE saves its time and room"
            ));
        }
    }

    /// Says where redundancy cannot protect, at every level of messages.
    fn warn_unprotected(&self, group: &str, placement: &Placement, sets: &Sets) {
        let alone = sets.unprotected();
        let used = self.descriptors.redundancy.all().iter().any(|descriptor| {
            descriptor.group == group
                && !descriptor.bypass
                && !self.outlives_nodes(&descriptor.store)
                && !descriptor.scheme.eq_ignore_ascii_case("SINGLE")
        });
        if alone == 0 || !used {
            return;
        }
        let all = self.comm.size();
        let why = if placement.count() == 1 {
            format!("all ranks are in one failure group ({group} {})", placement.name(self.rank()))
        } else {
            "there are too few failure groups for them".to_owned()
        };
        self.report.warn(&format!(
            "the files of {alone} of {all} ranks in cache are not protected against the loss of a node: {why}; \
             run on more nodes, or flush often (SCR_FLUSH)"
        ));
    }
}

/// `<user>/scr.<allocation>`
pub(crate) fn job_folder(params: &Params) -> PathBuf {
    let user = params.get(&param::USER_NAME);
    Path::new(&user).join(format!("scr.{}", params.get(&param::JOB_ID)))
}

/// One outcome for all ranks, with nodes named where it is bad.
pub(crate) fn together<T, E: Display>(
    comm: &dyn Comm,
    node: &str,
    result: Result<T, E>,
) -> Result<Result<T, Disagreement>, CommError> {
    match crate::comm::collective::agree_at(comm, node, result) {
        Err(Disagreement { broken: Some(error), .. }) => Err(error),
        outcome => Ok(outcome),
    }
}

/// Groups, stores and redundancy, which are the same on all ranks as far as they decide on steps. Collective.
fn agreed_descriptors(
    comm: &dyn Comm,
    node: &str,
    params: &Params,
    report: &Reporter,
) -> Result<Descriptors, Error> {
    let mut problems = Vec::new();
    let built = Descriptors::build(params, &mut problems).map_err(|error| error.to_string());
    for problem in problems {
        report.warn(&problem.to_string());
    }
    let descriptors = together(comm, node, built)?
        .map_err(|why| Error::Config { why: format!("reading the descriptors failed: {why}") })?;
    same_descriptors(comm, &descriptors)?;
    Ok(descriptors)
}

/// Nodes by name may share a machine, as containers do, and then they share its processors. Collective.
fn processors_for_each(comm: &dyn Comm, env: &Env) -> Result<u32, CommError> {
    let machine: String = env.files.machine().iter().map(|byte| format!("{byte:02x}")).collect();
    let mates = Placement::gather(comm, &machine)?.mates(comm.rank()).len();
    Ok((env.processors / u32::try_from(mates).unwrap_or(u32::MAX)).max(1))
}

/// Ranks of which each knew another interval or store would not take the same steps. Collective.
fn same_descriptors(comm: &dyn Comm, descriptors: &Descriptors) -> Result<(), Error> {
    same_everywhere(comm, &descriptors.common().pack()).map_err(|differs| match differs {
        Differs::Broken(error) => error.into(),
        differs => Error::Config {
            why: format!(
                "{differs} in a STORE or CKPT line; use variables that are not the same on all ranks only in the folder of \
                 a STORE and for GROUPS"
            ),
        },
    })
}

/// The prefix directory, with links followed where they lead to the same place on all ranks.
fn prefix_of(comm: &dyn Comm, files: &dyn Files, params: &Params) -> Result<Prefix, CommError> {
    let given = params.get(&param::PREFIX);
    let followed = Prefix::at(files, &given);
    match same_everywhere(comm, followed.dir().as_os_str().as_bytes()) {
        Ok(()) => Ok(followed),
        Err(Differs::From0 { .. }) => Ok(Prefix::new(given)),
        Err(Differs::Broken(error)) => Err(error),
    }
}

/// What rank 0 has set with `SCR_Config` counts for all. Another rank that has set something else, or nothing, is told that it
/// does not get it.
fn tell_other_requests(comm: &dyn Comm, app: &AppConfig, report: &Reporter) -> Result<(), Error> {
    match same_everywhere(comm, app.to_text().as_bytes()) {
        Ok(()) => (),
        Err(Differs::Broken(error)) => return Err(error.into()),
        Err(differs) => report.warn(&format!(
            "{differs} in what it has set with SCR_Config; what rank 0 has set counts for all, so let all ranks set the same"
        )),
    }
    Ok(())
}

/// Rank 0 reads files and environment for all.
fn load_settings(comm: &dyn Comm, env: &Env, app: &AppConfig) -> Result<RawSettings, Error> {
    let own = (comm.rank() == Rank(0)).then(|| RawSettings::load(env, app));
    let tree = own.as_ref().map(RawSettings::to_tree).unwrap_or_default();
    let tree = broadcast_tree(comm, Rank(0), &tree)?;
    match own {
        Some(raw) => Ok(raw),
        None => RawSettings::from_tree(&tree).map_err(|error| Error::Config { why: error.to_string() }),
    }
}
