//! What a session works with: ranks, settings, places, plugins. Made once, at its start, and the same on all ranks but for
//! what is a rank's own.

use crate::cache::kept_open::KeptOpen;
use crate::cache::record::Protection;
use crate::cache::sharing::Sharing;
use crate::comm::{Collective, Comm, Rank};
use crate::control;
use crate::descriptor::{FlushBy, Redundancy};
use crate::env::Env;
use crate::error::{Doing, Error};
use crate::job::Job;
use crate::param::{self, AppConfig};
use crate::placement::Placement;
use crate::plugin::check_named;
use crate::plugin::schemes::{Plugins, TransportInUse};
use crate::plugin::PluginHost;
use crate::redundancy::sets::Sets;
use crate::store::{self, StoreInUse};
use crate::Described;
use scr_plugin_api::Scheme;
use std::collections::BTreeSet;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a session works with.
pub(crate) struct Context {
    pub(crate) job: Job,
    pub(crate) stores: Vec<StoreInUse>,
    /// The control directory of this node: what processes of the job, and those that outlive it, tell each other.
    pub(crate) control: PathBuf,
    pub(crate) open: KeptOpen,
    plugins: Plugins,
    /// The sets for each way to choose them: failure group and minimum size.
    sets: Vec<((String, u32), Sets)>,
}

impl Deref for Context {
    type Target = Job;

    fn deref(&self) -> &Job {
        &self.job
    }
}

impl Context {
    /// Reads the settings, finds out who shares what, and makes the folders. Collective.
    pub(crate) fn begin(comm: Box<dyn Comm>, env: Env, app: &AppConfig) -> Result<Self, Error> {
        let job = Job::begin(comm, env, app)?;
        let plugins = Plugins::new(&job.env, &job.params);
        if job.rank() == Rank(0) {
            // Manifests alone show a mistyped name, hours before the first flush would.
            for problem in check_named(plugins.host(), &job.params, &job.descriptors) {
                job.report.warn(&problem.to_string());
            }
        }
        job.log.add_database(job.rank(), &job.params, plugins.host());
        let mut context = Self {
            job,
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
    pub(crate) fn protection_of(&self, descriptor: &Redundancy) -> Collective<Protection> {
        self.plugins.protection(self, descriptor)
    }

    /// The scheme that a dataset was written with. Collective the first time it is asked for.
    pub(crate) fn scheme(&self, protection: &Protection) -> Collective<Arc<dyn Scheme>> {
        self.plugins.scheme(self, protection)
    }

    /// The flush transport that a store wants. Collective the first time it is asked for.
    pub(crate) fn transport(&self, wanted: &FlushBy) -> Collective<TransportInUse> {
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

    fn job_dir(&self, base: &Path) -> PathBuf {
        base.join(self.job_folder())
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
        self.agree(made)
            .doing(|| "making the folder .scr in the prefix directory (SCR_PREFIX)".to_owned())?;
        let sharing = Sharing::new(&*self.comm, self.files(), &self.nodes)?;
        let control = control::open(self, &sharing)?;
        let stores = store::open_all(self, &sharing)?;
        (self.control, self.stores) = (control, stores);
        Ok(())
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
            let value =
                self.agree(self.group_value(&group)).doing(|| format!("finding the group {group}"))?;
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
