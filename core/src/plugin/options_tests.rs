//! The options that a configuration line may give a plugin.

use super::super::manifest::Manifest;
use super::*;
use std::path::Path;

fn manifest() -> Manifest {
    let text = r#"
        name = "MIRROR"
        kind = "scheme"
        version = "1"
        abi = "1.0"
        library = "a.so"
        option = [
            { name = "COPIES", type = "integer", default = 1, min = 1, max = 255 },
            { name = "CHUNK", type = "size", max = "1GB" },
            { name = "VERIFY", type = "boolean", default = false },
            { name = "ORDER", type = "text", choices = ["Left", "Right"] },
            { name = "LABEL", type = "text" },
        ]
    "#;
    Manifest::parse(Path::new("/p/mirror.toml"), text).unwrap().0
}

fn errors(given: &[(&str, &str)]) -> Vec<String> {
    read_given(&manifest().options, "the scheme MIRROR", given.iter().copied()).unwrap_err()
}

#[test]
fn defaults_fill_what_is_not_given_and_what_has_none_stays_unset() {
    let tree = manifest().options([]).unwrap();
    assert_eq!((tree.text("COPIES"), tree.text("VERIFY")), (Some("1"), Some("0")));
    assert!(!tree.has("CHUNK") && !tree.has("ORDER"));
}

#[test]
fn values_arrive_in_one_form_whatever_the_user_wrote() {
    let given =
        [("copies", "7"), ("Chunk", "64kb"), ("VERIFY", "yes"), ("order", "LEFT"), ("LABEL", "a=b c")];
    let tree = manifest().options(given).unwrap();
    let values = ["COPIES", "CHUNK", "VERIFY", "ORDER", "LABEL"].map(|name| tree.text(name).unwrap());
    assert_eq!(values, ["7", "65536", "1", "Left", "a=b c"]);
}

#[test]
fn sizes_are_read_with_and_without_units() {
    for (text, bytes) in
        [("0", 0), ("131072", 131_072), ("1b", 1), ("2K", 2048), ("3MiB", 3 << 20), ("1 GB", 1 << 30)]
    {
        assert_eq!(OptionType::Size.number(text), Some(bytes), "{text}");
    }
    for text in ["", "KB", "1X", "-1", "1MBB", "0x10", "99999999999999999999"] {
        assert_eq!(OptionType::Size.number(text), None, "{text}");
    }
}

#[test]
fn all_mistakes_of_a_line_are_reported_at_once() {
    let found =
        errors(&[("COPIES", "0"), ("COPIE", "2"), ("CHUNK", "2GB"), ("ORDER", "up"), ("COLOUR", "red")]);
    assert_eq!(
        found,
        [
            "COPIES=0: the scheme MIRROR takes a whole number from 1 to 255 here",
            "COPIE=2: the scheme MIRROR has no option of this name; did you mean COPIES?",
            "CHUNK=2GB: the scheme MIRROR takes a number of bytes, such as 131072, 128KB or 1GB, of at most 1073741824 here",
            "ORDER=up: the scheme MIRROR takes one of Left, Right here",
            "COLOUR=red: the scheme MIRROR has no option of this name; it takes COPIES, CHUNK, VERIFY, ORDER, LABEL",
        ]
    );
}

#[test]
fn a_value_of_another_type_is_refused() {
    for (name, value) in [
        ("COPIES", "two"),
        ("COPIES", ""),
        ("COPIES", "99999999999999999999"),
        ("COPIES", "1.0"),
        ("VERIFY", "2"),
        ("VERIFY", ""),
        ("LABEL", "a\0b"),
    ] {
        assert_eq!(errors(&[(name, value)]).len(), 1, "{name}={value}");
    }
}

#[test]
fn an_option_that_is_there_twice_is_refused() {
    let found = errors(&[("COPIES", "2"), ("copies", "3")]);
    assert_eq!(found, ["COPIES=3: COPIES is set already, to 2; remove one of the two"]);
}
