//! Which files of an import belong to which rank.

use crate::prelude::*;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The files of each rank. With a number of ranks, a name with `%d` is a file of each rank, and one without beside it, or
/// alone, is a file of all of them. Other files come in the order of the ranks, as many for each.
pub(super) fn by_rank(
    given: &[OsString],
    ranks: Option<u32>,
    is_there: impl Fn(&Path) -> bool,
) -> Result<Vec<Vec<PathBuf>>> {
    let count = ranks.map_or(given.len(), |ranks| ranks as usize);
    // The first one ends it: there may be a million names, and behind them files that take hours to be read.
    let present = |path: PathBuf| -> Result<PathBuf> {
        ensure!(is_there(&path), "{} is missing", path.display());
        Ok(path)
    };
    // The files of a rank that there is not: ranks count from 0.
    let one_more = given.iter().map(|name| Ok(with_rank(name, count)?.filter(|_| ranks.is_some())));
    let one_more: Vec<Option<PathBuf>> = one_more.collect::<Result<_>>()?;
    let is_of_all = given.len() == 1 && ranks.is_some();
    if is_of_all || one_more.iter().any(Option::is_some) {
        if let Some(path) = one_more.iter().flatten().find(|path| is_there(path)) {
            bail!("{} is there too, and --ranks {count} leaves it out: ranks count from 0", path.display());
        }
        let file_of = |rank, name: &OsString| present(with_rank(name, rank)?.unwrap_or_else(|| name.into()));
        let of_rank = |rank| given.iter().map(|name| file_of(rank, name)).collect();
        return (0..count).map(of_rank).collect();
    }
    let (all, each) = (given.len(), given.len() / count);
    ensure!(
        each * count == all,
        "{all} files cannot be shared out to {count} ranks; give as many for each rank"
    );
    let groups: Vec<&[OsString]> = given.chunks(each).collect();
    refuse_disordered(&groups)?;
    groups.iter().map(|names| names.iter().map(|name| present(name.into())).collect()).collect()
}

/// A shell puts `rank_10` before `rank_2`, and all of `a_*` before all of `b_*`.
fn refuse_disordered(groups: &[&[OsString]]) -> Result<()> {
    for (rank, pair) in groups.windows(2).enumerate() {
        for (before, after) in pair[0].iter().zip(pair[1]) {
            let is_alike = without_numbers(before) == without_numbers(after);
            let is_disordered = by_numbers(before) > by_numbers(after);
            let (before, after, next) = (before.display(), after.display(), rank + 1);
            if !is_alike && pair[0].len() > 1 {
                bail!(
                    "rank {rank} would have `{before}' where rank {next} has `{after}', and their names differ in more than numbers: \
                     give all files of rank 0, then those of rank 1 in the same order and so on, or names with %d"
                );
            }
            if is_alike && is_disordered {
                bail!(
                    "`{before}' comes before `{after}', as in the order of a shell: give the files in the order of the ranks, or a \
                     name with %d and --ranks"
                );
            }
        }
    }
    Ok(())
}

/// The text around the numbers of a name.
fn without_numbers(name: &OsStr) -> Vec<&[u8]> {
    runs(name).map(|run| if run[0].is_ascii_digit() { &[] } else { run }).collect()
}

/// The sort key of a name, in which numbers count as numbers.
fn by_numbers(name: &OsStr) -> Vec<(u128, Vec<u8>)> {
    let part = |run: &[u8]| match std::str::from_utf8(run).ok().and_then(|digits| digits.parse().ok()) {
        Some(number) => (number, Vec::new()),
        None => (0, run.to_vec()),
    };
    runs(name).map(part).collect()
}

/// The numbers of a name, and what stands around them.
fn runs(name: &OsStr) -> impl Iterator<Item = &[u8]> {
    name.as_bytes().chunk_by(|one, two| one.is_ascii_digit() == two.is_ascii_digit())
}

