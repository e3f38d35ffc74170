//! The manifest of a plugin: what is known of it before its library is opened.
//!
//! A TOML file beside the library:
//! ```toml
//! name = "XOR"                 # as in TYPE= or FLUSH=
//! kind = "scheme"              # or "transport", or "log"
//! version = "1.0.0"            # of the plugin
//! abi = "1.0"                  # of the boundary it was built against
//! library = "libscr_xor.so"    # a file name, or an absolute path
//! description = "One loss per set, for 1/(N-1) of the data"
//!
//! [format]                     # what it writes on disk; `format = 1' for short
//! id = "xor"
//! oldest = 1                   # it reads from here
//! newest = 1                   # to here, and writes this
//!
//! [capabilities]
//! tolerates = 1                # losses per set, or the option that says how many
//! asynchronous = false         # transports: copies while the application computes
//! survives-job = false         # transports: continues after the job has ended
//! survives-job-unless = "X"    # with the option X, which is a boolean, it does not
//!
//! [[option]]
//! name = "CHUNK"
//! type = "size"                # integer, size, boolean, text
//! default = "1MB"              # without one the option may stay unset
//! min = "4KB"
//! max = "1GB"
//! help = "Bytes per message"
//! ```
//! Unknown keys are reported and ignored, so that a newer manifest works with an older host.

use super::options::{OptionSpec, OptionType};
use scr_config::param::nearest;
use scr_plugin_api::abi::ApiVersion;
use scr_plugin_api::KvTree;
use serde::de::{value::MapAccessDeserializer, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::num::NonZeroU32;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::de::{DeString, DeTable};
use toml::Spanned;

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// It is not text of a sensible size.
    #[error("{} is not a manifest: {reason}", path.display())]
    NotText {
        /// Which.
        path: PathBuf,
        /// Its kind instead.
        reason: String,
    },
    /// It is not TOML, or a key is missing or holds something else than it should.
    #[error("{}:{line}: {text}", path.display())]
    Invalid {
        /// Which.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The problem, with its key.
        text: String,
    },
}

/// The kind of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PluginKind {
    /// A redundancy scheme, named by `TYPE=`.
    Scheme,
    /// A flush transport, named by `FLUSH=`.
    Transport,
    /// A place for the log to go.
    Log,
}

/// The contents of a manifest: all that is known of a plugin before its library is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// As users write it in `TYPE=` and `FLUSH=`, in any case.
    pub name: String,
    /// Its purpose.
    pub kind: PluginKind,
    /// Its own version.
    pub version: String,
    /// The version of the plugin boundary that it was built against.
    pub abi: ApiVersion,
    /// File name of its library, or the absolute path.
    pub library: String,
    /// One line for people.
    pub description: String,
    /// Its format on disk.
    pub format: Format,
    /// Its capabilities.
    pub capabilities: Capabilities,
    /// The options that it takes.
    pub options: Vec<OptionSpec>,
}

/// The on-disk formats of a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    /// Which family of formats.
    pub id: String,
    /// The oldest that it reads.
    pub oldest: u32,
    /// The newest that it reads, and the one it writes.
    pub newest: u32,
}

/// The capabilities of a plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all(deserialize = "kebab-case"), default)]
pub struct Capabilities {
    /// Losses per set: a number, or the name of the option that says how many.
    #[serde(deserialize_with = "scalar")]
    pub tolerates: Option<String>,
    /// A transport that copies while the application computes.
    pub asynchronous: bool,
    /// A transport that continues after the job has ended.
    pub survives_job: bool,
    /// The option with which it does not.
    #[serde(skip_serializing, deserialize_with = "name")]
    pub survives_job_unless: Option<String>,
}

impl Capabilities {
    /// Whether a transport that was made with these options continues after the job has ended.
    pub fn survives_job_with(&self, options: &KvTree) -> bool {
        let is_set =
            |option: &String| options.parse::<u8>(option).ok().flatten().is_some_and(|value| value != 0);
        self.survives_job && !self.survives_job_unless.as_ref().is_some_and(is_set)
    }
}

/// Longest manifest that is read.
pub(super) const MAX_MANIFEST_BYTES: u64 = 1 << 20;

impl fmt::Display for PluginKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PluginKind::Scheme => "scheme",
            PluginKind::Transport => "transport",
            PluginKind::Log => "log sink",
        })
    }
}

