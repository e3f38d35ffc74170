//! The answer of a command.
use serde_json::Value;
use std::process::Output;

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

pub(crate) fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Its messages, each on a line.
pub(crate) fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap().replace("\n    ", " ")
}

pub(crate) fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", out(output)))
}

/// Every element is closed in order. Those that have no end are few.
pub(crate) fn assert_balanced(page: &str) {
    let mut open = Vec::new();
    for tag in page.split('<').skip(1).filter_map(|rest| rest.split('>').next()) {
        let name = tag.split([' ', '/']).find(|part| !part.is_empty()).unwrap_or_default();
        match tag {
            _ if tag.starts_with('!') || ["meta"].contains(&name) || tag.ends_with('/') => (),
            _ if tag.starts_with('/') => assert_eq!(open.pop(), Some(name), "{tag}"),
            _ => open.push(name),
        }
    }
    assert_eq!(open, [""; 0]);
}
