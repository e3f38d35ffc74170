//! The print of a tree for people: one key per line, indented by two blanks per level, the first level too.
//!
//! It equals the output of C SCR's print commands, byte for byte, so scripts that read it continue to work.

use super::KvTree;
use std::fmt;

impl KvTree {
    /// The print, with every key's bytes as they are.
    pub fn to_text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        self.print_into(&mut text, 1);
        text
    }

    fn print_into(&self, text: &mut Vec<u8>, depth: usize) {
        for (key, below) in self.iter() {
            text.extend(std::iter::repeat_n(b' ', 2 * depth));
            text.extend_from_slice(key);
            text.push(b'\n');
            below.print_into(text, depth + 1);
        }
    }
}

/// The print as text; bytes that are not UTF-8 show as replacement characters.
impl fmt::Display for KvTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.to_text()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_is_indented_by_two_more_blanks() {
        let mut tree = KvTree::new();
        tree.entry("RANK", 0).set("FILES", 2);
        tree.child("END");
        assert_eq!(tree.to_string(), "  RANK\n    0\n      FILES\n        2\n  END\n");
    }

    #[test]
    fn a_name_that_is_not_utf8_keeps_its_bytes_in_the_print() {
        let mut tree = KvTree::new();
        tree.child(b"a\xffb");
        assert_eq!(tree.to_text(), b"  a\xffb\n");
        assert_eq!(tree.to_string(), "  a\u{fffd}b\n");
    }

    #[test]
    fn an_empty_tree_prints_nothing() {
        assert_eq!(KvTree::new().to_string(), "");
    }
}
