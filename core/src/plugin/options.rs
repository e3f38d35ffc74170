//! A plugin's own options: what its manifest allows, and what a `CKPT=` or `STORE=` line gives.

use scr_base::ensure;
use scr_config::param::{nearest, Kind};
use scr_plugin_api::KvTree;
use serde::Serialize;

/// An option that a plugin takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionSpec {
    /// As users write it before the `=`, in any case.
    pub name: String,
    /// Its value.
    pub kind: OptionType,
    /// Its default, in the form the plugin gets.
    pub default: Option<String>,
    /// Smallest value.
    pub min: Option<i128>,
    /// Largest value.
    pub max: Option<i128>,
    /// The values of a text, where not any text will do.
    pub choices: Vec<String>,
    /// One line for people.
    pub help: String,
}

/// The type of an option, and the form in which the plugin gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OptionType {
    /// A whole number; in decimal.
    Integer,
    /// A number of bytes, with or without a unit; in bytes, decimal.
    Size,
    /// Yes or no; `1` or `0`.
    Boolean,
    /// A text; as it is.
    Text,
}

/// The known name that is most like a name, or else all of them, after a verb.
pub(super) fn hint(name: &str, known: &[String], verb: &str, none: &str) -> String {
    match nearest(name, known.iter().map(String::as_str)) {
        Some(near) => format!("; did you mean {near}?"),
        None if known.is_empty() => none.to_owned(),
        None => format!("; {verb} {}", known.join(", ")),
    }
}

/// The options that `plugin` gets for what a line gives, completed with the defaults. Names are those of `options`.
///
/// # Errors
/// All that is wrong with them, each naming option, value and what is allowed.
pub(super) fn read_given<'a>(
    options: &[OptionSpec],
    plugin: &str,
    given: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<KvTree, Vec<String>> {
    let mut tree = KvTree::new();
    let mut take = |name: &str, value: &str| {
        let Some(option) = options.iter().find(|option| option.is_called(name)) else {
            let known: Vec<_> = options.iter().map(|option| option.name.clone()).collect();
            let hint = hint(name, &known, "it takes", "; it takes none");
            return Err(format!("{name}={value}: {plugin} has no option of this name{hint}"));
        };
        let name = &option.name;
        if let Some(first) = tree.text(name) {
            return Err(format!("{name}={value}: {name} is set already, to {first}; remove one of the two"));
        }
        let none = || format!("{name}={value}: {plugin} takes {} here", option.allowed());
        tree.set(name, option.read(value).ok_or_else(none)?);
        Ok(())
    };
    let errors: Vec<_> = given.into_iter().filter_map(|(name, value)| take(name, value).err()).collect();
    ensure(errors.is_empty(), || errors)?;
    for option in options {
        let default = option.default.as_ref().filter(|_| !tree.has(&option.name));
        tree.set_known(&option.name, default);
    }
    Ok(tree)
}

impl OptionSpec {
    pub(super) fn is_called(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    /// The value in the form the plugin gets, or `None` where it is not allowed.
    pub(super) fn read(&self, text: &str) -> Option<String> {
        match self.kind {
            OptionType::Integer | OptionType::Size => {
                let number = self.kind.number(text)?;
                let fits =
                    self.min.is_none_or(|min| number >= min) && self.max.is_none_or(|max| number <= max);
                fits.then(|| number.to_string())
            }
            OptionType::Boolean => Some(u8::from(Kind::Bool.value::<bool>(text.trim())?).to_string()),
            OptionType::Text if text.contains('\0') => None,
            OptionType::Text if self.choices.is_empty() => Some(text.to_owned()),
            OptionType::Text => self.choices.iter().find(|choice| choice.eq_ignore_ascii_case(text)).cloned(),
        }
    }

    /// The allowed values of the option, for messages.
    pub fn allowed(&self) -> String {
        let expected = self.kind.expected();
        match (self.min, self.max, self.choices.as_slice()) {
            (None, None, []) => expected.to_owned(),
            (None, None, choices) => format!("one of {}", choices.join(", ")),
            (Some(min), None, _) => format!("{expected} of at least {min}"),
            (None, Some(max), _) => format!("{expected} of at most {max}"),
            (Some(min), Some(max), _) => format!("{expected} from {min} to {max}"),
        }
    }
}

impl OptionType {
    /// Its values as manifests name them.
    pub(super) const ALL: &'static [(&'static str, Self)] =
        &[("integer", Self::Integer), ("size", Self::Size), ("boolean", Self::Boolean), ("text", Self::Text)];

    pub(super) fn expected(self) -> &'static str {
        match self {
            OptionType::Integer => "a whole number",
            OptionType::Size => "a number of bytes, such as 131072, 128KB or 1GB,",
            OptionType::Boolean => "0 or 1",
            OptionType::Text => "a text",
        }
    }

    /// The number that a value stands for; `None` where it is none or the type has no numbers.
    pub(super) fn number(self, text: &str) -> Option<i128> {
        match self {
            OptionType::Integer => text.trim().parse::<i64>().ok().map(i128::from),
            OptionType::Size => Kind::Bytes { least: 0 }.value::<u64>(text.trim()).map(i128::from),
            OptionType::Boolean | OptionType::Text => None,
        }
    }
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
