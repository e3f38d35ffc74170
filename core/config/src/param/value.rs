//! Text as typed values: what each kind of parameter accepts, and what it means.
//!
//! Sizes count in steps of 1024 with or without an `i`, as C SCR has it: `10MB` and `10MiB` are the same.

use scr_base::ensure;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// The type of a parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// 0 or 1; `no`, `yes`, `off`, `on`, `false`, `true` too.
    Bool,
    /// A whole number from `least` to `most`.
    Count { least: u64, most: u64 },
    /// A whole number, or `AUTO`.
    CountOrAuto,
    /// A whole number that may be negative, down to `least`.
    Whole { least: i64 },
    /// A number of bytes, with a unit or without: `131072`, `128KB`, `1GiB`.
    Bytes { least: u64 },
    /// A number of seconds, or a length of time with units: `3600`, `1h30m`, `2 hours`.
    Seconds,
    /// A number, not negative.
    Number { most: f64 },
    /// Any text.
    Text,
    /// A text that is one part of a path.
    Part,
    /// Any text, never shown.
    Secret,
    /// One of these names, or that of a plugin.
    Name { known: &'static [&'static str] },
    /// A folder or a file. A relative one starts from the current folder.
    Path,
    /// A folder that many processes look for, each from a current folder of its own.
    AbsolutePath,
    /// Folders, separated by colons.
    Paths,
    /// A range of TCP ports: `50000-50999`.
    Ports,
}

/// A value as it was read.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Not set, and without a default.
    Unset,
    /// The value of [`Kind::Bool`].
    Bool(bool),
    /// The value of [`Kind::Count`], [`Kind::CountOrAuto`] or [`Kind::Bytes`].
    Count(u64),
    /// The value of [`Kind::Whole`].
    Whole(i64),
    /// The value of [`Kind::Seconds`].
    Seconds(Duration),
    /// The value of [`Kind::Number`].
    Number(f64),
    /// The value of [`Kind::Text`], [`Kind::Part`], [`Kind::Secret`], [`Kind::Name`] or [`Kind::CountOrAuto`].
    Text(String),
    /// The value of [`Kind::Path`] or [`Kind::AbsolutePath`], absolute and normalised.
    Path(PathBuf),
    /// The value of [`Kind::Paths`], each absolute and normalised.
    Paths(Vec<PathBuf>),
    /// The value of [`Kind::Ports`]: the first and the last one.
    Ports(u16, u16),
}

/// Why a text is not a value of a kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Rejected {
    /// It cannot be parsed; what would be.
    Malformed(String),
    /// It is too small or too large.
    OutOfRange { least: String, most: String },
}

impl Kind {
    /// Whether a value is one folder or file.
    pub(super) fn is_path(self) -> bool {
        matches!(self, Kind::Path | Kind::AbsolutePath)
    }

    /// Reads a value. A relative path starts from `base`.
    pub fn read(self, text: &str, base: &Path) -> Result<Value, Rejected> {
        self.parsed(text, base).unwrap_or_else(|| Err(Rejected::Malformed(self.expected())))
    }

    /// `None` for a text that is no value of this kind, in its range or not.
    fn parsed(self, text: &str, base: &Path) -> Option<Result<Value, Rejected>> {
        Some(match self {
            Kind::Bool => Ok(Value::Bool(boolean(text)?)),
            Kind::Count { least, most } => in_range(text.parse().ok()?, least, most).map(Value::Count),
            Kind::CountOrAuto if text.eq_ignore_ascii_case(AUTO) => Ok(Value::Text(AUTO.to_owned())),
            Kind::CountOrAuto => in_range(text.parse().ok()?, 0, u64::MAX).map(Value::Count),
            Kind::Whole { least } => in_range(text.parse().ok()?, least, i64::MAX).map(Value::Whole),
            Kind::Bytes { least } => in_range(scaled(text, byte_unit)?, least, u64::MAX).map(Value::Count),
            Kind::Seconds => {
                let seconds = in_range(length(text)?, 0, MOST_SECONDS);
                seconds.map(|seconds| Value::Seconds(Duration::from_secs(seconds)))
            }
            Kind::Number { most } => number(text, most)?.map(Value::Number),
            Kind::Part if text.contains('/') => return None,
            Kind::Text | Kind::Part | Kind::Secret => Ok(Value::Text(text.to_string())),
            Kind::Name { known } => Ok(Value::Text(name(text, known)?)),
            Kind::AbsolutePath if !(text.is_empty() || text.starts_with('/')) => return None,
            Kind::Path | Kind::AbsolutePath => Ok(Value::Path(normalise(&base.join(text)))),
            Kind::Paths => Ok(Value::Paths(paths(text)?)),
            Kind::Ports => ports(text).map(|(first, last)| Ok(Value::Ports(first, last)))?,
        })
    }

