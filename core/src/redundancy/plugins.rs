//! The schemes and transports that a session uses: each loaded once, together on all ranks.

use crate::cache::record::{Protection, RankRecord};
use crate::job::Job;
use crate::plugin::overdue::{LongestCall, PluginPhase, WatchedTransport};
use crate::plugin::{
    open_together, CheckedScheme, Manifest, OpenPlugin, PluginHost, PluginKind, PluginLoadError,
};
use scr_base::describe;
use scr_base::env::Env;
use scr_comm::{AnyError, Collective, CommError, RankErrors};
use scr_config::descriptor::{FlushBy, Redundancy};
use scr_config::param::{Origin, Params};
use scr_plugin_api::{KvTree, Scheme, Transport};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

/// A loaded plugin, or why it cannot be used; the same on all ranks.
type Loaded<T> = Result<T, RankErrors>;
type SchemesInUse = HashMap<(String, u32, Vec<u8>), Loaded<Arc<CheckedScheme>>>;
type TransportsInUse = HashMap<(String, BTreeMap<String, String>, bool), Loaded<TransportInUse>>;

/// A transport, and what its manifest says that it can do.
#[derive(Clone, Default)]
pub(crate) struct TransportInUse {
    /// None where the files are in place.
    pub(crate) transport: Option<Arc<dyn Transport>>,
    /// Its name, and the options it was made with.
    pub(crate) name: String,
    pub(crate) options: KvTree,
    /// It copies while the application computes.
    pub(crate) asynchronous: bool,
    /// It continues after the job has ended, and any process of the node can look after its copies.
    pub(crate) survives_job: bool,
    pub(crate) longest: LongestCall,
}

impl TransportInUse {
    /// The same for the flush of a dataset, which all ranks begin and end together. Its calls are watched.
    pub(crate) fn watched(self, job: &Job, record: &RankRecord) -> Self {
        let transport = self.transport.clone().map(|transport| -> Arc<dyn Transport> {
            let plugin = ("transport", &*self.name);
            let phase = PluginPhase::begin(job, plugin, &record.dataset, Some(&self.longest));
            Arc::new(WatchedTransport { transport, phase })
        });
        Self { transport, ..self }
    }
}

/// The plugins in use.
pub(crate) struct Plugins {
    /// Their source.
    pub(crate) host: PluginHost,
    /// The libraries that are loaded on all ranks.
    opened: RefCell<BTreeMap<(PluginKind, String), Rc<OpenPlugin>>>,
    /// By name, on-disk format and packed options.
    schemes: RefCell<SchemesInUse>,
    /// By name, options as they were written, and whether it copies behind the application.
    transports: RefCell<TransportsInUse>,
    /// How new datasets are protected, by the number of their descriptor.
    protections: RefCell<HashMap<u32, Protection>>,
}

impl Plugins {
    pub(crate) fn new(env: &Env, params: &Params) -> Self {
        Self {
            host: PluginHost::configured(env, params),
            opened: RefCell::default(),
            schemes: RefCell::default(),
            transports: RefCell::default(),
            protections: RefCell::default(),
        }
    }

    /// Forgets the plugins that could not be used, so that the next dataset tries again: the cause may have passed, such
    /// as too many open files. All ranks call it at the same point, or they would not take the same steps.
    pub(crate) fn forget_failures(&self) {
        self.schemes.borrow_mut().retain(|_, loaded| loaded.is_ok());
        self.transports.borrow_mut().retain(|_, loaded| loaded.is_ok());
    }

    /// Whether a plugin is loaded: what it refuses then, it refuses again.
    pub(crate) fn has_opened(&self, kind: PluginKind, name: &str) -> bool {
        self.opened.borrow().contains_key(&(kind, name.to_owned()))
    }

    /// Finds and loads a plugin on all ranks. Collective the first time.
    fn open(&self, job: &Job, kind: PluginKind, name: &str) -> Collective<Rc<OpenPlugin>> {
        let key = (kind, name.to_owned());
        if let Some(known) = self.opened.borrow().get(&key) {
            return Ok(Rc::clone(known));
        }
        let opened = open_together(&*job.comm, &job.nodes.mates(job.rank()), &self.host, kind, name)?;
        Ok(Rc::clone(self.opened.borrow_mut().entry(key).or_insert(Rc::new(opened))))
    }

