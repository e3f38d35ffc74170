//! The parts of C SCR read, ours written for many shapes of runs, and every kind of damage refused.

use super::*;
use crate::fixtures::{damage, scratch, scratch_copy, tree, JOBS};
use scr_base::fs::{FsError, RealFiles};
use scr_plugin_api::KvTree;
use scr_test_kit::faulty::FaultyFiles;
use std::fs;
use std::io;

const ID: u64 = 7;

fn file(name: &str) -> PrefixFile {
    PrefixFile { name: name.parse().unwrap(), bytes: Some(5), crc: Some(0xdead_beef) }
}

/// Every rank has as many files as its number modulo three.
fn lists(ranks: u32) -> Vec<Vec<PrefixFile>> {
    let list = |rank: u32| (0..rank % 3).map(|place| file(&format!("ckpt.7/rank_{rank}.{place}"))).collect();
    (0..ranks).map(list).collect()
}

fn dataset() -> (tempfile::TempDir, Prefix) {
    let (dir, prefix) = scratch();
    prefix.make_dataset_dir(&RealFiles, ID).unwrap();
    (dir, prefix)
}

fn read(prefix: &Prefix, id: u64) -> Result<Rank2File, String> {
    Rank2File::read(&RealFiles, prefix, id).map_err(|error| match error {
        PrefixError::Unusable { fault, .. } => fault.strip_prefix("cannot be used: ").unwrap().to_owned(),
        other => panic!("{other}"),
    })
}

#[test]
fn the_lists_of_c_scr_are_read() {
    for (job, ids) in JOBS {
        let (_dir, prefix) = scratch_copy(job);
        for &id in ids {
            let list = read(&prefix, id).unwrap();
            assert_eq!((list.ranks(), list.files(), list.bytes()), (4, 4, None));
            for rank in 0..4 {
                let name = format!("ckpt.{id}/rank_{rank}.ckpt").parse().unwrap();
                assert_eq!(list.of(Rank(rank)), [PrefixFile { name, bytes: None, crc: None }]);
                assert!(RealFiles.status(&prefix.file(&list.of(Rank(rank))[0].name)).is_ok());
            }
            assert!(list.of(Rank(4)).is_empty());
        }
    }
}

#[test]
fn the_lists_of_c_scr_written_again_have_the_same_keys() {
    let (_dir, prefix) = scratch_copy("bypass");
    let part = prefix.dataset_dir(3).join("rank2file.0.0");
    let before = (tree(prefix.rank2file(3)), tree(&part));
    read(&prefix, 3).unwrap().write(&RealFiles, &prefix, 3).unwrap();
    assert_eq!((tree(prefix.rank2file(3)), tree(part)), before);
}

#[test]
fn sizes_and_checksums_are_stored_below_the_name() {
    let (_dir, prefix) = dataset();
    Rank2File::new(vec![vec![file("a")], vec![]]).write(&RealFiles, &prefix, ID).unwrap();
    let text = tree(prefix.dataset_dir(ID).join("rank2file.0.0")).to_string();
    let expected = "  RANKS\n    2\n  LEVEL\n    0\n  RANK\n    0\n      FILE\n        a\n          SIZE\n            5\n          \
                    CRC\n            0xdeadbeef\n    1\n";
    assert_eq!(text, expected);
}

#[test]
fn any_number_of_ranks_with_any_fan_out_comes_back() {
    for fan_out in [2, 3, 5, 1024] {
        for ranks in [1, 2, 3, 4, 5, 8, 9, 26, 27, 28, 100] {
            let (_dir, prefix) = dataset();
            let list = Rank2File::new(lists(ranks));
            write::write(&RealFiles, &prefix, ID, &list.by_rank, fan_out).unwrap();
            assert_eq!(read(&prefix, ID), Ok(list), "{ranks} ranks, fan-out {fan_out}");
        }
    }
}

