//! The answers of `SCR_Config`: the effective value of a parameter, with a session or before there is one.

use super::app::{refused, Action, AppConfig, Query, Request};
use super::expand::expand_path;
use super::file::DESCRIPTORS;
use super::params::Params;
use super::problem::ConfigError;
use super::quote::quote;
use super::settings::Settings;
use scr_base::env::Env;

impl AppConfig {
    /// The present value of a parameter: from `params` where a session has them, or else from the environment, the
    /// files and what was set so far. `None` where nobody has set it, whether it has a default or not.
    ///
    /// # Errors
    /// As for [`Request::parse`], for a text that sets something, and where there are several values.
    pub fn query(
        &self,
        params: Option<&Params>,
        env: &Env,
        text: &str,
    ) -> Result<Option<String>, ConfigError> {
        let Action::Query(query) = Request::parse(text)?.0 else {
            let text = quote(text.trim());
            return Err(refused(format!(
                "`{text}' sets a parameter, which is possible before SCR_Init only; it is ignored"
            )));
        };
        let found = match params {
            Some(params) => effective(params, &query)?,
            None => effective(&Params::resolve(&Settings::load(env, self), env).0, &query)?,
        };
        // As with C SCR: what the application has set to a variable without a value is set, and empty.
        let is_empty = |own: &String| expand_path(env, own).0.is_empty();
        Ok(found.or_else(|| self.own(&query).filter(is_empty).map(|_| String::new())))
    }
}

fn effective(params: &Params, query: &Query) -> Result<Option<String>, ConfigError> {
    let name = &query.name;
    if let Some((id, key)) = &query.item {
        let mut lines = params.lines(name);
        let line = lines.find(|line| line.value == *id || line.shared == *id);
        return Ok(line.and_then(|line| line.item(key)).map(|item| item.value.clone()));
    }
    if DESCRIPTORS.contains(&name.as_str()) {
        let mut values: Vec<String> = params.lines(name).map(|line| line.value.clone()).collect();
        return match values.len() {
            0 | 1 => Ok(values.pop()),
            _ => {
                let (first, key) = (&values[0], if name == "CKPT" { "TYPE" } else { "COUNT" });
                Err(refused(format!(
                    "there are several {name} lines, {}, so there is no one value; ask for a key of one, such as `{name}={first} {key}'",
                    values.join(" ")
                )))
            }
        };
    }
    Ok(params.named(name).filter(|parameter| parameter.is_set()).and_then(|parameter| parameter.text.clone()))
}
