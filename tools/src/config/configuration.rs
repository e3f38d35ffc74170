//! The effective configuration, with the same code as at the start of a job, without the job.

use super::cautions;
use super::finding::{Effect, Finding};
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
        let mut findings = Vec::new();
        let mut add = |effect: Effect, problems: Vec<Problem>| {
            findings.extend(problems.into_iter().map(|problem| Finding { problem, effect }));
        };
        add(Effect::Ignored, ignored);
        let is_good = fatal.is_empty();
        let host = environment::plugin_host_of(env, &params, None);
        let ignored = check_plugins(&host, &params, &descriptors, &mut fatal);
        add(Effect::Stops, fatal);
        add(Effect::Ignored, ignored);
        add(Effect::Ignored, cautions::find(&params, &descriptors));
        add(Effect::None, cautions::missing_bases(&params));
        findings.sort_by(|one, other| one.place().cmp(&other.place()));
        Self { params, descriptors: is_good.then_some(descriptors), findings }
    }
}
