//! The effective configuration, with the same code as at the start of a job, without the job.

use super::cautions;
use super::finding::Finding;
use crate::environment;
use crate::machine::hostlist;
use scr_core::descriptor::Descriptors;
use scr_core::env::Env;
use scr_core::log::check_logger;
use scr_core::param::{Params, Settings};
use scr_core::plugin::{check_schemes, check_transports};

/// Parameters and descriptors, and what is wrong with them.
pub(super) struct Configuration {
    pub(super) params: Params,
    /// `None` where no job starts with this configuration.
    pub(super) descriptors: Option<Descriptors>,
    pub(super) findings: Vec<Finding>,
}

impl Configuration {
    /// Of these settings. The manifests of plugins are read, their libraries are not opened.
    pub(super) fn of(env: &Env, settings: &Settings) -> Self {
        let (params, mut problems) = Params::resolve(settings, env);
        let built = Descriptors::build(&params, &mut problems);
        problems.extend(check_logger(&params));
        problems.extend(hostlist::check(&params));
        let mut findings: Vec<_> = problems.into_iter().map(Finding::ignored).collect();
        let descriptors = match built {
            Ok(descriptors) => {
                let host = environment::plugin_host_of(env, &params, None);
                let schemes = check_schemes(&host, &params, &descriptors);
                findings.extend(schemes.into_iter().map(Finding::stops));
                let transports = check_transports(&host, &params, &descriptors);
                findings.extend(transports.into_iter().map(Finding::ignored));
                findings.extend(cautions::find(&params, &descriptors).into_iter().map(Finding::ignored));
                Some(descriptors)
            }
            Err(error) => {
                findings.extend(error.problems().iter().cloned().map(Finding::stops));
                None
            }
        };
        Self { params, descriptors, findings }
    }
}