    /// A value of this kind that stands elsewhere than in a setting, such as on a command line.
    pub fn value<T: FromValue>(self, text: &str) -> Option<T> {
        T::from_value(&self.read(text, Path::new("/")).ok()?)
    }

    /// What a value is, in words, after "which is not".
    pub fn expected(self) -> String {
        let words = match self {
            Kind::Name { known } => return format!("one of {} or the name of a plugin", known.join(", ")),
            Kind::Bool => "0 or 1",
            Kind::Count { .. } | Kind::Whole { .. } => "a whole number",
            Kind::CountOrAuto => "a whole number or AUTO",
            Kind::Bytes { .. } => "a number of bytes such as 131072, 128KB or 1GB",
            Kind::Seconds => "a number of seconds such as 3600, or a length of time such as 1h30m",
            Kind::Number { .. } => "a number",
            Kind::Text | Kind::Secret => "a text",
            Kind::Part => "a text without `/'",
            Kind::Path => "a path",
            Kind::AbsolutePath => "an absolute path",
            Kind::Paths => "absolute paths separated by colons",
            Kind::Ports => "a range of ports such as 50000-50999",
        };
        words.to_owned()
    }
}

/// The word for a number that the job finds out itself.
const AUTO: &str = "AUTO";

/// A hundred years: more is a mistake, and sums of times stay far from overflowing.
const MOST_SECONDS: u64 = 100 * 366 * 24 * 3600;

fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "yes" | "on" | "true" => Some(true),
        "0" | "no" | "off" | "false" => Some(false),
        _ => None,
    }
}

fn in_range<T>(number: i128, least: T, most: T) -> Result<T, Rejected>
where
    T: TryFrom<i128> + PartialOrd + ToString + Copy,
{
    match T::try_from(number) {
        Ok(count) if (least..=most).contains(&count) => Ok(count),
        _ => Err(Rejected::OutOfRange { least: least.to_string(), most: most.to_string() }),
    }
}

/// A whole or decimal number followed by a unit.
fn scaled(text: &str, unit: fn(&str) -> Option<u64>) -> Option<i128> {
    let end =
        text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-' || c == '+')).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let factor = i128::from(unit(suffix.trim_start())?);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let whole = whole.parse::<i128>().ok()?;
    // Nine digits of a fraction times 2^60 stay far below 2^127.
    let tenths = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = fraction.parse::<i128>().ok()?.checked_mul(factor)? / tenths;
    let sign = if digits.starts_with('-') { -1 } else { 1 };
    whole.checked_mul(factor)?.checked_add(sign * part)
}

/// A number of seconds, or parts with units, which are added up.
fn length(text: &str) -> Option<i128> {
    let is_of_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+');
    let (mut rest, mut sum) = (text.trim(), None);
    while !rest.is_empty() {
        let unit = rest.find(|c| !is_of_number(c)).unwrap_or(rest.len());
        let end = rest[unit..].find(is_of_number).map_or(rest.len(), |next| unit + next);
        let part = rest[..end].trim_end();
        let is_only = sum.is_none() && end == rest.len();
        // Each of several parts has a unit, and none a sign.
        if !is_only && (part.len() == unit || part.starts_with(['-', '+'])) {
            return None;
        }
        sum = Some(sum.unwrap_or(0_i128).checked_add(scaled(part, time_unit)?)?);
        rest = &rest[end..];
    }
    sum
}

fn byte_unit(suffix: &str) -> Option<u64> {
    let shift = match suffix.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        "p" | "pb" | "pib" => 50,
        "e" | "eb" | "eib" => 60,
        _ => return None,
    };
    Some(1 << shift)
}