/// The name with the number of a rank for each `%d` or, as in `%04d`, one with a width; `None` for a name without any.
fn with_rank(name: &OsStr, rank: usize) -> Result<Option<PathBuf>> {
    let (mut filled, mut rest, mut has_number) = (Vec::new(), name.as_bytes(), false);
    while let Some(percent) = rest.iter().position(|&byte| byte == b'%') {
        let digits = rest[percent + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let end = percent + 1 + digits;
        if rest.get(end) != Some(&b'd') {
            filled.extend(&rest[..=percent]);
            rest = &rest[percent + 1..];
            continue;
        }
        let width = std::str::from_utf8(&rest[percent + 1..end]).unwrap_or_default();
        let width = if width.is_empty() { 0 } else { width.parse().unwrap_or(usize::MAX) };
        ensure!(width <= MOST_DIGITS, "`{}' asks for {width} digits", name.display());
        filled.extend(&rest[..percent]);
        filled.extend(format!("{rank:0width$}").into_bytes());
        (rest, has_number) = (&rest[end + 1..], true);
    }
    filled.extend(rest);
    Ok(has_number.then(|| OsString::from_vec(filled).into()))
}

const MOST_DIGITS: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(given: &[&str], ranks: Option<u32>) -> Result<Vec<Vec<String>>, String> {
        let given: Vec<OsString> = given.iter().map(OsString::from).collect();
        let ranks =
            by_rank(&given, ranks, |path| is_there(path, ranks)).map_err(|error| error.to_string())?;
        Ok(ranks.iter().map(|files| files.iter().map(|file| file.display().to_string()).collect()).collect())
    }

    /// There are those of all ranks, and four more.
    fn is_there(path: &Path, ranks: Option<u32>) -> bool {
        let name = path.to_str().unwrap();
        name.starts_with("more") || ranks.is_none_or(|ranks| !name.contains(&ranks.to_string()))
    }

    /// It made a hundred million names before it looked at any, and ran out of memory.
    #[test]
    fn the_first_file_that_is_missing_ends_an_import() {
        for (given, missing) in [("%d", "7"), ("%03d.h5", "007.h5"), ("one", "one")] {
            let one_more = 100_000_000.to_string();
            let is_there =
                |path: &Path| path != Path::new(missing) && !path.to_str().unwrap().contains(&one_more);
            let error = by_rank(&[given.into()], Some(100_000_000), is_there).unwrap_err();
            assert_eq!(error.to_string(), format!("{missing} is missing"));
        }
    }

    #[test]
    fn files_belong_to_ranks_by_pattern_or_by_their_order() {
        assert_eq!(of(&["b", "a"], None).unwrap(), [["b"], ["a"]]);
        assert_eq!(of(&["b0", "a0", "b1", "a1"], Some(2)).unwrap(), [["b0", "a0"], ["b1", "a1"]]);
        assert_eq!(of(&["f8", "f9", "f10", "f11"], Some(2)).unwrap(), [["f8", "f9"], ["f10", "f11"]]);
        assert_eq!(of(&["x/%d", "r%03d.%d.h"], Some(2)).unwrap(), [["x/0", "r000.0.h"], ["x/1", "r001.1.h"]]);
        assert_eq!(of(&["all", "%d"], Some(2)).unwrap(), [["all", "0"], ["all", "1"]]);
        assert_eq!(of(&["all.h5"], Some(3)).unwrap(), [["all.h5"], ["all.h5"], ["all.h5"]]);
        assert_eq!(of(&["100%", "%d"], None).unwrap(), [["100%"], ["%d"]], "without ranks names are names");
    }

    #[test]
    fn ambiguous_file_lists_are_refused() {
        assert!(of(&["a", "b", "c"], Some(2))
            .unwrap_err()
            .contains("3 files cannot be shared out to 2 ranks"));
        let sorted = of(&["r_1", "r_10", "r_2"], None).unwrap_err();
        assert!(sorted.contains("`r_10' comes before `r_2'"), "{sorted}");
        of(&["r_1", "r_2", "r_10"], None).unwrap();
        for by_locale in [["r_1_x", "r_10_x", "r_2_x"], ["r_2", "r_10", "r_1"]] {
            assert!(of(&by_locale, None).unwrap_err().contains("or a name with %d and --ranks"));
        }
        let by_kind = of(&["a_0", "a_1", "b_0", "b_1"], Some(2)).unwrap_err();
        assert!(by_kind.contains("rank 0 would have `a_0' where rank 1 has `b_0'"), "{by_kind}");
        let fewer = of(&["more%d"], Some(4)).unwrap_err();
        assert!(
            fewer.contains("more4 is there too, and --ranks 4 leaves it out: ranks count from 0"),
            "{fewer}"
        );
        assert!(of(&["%99d"], Some(1)).unwrap_err().contains("99 digits"));
    }
}