    /// How a new dataset is stored and protected by a descriptor. `members_of` chooses the set of this rank for the size of the
    /// smallest one that the scheme takes, and gives its size. Collective the first time.
    pub(crate) fn protection(
        &self,
        job: &Job,
        descriptor: &Redundancy,
        members_of: impl FnOnce(u32) -> u32,
    ) -> Collective<Protection> {
        if let Some(known) = self.protections.borrow().get(&descriptor.index) {
            return Ok(known.clone());
        }
        let plugin = self.open(job, PluginKind::Scheme, &descriptor.scheme)?;
        let made = || {
            let options = plugin.manifest.options_of(descriptor);
            let options = options.map_err(|error| of_line(&descriptor.origin, error))?;
            let scheme = plugin.scheme(&options)?;
            let most = job.comm.size().min(LARGEST_LEAST);
            let least = (2..=most).find(|&size| scheme.losses_survived(size).is_ok());
            scheme.losses_survived(members_of(least.unwrap_or(2)))?;
            let protection = Protection {
                scheme: plugin.manifest.name.clone(),
                format: plugin.formats().1,
                version: plugin.manifest.version.clone(),
                options,
                store: descriptor.store.clone(),
                bypass: descriptor.bypass,
            };
            Ok((protection, scheme))
        };
        let (protection, scheme) = job.agree::<_, AnyError>(made())?;
        self.schemes.borrow_mut().insert(key(&protection), Ok(scheme.into()));
        self.protections.borrow_mut().insert(descriptor.index, protection.clone());
        Ok(protection)
    }

    /// The scheme that a dataset was written with. Collective the first time.
    pub(crate) fn scheme(&self, job: &Job, protection: &Protection) -> Collective<Arc<CheckedScheme>> {
        if let Some(known) = self.schemes.borrow().get(&key(protection)) {
            return Ok(known.clone()?);
        }
        let opened = self.open(job, PluginKind::Scheme, &protection.scheme);
        let made = opened.and_then(|plugin| job.agree(readable_scheme(&plugin, protection)));
        let made = to_keep(made.map(Arc::new))?;
        self.schemes.borrow_mut().insert(key(protection), made.clone());
        Ok(made?)
    }

    /// The transport that a store wants. Collective the first time. `of_host` gives the options that the host knows;
    /// those that the manifest has and the store's line does not are passed on.
    pub(crate) fn transport(
        &self,
        job: &Job,
        wanted: &FlushBy,
        behind: bool,
        of_host: &dyn Fn(&Manifest) -> Vec<(&'static str, String)>,
    ) -> Collective<TransportInUse> {
        let key = (wanted.transport.clone(), wanted.options.clone(), behind);
        if let Some(known) = self.transports.borrow().get(&key) {
            return Ok(known.clone()?);
        }
        let opened = self.open(job, PluginKind::Transport, &wanted.transport);
        let (mut asynchronous, mut survives_job, mut options) = (false, false, KvTree::new());
        let made = opened.and_then(|plugin| {
            asynchronous = plugin.manifest.capabilities.asynchronous;
            let known = of_host(&plugin.manifest);
            let is_wanted = |name: &str| plugin.manifest.option(name).is_some() && !wanted.gives(name);
            let known = known.iter().filter(|(name, _)| is_wanted(name));
            let known = known.map(|(name, value)| (*name, value.as_str()));
            let made = plugin.manifest.options(plugin.manifest.taken(&wanted.options).chain(known)).and_then(
                |made_with| {
                    options = made_with;
                    survives_job = plugin.manifest.capabilities.survives_job_with(&options);
                    plugin.transport(&options)
                },
            );
            job.agree(made.map_err(|error| of_line(&wanted.origin, error)))
        });
        let name = wanted.transport.clone();
        let in_use = |transport: Box<dyn Transport>| TransportInUse {
            transport: Some(transport.into()),
            name,
            options,
            asynchronous,
            survives_job,
            longest: LongestCall::default(),
        };
        let made = to_keep(made.map(in_use))?;
        self.transports.borrow_mut().insert(key, made.clone());
        Ok(made?)
    }
}

/// The faults of a plugin's options, with the places where they were written.
fn of_line(origin: &Origin, error: PluginLoadError) -> AnyError {
    match origin {
        Origin::UserFile(_) | Origin::SystemFile(_) | Origin::Application => {
            format!("{origin}: {}", describe(&error)).into()
        }
        _ => error.into(),
    }
}

/// The scheme that a dataset was written with, where this plugin reads its format.
///
/// # Errors
/// It does not, or refuses.
pub fn readable_scheme(
    plugin: &OpenPlugin,
    protection: &Protection,
) -> Result<CheckedScheme, PluginLoadError> {
    let Protection { scheme, format, version, options, .. } = protection;
    let (oldest, newest) = plugin.formats();
    if (oldest..=newest).contains(format) {
        return plugin.scheme(options);
    }
    Err(PluginLoadError::Unusable(format!(
        "it was written in format {format} by version {version} of the scheme {scheme}, and version {} reads the formats {oldest} to \
         {newest}; install the newer one",
        plugin.manifest.version
    )))
}

/// The result of loading a plugin, to be kept for the next time, except for a broken communicator.
fn to_keep<T>(made: Collective<T>) -> Result<Loaded<T>, CommError> {
    made.map(Ok).or_else(|error| error.agreed().map(Err))
}

/// A scheme that takes no smaller set is not asked for the smallest that it takes.
const LARGEST_LEAST: u32 = 256;

fn key(protection: &Protection) -> (String, u32, Vec<u8>) {
    (protection.scheme.clone(), protection.format, protection.options.pack())
}
