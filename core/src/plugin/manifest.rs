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
//! survives-job = false         # transports: goes on when the job has ended
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
//! Unknown keys are told and passed over, so that a newer manifest serves an older host.

use super::document::{Document, ManifestError, Section, Value};
use super::options::{OptionSpec, OptionType};
use scr_plugin_api::abi::ApiVersion;
use scr_plugin_api::KvTree;
use std::fmt;
use std::path::Path;

/// What a plugin is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PluginKind {
    /// A redundancy scheme, named by `TYPE=`.
    Scheme,
    /// A flush transport, named by `FLUSH=`.
    Transport,
    /// A place for the log to go.
    Log,
}

/// What is known of a plugin before its library is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// As users write it in `TYPE=` and `FLUSH=`, in any case.
    pub name: String,
    /// What it is for.
    pub kind: PluginKind,
    /// Its own version.
    pub version: String,
    /// The version of the plugin boundary that it was built against.
    pub abi: ApiVersion,
    /// File name of its library, or the absolute path.
    pub library: String,
    /// One line for people.
    pub description: String,
    /// What it writes on disk.
    pub format: Format,
    /// What it can do.
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

/// What a plugin can do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Losses per set: a number, or the name of the option that says how many.
    pub tolerates: Option<String>,
    /// A transport that copies while the application computes.
    pub asynchronous: bool,
    /// A transport that goes on when the job has ended.
    pub survives_job: bool,
    /// The option with which it does not.
    pub survives_job_unless: Option<String>,
}

impl Capabilities {
    /// Whether a transport that was made with these options goes on when the job has ended.
    pub fn survives_job_with(&self, options: &KvTree) -> bool {
        let is_set =
            |option: &String| options.parse::<u8>(option).ok().flatten().is_some_and(|value| value != 0);
        self.survives_job && !self.survives_job_unless.as_ref().is_some_and(is_set)
    }
}

/// Longest manifest that is read.
pub(super) const MAX_MANIFEST_BYTES: u64 = 1 << 20;

const MAX_NAME_LEN: usize = 64;

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
    /// Reads the text of the manifest at `path`, and gives what it would like to say of it besides.
    ///
    /// # Errors
    /// [`ManifestError`] with the file and the line.
    pub fn parse(path: &Path, text: &str) -> Result<(Self, Vec<String>), ManifestError> {
        let document = Document::parse(path, text)?;
        let root = document.root();
        let name = name(&root.require("name", "the name that users write")?)?;
        let (options, mut notes) = options(&root)?;
        let (format, more) = format(&root, &name)?;
        notes.extend(more);
        let (capabilities, more) = capabilities(&root)?;
        notes.extend(more);
        let manifest = Self {
            kind: kind(&root.require("kind", "`scheme', `transport' or `log'")?)?,
            version: line(&root.require("version", "the plugin's own version")?)?,
            abi: abi(&root.require("abi", "the version of the plugin boundary, such as \"1.0\"")?)?,
            library: library(&root.require("library", "the file name of the library")?)?,
            description: root.get("description").map_or(Ok(String::new()), |value| line(&value))?,
            name,
            format,
            capabilities,
            options,
        };
        notes.extend(root.unknown_keys());
        Ok((manifest, notes))
    }

    /// Whether a user who writes `name` means this plugin.
    pub fn is_called(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

fn name(value: &Value<'_>) -> Result<String, ManifestError> {
    let text = value.text()?;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if (1..=MAX_NAME_LEN).contains(&text.len()) && text.bytes().all(allowed) {
        return Ok(text.to_owned());
    }
    Err(value.not_allowed(format!("1 to {MAX_NAME_LEN} letters, digits, `_', `-' or `.'")))
}

fn kind(value: &Value<'_>) -> Result<PluginKind, ManifestError> {
    match value.text()? {
        "scheme" => Ok(PluginKind::Scheme),
        "transport" => Ok(PluginKind::Transport),
        "log" => Ok(PluginKind::Log),
        _ => Err(value.not_allowed("`scheme', `transport' or `log'".to_owned())),
    }
}

/// A text that fits on a line of a listing.
fn line(value: &Value<'_>) -> Result<String, ManifestError> {
    let text = value.text()?;
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err(value.not_allowed("a line of text".to_owned()));
    }
    Ok(text.to_owned())
}

fn abi(value: &Value<'_>) -> Result<ApiVersion, ManifestError> {
    let allowed = || value.not_allowed("two numbers with a dot, such as \"1.0\"".to_owned());
    let text = value.text()?;
    if text.contains('.') {
        text.parse().map_err(|_| allowed())
    } else {
        Err(allowed())
    }
}

