//! Lists of nodes as Slurm writes them: `node[1-3,7],login0` is node1, node2, node3, node7 and login0.
//!
//! One function says whether two names are of one node.
//!
//! Several brackets in one name, numbers with leading zeros and blanks between names are understood. The order is kept, and
//! a node that occurs twice counts once.

use crate::param::{self, Params, Problem};
use indexmap::IndexMap;
use scr_base::ensure;
use std::collections::HashSet;

/// More nodes than any machine has: a typing error such as `n[1-999999999]` must not fill the memory.
pub const MOST_NODES: usize = 1 << 20;
/// No host has a longer name.
const MOST_NAME_BYTES: usize = 255;
/// Digits of the largest number.
const LONGEST_NUMBER: usize = 20;
/// More brackets than the names of any machine have.
const MOST_BRACKETS: usize = 8;

/// Why a text is no list of nodes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HostlistError(String);

/// It may be one that `ssh` or a launcher would take for an option of theirs.
fn no_name(node: &str) -> HostlistError {
    HostlistError(format!("`{}' is no name of a host", node.escape_debug()))
}

fn brackets(part: &str) -> HostlistError {
    HostlistError(format!("`{part}' has a bracket without its partner, or one inside another"))
}

/// The nodes of a list.
///
/// # Errors
/// The text is no list of nodes.
pub fn expand(text: &str) -> Result<Vec<String>, HostlistError> {
    let mut nodes = Vec::new();
    for part in parts(text)? {
        nodes.extend(names(part, MOST_NODES.saturating_sub(nodes.len()))?);
    }
    nodes.iter().try_for_each(|node| check_name(node))?;
    Ok(unique(nodes))
}

/// Refuses what must never become a word of a command line: options, settings, and text with control characters.
///
/// # Errors
/// No host can have this name.
pub fn check_name(node: &str) -> Result<(), HostlistError> {
    let is_usable = (1..=MOST_NAME_BYTES).contains(&node.len())
        && !node.starts_with('-')
        && !node.contains(|letter: char| letter.is_control() || letter == '=');
    ensure(is_usable, || no_name(node))
}

/// Checks the parameters that hold lists of nodes, so that `scr config` reports a mistake before there is a job.
pub fn check(params: &Params) -> Vec<Problem> {
    let lists = [&param::NODELIST, &param::EXCLUDE_NODES];
    let problems = lists.into_iter().filter_map(|list| {
        let why = expand(&params.get(list)?).err()?;
        Some(Problem::new(params.origin(list), format!("{}: {why}", list.info().name)))
    });
    problems.collect()
}

/// Whether two names may be of one node: with and without its domain, in upper and lower case. Two domains are two nodes, and
/// two addresses as well.
pub fn is_same_node(one: &str, other: &str) -> bool {
    let is_short_of = |short: &str, full: &str| {
        !short.contains('.')
            && full.split_once('.').is_some_and(|(start, _)| start.eq_ignore_ascii_case(short))
    };
    one.eq_ignore_ascii_case(other) || is_short_of(one, other) || is_short_of(other, one)
}

/// The name of a node as a list has it: the very name before one that may mean the same.
pub fn find<'a>(node: &str, list: &'a [String]) -> Option<&'a String> {
    let same = || list.iter().find(|known| is_same_node(known, node));
    list.iter().find(|known| *known == node).or_else(same)
}

/// Each node once, where it stands first.
pub fn unique(nodes: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut seen = HashSet::new();
    nodes.into_iter().filter(|node| seen.insert(node.clone())).collect()
}

/// The nodes as a list, those with consecutive numbers as a range.
pub fn compress(nodes: &[String]) -> String {
    let mut groups: IndexMap<Shape, Vec<u64>> = IndexMap::new();
    for node in nodes {
        let (shape, number) = shape(node);
        groups.entry(shape).or_default().extend(number);
    }
    groups.iter().map(|(shape, numbers)| shape.list(numbers)).collect::<Vec<_>>().join(",")
}

/// The common parts of the names of a row of nodes.
#[derive(PartialEq, Eq, Hash)]
struct Shape {
    before: String,
    after: String,
    /// Whether there is a number between the two.
    numbered: bool,
    /// Digits of a number with leading zeros; 0 without them.
    width: usize,
}

/// A name taken apart at its last number.
fn shape(node: &str) -> (Shape, Option<u64>) {
    let up_to_number = node.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let before = up_to_number.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let (digits, after) = (&up_to_number[before.len()..], &node[up_to_number.len()..]);
    let Ok(number) = digits.parse() else {
        return (Shape { before: node.to_owned(), after: String::new(), numbered: false, width: 0 }, None);
    };
    let width = if digits.len() > 1 && digits.starts_with('0') { digits.len() } else { 0 };
    (Shape { before: before.to_owned(), after: after.to_owned(), numbered: true, width }, Some(number))
}

impl Shape {
    fn list(&self, numbers: &[u64]) -> String {
        let mut numbers = numbers.to_vec();
        numbers.sort_unstable();
        numbers.dedup();
        let width = self.width;
        let text = |range: &[u64]| match range {
            [first, .., last] => format!("{first:0width$}-{last:0width$}"),
            only => only.iter().map(|number| format!("{number:0width$}")).collect(),
        };
        let ranges = numbers.chunk_by(|number, next| number.checked_add(1) == Some(*next));
        let ranges: Vec<String> = ranges.map(text).collect();
        let inside = match numbers.len() {
            0 | 1 => ranges.concat(),
            _ => format!("[{}]", ranges.join(",")),
        };
        format!("{}{inside}{}", self.before, self.after)
    }
}

