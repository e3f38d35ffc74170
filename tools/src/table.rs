//! Tables: the columns under each other, and not wider than the terminal.
//!
//! A table that is too wide is made narrower without losing text. The last column is wrapped where it has room enough.
//! Otherwise a column that has the same text in every row becomes a line above the table, and last cells that still do
//! not fit stand on lines of their own. Then the widest columns are wrapped. A word is never broken, so that a path can be
//! copied: after one that is wider than its column, the other cells of the row continue in their columns below it.

use crate::colour;
use crate::output::on_one_line;
use std::borrow::Cow;
use std::io::IsTerminal;

/// Rows of cells, with or without a head.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    has_head: bool,
    /// The first is the head, if it has one.
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    /// A table of these rows, with a head for each column or without any. One without rows is empty text.
    pub(crate) fn of<R: IntoIterator<Item: ToString>>(
        head: &[&str],
        rows: impl IntoIterator<Item = R>,
    ) -> Self {
        let cells =
            |row: R| -> Vec<String> { row.into_iter().map(|cell| on_one_line(&cell.to_string())).collect() };
        let has_head = !head.is_empty();
        let head = has_head.then(|| head.iter().map(|&text| text.to_owned()).collect());
        Self { has_head, rows: head.into_iter().chain(rows.into_iter().map(cells)).collect() }
    }

    /// The table for standard output.
    pub(crate) fn text(&self) -> String {
        let text = self.layout(output_columns());
        match colour::has(&std::io::stdout()) {
            true => colour::table(&text, self.has_head),
            false => text,
        }
    }

    /// The table in this width.
    pub(crate) fn layout(&self, limit: usize) -> String {
        if self.rows.len() <= usize::from(self.has_head) {
            return String::new();
        }
        let mut layout = Layout { table: self.clone(), widths: Vec::new(), indent: None, limit };
        let above = layout.fit();
        above + &layout.table.rows.iter().map(|row| layout.line(row)).collect::<String>()
    }
}

/// The columns of a line: those of the terminal that standard output goes to; otherwise what `COLUMNS` says, or else no limit, so
/// that a script finds each row on one line.
pub(crate) fn output_columns() -> usize {
    let stdout = std::io::stdout();
    let size = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(&stdout).ok()).flatten();
    let terminal = size.map(|size| usize::from(size.ws_col)).filter(|&columns| columns > 0);
    let wanted = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    terminal.or(wanted.filter(|&columns| columns > 0)).unwrap_or(usize::MAX)
}

const GAP: usize = 2;
/// A last column with less room than this is hard to read.
const LEAST_LAST: usize = 24;
const LEAST_WIDTH: usize = 8;
/// How far the lines of a last cell stand from the margin that has no room in its column.
const INDENT: usize = 4;

/// A table on its way into a width.
struct Layout {
    table: Table,
    /// The widths of all columns but the last.
    widths: Vec<usize>,
    /// The start of a last cell that does not fit into its line; `None` for its column.
    indent: Option<usize>,
    /// The columns that a line may have.
    limit: usize,
}

impl Layout {
    /// Makes the table narrower where it has to be, and gives the lines that stand above it now.
    fn fit(&mut self) -> String {
        let limit = self.limit;
        self.measure();
        let longest = self.table.rows.iter().filter_map(|row| row.last()).map(|cell| length(cell)).max();
        let longest = longest.unwrap_or(0);
        let fits = |layout: &Self| layout.last_column() + longest.min(LEAST_LAST) <= limit;
        let mut above = String::new();
        let mut column = 0;
        while !fits(self) && column + 1 < self.columns() {
            match self.take_uniform(column) {
                Some(line) => above += &line,
                None => column += 1,
            }
        }
        if !fits(self) {
            self.indent = Some(INDENT);
            let least: Vec<_> = (0..self.widths.len()).map(|column| self.least(column)).collect();
            while self.last_column() > limit + GAP {
                let wide = self.widths.iter_mut().zip(&least).filter(|(width, least)| **width > **least);
                let Some((widest, _)) = wide.max() else { break };
                *widest -= 1;
            }
        }
        above
    }

    /// Takes out a column that has the same text in every row, and gives that text as a line.
    fn take_uniform(&mut self, column: usize) -> Option<String> {
        let (head, first) = (self.table.rows.first()?, self.table.rows.get(1)?);
        let is_uniform = self.table.has_head
            && self.table.rows.len() > 2
            && self.table.rows[1..].iter().all(|row| row.get(column) == first.get(column));
        let line = format!("{}: {}\n", head.get(column)?, first.get(column)?);
        let is_empty = first[column].is_empty();
        if !is_uniform {
            return None;
        }
        self.table.rows.iter_mut().for_each(|row| drop(row.remove(column)));
        self.measure();
        Some(if is_empty { String::new() } else { line })
    }

    /// The least width of a column.
    fn least(&self, column: usize) -> usize {
        let words = self.table.rows.iter().filter_map(|row| row.get(column)).flat_map(|cell| cell.split(' '));
        words.map(length).max().unwrap_or(0).min(self.widths[column])
    }

    fn columns(&self) -> usize {
        self.table.rows.first().map_or(0, Vec::len)
    }