fn time_unit(suffix: &str) -> Option<u64> {
    match suffix.to_ascii_lowercase().as_str() {
        "" | "s" | "sec" | "secs" | "second" | "seconds" => Some(1),
        "m" | "min" | "mins" | "minute" | "minutes" => Some(60),
        "h" | "hour" | "hours" => Some(3600),
        "d" | "day" | "days" => Some(24 * 3600),
        "w" | "week" | "weeks" => Some(7 * 24 * 3600),
        "y" | "year" | "years" => Some(31_557_600),
        _ => None,
    }
}

/// `None` where it is no number at all; infinities and such are none.
fn number(text: &str, most: f64) -> Option<Result<f64, Rejected>> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite())?;
    let out_of_range = || Rejected::OutOfRange { least: "0".to_string(), most: most.to_string() };
    Some(ensure((0.0..=most).contains(&number), out_of_range).map(|()| number))
}

/// A known name in any case is given in its own; another one is left as it is, if it can be a name.
fn name(text: &str, known: &[&str]) -> Option<String> {
    if let Some(same) = known.iter().find(|name| name.eq_ignore_ascii_case(text)) {
        return Some((*same).to_string());
    }
    let is_name = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    (is_name && !text.is_empty() && text.len() <= 64).then(|| text.to_string())
}

/// Relative folders are refused: plugins are never loaded from the current folder.
fn paths(text: &str) -> Option<Vec<PathBuf>> {
    let parts = text.split(':').filter(|part| !part.is_empty());
    parts.map(|part| part.starts_with('/').then(|| normalise(Path::new(part)))).collect()
}

/// One port is a range too.
fn ports(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.trim().parse::<u16>().ok().filter(|&port| port > 0);
    number(first).zip(number(last)).filter(|(first, last)| first <= last)
}

/// An absolute path without `.`, `..`, doubled or trailing slashes. Does not ask the file system, so links are not
/// followed; `..` at the root stays at the root.
pub fn normalise(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => {
                plain.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    plain
}

/// A type that a parameter can have. `Default` stands in for what the table's tests rule out.
pub trait FromValue: Default {
    /// The value, if it is of this type.
    fn from_value(value: &Value) -> Option<Self>;
}

macro_rules! values {
    ($($type:ty: $pattern:pat => $value:expr;)*) => {$(
        impl FromValue for $type {
            fn from_value(value: &Value) -> Option<Self> {
                match value { $pattern => $value, _ => None }
            }
        }
    )*};
}

values! {
    bool: Value::Bool(value) => Some(*value);
    u64: Value::Count(value) => Some(*value);
    u32: Value::Count(value) => u32::try_from(*value).ok();
    i64: Value::Whole(value) => Some(*value);
    f64: Value::Number(value) => Some(*value);
    Duration: Value::Seconds(value) => Some(*value);
    String: Value::Text(value) => Some(value.clone());
    PathBuf: Value::Path(value) => Some(value.clone());
    Vec<PathBuf>: Value::Paths(value) => Some(value.clone());
    (u16, u16): Value::Ports(first, last) => Some((*first, *last));
}

/// A number, or none yet: the job finds it out itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interval {
    /// Every so many; 0 for never.
    Every(u64),
    /// `AUTO`.
    Auto,
}

impl Default for Interval {
    fn default() -> Self {
        Self::Every(0)
    }
}

impl FromValue for Interval {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Count(every) => Some(Self::Every(*every)),
            Value::Text(auto) if auto == AUTO => Some(Self::Auto),
            _ => None,
        }
    }
}