impl Manifest {
    /// Reads the text of the manifest at `path`. Gives a line for each unknown key as well.
    ///
    /// # Errors
    /// [`ManifestError`] with the file and the line.
    pub fn parse(path: &Path, text: &str) -> Result<(Self, Vec<String>), ManifestError> {
        let document = Document { path, text };
        let root = DeTable::parse(text).map_err(|error| document.invalid(&error))?;
        let unknown = document.unknown_keys(root.get_ref());
        let root = Root::deserialize(toml::Deserializer::from(root));
        let root = root.map_err(|error| document.invalid(&error))?;
        let mut manifest = Self {
            kind: root.kind,
            version: root.version.0,
            abi: root.abi.0,
            library: root.library.0,
            description: root.description.map_or_else(String::new, |line| line.0),
            format: document.format(root.format, &root.name.0)?,
            name: root.name.0,
            capabilities: root.capabilities,
            options: Vec::new(),
        };
        for table in root.option {
            if manifest.option(&table.name.get_ref().0).is_some() {
                return Err(document.refuse("name", &table.name.span(), "the name of no other option"));
            }
            manifest.options.push(document.option(table)?);
        }
        Ok((manifest, unknown))
    }

    /// Whether a user who writes `name` means this plugin.
    pub fn is_called(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    /// The option of this name, in any case.
    pub fn option(&self, name: &str) -> Option<&OptionSpec> {
        self.options.iter().find(|option| option.is_called(name))
    }
}

/// The text of a manifest and where it lies, for errors.
struct Document<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Document<'_> {
    fn error(&self, offset: usize, text: String) -> ManifestError {
        ManifestError::Invalid { path: self.path.to_owned(), line: self.line_of(offset), text }
    }

    fn line_of(&self, offset: usize) -> usize {
        self.text.bytes().take(offset).filter(|&byte| byte == b'\n').count() + 1
    }

    fn invalid(&self, error: &toml::de::Error) -> ManifestError {
        // Without the text the parser names the key, and does not repeat the line.
        let mut error = error.clone();
        error.set_input(None);
        let offset = error.span().map_or(0, |span| span.start);
        let text = error.to_string();
        let text = text.trim_end();
        let (text, key) = text.rsplit_once("\nin ").unwrap_or((text, ""));
        let key = if key.is_empty() { String::new() } else { format!("{key}: ") };
        self.error(offset, format!("{key}{}", text.lines().collect::<Vec<_>>().join(", ")))
    }

    fn refuse(&self, key: &str, found: &Range<usize>, allowed: &str) -> ManifestError {
        let text = self.text.get(found.clone()).unwrap_or("").trim_matches(['"', '\'']);
        self.error(found.start, format!("`{key}' is `{text}', and should be {allowed}"))
    }

    fn format(&self, table: Option<FormatTable>, name: &str) -> Result<Format, ManifestError> {
        let id = name.to_ascii_lowercase();
        let Some(table) = table else { return Ok(Format { id, oldest: 1, newest: 1 }) };
        let newest = table.newest.get_ref().get();
        let oldest = table.oldest.map_or(newest, NonZeroU32::get);
        if oldest > newest {
            let allowed = format!("at least `oldest', which is {oldest}");
            return Err(self.refuse("newest", &table.newest.span(), &allowed));
        }
        Ok(Format { id: table.id.map_or(id, |id| id.0), oldest, newest })
    }

    fn option(&self, table: OptionTable) -> Result<OptionSpec, ManifestError> {
        let kind = table.kind;
        let bound = |key, value: Option<Spanned<Scalar>>| {
            let Some(value) = value else { return Ok(None) };
            let (span, text) = (value.span(), value.into_inner().into_text());
            let allowed = || format!("a bound of {}", kind.expected());
            kind.number(&text)
                .map(|number| Some((number, span.clone())))
                .ok_or_else(|| self.refuse(key, &span, &allowed()))
        };
        let (min, max) = (bound("min", table.min)?, bound("max", table.max)?);
        if let (Some((min, _)), Some((max, span))) = (&min, &max) {
            if max < min {
                return Err(self.refuse("max", span, &format!("at least `min', which is {min}")));
            }
        }
        let mut option = OptionSpec {
            name: table.name.into_inner().0,
            kind,
            default: None,
            min: min.map(|(min, _)| min),
            max: max.map(|(max, _)| max),
            choices: table.choices,
            help: table.help.map_or_else(String::new, |line| line.0),
        };
        if let Some(value) = table.default {
            let (span, text) = (value.span(), value.into_inner().into_text());
            let default =
                option.read(&text).ok_or_else(|| self.refuse("default", &span, &option.allowed()))?;
            option.default = Some(default);
        }
        Ok(option)
    }

    /// A line for every key that this host does not know.
    fn unknown_keys(&self, root: &DeTable<'_>) -> Vec<String> {
        let mut lines = self.unknown_in(root, KEYS);
        for (key, known) in [("option", OPTION_KEYS), ("format", FORMAT_KEYS), ("capabilities", CAPABILITIES)]
        {
            let Some(value) = root.get(key).map(Spanned::get_ref) else { continue };
            let below = value.as_array().into_iter().flatten().filter_map(|value| value.get_ref().as_table());
            for table in value.as_table().into_iter().chain(below) {
                lines.extend(self.unknown_in(table, known));
            }
        }
        lines
    }