#[test]
fn the_parts_are_a_tree_that_rank_0_can_read_on_every_level() {
    let (_dir, prefix) = dataset();
    write::write(&RealFiles, &prefix, ID, &lists(9), 2).unwrap();
    let names = RealFiles.list(&prefix.dataset_dir(ID)).unwrap();
    let expected =
        "rank2file rank2file.0.0 rank2file.0.2 rank2file.0.4 rank2file.0.6 rank2file.0.8 rank2file.1.0 \
                    rank2file.1.4 rank2file.1.8 rank2file.2.0 rank2file.2.8";
    assert_eq!(names.iter().map(|name| name.to_str().unwrap()).collect::<Vec<_>>().join(" "), expected);
    let top = tree(prefix.rank2file(ID));
    assert_eq!((top.text("LEVEL"), top.text("RANKS")), (Some("3"), Some("9")));
    assert_eq!(top.find("RANK", 8).unwrap().text("FILE"), Some(".2.8"));
    let readers: Vec<_> =
        read::leaves(&RealFiles, &prefix, ID).unwrap().iter().map(|leaf| leaf.reader.0).collect();
    assert_eq!(readers, [0, 2, 4, 6, 8]);
}

#[test]
fn a_large_run_has_a_part_for_each_1024_ranks() {
    let (_dir, prefix) = dataset();
    let list = Rank2File::new(lists(2500));
    list.write(&RealFiles, &prefix, ID).unwrap();
    let leaves = read::leaves(&RealFiles, &prefix, ID).unwrap();
    assert_eq!(leaves.iter().map(|leaf| leaf.reader.0).collect::<Vec<_>>(), [0, 1024, 2048]);
    assert_eq!(read(&prefix, ID), Ok(list));
}

#[test]
fn parts_of_an_older_list_are_removed() {
    let (_dir, prefix) = dataset();
    write::write(&RealFiles, &prefix, ID, &lists(9), 2).unwrap();
    fs::write(prefix.dataset_dir(ID).join("rank2file.note"), "kept").unwrap();
    Rank2File::new(lists(3)).write(&RealFiles, &prefix, ID).unwrap();
    let names = RealFiles.list(&prefix.dataset_dir(ID)).unwrap();
    assert_eq!(names, ["rank2file", "rank2file.0.0", "rank2file.note"].map(std::path::PathBuf::from));
}

#[test]
fn two_ranks_may_share_a_file_but_not_with_two_sizes_and_none_has_it_twice() {
    let (_dir, prefix) = dataset();
    let shared = Rank2File::new(vec![vec![file("all")], vec![file("all")]]);
    shared.write(&RealFiles, &prefix, ID).unwrap();
    rename_in_leaf(&prefix, 1, "all", "./all");
    assert_eq!(read(&prefix, ID), Ok(shared));
    let longer = PrefixFile { bytes: Some(6), ..file("all") };
    for by_rank in [vec![vec![file("all")], vec![longer]], vec![vec![file("a/b"), file("a/b")]]] {
        let error = Rank2File::new(by_rank).write(&RealFiles, &prefix, ID).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("is listed for rank 0 and for rank ") && error.is_damage(), "{text}");
    }
}

/// Gives a file of a rank another name in the first leaf.
fn rename_in_leaf(prefix: &Prefix, rank: u32, from: &str, to: &str) {
    damage(prefix.dataset_dir(ID).join("rank2file.0.0"), |tree| {
        let files = tree.entry("RANK", rank).child("FILE");
        let file = files.remove(from).unwrap();
        files.put(to, file);
    });
}

#[test]
fn a_name_in_two_forms_is_one_name() {
    let (_dir, prefix) = dataset();
    Rank2File::new(vec![vec![file("a/b"), file("c")]]).write(&RealFiles, &prefix, ID).unwrap();
    rename_in_leaf(&prefix, 0, "c", "a//b");
    let expected = "the file `a/b' is listed for rank 0 and for rank 0, not with the same size and checksum";
    assert_eq!(read(&prefix, ID), Err(expected.to_owned()));
}