/// A parameter that may be unset.
impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Unset => Some(None),
            set => T::from_value(set).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: Kind = Kind::Bytes { least: 1 };
    const COUNT: Kind = Kind::Count { least: 0, most: u64::MAX };

    fn read(kind: Kind, text: &str) -> Result<Value, Rejected> {
        kind.read(text, Path::new("/here"))
    }

    #[test]
    fn sizes_have_units_in_steps_of_1024() {
        let sizes = [
            ("131072", 131_072),
            ("10MB", 10 << 20),
            ("10 mib", 10 << 20),
            ("1GiB", 1 << 30),
            ("1.5g", 3 << 29),
            ("7b", 7),
            ("15E", 15 << 60),
        ];
        for (text, bytes) in sizes {
            assert_eq!(read(BYTES, text), Ok(Value::Count(bytes)), "{text}");
        }
    }

    #[test]
    fn sizes_that_are_none_are_refused() {
        for text in ["", "MB", "10XB", "1.2.3M", "1.", "0x10", "--1", "1e9", "1.0000000000001k", "ten"] {
            assert!(matches!(read(BYTES, text), Err(Rejected::Malformed(_))), "{text}");
        }
        for text in ["0", "-1", "-0.5k", "16E", "99999999999999999999999999", "99999999999999999999E"] {
            assert!(matches!(read(BYTES, text), Err(Rejected::OutOfRange { .. })), "{text}");
        }
        assert!(read(BYTES, &"9".repeat(5000)).is_err());
    }

    #[test]
    fn truth_has_many_names() {
        for text in ["1", "yes", "ON", "True"] {
            assert_eq!(read(Kind::Bool, text), Ok(Value::Bool(true)));
        }
        for text in ["0", "no", "Off", "false"] {
            assert_eq!(read(Kind::Bool, text), Ok(Value::Bool(false)));
        }
        for text in ["2", "-1", "y e s", "enabled", ""] {
            assert!(read(Kind::Bool, text).is_err(), "{text}");
        }
    }

    #[test]
    fn seconds_may_have_a_unit() {
        assert_eq!(read(Kind::Seconds, "3600"), Ok(Value::Seconds(Duration::from_secs(3600))));
        for text in ["2h", "2 hours", "1h60m", "1h 59min 60s", "1.5h30m", "7200", "120 minutes"] {
            assert_eq!(read(Kind::Seconds, text), Ok(Value::Seconds(Duration::from_secs(7200))), "{text}");
        }
        for text in ["-1", "", "h", "1h30", "30 1h", "1h-30m", "+1h30m", "1h30x", "1e9", "two hours", "1:30"]
        {
            assert!(read(Kind::Seconds, text).is_err(), "{text}");
        }
        assert!(read(Kind::Seconds, "200000000000000000").is_err());
    }

    #[test]
    fn numbers_are_finite_and_in_range() {
        let kind = Kind::Number { most: 100.0 };
        assert_eq!(read(kind, "2.5"), Ok(Value::Number(2.5)));
        for text in ["NaN", "inf", "-1", "101", "", "5%"] {
            assert!(read(kind, text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_negative_count_is_out_of_range_and_not_malformed() {
        assert!(matches!(read(COUNT, "-1"), Err(Rejected::OutOfRange { .. })));
        assert!(matches!(read(COUNT, "1.5"), Err(Rejected::Malformed(_))));
        assert_eq!(read(Kind::Whole { least: -1 }, "-1"), Ok(Value::Whole(-1)));
        assert!(read(Kind::Whole { least: -1 }, "-2").is_err());
    }

    #[test]
    fn names_are_open_and_known_ones_take_their_own_case() {
        let kind = Kind::Name { known: &["XOR", "RS"] };
        assert_eq!(read(kind, "xor"), Ok(Value::Text("XOR".to_string())));
        assert_eq!(read(kind, "acme-Scheme_2"), Ok(Value::Text("acme-Scheme_2".to_string())));
        assert!(read(kind, "../evil").is_err());
        assert!(read(kind, "a b").is_err());
    }

    #[test]
    fn a_plugin_folder_is_never_relative() {
        assert_eq!(read(Kind::Paths, "/a/../b::/c/"), Ok(Value::Paths(vec!["/b".into(), "/c".into()])));
        assert!(read(Kind::Paths, "/a:plugins").is_err());
        assert!(read(Kind::Paths, ".").is_err());
        assert_eq!(read(Kind::Ports, "50000-50999"), Ok(Value::Ports(50_000, 50_999)));
        assert_eq!(read(Kind::Ports, "7"), Ok(Value::Ports(7, 7)));
        assert!(["7-3", "0-5", "5-70000", "5-", ""].into_iter().all(|text| read(Kind::Ports, text).is_err()));
    }

    #[test]
    fn paths_are_made_plain_without_asking_the_file_system() {
        let paths = [("/a/./b//c/", "/a/b/c"), ("/a/../../b", "/b"), ("/", "/"), ("a/b", "/a/b"), ("", "/")];
        for (path, plain) in paths {
            assert_eq!(normalise(Path::new(path)), Path::new(plain), "{path}");
        }
    }

    #[test]
    fn a_relative_path_starts_from_the_current_folder() {
        assert_eq!(read(Kind::Path, "a/./b/../c"), Ok(Value::Path("/here/a/c".into())));
    }
}
