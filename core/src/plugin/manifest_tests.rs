//! Manifests: the contents of good ones, and the errors for bad ones.

use super::*;

const FULL: &str = r#"name = "XOR"
kind = "scheme"
version = "1.2.0"
abi = "1.0"
library = "libscr_xor.so"
description = "Parity"

[format]
id = "striping"
oldest = 1
newest = 3

[capabilities]
tolerates = "LOSSES"

[[option]]
name = "LOSSES"
type = "integer"
default = 1
min = 1
max = 8
help = "How many"

[[option]]
name = "CHUNK"
type = "size"
default = "1MB"
min = "4kb"

[[option]]
name = "VERIFY"
type = "boolean"
default = true

[[option]]
name = "MATRIX"
type = "text"
choices = ["Cauchy", "Vandermonde"]
"#;

fn parse(text: &str) -> Result<(Manifest, Vec<String>), String> {
    Manifest::parse(Path::new("/p/xor.toml"), text).map_err(|error| error.to_string())
}

/// The full manifest with one line replaced.
fn with(line: &str, instead: &str) -> String {
    let changed = FULL.replacen(line, instead, 1);
    assert_ne!(changed, FULL, "`{line}' is a line of the manifest");
    changed
}

#[test]
fn a_full_manifest_is_read() {
    let (manifest, notes) = parse(FULL).unwrap();
    assert_eq!(notes, Vec::<String>::new());
    assert_eq!((manifest.name.as_str(), manifest.kind), ("XOR", PluginKind::Scheme));
    assert_eq!(manifest.format, Format { id: "striping".to_owned(), oldest: 1, newest: 3 });
    assert_eq!(manifest.capabilities.tolerates.as_deref(), Some("LOSSES"));
    assert_eq!(manifest.options.len(), 4);
    let chunk = manifest.option("chunk").unwrap();
    assert_eq!((chunk.default.as_deref(), chunk.min, chunk.max), (Some("1048576"), Some(4096), None));
    assert_eq!(manifest.option("VERIFY").unwrap().default.as_deref(), Some("1"));
    assert!(manifest.is_called("xor") && !manifest.is_called("xo"));
}

#[test]
fn the_least_a_manifest_needs_is_five_lines() {
    let text =
        "name = \"SYNC\"\nkind = \"transport\"\nversion = \"1\"\nabi = \"1.0\"\nlibrary = \"/opt/a.so\"\n";
    let (manifest, _) = parse(text).unwrap();
    assert_eq!(manifest.format, Format { id: "sync".to_owned(), oldest: 1, newest: 1 });
    assert_eq!((manifest.capabilities, manifest.options), (Capabilities::default(), Vec::new()));
    assert_eq!(manifest.library, "/opt/a.so");
}

#[test]
fn a_format_may_be_one_number() {
    let text = with("[format]\nid = \"striping\"\noldest = 1\nnewest = 3", "");
    let (manifest, _) = parse(&format!("format = 7\n{text}")).unwrap();
    assert_eq!(manifest.format, Format { id: "xor".to_owned(), oldest: 7, newest: 7 });
}

#[test]
fn unknown_keys_are_reported_with_their_line_and_the_nearest_known_name() {
    for (line, instead, note) in [
        (
            "description",
            "descripton",
            "/p/xor.toml:6: the unknown key `descripton' is ignored; did you mean `description'?",
        ),
        (
            "tolerates",
            "tolerate",
            "/p/xor.toml:14: the unknown key `tolerate' is ignored; did you mean `tolerates'?",
        ),
        ("help = \"How many\"", "colour = 1", "/p/xor.toml:22: the unknown key `colour' is ignored"),
        ("id = ", "family = ", "/p/xor.toml:9: the unknown key `family' is ignored"),
        (
            "[[option]]\nname = \"VERIFY\"",
            "[[options]]\nname = \"VERIFY\"",
            "/p/xor.toml:30: the unknown key `options' is ignored; did you mean `option'?",
        ),
    ] {
        // The last option is there twice as [[option]] and as [[options]] in the last case.
        let (_, notes) = parse(&with(line, instead)).unwrap();
        assert!(notes.iter().any(|found| found == note), "{notes:?} has no {note}");
    }
}