fn library(value: &Value<'_>) -> Result<String, ManifestError> {
    let text = value.text()?;
    let is_name = !text.contains('/') && !matches!(text, "" | "." | "..");
    let is_absolute = text.starts_with('/') && text.len() > 1;
    if (is_name || is_absolute) && !text.contains('\0') {
        return Ok(text.to_owned());
    }
    Err(value.not_allowed("a file name without folders, or an absolute path".to_owned()))
}

fn format(root: &Section<'_>, name: &str) -> Result<(Format, Vec<String>), ManifestError> {
    let id = name.to_ascii_lowercase();
    match root.get("format") {
        None => Ok((Format { id, oldest: 1, newest: 1 }, Vec::new())),
        Some(value) if value.is_integer() => {
            let number = number(&value)?;
            Ok((Format { id, oldest: number, newest: number }, Vec::new()))
        }
        Some(value) if !value.is_table() => {
            Err(value.table().err().unwrap_or_else(|| value.not_allowed("a number or a table".to_owned())))
        }
        Some(value) => {
            let table = value.table()?;
            let id = table.get("id").map_or(Ok(id), |value| line(&value))?;
            let newest_value = table.require("newest", "the number of the format that it writes")?;
            let newest = number(&newest_value)?;
            let oldest = table.get("oldest").map_or(Ok(newest), |value| number(&value))?;
            if oldest > newest {
                return Err(newest_value.not_allowed(format!("at least `oldest', which is {oldest}")));
            }
            Ok((Format { id, oldest, newest }, table.unknown_keys()))
        }
    }
}

fn number(value: &Value<'_>) -> Result<u32, ManifestError> {
    let number = u32::try_from(value.integer()?).ok().filter(|&number| number > 0);
    number.ok_or_else(|| value.not_allowed("a number from 1 on".to_owned()))
}

fn capabilities(root: &Section<'_>) -> Result<(Capabilities, Vec<String>), ManifestError> {
    let Some(value) = root.get("capabilities") else { return Ok((Capabilities::default(), Vec::new())) };
    let table = value.table()?;
    let flag = |key| table.get(key).map_or(Ok(false), |value| value.boolean());
    let capabilities = Capabilities {
        tolerates: table.get("tolerates").map(|value| value.plain()).transpose()?,
        asynchronous: flag("asynchronous")?,
        survives_job: flag("survives-job")?,
        survives_job_unless: table.get("survives-job-unless").map(|value| name(&value)).transpose()?,
    };
    Ok((capabilities, table.unknown_keys()))
}

fn options(root: &Section<'_>) -> Result<(Vec<OptionSpec>, Vec<String>), ManifestError> {
    let (mut options, mut notes) = (Vec::<OptionSpec>::new(), Vec::new());
    let Some(value) = root.get("option") else { return Ok((options, notes)) };
    for table in value.tables()? {
        let name_value = table.require("name", "the name that users write before the `='")?;
        let spec = option(&table, name(&name_value)?)?;
        if options.iter().any(|other| other.is_called(&spec.name)) {
            return Err(name_value.not_allowed("the name of no other option".to_owned()));
        }
        options.push(spec);
        notes.extend(table.unknown_keys());
    }
    Ok((options, notes))
}

fn option(table: &Section<'_>, name: String) -> Result<OptionSpec, ManifestError> {
    let mut spec = OptionSpec {
        name,
        kind: option_type(&table.require("type", "`integer', `size', `boolean' or `text'")?)?,
        default: None,
        min: None,
        max: None,
        choices: table.get("choices").map_or(Ok(Vec::new()), |value| value.texts())?,
        help: table.get("help").map_or(Ok(String::new()), |value| line(&value))?,
    };
    let bound = |key, spec: &OptionSpec| {
        let Some(value) = table.get(key) else { return Ok(None) };
        let text = value.plain()?;
        match spec.kind.number(&text) {
            Some(number) => Ok(Some(number)),
            None => Err(value.not_allowed(format!("a bound of {}", spec.kind.expected()))),
        }
    };
    spec.min = bound("min", &spec)?;
    let max = bound("max", &spec)?;
    if let (Some(value), Some(min), Some(max)) = (table.get("max"), spec.min, max) {
        if max < min {
            return Err(value.not_allowed(format!("at least `min', which is {min}")));
        }
    }
    spec.max = max;
    if let Some(value) = table.get("default") {
        let default = spec.read(&value.plain()?).ok_or_else(|| value.not_allowed(spec.allowed()))?;
        spec.default = Some(default);
    }
    Ok(spec)
}

fn option_type(value: &Value<'_>) -> Result<OptionType, ManifestError> {
    match value.text()? {
        "integer" => Ok(OptionType::Integer),
        "size" => Ok(OptionType::Size),
        "boolean" => Ok(OptionType::Boolean),
        "text" => Ok(OptionType::Text),
        _ => Err(value.not_allowed("`integer', `size', `boolean' or `text'".to_owned())),
    }
}

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod tests;
