//! The effective configuration, with the same code as at the start of a job, without the job.

use super::cautions;
use super::finding::Finding;
use crate::environment;
use scr_base::env::Env;
use scr_config::descriptor::hostlist;
use scr_config::descriptor::Descriptors;
use scr_config::param::{Params, Problem, Settings};
use scr_core::log::check_logger;
use scr_core::plugin::check_plugins;

/// Parameters and descriptors, and what is wrong with them.
pub(super) struct Configuration {
    pub(super) params: Params,
    /// `None` where no job starts with this configuration.
    pub(super) descriptors: Option<Descriptors>,
    pub(super) findings: Vec<Finding>,
}

impl Configuration {
    /// The configuration of these settings. The manifests of plugins are read, their libraries are not opened.
    pub(super) fn of(env: &Env, settings: &Settings) -> Self {
        let (params, mut problems) = Params::resolve(settings, env);
        let mut fatal = Vec::new();
        let descriptors = Descriptors::of_what_is_good(&params, &mut problems, &mut fatal);
        problems.extend(check_logger(&params));
        problems.extend(hostlist::check(&params));
        let (stops, ignored): (Vec<_>, Vec<_>) = problems.into_iter().partition(Problem::stops);
        fatal.extend(stops);
        let mut findings: Vec<_> = ignored.into_iter().map(Finding::ignored).collect();
        let is_good = fatal.is_empty();
        let host = environment::plugin_host_of(env, &params, None);
        let ignored = check_plugins(&host, &params, &descriptors, &mut fatal);
        findings.extend(fatal.into_iter().map(Finding::stops));
        findings.extend(ignored.into_iter().map(Finding::ignored));
        findings.extend(cautions::find(&params, &descriptors).into_iter().map(Finding::ignored));
        findings.extend(cautions::missing_bases(&params).into_iter().map(Finding::note));
        findings.sort_by(|one, other| one.place().cmp(&other.place()));
        Self { params, descriptors: is_good.then_some(descriptors), findings }
    }
}
