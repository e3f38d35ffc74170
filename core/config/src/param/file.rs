//! Configuration files: settings with the line each was made on.
//!
//! A line is `KEY=value`, or `GROUPS`, `STORE` or `CKPT` followed by pairs; what follows a `#` is a comment. A
//! line that cannot be read is reported and ignored, whatever bytes it has; the rest of the file counts.

use super::line::{self, name_of, Pair, Words};
use super::origin::{FileLine, Origin};
use super::problem::{Cause, Problem};
use super::quote::{nearest, quote, suggest};
use super::table::{find, retired, TABLE};
use indexmap::map::Entry;
use indexmap::IndexMap;
use scr_base::ensure;
use scr_base::env::{Distrust, Env, Trusted};
use scr_base::fs::{How, Kind, Status};
use serde::{Deserialize, Serialize};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Keys that start a descriptor line.
pub(crate) const GROUPS: &str = "GROUPS";
pub(crate) const STORE: &str = "STORE";
pub(crate) const CKPT: &str = "CKPT";
pub(crate) const DESCRIPTORS: &[&str] = &[GROUPS, STORE, CKPT];

/// A larger file is refused. Its settings take at most 32 times its memory.
const MOST_BYTES: u64 = 8 << 20;
/// A longer line is skipped.
const MOST_LINE_BYTES: usize = 16 << 10;
/// The most keys of a descriptor that count.
const MOST_KEYS: usize = 256;
/// The most problems of a file that are reported.
const MOST_PROBLEMS: usize = 1000;

/// A parameter or a descriptor line as it was set; variables are not expanded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Setting {
    pub(crate) name: String,
    pub(crate) value: String,
    /// The pairs after the first, on a descriptor line.
    pub(crate) items: Vec<Pair>,
    pub(crate) origin: Origin,
}

impl Setting {
    pub(crate) fn new(name: &str, value: &str, origin: Origin) -> Self {
        Self { name: name.to_string(), value: value.to_string(), items: Vec::new(), origin }
    }

    pub(crate) fn is_descriptor(&self) -> bool {
        DESCRIPTORS.contains(&self.name.as_str())
    }

    /// Takes over what a later setting of the same thing says. Gives the keys that had another value before.
    fn overlay(&mut self, later: &Self) -> Vec<String> {
        let mut changed = Vec::new();
        if !self.is_descriptor() {
            changed.push(self.name.clone());
            self.clone_from(later);
            return changed;
        }
        let line = later.origin.place().map_or(0, |place| place.line);
        for item in &later.items {
            let has_room = self.items.len() < MOST_KEYS;
            match self.items.iter_mut().find(|own| own.key == item.key) {
                Some(own) if own.value == item.value => {}
                Some(own) => {
                    changed.push(format!("{}={} {}", self.name, self.value, item.key));
                    own.value.clone_from(&item.value);
                    own.line = line;
                }
                None if has_room => self.items.push(Pair { line, ..item.clone() }),
                None => (),
            }
        }
        changed
    }
}

/// The settings of one source: each thing is set once, in the order in which it was first set. It needs no random number: a
/// process in which there is none has settings all the same, and gets an error of the call.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Source(IndexMap<(String, String), Setting, BuildHasherDefault<DefaultHasher>>);