    fn unknown_in(&self, table: &DeTable<'_>, known: &[&str]) -> Vec<String> {
        let line = |key: &Spanned<DeString<'_>>| {
            let name: &str = key.get_ref();
            let hint = nearest(name, known.iter().copied());
            let hint = hint.map_or_else(String::new, |near| format!("; did you mean `{near}'?"));
            let line = self.line_of(key.span().start);
            format!("{}:{line}: the unknown key `{name}' is ignored{hint}", self.path.display())
        };
        table.keys().filter(|key| !known.contains(&key.get_ref().as_ref())).map(line).collect()
    }
}

const KEYS: &[&str] =
    &["name", "kind", "version", "abi", "library", "description", "format", "capabilities", "option"];
const FORMAT_KEYS: &[&str] = &["id", "oldest", "newest"];
const CAPABILITIES: &[&str] = &["tolerates", "asynchronous", "survives-job", "survives-job-unless"];
const OPTION_KEYS: &[&str] = &["name", "type", "default", "min", "max", "choices", "help"];

#[derive(Deserialize)]
struct Root {
    name: Name,
    kind: PluginKind,
    version: Line,
    abi: Abi,
    library: Library,
    description: Option<Line>,
    format: Option<FormatTable>,
    #[serde(default)]
    capabilities: Capabilities,
    #[serde(default)]
    option: Vec<OptionTable>,
}

#[derive(Deserialize)]
struct OptionTable {
    name: Spanned<Name>,
    #[serde(rename = "type")]
    kind: OptionType,
    default: Option<Spanned<Scalar>>,
    min: Option<Spanned<Scalar>>,
    max: Option<Spanned<Scalar>>,
    #[serde(default)]
    choices: Vec<String>,
    help: Option<Line>,
}

/// A table, or a number for short.
#[derive(Deserialize)]
#[serde(remote = "Self")]
struct FormatTable {
    id: Option<Line>,
    oldest: Option<NonZeroU32>,
    newest: Spanned<NonZeroU32>,
}

impl<'de> Deserialize<'de> for FormatTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = FormatTable;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table, or a number from 1 on")
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<FormatTable, E> {
                let newest = u32::try_from(number).ok().and_then(NonZeroU32::new);
                let newest =
                    newest.ok_or_else(|| E::invalid_value(serde::de::Unexpected::Signed(number), &self))?;
                Ok(FormatTable { id: None, oldest: None, newest: Spanned::new(0..0, newest) })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FormatTable, A::Error> {
                // Not the trait's function, which is this one, but the derived one.
                FormatTable::deserialize(MapAccessDeserializer::new(map))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// A single value, as a user would write it in a configuration line.
#[derive(Deserialize)]
#[serde(untagged, expecting = "invalid type, expected a text, a whole number, or true or false")]
enum Scalar {
    Text(String),
    Integer(i64),
    Boolean(bool),
}

impl Scalar {
    fn into_text(self) -> String {
        match self {
            Scalar::Text(text) => text,
            Scalar::Integer(number) => number.to_string(),
            Scalar::Boolean(value) => u8::from(value).to_string(),
        }
    }
}

fn scalar<'de, D: Deserializer<'de>>(value: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<Scalar>::deserialize(value)?.map(Scalar::into_text))
}

fn name<'de, D: Deserializer<'de>>(value: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<Name>::deserialize(value)?.map(|name| name.0))
}

/// A text that its key does not allow.
#[derive(Debug, thiserror::Error)]
#[error("`{}' should be {allowed}", text.escape_debug())]
struct NotAllowed {
    text: String,
    allowed: &'static str,
}

/// Types whose values are texts of a certain form.
macro_rules! texts {
    ($($(#[$doc:meta])* $id:ident($value:ty): $read:expr, $allowed:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Deserialize)]
        #[serde(try_from = "String")]
        struct $id($value);

        impl TryFrom<String> for $id {
            type Error = NotAllowed;

            fn try_from(text: String) -> Result<Self, NotAllowed> {
                let read: fn(&str) -> Option<$value> = $read;
                let value = read(&text);
                value.map(Self).ok_or(NotAllowed { text, allowed: $allowed })
            }
        }
    )*};
}

texts! {
    Name(String): |text| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        let is_name = (1..=64).contains(&text.len()) && text.bytes().all(allowed);
        is_name.then(|| text.to_owned())
    }, "1 to 64 letters, digits, `_', `-' or `.'";
    /// It fits on a line of a listing.
    Line(String): |text| {
        (!text.is_empty() && !text.chars().any(char::is_control)).then(|| text.to_owned())
    }, "a line of text";
    Abi(ApiVersion): |text| text.contains('.').then(|| text.parse().ok()).flatten(),
        "two numbers with a dot, such as \"1.0\"";
    Library(String): |text| {
        let is_name = !text.contains('/') && !matches!(text, "" | "." | "..");
        let is_absolute = text.starts_with('/') && text.len() > 1;
        ((is_name || is_absolute) && !text.contains('\0')).then(|| text.to_owned())
    }, "a file name without folders, or an absolute path";
}

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod tests;