    fn measure(&mut self) {
        // A long path does not widen the column of all other rows.
        let most = self.limit / 2;
        let width = |column: usize| {
            let cells = self.table.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| length(cell)).filter(|&length| length <= most).max().unwrap_or(0)
        };
        self.widths = (0..self.columns().saturating_sub(1)).map(width).collect();
    }

    /// The start of the last column.
    fn last_column(&self) -> usize {
        self.widths.iter().map(|width| width + GAP).sum()
    }

    /// Moves cells down that a wider word to their left would move out of their columns.
    fn below_what_stands_out(&self, cells: &mut [Vec<String>]) {
        let mut first = 0;
        for (column, lines) in cells.iter_mut().enumerate() {
            if lines.iter().all(String::is_empty) {
                continue;
            }
            lines.splice(0..0, std::iter::repeat_n(String::new(), first));
            let width = self.widths.get(column).copied().unwrap_or(usize::MAX);
            first = lines.iter().rposition(|line| length(line) > width).map_or(first, |wide| wide + 1);
        }
    }

    /// The lines of a row.
    fn line(&self, row: &[String]) -> String {
        let Some((last, cells)) = row.split_last() else { return "\n".to_owned() };
        let mut wrapped: Vec<_> =
            cells.iter().zip(&self.widths).map(|(cell, &width)| wrap(cell, width)).collect();
        let start = self.last_column();
        let fits = start + length(last) <= self.limit;
        let below =
            wrap(last, self.limit.saturating_sub(if fits { 0 } else { self.indent.unwrap_or(start) }));
        let own_lines = self.indent.filter(|_| !fits);
        wrapped.push(if own_lines.is_some() { Vec::new() } else { below.clone() });
        self.below_what_stands_out(&mut wrapped);
        let height = wrapped.iter().map(Vec::len).max().unwrap_or(0);
        let widths = self.widths.iter().copied().chain([0]);
        let mut text = String::new();
        for at in 0..height {
            let part = |(lines, width): (&Vec<String>, usize)| {
                format!("{:width$}", lines.get(at).map_or("", String::as_str))
            };
            let line: Vec<_> = wrapped.iter().zip(widths.clone()).map(part).collect();
            text += &(line.join(&" ".repeat(GAP)).trim_end().to_owned() + "\n");
        }
        if let Some(indent) = own_lines {
            text.extend(below.iter().map(|line| format!("{:indent$}{line}\n", "")));
        }
        text
    }
}

/// The text in lines of a width, broken at blanks. A longer word is a line of its own.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let at_blanks = textwrap::Options::new(width.max(LEAST_WIDTH))
        .break_words(false)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::wrap(text, at_blanks).into_iter().map(Cow::into_owned).collect()
}

fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(head: &[&str], rows: &[&[&str]]) -> Table {
        Table::of(head, rows.iter().map(|row| row.iter()))
    }

    const UNLIMITED: usize = usize::MAX;

    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_blanks() {
        let table = table(&[], &[&["a", "bb", "c"], &["dddd", "", "e\nf"]]);
        assert_eq!(table.layout(UNLIMITED), "a     bb  c\ndddd      e\\nf\n");
        assert_eq!(table.layout(80), table.layout(UNLIMITED));
        assert_eq!(self::table(&["NAME"], &[]).layout(UNLIMITED), "", "nobody needs a head without rows");
    }

    #[test]
    fn the_last_column_is_wrapped_where_it_has_room_enough() {
        let table = table(&["NAME", "TEXT"], &[&["a", "one two three four five six seven"], &["b", "x"]]);
        let text = "\
NAME  TEXT
a     one two three four five
      six seven
b     x
";
        assert_eq!(table.layout(30), text);
    }

    #[test]
    fn a_constant_column_moves_above_the_table_and_a_wide_last_cell_below_its_row() {
        let long = "/a/path/that/has/more/than/thirty/characters";
        let table = table(
            &["TIME", "JOB", "WHAT", "NOTE"],
            &[&["10:00:00", "5132", "COPY", long], &["10:00:01", "5132", "END", "done"]],
        );
        let text = "\
JOB: 5132
TIME      WHAT  NOTE
10:00:00  COPY
    /a/path/that/has/more/than/thirty/characters
10:00:01  END   done
";
        assert_eq!(table.layout(30), text);
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_and_no_text_is_lost() {
        let words = ["a", "somewhat-longer", "a very much longer text with blanks in it", "/p/q/r", "9"];
        let rows: Vec<Vec<&str>> =
            (0..5).map(|shift| (0..5).map(|column| words[(shift + column) % 5]).collect()).collect();
        let rows: Vec<&[&str]> = rows.iter().map(Vec::as_slice).collect();
        let table = table(&["A", "B", "C", "D", "E"], &rows);
        for width in 80..200 {
            let text = table.layout(width);
            assert!(text.lines().all(|line| length(line) <= width), "{width}:\n{text}");
            let letters = |text: &str| {
                let mut letters: Vec<_> = text.chars().filter(|c| !c.is_whitespace()).collect();
                letters.sort_unstable();
                letters
            };
            assert_eq!(letters(&text), letters(&table.layout(UNLIMITED)), "{width}");
        }
    }

    #[test]
    fn no_word_is_broken() {
        let path = "/a/path/that/has/more/than/thirty/characters";
        let table = table(&["NAME", "TEXT"], &[&["a", &format!("{path} has the words of a sentence")]]);
        let text = format!("NAME  TEXT\na     {path}\n      has the words of a\n      sentence\n");
        assert_eq!(table.layout(30), text);
    }

    #[test]
    fn what_follows_a_word_that_stands_out_keeps_its_column() {
        let path = "/a/path/that/has/more/than/half/of/the/columns";
        let rows: &[&[&str]] = &[&["a", path, "default"], &["b", "1", "default"], &["c", path, ""]];
        let text = format!(
            "NAME  VALUE  FROM\na     {path}\n             default\nb     1      default\nc     {path}\n"
        );
        assert_eq!(table(&["NAME", "VALUE", "FROM"], rows).layout(60), text);
    }
}
