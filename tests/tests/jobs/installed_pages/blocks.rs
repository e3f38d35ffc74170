//! The fenced blocks of a page, and the words after the language in their first lines.
//!
//! | first line | treatment of the block |
//! |---|---|
//! | `sh run` | its commands run, and each succeeds |
//! | `console` | its commands, after `$`, run; the other lines are in their output, in this order, `...` for anything |
//! | `conf` | `scr config --check` finds no mistake in it |
//! | `c file=app.c` | it is written to that file |
//! | `text shown: reason` | a reader looks at it; of commands of scr the options are checked |
//!
//! All commands of a page run in one shell, in the order of the page. A renderer shows only the language.

use std::path::Path;

pub(crate) struct Block {
    /// Page and line.
    pub(crate) place: String,
    pub(crate) text: String,
    pub(crate) class: Class,
}

pub(crate) enum Class {
    Run,
    Console,
    Conf { file: Option<String> },
    File(String),
    Shown { shell: bool },
}

/// The blocks of a page, or what is wrong with a fence of one.
pub(crate) fn blocks_of(page: &Path) -> Vec<Result<Block, String>> {
    let text = std::fs::read_to_string(page).expect("a page can be read");
    let mut lines = text.lines().zip(1..);
    let mut blocks = Vec::new();
    while let Some((line, number)) = lines.next() {
        let Some(info) = line.trim_start().strip_prefix("```") else { continue };
        let indent = line.len() - line.trim_start().len();
        let mut is_closed = false;
        let inside = lines.by_ref().map(|(line, _)| line).take_while(|line| {
            is_closed = line.trim() == "```";
            !is_closed
        });
        let text = inside.map(|line| line.get(indent..).unwrap_or("").to_owned() + "\n").collect();
        let place = format!("{}:{number}", page.display());
        let class = class_of(info).ok_or_else(|| format!("{place}: what is `{info}'?"));
        // A fence at the end of a line is none, and the rest of the page is taken for the block.
        let class = if is_closed { class } else { Err(format!("{place}: the block has no end")) };
        blocks.push(class.map(|class| Block { place, text, class }));
    }
    blocks
}

fn class_of(info: &str) -> Option<Class> {
    let (language, class) = info.split_once(' ').unwrap_or((info, ""));
    let file = class.strip_prefix("file=").map(str::to_owned);
    match (language, class) {
        ("console", "") => Some(Class::Console),
        ("sh", "run") => Some(Class::Run),
        ("conf", _) if class.is_empty() || file.is_some() => Some(Class::Conf { file }),
        _ if file.is_some() => file.map(Class::File),
        _ => class.strip_prefix("shown: ").map(|_| Class::Shown { shell: language == "sh" }),
    }
}

impl Block {
    /// The commands that a shell runs for this block.
    pub(crate) fn script(&self) -> String {
        match &self.class {
            Class::Run => format!("set -e\n{}", self.text),
            Class::Console => {
                let commands = self.text.lines().filter_map(|line| line.strip_prefix("$ "));
                commands.fold("set +e\n".to_owned(), |script, command| script + command + "\n")
            }
            Class::Conf { file: None } => {
                // The text of the page before the block says it.
                let scheme = if self.text.contains("CKPT=") { "SCR_COPY_TYPE=FILE\n" } else { "" };
                let cache = if self.text.contains("SCR_CACHE_BYPASS=") { "" } else { "SCR_CACHE_BYPASS=0\n" };
                let text = format!("{cache}{scheme}{}", self.text);
                format!("set -e\n{}{CHECK}", written_to("page.conf", &text))
            }
            Class::Conf { file: Some(name) } | Class::File(name) => written_to(name, &self.text),
            Class::Shown { shell: true } => self.text.lines().filter_map(options_checked).collect(),
            Class::Shown { shell: false } => String::new(),
        }
    }

    /// The first line of output that the page shows and that is not there. Lines of several ranks come in any order.
    pub(crate) fn missing_from(&self, output: &str) -> Option<&str> {
        let mut left: Vec<&str> = output.lines().collect();
        let shown = self.text.lines().filter(|line| !line.starts_with("$ "));
        let mut shown = shown.filter(|_| matches!(self.class, Class::Console));
        shown.find(|line| match left.iter().position(|out| is_like(out, line)) {
            Some(at) => {
                left.remove(at);
                false
            }
            None => true,
        })
    }
}

/// Whether a line of output is the one that a page shows, where `...` stands for what is not the same every time.
fn is_like(line: &str, shown: &str) -> bool {
    let (first, others) = shown.split_once("...").unwrap_or((shown, ""));
    let Some(rest) = line.strip_prefix(first) else { return false };
    if first == shown {
        return rest.is_empty();
    }
    let mut parts = others.split("...");
    parts.try_fold(rest, |rest, part| rest.split_once(part).map(|(_, after)| after)).is_some()
}

fn written_to(file: &str, text: &str) -> String {
    format!("cat >{file} <<'END OF BLOCK'\n{text}END OF BLOCK\n")
}

/// This machine may lack the folders of a page.
const CHECK: &str = "\
if scr config --system --check page.conf | grep -v -e 'there is no folder' -e 'page.conf: '; then exit 1; fi
";

/// A command that nobody runs, with `--help` at its end: it fails if it has an option that is not there.
fn options_checked(line: &str) -> Option<String> {
    let command = line.split(" #").next().unwrap_or(line);
    let is_checked = command.starts_with("scr ") && !command.starts_with("scr run ");
    is_checked.then(|| format!("set -e\n{command} --help\n"))
}
