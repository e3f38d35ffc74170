//! What `SCR_Config` answers: the effective value of a parameter, with a session or before there is one.

use super::app::{join, refused, Action, AppConfig, Query, Request};
use super::file::DESCRIPTORS;
use super::params::Params;
use super::problem::{Cause, ConfigError};
use super::settings::Settings;
use crate::env::Env;

impl AppConfig {
    /// What counts for a parameter now: from `params` where a session has them, or else from the environment, the
    /// files and what was set so far. `None` where nobody has set it, whether it has a default or not.
    ///
    /// # Errors
    /// As for [`Request::parse`], and [`Cause::NotAQuery`] for a text that sets something.
    pub fn query(
        &self,
        params: Option<&Params>,
        env: &Env,
        text: &str,
    ) -> Result<Option<String>, ConfigError> {
        let Action::Query(query) = Request::parse(text)?.0 else {
            return Err(refused(Cause::NotAQuery { text: text.trim().to_string() }));
        };
        if let Some(params) = params {
            return Ok(effective(params, &query));
        }
        let (params, _) = Params::resolve(&Settings::load(env, self), env);
        Ok(effective(&params, &query))
    }
}

fn effective(params: &Params, query: &Query) -> Option<String> {
    if let Some((id, key)) = &query.item {
        let line = params.lines(&query.name).find(|line| line.value == *id || line.shared == *id)?;
        return line.item(key).map(|item| item.value.clone());
    }
    if DESCRIPTORS.contains(&query.name.as_str()) {
        return join(params.lines(&query.name).map(|line| line.value.as_str()));
    }
    let parameter = params.named(&query.name)?;
    parameter.text.clone().filter(|_| parameter.is_set())
}
