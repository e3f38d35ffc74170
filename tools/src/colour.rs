//! Colours for a terminal that has them. `NO_COLOR` turns them off, as everywhere.

use std::io::IsTerminal;

/// Whether standard output or standard error may have colours.
pub(crate) fn has(stream: &impl IsTerminal) -> bool {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    stream.is_terminal() && variable("NO_COLOR").is_empty() && variable("TERM") != "dumb"
}

/// In bold letters.
pub(crate) fn bold(text: &str) -> String {
    painted("1", text)
}

/// A table: its head is bold, and a verdict at the beginning of a line has its colour.
pub(crate) fn table(text: &str, has_head: bool) -> String {
    let lines = text.split_inclusive('\n').enumerate();
    let lines = lines.map(|(number, line)| match line.strip_suffix('\n') {
        Some(head) if has_head && number == 0 => bold(head) + "\n",
        _ => verdict(line),
    });
    lines.collect()
}

/// The words that tables of checks begin with.
fn verdict(line: &str) -> String {
    const VERDICTS: [(&str, &str); 3] = [("good", "32"), ("note", "33"), ("BAD", "1;31")];
    let found = VERDICTS.iter().find_map(|(word, colour)| {
        let rest = line.strip_prefix(word).filter(|rest| rest.starts_with(' '))?;
        Some(painted(colour, word) + rest)
    });
    found.unwrap_or_else(|| line.to_owned())
}

fn painted(colour: &str, text: &str) -> String {
    format!("\x1b[{colour}m{text}\x1b[0m")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_is_bold_and_verdicts_have_colours() {
        assert_eq!(table("A  B\ngood  x\n", true), "\x1b[1mA  B\x1b[0m\n\x1b[32mgood\x1b[0m  x\n");
        assert_eq!(table("BAD   good\ngoods  x\n", false), "\x1b[1;31mBAD\x1b[0m   good\ngoods  x\n");
    }
}