#[test]
fn every_mistake_is_named_with_file_and_line() {
    for (line, instead, error) in [
        ("name = \"XOR\"", "name = 7", "1: `name`: invalid type: integer `7`, expected a string"),
        ("name = \"XOR\"", "name = \"\"", "1: `name`: `' should be 1 to 64 letters, digits, `_', `-' or `.'"),
        ("name = \"XOR\"", "name = \"X OR\"", "1: `name`: `X OR' should be 1 to 64 letters, digits, `_', `-' or `.'"),
        ("name = \"XOR\"\n", "", "1: missing field `name`"),
        ("kind = \"scheme\"", "kind = \"sceme\"", "2: `kind`: unknown variant `sceme`, expected one of `scheme`, `transport`, `log`"),
        ("kind = \"scheme\"", "", "1: missing field `kind`"),
        ("version = \"1.2.0\"", "version = 1.2", "3: `version`: invalid type: floating point `1.2`, expected a string"),
        ("version = \"1.2.0\"", "version = \"\"", "3: `version`: `' should be a line of text"),
        ("abi = \"1.0\"", "abi = \"one\"", "4: `abi`: `one' should be two numbers with a dot, such as \"1.0\""),
        ("abi = \"1.0\"", "abi = \"1\"", "4: `abi`: `1' should be two numbers with a dot, such as \"1.0\""),
        ("abi = \"1.0\"", "abi = \"99999999999.0\"", "4: `abi`: `99999999999.0' should be two numbers with a dot, such as \"1.0\""),
        ("\"libscr_xor.so\"", "\"../libscr_xor.so\"", "5: `library`: `../libscr_xor.so' should be a file name without folders, or an absolute path"),
        ("\"libscr_xor.so\"", "\"\"", "5: `library`: `' should be a file name without folders, or an absolute path"),
        ("description = \"Parity\"", "description = \"a\\nb\"", "6: `description`: `a\\nb' should be a line of text"),
        ("[format]\nid = \"striping\"\noldest = 1\nnewest = 3", "format = \"3\"", "8: `format`: invalid type: string \"3\", expected a table, or a number from 1 on"),
        ("newest = 3", "newest = 0", "11: `format.newest`: invalid value: integer `0`, expected a nonzero u32"),
        ("newest = 3\n", "", "8: `format`: missing field `newest`"),
        ("oldest = 1", "oldest = 9", "11: `newest' is `3', and should be at least `oldest', which is 9"),
        ("oldest = 1", "oldest = -1", "10: `format.oldest`: invalid value: integer `-1`, expected a nonzero u32"),
        ("oldest = 1", "oldest = 99999999999999999999", "10: `format.oldest`: invalid type: integer `99999999999999999999` as i128, expected a nonzero u32"),
        ("tolerates = \"LOSSES\"", "tolerates = [1]", "14: `capabilities.tolerates`: invalid type, expected a text, a whole number, or true or false"),
        ("tolerates = \"LOSSES\"", "asynchronous = 1", "14: `capabilities.asynchronous`: invalid type: integer `1`, expected a boolean"),
        ("type = \"integer\"", "type = \"int\"", "18: `option.type`: unknown variant `int`, expected one of `integer`, `size`, `boolean`, `text`"),
        ("type = \"integer\"\n", "", "16: `option`: missing field `type`"),
        ("default = 1\n", "default = 0\n", "19: `default' is `0', and should be a whole number from 1 to 8"),
        ("default = 1\n", "default = \"x\"\n", "19: `default' is `x', and should be a whole number from 1 to 8"),
        ("max = 8", "max = 0", "21: `max' is `0', and should be at least `min', which is 1"),
        ("min = \"4kb\"", "min = \"4 apples\"", "28: `min' is `4 apples', and should be a bound of a number of bytes, such as 131072, 128KB or 1GB,"),
        ("name = \"CHUNK\"", "name = \"losses\"", "25: `name' is `losses', and should be the name of no other option"),
        ("choices = [\"Cauchy\", \"Vandermonde\"]", "choices = \"Cauchy\"", "38: `option.choices`: invalid type: string \"Cauchy\", expected a sequence"),
        ("choices = [\"Cauchy\", \"Vandermonde\"]", "choices = [1]", "38: `option.choices`: invalid type: integer `1`, expected a string"),
        ("default = true", "default = \"maybe\"", "33: `default' is `maybe', and should be 0 or 1"),
    ] {
        assert_eq!(parse(&with(line, instead)).unwrap_err(), format!("/p/xor.toml:{error}"), "{instead}");
    }
}

#[test]
fn invalid_toml_is_an_error_with_its_line() {
    for (text, line) in [
        ("name = \"XOR\"\nkind = scheme\n", 2),
        ("name = \"XOR", 1),
        ("\n\n[format\n", 3),
        ("name = \"A\"\nname = \"B\"\n", 2),
        ("\u{7f}ELF\0\0", 1),
        ("{ \"name\": \"XOR\" }", 1),
        ("option = [1, 2", 1),
    ] {
        let error = parse(text).unwrap_err();
        assert!(
            error.starts_with(&format!("/p/xor.toml:{line}: ")) && !error.contains('\n'),
            "{text:?}: {error}"
        );
    }
    assert!(parse("").unwrap_err().contains("missing field `name`"));
    let nested = format!("a = {}1{}", "[".repeat(10_000), "]".repeat(10_000));
    assert!(parse(&nested).is_err());
}

#[test]
fn options_that_are_no_tables_are_refused() {
    let start = with("[[option]]", "[[xoption]]").replace("[[option]]", "[[xoption]]");
    for option in ["option = 1", "option = \"A\"", "option = [1]", "[option]\nname = \"A\""] {
        let text =
            if option.starts_with('[') { format!("{start}\n{option}") } else { format!("{option}\n{start}") };
        assert!(parse(&text).unwrap_err().contains("`option`: invalid type"), "{option}");
    }
}

#[test]
fn a_manifest_cut_anywhere_gives_an_error_or_less_but_never_a_panic() {
    for end in 0..FULL.len() {
        let _ = parse(&FULL[..end]);
        let mut bytes = FULL.as_bytes().to_vec();
        bytes[end] ^= 0x15;
        if let Ok(text) = String::from_utf8(bytes) {
            let _ = parse(&text);
        }
    }
}
