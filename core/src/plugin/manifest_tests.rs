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
            "/p/xor.toml:6: unknown key `descripton' is ignored; did you mean `description'?",
        ),
        (
            "tolerates",
            "tolerate",
            "/p/xor.toml:14: unknown key `capabilities.tolerate' is ignored; did you mean `tolerates'?",
        ),
        ("help = \"How many\"", "colour = 1", "/p/xor.toml:22: unknown key `option.colour' is ignored; known are name, type, default, min, max, choices, help"),
        ("id = ", "family = ", "/p/xor.toml:9: unknown key `format.family' is ignored; known are id, oldest, newest"),
        (
            "[[option]]\nname = \"VERIFY\"",
            "[[options]]\nname = \"VERIFY\"",
            "/p/xor.toml:30: unknown key `options' is ignored; did you mean `option'?",
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
        ("name = \"XOR\"", "name = 7", "1: `name' is 7; it must be 1 to 64 letters, digits, `_', `-' or `.'"),
        ("name = \"XOR\"", "name = \"\"", "1: `name' is \"\"; it must be 1 to 64 letters, digits, `_', `-' or `.'"),
        ("name = \"XOR\"", "name = \"X OR\"", "1: `name' is \"X OR\"; it must be 1 to 64 letters, digits, `_', `-' or `.'"),
        ("name = \"XOR\"\n", "", "1: the key `name' is missing: 1 to 64 letters, digits, `_', `-' or `.'"),
        ("kind = \"scheme\"", "kind = \"sceme\"", "2: `kind' is \"sceme\"; it must be one of scheme, transport, log"),
        ("kind = \"scheme\"", "", "1: the key `kind' is missing: one of scheme, transport, log"),
        ("version = \"1.2.0\"", "version = 1.2", "3: `version' is 1.2; it must be a line of text"),
        ("version = \"1.2.0\"", "version = \"\"", "3: `version' is \"\"; it must be a line of text"),
        ("abi = \"1.0\"", "abi = \"one\"", "4: `abi' is \"one\"; it must be two numbers with a dot, such as \"1.0\""),
        ("abi = \"1.0\"", "abi = \"1\"", "4: `abi' is \"1\"; it must be two numbers with a dot, such as \"1.0\""),
        ("abi = \"1.0\"", "abi = \"99999999999.0\"", "4: `abi' is \"99999999999.0\"; it must be two numbers with a dot, such as \"1.0\""),
        ("\"libscr_xor.so\"", "\"../libscr_xor.so\"", "5: `library' is \"../libscr_xor.so\"; it must be a file name without folders, or an absolute path"),
        ("\"libscr_xor.so\"", "\"\"", "5: `library' is \"\"; it must be a file name without folders, or an absolute path"),
        ("description = \"Parity\"", "description = \"a\\nb\"", "6: `description' is \"a\\nb\"; it must be a line of text"),
        ("[format]\nid = \"striping\"\noldest = 1\nnewest = 3", "format = \"3\"", "8: `format' is \"3\"; it must be a table, or a number from 1 on"),
        ("newest = 3", "newest = 0", "11: `format.newest' is 0; it must be a whole number from 1 to 4294967295"),
        ("newest = 3\n", "", "8: the key `format.newest' is missing: a whole number from 1 to 4294967295"),
        ("oldest = 1", "oldest = 9", "11: `format.newest' is 3; it must be at least `oldest', which is 9"),
        ("oldest = 1", "oldest = -1", "10: `format.oldest' is -1; it must be a whole number from 1 to 4294967295"),
        ("oldest = 1", "oldest = 99999999999999999999", "10: `format.oldest' is 99999999999999999999; it must be a whole number from 1 to 4294967295"),
        ("tolerates = \"LOSSES\"", "tolerates = [1]", "14: `capabilities.tolerates' is [1]; it must be a name or a number"),
        ("tolerates = \"LOSSES\"", "asynchronous = 1", "14: `capabilities.asynchronous' is 1; it must be true or false"),
        ("type = \"integer\"", "type = \"int\"", "18: `option.type' is \"int\"; it must be one of integer, size, boolean, text"),
        ("type = \"integer\"\n", "", "16: the key `option.type' is missing: one of integer, size, boolean, text"),
        ("default = 1\n", "default = 0\n", "19: `option.default' is 0; it must be a whole number from 1 to 8"),
        ("default = 1\n", "default = \"x\"\n", "19: `option.default' is \"x\"; it must be a whole number from 1 to 8"),
        ("max = 8", "max = 0", "21: `option.max' is 0; it must be at least `min', which is 1"),
        ("min = \"4kb\"", "min = \"4 apples\"", "28: `option.min' is \"4 apples\"; it must be a bound of a number of bytes, such as 131072, 128KB or 1GB,"),
        ("name = \"CHUNK\"", "name = \"losses\"", "25: `option.name' is \"losses\"; it must be the name of no other option"),
        ("choices = [\"Cauchy\", \"Vandermonde\"]", "choices = \"Cauchy\"", "38: `option.choices' is \"Cauchy\"; it must be a list of texts"),
        ("choices = [\"Cauchy\", \"Vandermonde\"]", "choices = [1]", "38: `option.choices' is [1]; it must be a list of texts"),
        ("default = true", "default = \"maybe\"", "33: `option.default' is \"maybe\"; it must be 0 or 1"),
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
    assert!(parse("").unwrap_err().contains("the key `name' is missing"));
    let nested = format!("a = {}1{}", "[".repeat(10_000), "]".repeat(10_000));
    assert!(parse(&nested).is_err());
}

#[test]
fn options_that_are_no_tables_are_refused() {
    let start = with("[[option]]", "[[xoption]]").replace("[[option]]", "[[xoption]]");
    for option in ["option = 1", "option = \"A\"", "option = [1]", "[option]\nname = \"A\""] {
        let text =
            if option.starts_with('[') { format!("{start}\n{option}") } else { format!("{option}\n{start}") };
        assert!(parse(&text).unwrap_err().contains("it must be tables [[option]]"), "{option}");
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