#[test]
fn a_name_that_leads_out_or_is_too_long_is_not_read() {
    let long = ["x".repeat(250).as_str(); 5].join("/");
    for name in ["", "/etc/passwd", "../a", "a/../../b", "a/", ".", ".scr/index.scr", &long] {
        let (_dir, prefix) = dataset();
        Rank2File::new(vec![vec![file("a")]]).write(&RealFiles, &prefix, ID).unwrap();
        rename_in_leaf(&prefix, 0, "a", name);
        let reason = read(&prefix, ID).unwrap_err();
        let expected = match name.len() {
            ..1024 => {
                format!("rank 0 has the file `{name}', which is not a path below the prefix directory")
            }
            found => {
                format!("rank 0 has a file with a name of {found} bytes, and 1023 are allowed: `{name}'")
            }
        };
        assert_eq!(reason, expected);
    }
    let (_dir, prefix) = dataset();
    let longest = Rank2File::new(vec![vec![file(&long[..1023])]]);
    longest.write(&RealFiles, &prefix, ID).unwrap();
    assert_eq!(read(&prefix, ID), Ok(longest));
}

#[test]
fn a_run_without_ranks_has_no_lists() {
    let (_dir, prefix) = dataset();
    assert!(Rank2File::new(vec![]).write(&RealFiles, &prefix, ID).is_err());
}

/// The result of the reader after `change` was made to one of the parts of nine ranks.
fn after(part: &str, change: impl FnOnce(&mut KvTree)) -> String {
    let (_dir, prefix) = dataset();
    write::write(&RealFiles, &prefix, ID, &lists(9), 2).unwrap();
    damage(prefix.dataset_dir(ID).join(part), change);
    read(&prefix, ID).unwrap_err()
}

#[test]
fn parts_that_do_not_fit_together_are_refused() {
    let faults = [
        after("rank2file", |tree| tree.set("RANKS", 8)),
        after("rank2file", |tree| tree.set("RANKS", 0)),
        after("rank2file", |tree| tree.set("LEVEL", 0)),
        after("rank2file", |tree| tree.set("LEVEL", 4_000_000_000_u32)),
        after("rank2file", |tree| tree.set("LEVEL", 2)),
        after("rank2file", |tree| drop(tree.child("RANK").remove("8"))),
        after("rank2file.1.4", |tree| tree.set("RANKS", 10)),
        after("rank2file.0.4", |tree| tree.set("LEVEL", 1)),
        after("rank2file.0.4", |tree| _ = tree.entry("RANK", 1)),
        after("rank2file.0.4", |tree| _ = tree.entry("RANK", 9)),
        after("rank2file.0.4", |tree| _ = tree.entry("RANK", "04")),
        after("rank2file.0.4", |tree| _ = tree.entry("RANK", "x")),
        after("rank2file.0.4", |tree| drop(tree.remove("RANK"))),
        after("rank2file.1.0", |tree| tree.entry("RANK", 2).set("FILE", ".0.0")),
        after("rank2file.1.0", |tree| tree.entry("RANK", 2).set("FILE", "/../../../etc/passwd")),
        after("rank2file.1.0", |tree| tree.entry("RANK", 2).set("FILE", "")),
    ];
    assert_eq!(
        faults,
        [
            "it lists rank 8, and the run had 8 ranks",
            "it was written by 0 ranks where 1 are expected",
            "it has level 0 where 1 to 32 is expected",
            "it has level 4000000000 where 1 to 32 is expected",
            "it has level 2 where 1 is expected",
            "1 of 9 ranks are not listed, the first is rank 8",
            "it was written by 10 ranks where 9 are expected",
            "it has level 1 where 0 is expected",
            "rank 1 is listed twice",
            "it lists rank 9, and the run had 9 ranks",
            "it lists rank 04, and the run had 9 ranks",
            "it lists rank x, and the run had 9 ranks",
            "2 of 9 ranks are not listed, the first is rank 4",
            "the list `.0.0' is led to twice",
            "it leads to `/../../../etc/passwd', which is not the name of a list of files",
            "it leads to `', which is not the name of a list of files",
        ]
    );
}

#[test]
fn a_huge_number_of_ranks_costs_nothing_and_is_refused() {
    let (_dir, prefix) = scratch_copy("bypass");
    for part in ["rank2file", "rank2file.0.0"] {
        damage(prefix.dataset_dir(1).join(part), |tree| tree.set("RANKS", u32::MAX));
    }
    let expected = ranks_missing(u32::MAX - 4, u32::MAX, Rank(4));
    assert_eq!(read(&prefix, 1), Err(expected));
}

