//! Tables: the columns under each other, and not wider than the terminal.
//!
//! A table that is too wide for the terminal is made narrower without losing text. The last column is wrapped where it
//! has room enough. Otherwise a column that has the same text in every row becomes a line above the table, and last
//! cells that still do not fit stand on lines of their own. What is left is wrapped in the widest columns. A table that
//! goes to a file or a pipe has one line for each row.

use crate::output::on_one_line;
use std::io::IsTerminal;

/// Rows of cells, with or without a head.
#[derive(Debug, Default)]
pub(crate) struct Table {
    has_head: bool,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with a head for each column. One without rows is empty text.
    pub(crate) fn with_head(head: &[&str]) -> Self {
        Self { has_head: true, rows: vec![head.iter().map(|&text| text.to_owned()).collect()] }
    }

    /// Adds a row, which has as many cells as the others.
    pub(crate) fn row<T: ToString>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(|cell| on_one_line(&cell.to_string())).collect());
    }

    /// The table for standard output.
    pub(crate) fn text(&self) -> String {
        self.layout(terminal_width())
    }

    /// The table in this width, where there is a limit.
    fn layout(&self, limit: Option<usize>) -> String {
        if self.rows.len() <= usize::from(self.has_head) {
            return String::new();
        }
        let mut layout =
            Layout { has_head: self.has_head, rows: self.rows.clone(), widths: Vec::new(), indent: None };
        let above = limit.map(|limit| layout.fit(limit)).unwrap_or_default();
        layout.measure_if_new();
        above + &layout.rows.iter().map(|row| layout.line(row, limit)).collect::<String>()
    }
}

/// The width of the terminal that standard output goes to.
fn terminal_width() -> Option<usize> {
    let stdout = std::io::stdout();
    let size = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(&stdout).ok()).flatten();
    size.map(|size| usize::from(size.ws_col)).filter(|&width| width > 0)
}

const GAP: usize = 2;
/// A last column with less room than this is hard to read.
const LEAST_LAST: usize = 24;
const LEAST_WIDTH: usize = 8;
/// How far the lines of a last cell stand from the margin that has no room in its column.
const INDENT: usize = 4;

/// A table on its way into a width.
struct Layout {
    has_head: bool,
    rows: Vec<Vec<String>>,
    /// Of all columns but the last.
    widths: Vec<usize>,
    /// Where a last cell begins that does not fit into its line; `None` for its column.
    indent: Option<usize>,
}

impl Layout {
    /// Makes the table narrower where it has to be, and gives the lines that stand above it now.
    fn fit(&mut self, limit: usize) -> String {
        self.measure();
        let longest = self.rows.iter().filter_map(|row| row.last()).map(|cell| length(cell)).max();
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
            while self.last_column() > limit + GAP {
                let Some(widest) = self.widths.iter_mut().max().filter(|width| **width > LEAST_WIDTH) else {
                    break;
                };
                *widest -= 1;
            }
        }
        above
    }

    /// Takes out a column that has the same text in every row, and gives that text as a line.
    fn take_uniform(&mut self, column: usize) -> Option<String> {
        let (head, first) = (self.rows.first()?, self.rows.get(1)?);
        let is_uniform = self.has_head
            && self.rows.len() > 2
            && self.rows[1..].iter().all(|row| row.get(column) == first.get(column));
        let line = format!("{}: {}\n", head.get(column)?, first.get(column)?);
        let is_empty = first[column].is_empty();
        if !is_uniform {
            return None;
        }
        self.rows.iter_mut().for_each(|row| drop(row.remove(column)));
        self.measure();
        Some(if is_empty { String::new() } else { line })
    }

    fn columns(&self) -> usize {
        self.rows.first().map_or(0, Vec::len)
    }

    fn measure(&mut self) {
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| length(cell)).max().unwrap_or(0)
        };
        self.widths = (0..self.columns().saturating_sub(1)).map(width).collect();
    }

    fn measure_if_new(&mut self) {
        if self.widths.is_empty() {
            self.measure();
        }
    }

    /// Where the last column begins.
    fn last_column(&self) -> usize {
        self.widths.iter().map(|width| width + GAP).sum()
    }

    /// The lines of a row.
    fn line(&self, row: &[String], limit: Option<usize>) -> String {
        let Some((last, cells)) = row.split_last() else { return "\n".to_owned() };
        let mut wrapped: Vec<_> =
            cells.iter().zip(&self.widths).map(|(cell, &width)| wrap(cell, width)).collect();
        let start = self.last_column();
        let fits = limit.is_none_or(|limit| start + length(last) <= limit);
        let below = match (limit, self.indent) {
            _ if fits => vec![last.clone()],
            (Some(limit), None) => wrap(last, limit.saturating_sub(start)),
            (Some(limit), Some(indent)) => wrap(last, limit.saturating_sub(indent)),
            (None, _) => vec![last.clone()],
        };
        let own_lines = self.indent.filter(|_| !fits);
        wrapped.push(if own_lines.is_some() { Vec::new() } else { below.clone() });
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

/// The text in lines of a width: broken at blanks, or anywhere in a longer word.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(LEAST_WIDTH);
    let mut rest: Vec<char> = text.chars().collect();
    let mut lines = Vec::new();
    while rest.len() > width {
        let at = rest[..=width].iter().rposition(|c| *c == ' ').filter(|&at| at > 0).unwrap_or(width);
        let next = rest.split_off(at);
        lines.push(rest.iter().collect::<String>());
        rest = next.into_iter().skip_while(|c| *c == ' ').collect();
    }
    lines.push(rest.into_iter().collect());
    lines
}

fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(head: &[&str], rows: &[&[&str]]) -> Table {
        let mut table = if head.is_empty() { Table::default() } else { Table::with_head(head) };
        rows.iter().for_each(|row| table.row(row.iter()));
        table
    }

    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_blanks() {
        let table = table(&[], &[&["a", "bb", "c"], &["dddd", "", "e\nf"]]);
        assert_eq!(table.layout(None), "a     bb  c\ndddd      e\\nf\n");
        assert_eq!(table.layout(Some(80)), table.layout(None));
        assert_eq!(Table::with_head(&["NAME"]).layout(None), "", "nobody needs a head without rows");
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
        assert_eq!(table.layout(Some(30)), text);
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
    /a/path/that/has/more/than
    /thirty/characters
10:00:01  END   done
";
        assert_eq!(table.layout(Some(30)), text);
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_and_no_text_is_lost() {
        let words = ["a", "somewhat-longer", "a very much longer text with blanks in it", "/p/q/r", "9"];
        let rows: Vec<Vec<&str>> =
            (0..5).map(|shift| (0..5).map(|column| words[(shift + column) % 5]).collect()).collect();
        let rows: Vec<&[&str]> = rows.iter().map(Vec::as_slice).collect();
        let table = table(&["A", "B", "C", "D", "E"], &rows);
        for width in 50..200 {
            let text = table.layout(Some(width));
            assert!(text.lines().all(|line| length(line) <= width), "{width}:\n{text}");
            let letters = |text: &str| {
                let mut letters: Vec<_> = text.chars().filter(|c| !c.is_whitespace()).collect();
                letters.sort_unstable();
                letters
            };
            assert_eq!(letters(&text), letters(&table.layout(None)), "{width}");
        }
    }
}