impl Source {
    /// Adds a setting; the later one counts. Gives what it changed, and where that was set before.
    pub(crate) fn add(&mut self, later: Setting) -> Vec<(String, Origin)> {
        match self.0.entry(key(&later.name, &later.value)) {
            Entry::Vacant(entry) => {
                entry.insert(later);
                Vec::new()
            }
            Entry::Occupied(mut entry) => {
                let origin = entry.get().origin.clone();
                let changed = entry.get_mut().overlay(&later);
                changed.into_iter().map(|name| (name, origin.clone())).collect()
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.0.values()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Setting> {
        self.0.values_mut()
    }

    pub(crate) fn get(&self, name: &str, value: &str) -> Option<&Setting> {
        self.0.get(&key(name, value))
    }

    pub(crate) fn get_mut(&mut self, name: &str, value: &str) -> Option<&mut Setting> {
        self.0.get_mut(&key(name, value))
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&Setting) -> bool) {
        self.0.retain(|_, setting| keep(setting));
    }
}

/// The identity of a setting: for a descriptor line also its value.
fn key(name: &str, value: &str) -> (String, String) {
    let id = if DESCRIPTORS.contains(&name) { value } else { "" };
    (name.to_string(), id.to_string())
}

/// How a file has its settings.
#[derive(Clone, Copy)]
pub(super) enum Form {
    /// A setting for each line.
    Settings,
    /// One line for each group of nodes: each becomes a `GROUPS` line.
    Groups,
}

fn groups_lines(bytes: &[u8]) -> Vec<u8> {
    // A line may be continued on the next one, and each keeps its number.
    let text = String::from_utf8_lossy(bytes).replace("\\\n", "\0");
    let ends = |line: &str| "\n".repeat(1 + line.matches('\0').count());
    let lines = text.lines().map(|line| groups_line(&line.replace('\0', " ")) + &ends(line));
    lines.collect::<String>().into_bytes()
}

/// A line `node[1-4] RACK=r1`, or one of Slurm's topology.conf: `SwitchName=s1 Nodes=node[1-4]`. Switches of switches have no nodes.
fn groups_line(line: &str) -> String {
    let line = line::without_comment(line).trim();
    let pairs: Vec<_> = line.split_whitespace().filter_map(|word| word.split_once('=')).collect();
    let value =
        |key: &str| pairs.iter().find(|(own, _)| own.eq_ignore_ascii_case(key)).map(|(_, value)| value);
    // Of a topology of blocks, how many may be joined.
    if value("BlockSizes").is_some() {
        return String::new();
    }
    for (group, name) in [("SWITCH", value("SwitchName")), ("BLOCK", value("BlockName"))] {
        if let Some(name) = name {
            return value("Nodes")
                .map_or_else(String::new, |nodes| format!("{GROUPS}={nodes} {group}={name}"));
        }
    }
    let is_ready = line.is_empty() || name_of(line) == GROUPS;
    if is_ready {
        line.to_owned()
    } else {
        format!("{GROUPS}={line}")
    }
}

/// Reads a file, whose lines get their origin from `origin`, and says why it is not trusted. Of a file that cannot be read nothing
/// counts. `None` where there is no such file.
pub(super) fn load(
    form: Form,
    env: &Env,
    path: &Path,
    origin: fn(FileLine) -> Origin,
    problems: &mut Vec<Problem>,
) -> Option<(Source, Option<Distrust>)> {
    let whole = || origin(FileLine { file: path.into(), line: 0 });
    match read(env, path) {
        Ok((bytes, distrust)) => {
            let is_of_groups = matches!(form, Form::Groups);
            let lines = if is_of_groups { groups_lines(&bytes) } else { bytes };
            let source = parse(&lines, path, origin, problems);
            if is_of_groups && source.0.is_empty() {
                problems
                    .push(Problem::new(&whole(), "the file has no group of nodes; it is ignored".to_owned()));
            }
            Some((source, distrust))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            let cause = Cause::Unreadable { file: path.to_path_buf(), reason: error.to_string() };
            problems.push(Problem::new(&whole(), cause));
            Some((Source::default(), None))
        }
    }
}

/// The whole of a regular file, and why it is not trusted. A pipe or a device could keep us waiting or never end. A link of another
/// user could lead to a file that only we may read, and problems quote its lines.
fn read(env: &Env, path: &Path) -> io::Result<(Vec<u8>, Option<Distrust>)> {
    let irregular = || io::Error::other("it is not a regular file");
    let (trusted, dir) = (Trusted::by(env), env.current_dir.join(path.parent().unwrap_or(path)));
    let distrust = |status: &Status| trusted.check_in(&dir, path, status, env).err();
    let named = env.files.status(path)?;
    let how = match named.kind {
        Kind::File => How::ReadNoLink,
        Kind::Link => match distrust(&named) {
            Some(why) => return Err(io::Error::other(format!("it is a symbolic link, and {why}"))),
            None => How::Read,
        },
        Kind::Dir | Kind::Other => return Err(irregular()),
    };
    let file = env.files.open(path, how)?;
    let status = file.status()?;
    ensure(status.kind == Kind::File, irregular)?;
    let too_large = || io::Error::other(format!("it is larger than {MOST_BYTES} bytes"));
    ensure(status.len <= MOST_BYTES, too_large)?;
    let len = usize::try_from(status.len).map_err(io::Error::other)?;
    let mut bytes = vec![0; len];
    let count = file.read_at(0, &mut bytes)?;
    bytes.truncate(count);
    Ok((bytes, distrust(&status)))
}

/// Reads the text of a file.
pub(crate) fn parse(
    bytes: &[u8],
    path: &Path,
    origin: fn(FileLine) -> Origin,
    problems: &mut Vec<Problem>,
) -> Source {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut settings = Source::default();
    let file: Arc<Path> = path.into();
    let most = problems.len() + MOST_PROBLEMS;
    for (number, line) in (1..).zip(bytes.split(|&byte| byte == b'\n')) {
        let origin = origin(FileLine { file: Arc::clone(&file), line: number });
        let mut found = Vec::new();
        let checked = setting(line, &origin, &mut found).and_then(|setting| {
            // A value that cannot be read takes the place of none that can.
            let mut second = setting.iter().filter(|setting| settings.get(&setting.name, "").is_some());
            second.try_for_each(readable).map(|()| setting)
        });
        match checked {
            Ok(setting) => {
                let changed = setting.into_iter().flat_map(|setting| settings.add(setting));
                found.extend(changed.map(|(name, earlier)| duplicate(&name, &earlier)));
            }
            Err(cause) => found.push(cause),
        }
        let room = most.saturating_sub(problems.len());
        problems.extend(found.into_iter().take(room).map(|cause| Problem::new(&origin, cause)));
    }
    settings
}

/// The setting of a line, if it has one. What is wrong with a part of it is added to the `problems`.
fn setting(line: &[u8], origin: &Origin, problems: &mut Vec<Cause>) -> Result<Option<Setting>, Cause> {
    limited(line)?;
    let text = String::from_utf8_lossy(line);
    let text = line::without_comment(text.strip_suffix('\r').unwrap_or(&text)).trim();
    if text.is_empty() {
        return Ok(None);
    }
    if !is_text(text) {
        let name = name_of(text);
        return Err(find(&name).map_or(Cause::NotText, |_| Cause::ValueNotText { name }));
    }
    from_words(line::words(text)?, origin, problems).map(Some)
}

/// Whether the value of a parameter makes sense, as far as can be seen before variables are replaced.
pub(super) fn readable(setting: &Setting) -> Result<(), Cause> {
    let Some(info) = find(&setting.name).filter(|_| !setting.value.contains('$')) else { return Ok(()) };
    let read = info.kind.read(&setting.value, Path::new("/"));
    read.map(drop).map_err(|rejected| Cause::rejected(rejected, &setting.name, &setting.value))
}

/// Refuses a line that is longer than any line needs to be.
pub(super) fn limited(line: &[u8]) -> Result<(), Cause> {
    let (found, most) = (line.len(), MOST_LINE_BYTES);
    ensure(found <= most, || {
        format!("the line has {found} bytes, and {most} are allowed; it is ignored").into()
    })
}

/// Refuses a descriptor with more keys than any plugin needs.
pub(super) fn check_keys(setting: &Setting) -> Result<(), Cause> {
    ensure(setting.items.len() <= MOST_KEYS, || too_many_keys(setting))
}

fn too_many_keys(setting: &Setting) -> Cause {
    let Setting { name, value, .. } = setting;
    format!("{name}={value} has more than {MOST_KEYS} keys; the others are ignored").into()
}

/// Whether a text holds nothing that no value can hold. Bytes that were not UTF-8 have become U+FFFD.
pub(crate) fn is_text(text: &str) -> bool {
    !text.contains(|c: char| c == char::REPLACEMENT_CHARACTER || (c.is_control() && c != '\t'))
}

fn from_words(words: Words, origin: &Origin, problems: &mut Vec<Cause>) -> Result<Setting, Cause> {
    let mut pairs = words.pairs.into_iter();
    let Some(first) = pairs.next() else {
        return Err(Cause::NoEquals { text: words.rest.unwrap_or_default() });
    };
    unknown(&first.key).map_or(Ok(()), Err)?;
    ensure(!first.value.is_empty(), || Cause::Empty { name: first.key.clone() })?;
    let mut setting = Setting::new(&first.key, &first.value, origin.clone());
    if setting.is_descriptor() {
        problems.extend(words.rest.map(|text| Cause::NoEquals { text }));
        take_items(&mut setting, pairs, problems);
        return Ok(setting);
    }
    let rest: Vec<_> = pairs.map(|pair| format!("{}={}", pair.key, pair.value)).chain(words.rest).collect();
    match rest.is_empty() {
        true => Ok(setting),
        // The user may have meant another value than its first word.
        false => Err(Cause::AfterValue { name: first.key, rest: rest.join(" ") }),
    }
}

/// That something was set before in the same file. The lines of a descriptor are joined, and only the first is known.
fn duplicate(name: &str, earlier: &Origin) -> Cause {
    let place = earlier.place().filter(|_| !name.contains('='));
    let place = place.map(|place| format!(", after {place}")).unwrap_or_default();
    format!("{} is set a second time{place}; the later one counts", quote(name)).into()
}

fn take_items(setting: &mut Setting, pairs: impl Iterator<Item = Pair>, problems: &mut Vec<Cause>) {
    for pair in pairs {
        let name = format!("{}={} {}", setting.name, setting.value, pair.key);
        if pair.value.is_empty() {
            problems.push(Cause::Empty { name });
            continue;
        }
        let has_room = setting.items.len() < MOST_KEYS;
        match setting.items.iter_mut().find(|own| own.key == pair.key) {
            Some(own) => {
                if own.value != pair.value {
                    problems.push(duplicate(&name, &setting.origin));
                }
                own.value = pair.value;
            }
            None if has_room => setting.items.push(pair),
            None => {
                problems.push(too_many_keys(setting));
                break;
            }
        }
    }
}

/// The problem of a name that is no parameter and starts no descriptor line.
pub fn unknown(name: &str) -> Option<Cause> {
    if find(name).is_some() || DESCRIPTORS.contains(&name) {
        return None;
    }
    if let Some(cause) = retired(name, name) {
        return Some(cause);
    }
    let known = || TABLE.iter().map(|info| info.name).chain(DESCRIPTORS.iter().copied());
    let nearest = nearest(name, known()).or_else(|| nearest(&format!("SCR_{name}"), known()));
    Some(format!("there is no parameter {}{}", quote(name), suggest(&nearest)).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &[u8]) -> (Vec<Setting>, Vec<Problem>) {
        let mut problems = Vec::new();
        let settings = parse(text, Path::new("/etc/scr.conf"), Origin::SystemFile, &mut problems);
        (settings.0.into_values().collect(), problems)
    }

    fn clean(text: &str) -> Vec<(String, String, u32)> {
        let (settings, problems) = parsed(text.as_bytes());
        assert_eq!(problems, []);
        let place = |setting: &Setting| setting.origin.place().unwrap().line;
        settings.iter().map(|s| (s.name.clone(), s.value.clone(), place(s))).collect()
    }

    #[test]
    fn the_guides_first_file_is_read() {
        let text = "# set the halt seconds to one hour\nSCR_HALT_SECONDS=3600\n\n# flush\nSCR_FLUSH=20\n";
        let expected = [("SCR_HALT_SECONDS".into(), "3600".into(), 2), ("SCR_FLUSH".into(), "20".into(), 5)];
        assert_eq!(clean(text), expected);
    }

    #[test]
    fn line_ends_of_windows_a_missing_last_one_and_a_byte_order_mark_do_not_matter() {
        let text = "\u{feff}SCR_FLUSH=20\r\n\r\nSCR_DEBUG=1";
        assert_eq!(clean(text), [("SCR_FLUSH".into(), "20".into(), 1), ("SCR_DEBUG".into(), "1".into(), 3)]);
    }

    #[test]
    fn a_descriptor_line_keeps_its_pairs_in_order() {
        let (settings, problems) =
            parsed(b"CKPT=0 INTERVAL=1 GROUP=NODE   STORE=/dev/shm TYPE=XOR SET_SIZE=16");
        assert_eq!(problems, []);
        assert_eq!((settings[0].name.as_str(), settings[0].value.as_str()), ("CKPT", "0"));
        let keys: Vec<_> = settings[0].items.iter().map(|item| item.key.as_str()).collect();
        assert_eq!(keys, ["INTERVAL", "GROUP", "STORE", "TYPE", "SET_SIZE"]);
    }

    #[test]
    fn oversized_lines_and_key_lists_are_skipped_and_reported() {
        let long = format!("SCR_FLUSH={}\nSCR_DEBUG=1", "1".repeat(MOST_LINE_BYTES));
        let (settings, problems) = parsed(long.as_bytes());
        assert_eq!((settings.len(), problems.len()), (1, 1), "the next line counts");
        assert!(problems[0].to_string().contains("the line has 16394 bytes"), "{}", problems[0]);
        let keys: String = (0..=MOST_KEYS).map(|key| format!(" K{key}=1")).collect();
        let (settings, problems) = parsed(format!("CKPT=0{keys}").as_bytes());
        assert_eq!((settings[0].items.len(), problems.len()), (MOST_KEYS, 1));
        assert!(problems[0].to_string().contains("CKPT=0 has more than 256 keys"), "{}", problems[0]);
        assert_eq!(parsed("x\n".repeat(2 * MOST_PROBLEMS).as_bytes()).1.len(), MOST_PROBLEMS);
    }

    /// `SCR_HALT_SECONDS=1 hour` set one second.
    #[test]
    fn of_a_value_with_blanks_that_is_not_quoted_no_word_counts() {
        for text in ["SCR_HALT_SECONDS=1 hour", "SCR_PREFIX=/pfs/my runs", "SCR_FLUSH=1 SCR_DEBUG=1"] {
            let (settings, problems) = parsed(text.as_bytes());
            assert!(settings.is_empty() && problems.len() == 1, "{text}: {settings:?}");
            assert!(problems[0].to_string().contains("the whole line is ignored"), "{}", problems[0]);
        }
    }

    #[test]
    fn lines_of_the_same_descriptor_are_joined() {
        let (settings, problems) = parsed(b"CKPT=0 TYPE=XOR\nCKPT=0 SET_SIZE=4\nCKPT=0 SET_SIZE=8");
        assert_eq!(settings.len(), 1);
        assert_eq!(settings[0].items.last().unwrap().value, "8");
        assert_eq!(problems.len(), 1);
        assert!(problems[0].to_string().contains("/etc/scr.conf:3: CKPT=0 SET_SIZE is set a second time; "));
    }

    #[test]
    fn non_utf8_bytes_are_accepted_in_a_comment_and_reported_in_a_setting() {
        assert_eq!(parsed(b"SCR_FLUSH=1 # caf\xe9").1, []);
        let (settings, problems) = parsed(b"SCR_JOB_NAME=caf\xe9\nSCR_FLUSH=2");
        assert_eq!(
            (settings.len(), &problems[0].cause),
            (1, &Cause::ValueNotText { name: "SCR_JOB_NAME".to_string() })
        );
    }

    proptest! {
        #[test]
        fn any_bytes_give_settings_and_problems_and_never_a_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..400)
        ) {
            parsed(&bytes);
        }

        #[test]
        fn any_line_of_likely_pieces_gives_settings_and_problems(
            pieces in proptest::collection::vec(
                prop_oneof![
                    Just("SCR_FLUSH"), Just("CKPT"), Just("STORE"), Just("GROUPS"), Just("="), Just(" "),
                    Just("\""), Just("'"), Just("#"), Just("\n"), Just("\r"), Just("0"), Just("$X"), Just("\u{e9}"),
                ],
                0..40,
            )
        ) {
            let text: String = pieces.concat();
            let (settings, _) = parsed(text.as_bytes());
            for setting in settings {
                prop_assert!(!setting.value.is_empty());
                prop_assert!(unknown(&setting.name).is_none());
            }
        }
    }
}