#[test]
fn a_missing_damaged_or_malformed_part_is_named() {
    for part in ["rank2file", "rank2file.0.0"] {
        let error_after = |change: fn(&Path)| {
            let (_dir, prefix) = scratch_copy("xor-flush2");
            change(&prefix.dataset_dir(4).join(part));
            Rank2File::read(&RealFiles, &prefix, 4).unwrap_err()
        };
        assert!(matches!(error_after(|path| fs::remove_file(path).unwrap()), PrefixError::Missing { .. }));
        let cut = error_after(|path| fs::write(path, &fs::read(path).unwrap()[..50]).unwrap());
        assert!(matches!(&cut, PrefixError::Fs(FsError::Tree { .. })) && cut.is_damage(), "{cut}");
        let no_level = error_after(|path| damage(path, |tree| drop(tree.remove("LEVEL"))));
        assert!(matches!(no_level, PrefixError::Fs(FsError::Field { .. })), "{no_level}");
        assert!(no_level.to_string().contains(part));
    }
    let (_dir, prefix) = scratch_copy("xor-flush2");
    damage(prefix.rank2file(4), |tree| drop(tree.entry("RANK", 0).remove("OFFSET")));
    assert!(matches!(Rank2File::read(&RealFiles, &prefix, 4), Err(PrefixError::Fs(FsError::Field { .. }))));
    damage(prefix.rank2file(4), |tree| tree.entry("RANK", 0).set("OFFSET", u64::MAX));
    assert!(Rank2File::read(&RealFiles, &prefix, 4).unwrap_err().is_damage());
}

#[test]
fn a_part_may_begin_within_its_file() {
    let (_dir, prefix) = scratch_copy("xor-flush2");
    let part = prefix.dataset_dir(4).join("rank2file.0.0");
    let shifted = [b"12345".to_vec(), fs::read(&part).unwrap()].concat();
    fs::write(&part, shifted).unwrap();
    damage(prefix.rank2file(4), |tree| tree.entry("RANK", 0).set("OFFSET", 5));
    assert_eq!(read(&prefix, 4).unwrap().files(), 4);
}

#[test]
fn any_flipped_bit_is_found() {
    let (_dir, prefix) = scratch_copy("xor-flush2");
    for part in ["rank2file", "rank2file.0.0"] {
        let path = prefix.dataset_dir(4).join(part);
        let whole = fs::read(&path).unwrap();
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, damaged).unwrap();
            assert!(Rank2File::read(&RealFiles, &prefix, 4).is_err(), "{part} bit {bit}");
        }
        fs::write(&path, whole).unwrap();
    }
}

#[test]
fn while_the_top_is_missing_nothing_is_read_and_a_second_attempt_succeeds() {
    for at in 1.. {
        let (_dir, prefix) = dataset();
        let files = FaultyFiles::new(RealFiles);
        files.fail_from(at, io::ErrorKind::StorageFull);
        let list = Rank2File::new(lists(5));
        let written = write::write(&files, &prefix, ID, &list.by_rank, 2);
        if written.is_ok() {
            break;
        }
        match Rank2File::read(&RealFiles, &prefix, ID) {
            Ok(read) => assert_eq!(read, list, "at {at}"),
            Err(error) => assert!(matches!(error, PrefixError::Missing { .. }), "at {at}: {error}"),
        }
        files.heal();
        list.write(&files, &prefix, ID).unwrap();
        assert_eq!(read(&prefix, ID), Ok(list));
    }
}

#[test]
fn a_leaf_that_another_rank_names_lies_in_the_folder_of_its_dataset() {
    let (_dir, prefix) = scratch();
    for (name, is_taken) in
        [("rank2file", true), ("rank2file.0.2", true), ("/etc/passwd", false), ("../x", false), ("", false)]
    {
        let message = (name.into(), 0, Rank(2), 4);
        let leaf = Leaf::from_message(&prefix, 7, &message);
        assert_eq!(leaf.map(|leaf| leaf.to_message()), is_taken.then_some(message), "{name}");
    }
}
