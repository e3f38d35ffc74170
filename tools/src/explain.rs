//! `scr explain`: what a message means, and what is to be done.

use crate::prelude::*;
use crate::table::{output_columns, wrap};
use scr_base::codes::{entries, Entry};

#[derive(Args)]
pub(crate) struct ExplainArgs {
    /// A code such as SCR-112, or a message that was printed
    #[arg(required = true)]
    message: Vec<String>,
}

/// Prints the entry of a code or message.
pub(crate) fn run(args: &ExplainArgs) -> Result<Answer> {
    let text = args.message.join(" ");
    // The last words of a message are its code.
    let upper = text.to_ascii_uppercase();
    let code = upper.rsplit_once("SCR-").map_or(&*upper, |(_, code)| code.trim_end_matches(']'));
    let is_code = !code.is_empty() && code.bytes().all(|digit| digit.is_ascii_digit());
    let entry = match is_code {
        true => entries().find(|entry| entry.code.strip_prefix("SCR-") == Some(code)),
        false => Entry::of("", &text),
    };
    let Some(Entry { code, head, means, cure }) = entry else {
        warn(match is_code {
            true => "there is no message of this code in this release",
            false => "no entry has these words; a message without a code says everything itself",
        });
        return Ok(Answer::No);
    };
    let paragraphs = [&format!("{code} {head}"), &format!("Means: {means}"), &format!("To do: {cure}")];
    let columns = output_columns().min(100);
    print_lines(paragraphs.into_iter().flat_map(|text| wrap(&text.replace('\n', " "), columns)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_of_a_message_is_found_by_code_and_by_words() {
        let of = |words: &str| run(&ExplainArgs { message: vec![words.to_owned()] }).unwrap();
        for known in [
            "SCR-112",
            "scr-112",
            "112",
            "SCR v1.0.0 WARNING: rank 0 on n0: a:1: there is no parameter SCR_X [SCR-112]",
        ] {
            assert_eq!(of(known), Answer::Yes, "{known}");
        }
        assert_eq!([of("SCR-999"), of("SCR-12"), of("all is well")], [Answer::No; 3]);
    }
}
