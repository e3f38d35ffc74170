//! `$VAR` and `${VAR}` inside values, and `~/` before paths.
//!
//! Each rank expands with its own variables, since `$SCR_NODE_NAME` differs from node to node. `\$` is a plain `$`,
//! and so is a `$` without a name after it. The content of a variable is not expanded again.

use super::value::Kind;
use scr_base::env::Env;

/// A few that people rely on are known although nobody has set them.
fn value_of<'a>(env: &'a Env, name: &str) -> Option<&'a str> {
    env.variable(name).or(match name {
        "USER" | "LOGNAME" => Some(env.user.as_str()),
        "SCR_NODE_NAME" | "HOSTNAME" => Some(env.host.as_str()),
        _ => None,
    })
}

/// The text with every variable replaced, and the names of those that are not set. They count as empty.
fn expand(env: &Env, text: &str) -> (String, Vec<String>) {
    let mut expanded = String::with_capacity(text.len());
    let mut missing = Vec::new();
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        let (before, after) = rest.split_at(dollar);
        match (before.strip_suffix('\\'), variable(after)) {
            (None, Some((name, tail))) => {
                expanded.push_str(before);
                match value_of(env, name) {
                    Some(value) => expanded.push_str(value),
                    None => missing.push(name.to_string()),
                }
                rest = tail;
            }
            (plain, _) => {
                expanded.push_str(plain.unwrap_or(before));
                expanded.push('$');
                rest = &after[1..];
            }
        }
    }
    expanded.push_str(rest);
    (expanded, missing)
}

/// The same for a path, where `~/` is the home folder, as in a shell.
pub(crate) fn expand_path(env: &Env, path: &str) -> (String, Vec<String>) {
    match path.strip_prefix("~/") {
        Some(below) => expand(env, &format!("${{HOME}}/{below}")),
        None => expand(env, path),
    }
}

/// The same for the value of a parameter of this kind.
pub(crate) fn expand_as(env: &Env, kind: Kind, text: &str) -> (String, Vec<String>) {
    match kind.is_path() {
        true => expand_path(env, text),
        false => expand(env, text),
    }
}

/// The name that a text starting with `$` names, and what comes after it.
fn variable(text: &str) -> Option<(&str, &str)> {
    let (name, tail) = match text.strip_prefix("${") {
        Some(inner) => inner.split_once('}')?,
        None => {
            let plain = text.strip_prefix('$')?;
            let end = plain.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(plain.len());
            plain.split_at(end)
        }
    };
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    (is_name && name.starts_with(|c: char| !c.is_ascii_digit())).then_some((name, tail))
}

#[cfg(test)]
mod tests {
    use super::super::tests::world;
    use super::*;

    fn expand(text: &str) -> (String, Vec<String>) {
        let env = world().with_variable("JOB", "77").with_variable("DOLLAR", "$JOB").env();
        super::expand(&env, text)
    }

    #[test]
    fn variables_are_replaced_with_and_without_braces() {
        assert_eq!(expand("/shm/$JOB/${JOB}x/$JOB"), ("/shm/77/77x/77".to_string(), vec![]));
    }

    #[test]
    fn the_value_of_a_variable_is_not_expanded_again() {
        assert_eq!(expand("$DOLLAR").0, "$JOB");
    }

    #[test]
    fn a_dollar_that_names_nothing_stays() {
        for text in ["$", "a$", "$/b", "${", "${}", "${a b}", "$1", "5$ and 6$", "${JOB"] {
            assert_eq!(expand(text), (text.to_string(), vec![]), "{text}");
        }
        assert_eq!(expand(r"\$JOB is $JOB").0, "$JOB is 77");
    }

    #[test]
    fn the_home_folder_is_known_by_its_sign_in_paths_alone() {
        let known = world().with_variable("HOME", "/home/u").with_variable("JOB", "77").env();
        let of = expand_as;
        assert_eq!(of(&known, Kind::Path, "~/runs/$JOB"), ("/home/u/runs/77".to_string(), vec![]));
        for text in ["/a/~/b", "~user/b", "~", "a~/b"] {
            assert_eq!(of(&known, Kind::Path, text).0, text);
        }
        assert_eq!(of(&known, Kind::Secret, "~/runs").0, "~/runs");
        let unknown = world().env();
        assert_eq!(of(&unknown, Kind::Path, "~/runs"), ("/runs".to_string(), vec!["HOME".to_string()]));
    }

    #[test]
    fn a_variable_that_is_not_set_counts_as_empty_and_is_named() {
        assert_eq!(expand("/a/$NOT_SET/b"), ("/a//b".to_string(), vec!["NOT_SET".to_string()]));
    }

    #[test]
    fn user_and_node_are_known_without_a_variable() {
        assert_eq!(expand("/tmp/$USER/$SCR_NODE_NAME").0, "/tmp/user1/host0");
    }
}
