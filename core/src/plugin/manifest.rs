//! The manifest of a plugin: what is known of it before its library is opened.
//!
//! A TOML file beside the library:
//! ```toml
//! name = "XOR"                 # as in TYPE= or FLUSH=
//! kind = "scheme"              # or "transport", or "log"
//! version = "1.0.0"            # of the plugin
//! abi = "1.1"                  # of the boundary it was built against
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
use scr_base::ensure;
use scr_config::document::{flag, one_of, scalar, text, whole, Document, DocumentError, Form, Section};
use scr_plugin_api::abi::ApiVersion;
use scr_plugin_api::KvTree;
use serde::{Serialize, Serializer};
use std::fmt;
use std::path::Path;

/// The kind of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PluginKind {
    /// A redundancy scheme, named by `TYPE=`.
    Scheme,
    /// A flush transport, named by `FLUSH=`.
    Transport,
    /// A place for the log to go.
    Log,
}

/// The contents of a manifest: all that is known of a plugin before its library is opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Manifest {
    /// As users write it in `TYPE=` and `FLUSH=`, in any case.
    pub name: String,
    /// Its purpose.
    #[serde(serialize_with = "as_text")]
    pub kind: PluginKind,
    /// Its own version.
    pub version: String,
    /// The version of the plugin boundary that it was built against.
    #[serde(serialize_with = "as_text")]
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
    #[serde(skip)]
    pub options: Vec<OptionSpec>,
}

fn as_text<S: Serializer>(value: &impl fmt::Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

/// The on-disk formats of a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Format {
    /// Which family of formats.
    pub id: String,
    /// The oldest that it reads.
    pub oldest: u32,
    /// The newest that it reads, and the one it writes.
    pub newest: u32,
}

/// The capabilities of a plugin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// Losses per set: a number, or the name of the option that says how many.
    pub tolerates: Option<String>,
    /// A transport that copies while the application computes.
    pub asynchronous: bool,
    /// A transport that continues after the job has ended.
    pub survives_job: bool,
    /// The option with which it does not.
    #[serde(skip)]
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
    /// [`DocumentError`] with the file and the line.
    pub fn parse(path: &Path, text: &str) -> Result<(Self, Vec<String>), DocumentError> {
        let document = Document { path, text };
        let table = document.parse()?;
        let root = document.root(&table);
        let mut ignored = root.ignored(KEYS);
        let name = root.required("name", &name())?;
        let mut manifest = Self {
            kind: root.required("kind", &one_of(KINDS))?,
            version: root.required("version", &line())?,
            abi: root.required("abi", &abi())?,
            library: root.required("library", &library())?,
            description: root.optional("description", &line())?.unwrap_or_default(),
            format: Format::read(&root, name.to_ascii_lowercase(), &mut ignored)?,
            capabilities: Capabilities::read(&root, &mut ignored)?,
            options: Vec::new(),
            name,
        };
        for table in root.sections("option")? {
            ignored.extend(table.ignored(OPTION_KEYS));
            let option = option(&table)?;
            let is_new = manifest.option(&option.name).is_none();
            ensure(is_new, || table.wrong("name", "the name of no other option"))?;
            manifest.options.push(option);
        }
        Ok((manifest, ignored))
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

impl Format {
    /// A table, or a number for short.
    fn read(root: &Section<'_>, id: String, ignored: &mut Vec<String>) -> Result<Self, DocumentError> {
        let Ok(Some(table)) = root.section("format") else {
            let short = whole(1, u32::MAX).called("a table, or a number from 1 on");
            let newest = root.optional("format", &short)?.unwrap_or(1);
            return Ok(Self { id, oldest: newest, newest });
        };
        ignored.extend(table.ignored(FORMAT_KEYS));
        let newest = table.required("newest", &whole(1, u32::MAX))?;
        let oldest = table.optional("oldest", &whole(1, u32::MAX))?.unwrap_or(newest);
        let too_old = || table.wrong("newest", &format!("at least `oldest', which is {oldest}"));
        ensure(oldest <= newest, too_old)?;
        Ok(Self { id: table.optional("id", &line())?.unwrap_or(id), oldest, newest })
    }
}

impl Capabilities {
    fn read(root: &Section<'_>, ignored: &mut Vec<String>) -> Result<Self, DocumentError> {
        let Some(table) = root.section("capabilities")? else { return Ok(Self::default()) };
        ignored.extend(table.ignored(CAPABILITIES));
        let is = |key| table.optional(key, &flag()).map(|is| is.unwrap_or(false));
        Ok(Self {
            tolerates: table.optional("tolerates", &Form::new("a name or a number", scalar))?,
            asynchronous: is("asynchronous")?,
            survives_job: is("survives-job")?,
            survives_job_unless: table.optional("survives-job-unless", &name())?,
        })
    }
}

fn option(table: &Section<'_>) -> Result<OptionSpec, DocumentError> {
    let name = table.required("name", &name())?;
    let kind = table.required("type", &one_of(OptionType::ALL))?;
    let bound = Form::new(format!("a bound of {}", kind.expected()), |value| kind.number(&scalar(value)?));
    let (min, max) = (table.optional("min", &bound)?, table.optional("max", &bound)?);
    if let (Some(min), Some(max)) = (min, max) {
        ensure(min <= max, || table.wrong("max", &format!("at least `min', which is {min}")))?;
    }
    let list = Form::new("a list of texts", |value| {
        value.as_array()?.iter().map(|choice| choice.get_ref().as_str().map(str::to_owned)).collect()
    });
    let choices = table.optional("choices", &list)?.unwrap_or_default();
    let help = table.optional("help", &line())?.unwrap_or_default();
    let option = OptionSpec { name, kind, default: None, min, max, choices, help };
    let allowed = option.allowed();
    let default = table.optional("default", &Form::new(allowed, |value| option.read(&scalar(value)?)))?;
    Ok(OptionSpec { default, ..option })
}

const KINDS: &[(&str, PluginKind)] =
    &[("scheme", PluginKind::Scheme), ("transport", PluginKind::Transport), ("log", PluginKind::Log)];
const KEYS: &[&str] =
    &["name", "kind", "version", "abi", "library", "description", "format", "capabilities", "option"];
const FORMAT_KEYS: &[&str] = &["id", "oldest", "newest"];
const CAPABILITIES: &[&str] = &["tolerates", "asynchronous", "survives-job", "survives-job-unless"];
const OPTION_KEYS: &[&str] = &["name", "type", "default", "min", "max", "choices", "help"];

fn name() -> Form<'static, String> {
    text("1 to 64 letters, digits, `_', `-' or `.'", |text| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        let is_name = (1..=64).contains(&text.len()) && text.bytes().all(allowed);
        is_name.then(|| text.to_owned())
    })
}

/// It fits on a line of a listing.
fn line() -> Form<'static, String> {
    text("a line of text", |text| {
        (!text.is_empty() && !text.chars().any(char::is_control)).then(|| text.to_owned())
    })
}

fn abi() -> Form<'static, ApiVersion> {
    text("two numbers with a dot, such as \"1.0\"", |text| {
        text.contains('.').then(|| text.parse().ok()).flatten()
    })
}

fn library() -> Form<'static, String> {
    text("a file name without folders, or an absolute path", |text| {
        let is_name = !text.contains('/') && !matches!(text, "" | "." | "..");
        let is_absolute = text.starts_with('/') && text.len() > 1;
        ((is_name || is_absolute) && !text.contains('\0')).then(|| text.to_owned())
    })
}

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod tests;