/// Splits the text at commas and blanks that are not between brackets.
fn parts(text: &str) -> Result<Vec<&str>, HostlistError> {
    let (mut inside, mut is_broken) = (false, false);
    let parts = text.split(|letter: char| match letter {
        '[' | ']' => {
            is_broken |= inside == (letter == '[');
            inside = letter == '[';
            false
        }
        _ => !inside && (letter == ',' || letter.is_whitespace()),
    });
    let parts = parts.filter(|part| !part.is_empty()).collect();
    ensure(!is_broken && !inside, || brackets(text)).map(|()| parts)
}

/// All names that one part stands for, at most so many.
fn names(part: &str, most: usize) -> Result<Vec<String>, HostlistError> {
    let Some((before, rest)) = part.split_once('[') else { return Ok(vec![part.to_owned()]) };
    let brackets_in_rest = rest.bytes().filter(|&byte| byte == b'[').count();
    ensure(brackets_in_rest < MOST_BRACKETS, || no_name(part))?;
    let (inside, after) = rest.split_once(']').ok_or_else(|| brackets(part))?;
    let too_many = || HostlistError(format!("`{part}' stands for more than {MOST_NODES} nodes"));
    let tails = names(after, most)?;
    let mut names = Vec::new();
    for range in inside.split(',').map(str::trim) {
        let (first, last, width) = ends(range).ok_or_else(|| {
            HostlistError(format!("`{range}' between brackets is no number and no range such as 1-3"))
        })?;
        let count = usize::try_from(last - first).ok().and_then(|count| count.checked_add(1));
        let count = count.and_then(|count| count.checked_mul(tails.len())).ok_or_else(too_many)?;
        ensure(count <= most.saturating_sub(names.len()), too_many)?;
        let longest = tails.iter().map(String::len).max().unwrap_or(0);
        let most_bytes = before.len() + width.max(LONGEST_NUMBER) + longest;
        ensure(most_bytes <= MOST_NAME_BYTES, || no_name(part))?;
        for number in first..=last {
            names.extend(tails.iter().map(|tail| format!("{before}{number:0width$}{tail}")));
        }
    }
    Ok(names)
}

/// First and last number of a range, and how many digits they are written with.
fn ends(range: &str) -> Option<(u64, u64, usize)> {
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
    let (low, high): (u64, u64) = (number(first)?, number(last)?);
    (low <= high).then_some((low, high, if first.starts_with('0') { first.len() } else { 0 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(text: &str) -> String {
        expand(text).unwrap_err().to_string()
    }

    #[test]
    fn hostile_lists_take_neither_the_stack_nor_the_memory() {
        for text in ["[1]".repeat(200_000), format!("{}[1-1000000]", "n".repeat(10_000)), "n".repeat(300)] {
            assert!(why(&text).ends_with("is no name of a host"), "{}", &text[..20]);
        }
        assert!(why("n[1-1000000],m[1-1000000]").contains("stands for more than"));
        let all: Vec<String> = (0..100_000).map(|number| format!("n{number}x{number}y")).collect();
        assert_eq!(expand(&compress(&all)).unwrap(), all, "each has a form of its own");
    }

    #[test]
    fn a_host_list_expands_as_slurm_expands_it() {
        for (text, nodes) in [
            ("atlas[3,5-7,9-11]", "atlas3 atlas5 atlas6 atlas7 atlas9 atlas10 atlas11"),
            ("n0", "n0"),
            ("n0,n1, login", "n0 n1 login"),
            ("n[08-11]", "n08 n09 n10 n11"),
            ("r[1-2]n[0,3]x", "r1n0x r1n3x r2n0x r2n3x"),
            ("n[1],n1,n[0-1]", "n1 n0"),
            ("", ""),
            (" , ", ""),
        ] {
            assert_eq!(expand(text).unwrap().join(" "), nodes, "{text}");
        }
    }

    #[test]
    fn a_list_that_is_none_is_refused_and_never_fills_the_memory() {
        for text in
            ["n[1", "n1]", "n[[1]]", "n[a]", "n[2-1]", "n[]", "n[1-]", "n[-3]", "n[1-99999999999999999999]"]
        {
            assert!(expand(text).is_err(), "{text}");
        }
        for text in ["n[0-999999999]", "n[0-18446744073709551615]", "a[0-1023]b[0-1023]c[0-1023]"] {
            assert!(why(text).contains("stands for more than"), "{text}");
        }
    }

    #[test]
    fn a_name_that_reads_as_an_option_is_refused() {
        for text in ["-oProxyCommand=true", "n0,-x", "-n[1-2]", "n\u{7}"] {
            assert!(why(text).ends_with("is no name of a host"), "{text}");
        }
        assert_eq!(expand("n-[1-2]-ib").unwrap().join(" "), "n-1-ib n-2-ib");
    }

    #[test]
    fn nodes_are_written_as_ranges() {
        for (nodes, text) in [
            ("atlas3 atlas6 atlas9 atlas10 atlas11", "atlas[3,6,9-11]"),
            ("n0", "n0"),
            ("n1 n0 n1", "n[0-1]"),
            ("n08 n09 n10 n11", "n[08-09],n[10-11]"),
            ("rack1-ib rack2-ib login", "rack[1-2]-ib,login"),
            ("a b a1", "a,b,a1"),
            ("10.0.0.1 10.0.0.2", "10.0.0.[1-2]"),
            ("é1 é2", "é[1-2]"),
            ("", ""),
        ] {
            let nodes: Vec<_> = nodes.split_whitespace().map(str::to_owned).collect();
            assert_eq!(compress(&nodes), text);
            let mut back = expand(text).unwrap();
            let mut nodes = unique(nodes);
            back.sort();
            nodes.sort();
            assert_eq!(back, nodes, "{text} stands for what it was made from");
        }
    }
}
